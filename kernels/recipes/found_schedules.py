"""Schedules that a search found: what is kept of them in the timing table, and the best known one.

In: a sketch, a compute definition, the timings, and a digest of the compiler.  Out: the key of each
point of the sketch's space, and the point with the least measured seconds.  What always holds: a
key differs where the sketch, the definition or the compiler does, so a time that was measured of
other code is never found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.keys import definition_key
from graphflow.kernels.recipes.analysis.variant import KernelVariant, SharedLoops
from graphflow.kernels.recipes.kernel_schedule import kernel_schedule
from graphflow.kernels.recipes.reduction_sketch import over_logical_indices
from graphflow.layout import row_major
from graphflow.processes.digest import text_digest
from graphflow.schedule import Point, Schedule, SearchSpace, Sketch, choices_text
from graphflow.tir import PrimFunc

PREFIX = "search"


class FoundSchedule(Struct, frozen=True):
    """A schedule that a search found: the point of a sketch's space with the least seconds.

    `kernel` is the scheduled kernel; `timed` is the number of points that were measured, and
    `default_seconds` the time of the space's default point, None where it has none.
    """

    kernel: PrimFunc
    sketch: str
    point: Point
    seconds: float
    timed: int
    default_seconds: float | None

    def __str__(self) -> str:
        """`sketch rows with tile=4, 3.2 µs, the best of 12 timed; 4.1 µs with the default …`."""
        default = ""
        if self.default_seconds is not None:
            default = f"; {1e6 * self.default_seconds:.1f} µs with the default choices"
        return (
            f"sketch {self.sketch} with {choices_text(self.point)}: {1e6 * self.seconds:.1f} µs "
            f"measured, the best of {self.timed} timed{default}"
        )


def search_key(sketch: Sketch, definition: PrimFunc, compiler: str) -> str:
    """The beginning of the keys of all points of a sketch's space for a definition.

    `compiler` is a digest of what makes kernels of schedules.
    """
    own = text_digest(f"{sketch.digest}\n{definition_key(definition)}\n{compiler}")
    return f"{PREFIX} {own} "


def point_key(search: str, point: Point) -> str:
    """The key of a point, `search` being what `search_key` returns."""
    return search + choices_text(point)


def timed_searches(known: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The seconds of timed points, by search key and then by the text of the point."""
    found: dict[str, dict[str, float]] = {}
    for key, seconds in known.items():
        if key.startswith(f"{PREFIX} "):
            _, own, point = key.split(" ", 2)
            found.setdefault(f"{PREFIX} {own} ", {})[point] = seconds
    return found


def best_found(
    sketch: Sketch, definition: PrimFunc, target: Target, timed: Mapping[str, float]
) -> tuple[Schedule, FoundSchedule] | None:
    """The schedule with the least of the `timed` seconds, by the text of points.

    None where nothing was timed, and where the sketch is not meant for the definition.
    """
    space = sketch.space(definition, target) if timed else None
    if space is None:
        return None
    seconds, text = min((seconds, text) for text, seconds in timed.items())
    point = _point_of(space, text)
    made = None if point is None else sketch.schedule(definition, target, point)
    if point is None or not isinstance(made, Schedule):
        return None
    default = timed.get(choices_text(space.default()))
    return made, FoundSchedule(made.func, sketch.name, point, seconds, len(timed), default)


def is_made_by_recipe(
    kernel: PrimFunc, definition: PrimFunc, variants: Iterable[KernelVariant], target: Target
) -> bool:
    """Whether a recipe of one of the `variants`, with row-major parameters, makes this kernel."""
    for variant in variants:
        layouts = variant.layouts.items()
        row_majors = all(layout == row_major(layout.logical_shape) for _, layout in layouts)
        if isinstance(variant.recipe, SharedLoops) and row_majors:
            placements = tuple((name, layout, None) for name, layout in layouts)
            made = kernel_schedule(definition, placements, variant.recipe, target)
            if over_logical_indices(made, definition).func == kernel:
                return True
    return False


def _point_of(space: SearchSpace, text: str) -> Point | None:
    """The point with this text; None where the space has no such point."""
    values = dict(part.split("=", 1) for part in text.split(", ") if part)  # it may be empty
    found = [
        (name, next((v for v in domain if str(v) == values.get(name)), None))
        for name, domain in space.domains
    ]
    point = tuple((name, value) for name, value in found if value is not None)
    return point if choices_text(point) == text else None
