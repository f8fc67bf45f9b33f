"""Steps of which a run executes a part: their last iterations write only elements that it lacks.

In: a call whose outputs have room for more elements than a run gives, and its lowered kernel.  Out:
the `Portion` that a run executes.  What always holds: it is proven, for every size of a run at
once, that an iteration which is left out writes no element that the run gives.  Iterations of a
parallel loop are independent, so those that are left have what they read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from graphflow import arith, tir
from graphflow.kernels.lowering import LoweredKernel
from graphflow.layout import Layout
from graphflow.physical import PhysicalCall, PhysicalGraph
from graphflow.program import Portion

MOST_GROUPS = 64
"""The most groups of iterations that are tried; each takes a proof for every write of a kernel."""


def portion_of(
    call: PhysicalCall, kernel: LoweredKernel, inputs: Mapping[str, int]
) -> Portion | None:
    """The part of a call that a run executes; None where it has to execute all of it.

    `inputs` has the number of the program's input that holds each size.
    """
    func, loop = kernel.func, _parallel_loop(kernel.func)
    rows = {_outermost(call, buffer.name) for buffer in call.definition.outputs}
    only = rows.pop() if len(rows) == 1 else None
    if loop is None or kernel.extent == 1 or only is None or only[0] not in inputs:
        return None
    tensor, room = only
    count = len(call.definition.params)
    outputs = [p.buffer for p in func.params[:count] if p.role is tir.Role.OUTPUT]
    if any(window.buffer in outputs for window in tir.windows_in(func.body)):
        return None
    size, written = _fresh("size", func), list(_rows_written(func, outputs, room))
    for groups in range(1, max(1, min(MOST_GROUPS, kernel.extent // room)) + 1):
        each, rest = divmod(kernel.extent, groups)
        if rest:
            continue
        place = arith.floor_mod(loop.var - loop.start, each)
        left_out = arith.at_least_zero(place * room - size * each)
        if all(_writes_behind(size, room, left_out, site, row) for site, row in written):
            return Portion(inputs[tensor], room, groups)
    return None


def _writes_behind(
    size: arith.Var,
    room: int,
    left_out: arith.Predicate,
    domain: arith.Domain,
    row: arith.IndexExpr,
) -> bool:
    """Whether the iterations `left_out` write only rows, of `room`, behind the first `size`."""
    given = arith.Axis(size, arith.const(1), arith.const(room + 1))
    where = arith.conjunction((domain.where, left_out))
    claim = arith.at_most(size, row)
    return arith.prove(claim, arith.Domain((given, *domain.axes), where)).proven


def _fresh(name: str, func: tir.PrimFunc) -> arith.Var:
    """A variable that no loop of a kernel has."""
    taken = {loop.var.name for loop in tir.loops_of(func.body)}
    while name in taken:
        name += "_"
    return arith.Var(name)


def _parallel_loop(func: tir.PrimFunc) -> tir.For | None:
    return next(
        (loop for loop in tir.loops_of(func.body) if loop.kind is tir.LoopKind.PARALLEL), None
    )


def _outermost(call: PhysicalCall, param: str) -> tuple[str, int] | None:
    """The size that counts the elements along the outermost axis in memory of a parameter, and the
    room there; None where no size does."""
    place = call.placements[param]
    for axis, tensor in call.counted.get(param, {}).items():
        room = place.layout.logical_shape[axis]
        if _is_outermost(place.layout, axis) and room > 1:
            return tensor, room
    return None


def _is_outermost(layout: Layout, axis: int) -> bool:
    """Whether the elements along a logical axis lie further apart than those along all others."""
    indices, extents = layout.simplified, layout.physical_shape
    first = next((k for k, extent in enumerate(extents) if extent > 1), None)
    if first is None or extents[first] != layout.logical_shape[axis]:
        return False
    return indices[first] is layout.index_map.inputs[axis]


def _rows_written(
    func: tir.PrimFunc, outputs: list[tir.Buffer], room: int
) -> Iterator[tuple[arith.Domain, arith.IndexExpr]]:
    """For each write of an output where it happens, and which of `room` rows it writes."""
    for site in tir.sites(func.body):
        stmt = site.stmt
        if isinstance(stmt, tir.Store | tir.Reduce) and stmt.buffer in outputs:
            position = stmt.buffer.flat_index(stmt.indices)
            yield site.domain, arith.floor_div(position, stmt.buffer.size // room)


def any_counted(physical: PhysicalGraph) -> bool:
    """Whether a run gives some tensor fewer elements than it has room for."""
    return any(any(call.counted.values()) for call in physical.calls)
