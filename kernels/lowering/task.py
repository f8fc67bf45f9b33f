"""One kernel: its recipe run, its claims about memory proven.

In: a `KernelTask`, which names no call of a graph.  Out: a `LoweredKernel`, each of whose accesses
is proven to stay in its buffer.  What always holds: equal tasks give equal kernels, in whatever
process they are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from graphflow.arith import TRUE, Image, Proof, Verdict, images_cover, variables
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.base.trace import Trace
from graphflow.kernels.lowering.remove_assumptions import remove_assume, remove_undef
from graphflow.kernels.recipes import Placements, Recipe, Staged, Tiled, build
from graphflow.layout import LOGICAL, Layout
from graphflow.schedule import Refusal, Rewrite, Schedule, require_in_bounds
from graphflow.tir import (
    EXPANDED,
    Access,
    AccessKind,
    Allocate,
    Body,
    Buffer,
    LoopKind,
    Param,
    PrimFunc,
    Role,
    accesses,
    loops_of,
    map_body,
    rename_buffers,
    to_text,
    verify,
    walk,
)


@dataclass(frozen=True)
class KernelTask:
    """What decides about a kernel, without the calls that run it.

    `claimed` names a call and its variant if the plan relies on what the kernel leaves in the
    padding of its output."""

    symbol: str
    definition: PrimFunc
    placements: Placements
    recipe: Recipe
    target: Target
    claimed: str | None = None


@dataclass(frozen=True)
class LoweredKernel:
    """A kernel ready for the emitter, and the task and the schedule that made it.

    `extent` counts the iterations of its parallel loop; `workspace` are buffers that the caller
    hands in besides the definition's parameters, after them; `proofs` that accesses stay in bounds.
    """

    symbol: str
    func: PrimFunc
    schedule: Schedule
    extent: int
    workspace: tuple[Buffer, ...]
    proofs: tuple[Proof, ...]
    task: KernelTask


def make_kernel(task: KernelTask, trace: Trace) -> LoweredKernel:
    """The kernel of a task; the trace gets the seconds of scheduling and of the last proofs."""
    with trace.timer("schedule", task.symbol):
        schedule = _schedule(task)
        func, workspace = with_workspace(schedule.func)
        func = _with_addresses(remove_undef(remove_assume(func)))
        func = replace(func, name=task.symbol)
    with trace.timer("proofs", task.symbol):
        verify(func, "lowered")
        if task.claimed is not None:
            _keeps_claim(task.claimed, func, task)
        proofs = require_in_bounds(func)
    extent = parallel_extent(func)
    return LoweredKernel(task.symbol, func, schedule, extent, workspace, proofs, task)


def make_here(tasks: Mapping[str, KernelTask]) -> dict[str, LoweredKernel]:
    """The kernels of tasks, made in this process."""
    trace = Trace(Options())
    return {symbol: make_kernel(task, trace) for symbol, task in tasks.items()}


def _schedule(task: KernelTask) -> Schedule:
    """The schedule that the recipe of a task makes.

    Where a step of a tile is refused, which is nobody's fault but the recipe's, the kernel is made
    stage by stage with its parameters placed alike; the schedule then begins with the refusal.
    ScheduleError where the plan relies on what only the tile leaves in padding.
    """
    try:
        return build(task.definition, task.placements, task.recipe, task.target)
    except ScheduleError as refusal:
        if not isinstance(task.recipe, Tiled) or task.claimed is not None:
            raise
        reason = Refusal.of(refusal)
        made = build(task.definition, task.placements, Staged(), task.target)
        first = Schedule.of(task.definition).apply(instead_of_tile, str(reason))
        steps, refusals = (*first.steps, *made.steps), (reason, *made.refusals)
        return replace(made, steps=steps, refusals=refusals)


def instead_of_tile(func: PrimFunc, reason: str) -> Rewrite:
    """The kernel as it is: a step that says for which `reason` no tile is made of it."""
    claim = f"no tile is made, for {reason}"
    return Rewrite(replace(func), (Proof(Verdict.PROVEN, claim, "structure"),))


def with_workspace(func: PrimFunc) -> tuple[PrimFunc, tuple[Buffer, ...]]:
    """Intermediates become parameters: their memory is planned with everything else.

    Those that each iteration of a parallel loop has for itself are on the stack of its thread.
    """
    loops = [s for s in loops_of(func.body) if s.kind is LoopKind.PARALLEL]
    private = {b: replace(b, scope="scratch") for loop in loops for b in _allocated(loop.body)}
    found = tuple(buffer for buffer in _allocated(func.body) if buffer not in private)
    if not found and not private:
        return func, ()
    body = map_body(
        rename_buffers(func.body, private),
        lambda s: () if isinstance(s, Allocate) and s.buffer in found else (s,),
    )
    params = (*func.params, *(Param(buffer, Role.OUTPUT) for buffer in found))
    return replace(func, params=params, body=body), found


def _with_addresses(func: PrimFunc) -> PrimFunc:
    """Buffers in registers become memory of the thread where a loop that runs indexes them.

    Registers have no addresses; like a parallel loop, the scope is a wish of whoever wrote it.
    """
    running = {loop.var for loop in loops_of(func.body) if loop.kind not in EXPANDED}
    indexed = {
        access.buffer: replace(access.buffer, scope="scratch")
        for access in accesses(func.body)
        if access.buffer.scope == "register"
        and any(not running.isdisjoint(variables(index)) for index in access.indices)
    }
    return replace(func, body=rename_buffers(func.body, indexed)) if indexed else func


def _allocated(body: Body) -> tuple[Buffer, ...]:
    """The buffers that a body allocates in memory which others could see."""
    allocations = (s.buffer for s in walk(body) if isinstance(s, Allocate))
    return tuple(buffer for buffer in allocations if buffer.scope == "global")


def parallel_extent(func: PrimFunc) -> int:
    for loop in loops_of(func.body):
        if loop.kind is LoopKind.PARALLEL:
            assert loop.extent is not None, "parallel loops have constant bounds"
            return loop.extent
    return 1


def _keeps_claim(claimed: str, func: PrimFunc, task: KernelTask) -> None:
    """What a variant claims to leave in the padding of its output, it must have stored there.

    Stores under an index condition need not reach all of the box: then together they must reach
    each region of padding.  Otherwise a mask was left where the plan relies on padding that the
    kernel runs over.
    """
    layouts = {name: layout for name, layout, _ in task.placements}
    for output in task.definition.outputs:
        writes = [
            access
            for access in accesses(func.body)
            if access.kind is AccessKind.WRITE and access.buffer.name == output.name
        ]
        partial = [access for access in writes if access.domain.where != TRUE]
        if partial and not _reaches_padding(writes, layouts[output.name]):
            raise VerifyError(
                f"{claimed} claims to write the padding of {output.name}, and stores only "
                f"where {partial[0].domain.where}\nin\n{to_text(func)}"
            )


def _reaches_padding(writes: list[Access], layout: Layout) -> bool:
    """Whether stores reach all of each region of padding."""
    images = [Image(access.domain, access.indices) for access in writes]
    shape, axes = layout.physical_shape, layout.physical_axes
    return all(
        images_cover(images, region.predicate, axes, shape).proven
        for region in layout.regions()
        if region.name != LOGICAL
    )
