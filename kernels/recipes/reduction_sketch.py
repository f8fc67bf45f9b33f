"""The compiler's own sketch: reductions with a fused tail, and kernels of stages at shared loops.

In: a definition that reduces and then computes with the result, such as a mean, a softmax or a
normalization.  Out: the space of its schedules over row-major parameters, and the schedule for a
point.  What always holds: a point is a `SharedLoops` recipe, and the default point is the one of
the variant that planning has without a search (`stage_variants.py`), so both are made by the same
steps (`stage_lanes.py`).

The choices:

- `along`: lanes run along the loops that stages keep to themselves (`own`), or along the shared
  loop with this number, counted from the outermost (`shared0`, …); parameters that are not
  contiguous along it are transposed on the way.
- `lanes`: elements of a vector.
- `rows` (of `own`): rows of the innermost shared loop that an iteration handles together.
- `accumulators` (of `own`): vectors that a reduction adds up side by side.
- `vectors` (of `shared…`): vectors that an iteration handles.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from graphflow import schedule
from graphflow.arith import IndexExpr, Var
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.contiguity import is_contiguous, perfect_nest
from graphflow.kernels.recipes.analysis.roles import roles_of
from graphflow.kernels.recipes.analysis.shared_loops import own_nests, rows_of_stages
from graphflow.kernels.recipes.analysis.variant import KernelVariant, SharedLoops
from graphflow.kernels.recipes.schedules.stage_lanes import met_at_shared_loops
from graphflow.kernels.recipes.variants.stage_variants import stage_variants
from graphflow.layout import IndexMap, Layout, row_major
from graphflow.schedule import Schedule
from graphflow.tir import PrimFunc, Reduce, accesses, walk

NAME = "reduction"

OWN = "own"
SHARED = "shared"

FEW = (1, 2, 4, 8)
"""The rows, accumulators and vectors to choose from: more than eight of any exceed the registers,
of which AVX-512 has 32."""


def reduction_space(definition: PrimFunc, target: Target) -> schedule.SearchSpace | None:
    """The space of a definition's schedules, the default of each choice first.

    None for a definition that reduces nothing, that slides a window or multiplies matrices, for
    which register tiles are made, or that has no variant at shared loops with row-major parameters.
    """
    roles = roles_of(definition)
    reduces = any(isinstance(stmt, Reduce) for stmt in walk(definition.body))
    if not reduces or (roles is not None and not roles.reduces_alone):
        return None
    default = default_recipe(definition, target)
    if default is None:
        return None
    s, shared = rows_of_stages(definition)
    rows = s.loop(shared[-1]).extent or 1 if shared else 1
    nests = [perfect_nest(loop) for loop in own_nests(s, shared)]
    longest = max((prod(loop.extent or 1 for loop in nest) for nest in nests), default=1)
    places = [OWN, *(f"{SHARED}{number}" for number in range(len(shared)))]
    domains: dict[str, tuple[schedule.ChoiceValue, ...]] = {
        "along": _default_first(_along(default), places),
        "lanes": _default_first(default.lanes, (default.lanes // 2,)),
        "rows": _default_first(default.rows, (n for n in FEW if n <= rows)),
        "accumulators": _default_first(
            default.accumulators, (n for n in FEW if n * default.lanes <= longest)
        ),
        "vectors": _default_first(default.vectors, FEW),
    }
    # A choice that does not matter has its default, so that no two points are one schedule.
    unused = " and ".join(f"{name} == {domains[name][0]}" for name in ("rows", "accumulators"))
    return schedule.SearchSpace.of(
        domains,
        (
            f"along == '{OWN}' or {unused}",
            f"along != '{OWN}' or vectors == {default.vectors}",
        ),
    )


def default_recipe(definition: PrimFunc, target: Target) -> SharedLoops | None:
    """The recipe of the variant at shared loops whose parameters are all row-major, if any."""
    for found in stage_variants(definition, target):
        if isinstance(found, KernelVariant) and isinstance(found.recipe, SharedLoops):
            layouts = found.layouts.values()
            if all(layout == row_major(layout.logical_shape) for layout in layouts):
                return found.recipe
    return None


def reduction_schedule(definition: PrimFunc, target: Target, point: schedule.Point) -> Schedule:
    """The schedule of a definition for a point; ScheduleError where a step is refused."""
    placements = tuple((p.buffer.name, row_major(p.buffer.shape), None) for p in definition.params)
    recipe = recipe_of(definition, point)
    s = met_at_shared_loops(definition, placements, recipe, target)
    return over_logical_indices(s, definition)


def over_logical_indices(s: Schedule, definition: PrimFunc) -> Schedule:
    """The schedule over the definition's parameters: axes that were joined to one are apart again.

    No element moves, and positions in memory are those of the joined axes.
    """
    for before, now in zip(definition.params, s.func.params, strict=True):
        if before.buffer.shape != now.buffer.shape:
            apart = _axes_apart(now.buffer.shape, before.buffer.shape)
            s = s.apply(schedule.transform_layout, now.buffer.name, apart, None)
    return s.apply(schedule.simplify)


def _axes_apart(joined: tuple[int, ...], shape: tuple[int, ...]) -> Layout:
    """The layout of `joined` axes, each of them neighbouring axes of `shape`, as these axes."""
    groups: list[list[int]] = []
    rest = list(shape)
    for extent in joined:
        group = [rest.pop(0)]
        while prod(group) != extent:
            group.append(rest.pop(0))
        groups.append(group)
    groups[-1] += rest

    def outputs(*indices: Var) -> tuple[IndexExpr, ...]:
        found: list[IndexExpr] = []
        for index, group in zip(indices, groups, strict=True):
            for axis, extent in enumerate(group):
                place = index // prod(group[axis + 1 :])
                found.append(place % extent if axis else place)
        return tuple(found)

    return Layout.of(IndexMap.from_function(len(joined), outputs, joined), joined, shape)


def recipe_of(definition: PrimFunc, point: schedule.Point) -> SharedLoops:
    """The recipe that a point stands for."""
    chosen = dict(point)
    along, lanes = str(chosen["along"]), int(chosen["lanes"])
    if along == OWN:
        rows, sums = int(chosen["rows"]), int(chosen["accumulators"])
        return SharedLoops(lanes, rows, accumulators=sums)
    number = int(along.removeprefix(SHARED))
    transposed = _transposed(definition, number, lanes)
    return SharedLoops(lanes, 1, number, int(chosen["vectors"]), transposed)


REDUCTION = schedule.Sketch(NAME, reduction_space, reduction_schedule, source="")
"""Its source is the compiler's, which is in the keys of all results anyway."""


def _along(recipe: SharedLoops) -> str:
    return OWN if recipe.lane_loop is None else f"{SHARED}{recipe.lane_loop}"


def _default_first(
    default: schedule.ChoiceValue, values: Iterable[schedule.ChoiceValue]
) -> tuple[schedule.ChoiceValue, ...]:
    return tuple(dict.fromkeys((default, *values)))


def _transposed(definition: PrimFunc, number: int, lanes: int) -> tuple[str, ...]:
    """The parameters that are not contiguous along a shared loop, in the order of accesses."""
    s, shared = rows_of_stages(definition)
    loop = s.loop(shared[number])
    params = {p.buffer.name for p in definition.params}
    apart = (
        access.buffer.name
        for access in accesses(s.func.body)
        if access.buffer.name in params and not is_contiguous(loop, (access,), lanes)
    )
    return tuple(dict.fromkeys(apart))
