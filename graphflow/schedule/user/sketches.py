"""Sketches: schedules with free choices, for a search to fill in.

In: a function of a schedule and of choices, and the space of these choices as data.  Out: for each
point of the space the schedule, or the refusal of the step that cannot be done.  What always holds:
a sketch is made of schedule primitives, so each schedule that it gives is proven to compute what
the kernel computes; a bad choice can only be slow or refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

from graphflow import tir
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.base.target import Target
from graphflow.processes.digest import text_digest
from graphflow.schedule.steps.frame import Refusal
from graphflow.schedule.user.methods import Schedule
from graphflow.schedule.user.search_space import ChoiceValue, Point, SearchSpace, choices_text

MakeSchedule: TypeAlias = "Callable[[tir.PrimFunc, Target, Point], Schedule]"
MakeSpace: TypeAlias = "Callable[[tir.PrimFunc, Target], SearchSpace | None]"


@dataclass(frozen=True)
class Sketch:
    """A schedule with free choices.

    `space` gives the choices for a kernel, None for a kernel that the sketch is not meant for.
    `make` gives the schedule of the kernel for a point of that space; it raises ScheduleError where
    a step is refused.  `source` is the text that both depend on: results of a search are stale when
    it changes.
    """

    name: str
    space: MakeSpace
    make: MakeSchedule
    source: str

    @cached_property
    def digest(self) -> str:
        """A digest of the name and the source."""
        return text_digest(f"{self.name}\n{self.source}")

    def schedule(self, kernel: tir.PrimFunc, target: Target, point: Point) -> Schedule | Refusal:
        """The schedule for a point, or the refusal of what cannot be done.

        ScheduleError where the sketch gives no schedule, or that of another kernel.  Other errors
        of its own leave it, with a note of where they arose.
        """
        try:
            made = self.make(kernel, target, point)
        except ScheduleError as error:
            return Refusal.of(error)
        except VerifyError as error:
            return Refusal("", str(error))
        except Exception as error:
            choices = choices_text(point) or "no choices"
            error.add_note(f"in the sketch {self.name} of {kernel.name} with {choices}")
            raise
        if not isinstance(made, Schedule):
            raise ScheduleError(
                f"the sketch {self.name} gives {type(made).__name__} for {kernel.name}, and no "
                "schedule; return what its last step gives"
            )
        if made.definition != kernel:
            raise ScheduleError(
                f"the sketch {self.name} gives a schedule of another kernel than {kernel.name}; "
                "apply steps to the schedule that it is called with"
            )
        return made


def sketch(
    *,
    kernel: str | None = None,
    where: str | Sequence[str] = (),
    **domains: Sequence[ChoiceValue],
) -> Callable[[Callable[..., Schedule]], Sketch]:
    """A decorator that makes a `Sketch` of a function of a schedule and choices.

        @gf.sketch(tile=(1, 2, 4), lanes=(8, 16), where="tile * lanes <= 32")
        def tiled(s, tile, lanes):
            ...
            return s

    `domains` are the values of each choice, its default first; `where` are constraints between
    them; see `SearchSpace`.  The sketch is meant for the kernels called `kernel`, or for all whose
    loops and buffers its steps name.  The function is called with a `Schedule` of the kernel and a
    value for each choice.  Its result is stale when the space or anything in the function's file
    changes.  Raises ScheduleError for a space that is not well formed, and for a function whose
    source cannot be read.
    """
    constraints = (where,) if isinstance(where, str) else tuple(where)
    space = SearchSpace.of({name: tuple(values) for name, values in domains.items()}, constraints)

    def decorate(function: Callable[..., Schedule]) -> Sketch:
        def space_of(func: tir.PrimFunc, target: Target) -> SearchSpace | None:
            return space if kernel in (None, func.name) else None

        def make(func: tir.PrimFunc, target: Target, point: Point) -> Schedule:
            return function(Schedule.of(func), **dict(point))

        source = f"{kernel} {space}\n{source_text(function)}"
        return Sketch(function.__name__, space_of, make, source)

    return decorate


def require_sketches(given: Any) -> None:
    """TypeError for what is no list or tuple of sketches."""
    if not isinstance(given, list | tuple):
        raise TypeError(f"sketches is of type {type(given).__name__}; give a list of sketches")
    for one in given:
        if not isinstance(one, Sketch):
            raise TypeError(
                f"sketches has an object of type {type(one).__name__}; give functions that are "
                "decorated with graphflow.sketch"
            )


def source_text(function: Callable[..., Any]) -> str:
    """The text that a function depends on: its file, its name, and the values that it closes over.

    In a session without files, the text of the function alone.  ScheduleError where that cannot be
    read.
    """
    try:
        path = Path(inspect.getsourcefile(function) or "")
        text = path.read_text(encoding="utf-8") if path.is_file() else inspect.getsource(function)
    except (OSError, TypeError) as error:
        raise ScheduleError(
            f"the source of the sketch {function.__name__} cannot be read ({error}); results of a "
            "search are kept by it: define the function in a file"
        ) from None
    around = sorted(inspect.getclosurevars(function).nonlocals.items())
    return f"{function.__qualname__}\n{around}\n{text}"
