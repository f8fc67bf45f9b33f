"""Lowering tasks: the recipe of one kernel run, and its accesses and its contract proven.

In: a `KernelTask`, which names no call of a graph.  Out: a `LoweredKernel`.  What always holds:
each of its accesses is proven to stay in its buffer, and equal tasks give equal kernels in whatever
process they are made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from graphflow import tir
from graphflow.arith import TRUE, Image, Proof, Verdict, images_cover, variables
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.base.trace import Trace
from graphflow.kernels.lowering.appending import Repeated, appending
from graphflow.kernels.lowering.count_conditions import with_count_conditions
from graphflow.kernels.lowering.filled_axes import FilledAxis, with_reduction_conditions
from graphflow.kernels.lowering.filled_tiles import with_filled_tiles
from graphflow.kernels.lowering.remove_assumptions import remove_assume, remove_undef
from graphflow.kernels.lowering.size_conditions import SizeParam, with_size_conditions
from graphflow.kernels.lowering.sized_rows import SizedAxis
from graphflow.kernels.lowering.unread_rows import with_conditions_on_unread
from graphflow.kernels.lowering.unused_tiles import with_conditions_on_tiles
from graphflow.kernels.recipes import (
    BlockTiles,
    FilteredTiles,
    Placements,
    Recipe,
    SharedLoops,
    Staged,
    Tiled,
    kernel_schedule,
)
from graphflow.layout import LOGICAL, Layout
from graphflow.schedule import (
    Refusal,
    Rewrite,
    Schedule,
    fresh_name,
    names_of_places,
    phase_proofs,
    require_in_bounds,
)


class KernelTask(Struct, frozen=True):
    """All that decides about a kernel, without the calls that run it.

    `claimed` names a call and its variant where the plan relies on what the kernel leaves in the
    padding of its output, None where it does not.  `sized` are the axes of its outputs of which a
    run gives the first rows alone, `filled` those of its inputs that have a known number behind the
    elements that a run gives.  `repeated` are an input and an output that are one memory.
    """

    symbol: str
    definition: tir.PrimFunc
    placements: Placements
    recipe: Recipe
    target: Target
    claimed: str | None = None
    sized: tuple[SizedAxis, ...] = ()
    filled: tuple[FilledAxis, ...] = ()
    repeated: Repeated | None = None


class LoweredKernel(Struct, frozen=True):
    """A kernel for the emitter, and the task and the schedule that made it.

    `extent` is the number of iterations of its parallel loop, 1 without one.  `workspace` are the
    buffers that the caller passes after the definition's parameters, and `sizes` the integers
    behind these.  `proofs` show that each access stays in its buffer.
    """

    symbol: str
    func: tir.PrimFunc
    schedule: Schedule
    extent: int
    workspace: tuple[tir.Buffer, ...]
    proofs: tuple[Proof, ...]
    task: KernelTask
    sizes: tuple[SizeParam, ...] = ()

    @property
    def in_phases(self) -> bool:
        """Whether the threads that share its parallel loops meet behind each of them."""
        return tir.in_phases(self.func)

    @property
    def instead_of(self) -> str | None:
        """Why the kernel is made stage by stage and not by the recipe that the plan priced; None
        where the recipe made it."""
        first = self.schedule.steps[:1]
        replaced = any(step.primitive is instead_of_tile for step in first)
        return str(self.schedule.refusals[0]) if replaced else None


def make_kernel(task: KernelTask, trace: Trace) -> LoweredKernel:
    """The kernel of a task; the trace gets the seconds of scheduling and of the proofs.

    ScheduleError where its recipe is refused, and where an output may not be the memory of an input
    that it repeats; VerifyError where a proof fails.
    """
    with trace.timer("schedule", task.symbol):
        schedule = _schedule(task)
        func, workspace = with_workspace(schedule.func)
        func = _with_addresses(remove_assume(remove_undef(func)))
        func, sizes = with_size_conditions(replace(func, name=task.symbol), task.sized)
        func = with_count_conditions(with_filled_tiles(func))
        func = with_conditions_on_tiles(with_conditions_on_unread(func))
        func, sizes = with_reduction_conditions(func, task.filled, sizes)
        if task.repeated is not None:
            func = appending(func, task.repeated)
    with trace.timer("proofs", task.symbol):
        tir.verify(func, "lowered")
        if task.claimed is not None:
            _keeps_claim(task.claimed, func, task)
        proofs = require_in_bounds(func)
        if tir.in_phases(func):
            proofs += phase_proofs(func)
    extent = parallel_extent(func)
    return LoweredKernel(task.symbol, func, schedule, extent, workspace, proofs, task, sizes)


def make_here(tasks: Mapping[str, KernelTask]) -> dict[str, LoweredKernel]:
    """The kernels of tasks, by symbol, made in this process."""
    trace = Trace(Options())
    return {symbol: make_kernel(task, trace) for symbol, task in tasks.items()}


def _schedule(task: KernelTask) -> Schedule:
    """The schedule that the recipe of a task makes.

    Where a step of a register tile, of shared loops or of bands is refused, the kernel is made
    stage by stage instead, with the same placements; its schedule begins with the refusal
    (`LoweredKernel.instead_of`), and the compilation has a notice.  ScheduleError for
    other recipes, and where the plan relies on what the tile would leave in padding.
    """
    try:
        return kernel_schedule(task.definition, task.placements, task.recipe, task.target)
    except ScheduleError as refusal:
        if (
            not isinstance(task.recipe, Tiled | SharedLoops | FilteredTiles | BlockTiles)
            or task.claimed is not None
        ):
            raise
        reason = Refusal.of(refusal)
        made = kernel_schedule(task.definition, task.placements, Staged(), task.target)
        first = Schedule.of(task.definition).apply(instead_of_tile, str(reason))
        steps, refusals = (*first.steps, *made.steps), (reason, *made.refusals)
        return replace(made, steps=steps, refusals=refusals)


def instead_of_tile(func: tir.PrimFunc, reason: str) -> Rewrite:
    """The kernel as it is: a step that records the `reason` why no tile is made of it."""
    claim = f"no tile is made, for {reason}"
    return Rewrite(replace(func), (Proof(Verdict.PROVEN, claim, "structure"),))


def with_workspace(func: tir.PrimFunc) -> tuple[tir.PrimFunc, tuple[tir.Buffer, ...]]:
    """The kernel with its intermediates as parameters, and those buffers.

    So their memory is planned with that of all tensors.  Buffers that iterations allocate which run
    at once, in threads or in lanes, become scratch: memory on the stack, apart for each of these
    iterations.  Parameters have no dots in their names, which buffers of inlined calls have.
    """
    loops = [s for s in tir.loops_of(func.body) if s.kind in tir.AT_ONCE]
    private = {b: replace(b, scope="scratch") for loop in loops for b in _allocated(loop.body)}
    found = tuple(buffer for buffer in _allocated(func.body) if buffer not in private)
    if not found and not private:
        return func, ()
    body = tir.map_body(
        tir.rename_buffers(func.body, private),
        lambda s: () if isinstance(s, tir.Allocate) and s.buffer in found else (s,),
    )
    plain = _with_plain_names(func, found)
    params = (*func.params, *(tir.Param(buffer, tir.Role.OUTPUT) for buffer in plain.values()))
    return replace(func, params=params, body=tir.rename_buffers(body, plain)), tuple(plain.values())


def _with_plain_names(
    func: tir.PrimFunc, found: Sequence[tir.Buffer]
) -> dict[tir.Buffer, tir.Buffer]:
    """By buffer that with a name of its own without dots, which no place of the kernel has."""
    taken = {*names_of_places(func)}
    plain: dict[tir.Buffer, tir.Buffer] = {}
    for buffer in found:
        name = buffer.name
        if "." in name:
            name = fresh_name(name.replace(".", "_"), taken.__contains__)
            taken.add(name)
        plain[buffer] = replace(buffer, name=name)
    return plain


def _with_addresses(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel with scratch memory for register buffers that loops index at run time.

    Registers have no addresses, so indices into them must be constants once unrolled and vectorized
    loops are expanded.  The scope `register` is a request, as `parallel` is.
    """
    running = {loop.var for loop in tir.loops_of(func.body) if loop.kind not in tir.EXPANDED}
    indexed = {
        access.buffer: replace(access.buffer, scope="scratch")
        for access in tir.accesses(func.body)
        if access.buffer.scope == "register"
        and any(not running.isdisjoint(variables(index)) for index in access.indices)
    }
    return replace(func, body=tir.rename_buffers(func.body, indexed)) if indexed else func


def _allocated(body: tir.Body) -> tuple[tir.Buffer, ...]:
    """The buffers in memory, not registers or scratch, that a body allocates."""
    allocations = (s.buffer for s in tir.walk(body) if isinstance(s, tir.Allocate))
    return tuple(buffer for buffer in allocations if buffer.scope == "global")


def parallel_extent(func: tir.PrimFunc) -> int:
    """The number of iterations of a kernel's parallel loop; 1 where it has none."""
    for loop in tir.loops_of(func.body):
        if loop.kind is tir.LoopKind.PARALLEL:
            assert loop.extent is not None, "parallel loops have constant bounds"
            return loop.extent
    return 1


def _keeps_claim(claimed: str, func: tir.PrimFunc, task: KernelTask) -> None:
    """VerifyError unless the kernel stores to the padding of its output, as its variant claims.

    Unconditional stores reach the whole box.  Where a store is under an index condition, all stores
    together must be proven to reach each region of padding; else a mask was left where the plan
    relies on what the kernel writes there.
    """
    layouts = {name: layout for name, layout, _ in task.placements}
    for output in task.definition.outputs:
        writes = [
            access
            for access in tir.accesses(func.body)
            if access.kind is tir.AccessKind.WRITE and access.buffer.name == output.name
        ]
        partial = [access for access in writes if access.domain.where != TRUE]
        if partial and not _reaches_padding(writes, layouts[output.name]):
            raise VerifyError(
                f"{claimed} claims to write the padding of {output.name}, and stores only "
                f"where {partial[0].domain.where}\nin\n{tir.to_text(func)}"
            )


def _reaches_padding(writes: list[tir.Access], layout: Layout) -> bool:
    """Whether stores are proven to reach every element of every region of padding."""
    images = [Image(access.domain, access.indices) for access in writes]
    shape, axes = layout.physical_shape, layout.physical_axes
    return all(
        images_cover(images, region.predicate, axes, shape).proven
        for region in layout.regions()
        if region.name != LOGICAL
    )
