"""Lowering calls to kernels: recipes run, claims about memory proven, equal kernels made once.

In: the calls of a physical graph.  Out: `LoweredKernel`s by symbol, and for each call the symbol.
Every access of a lowered kernel is proven to stay in its buffer.  Kernels are made from
`KernelTask`s, which name no call, in worker processes where there are some.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from graphflow.arith import (
    TRUE,
    Image,
    Proof,
    Verdict,
    images_cover,
    variables,
)
from graphflow.errors import ScheduleError, VerifyError
from graphflow.kernels.recipes import (
    Crossing,
    Placements,
    Recipe,
    Staged,
    Tiled,
    build,
    crosses,
)
from graphflow.layout import LOGICAL, Demand, Equal, Layout
from graphflow.lower.assumptions import remove_assume, remove_undef
from graphflow.options import Options
from graphflow.schedule import Refusal, Rewrite, Schedule, require_in_bounds
from graphflow.target import Target
from graphflow.tir import (
    EXPANDED,
    Access,
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
from graphflow.trace import Trace

if (
    TYPE_CHECKING
):  # worker processes import this module, and have no use for the planner's libraries
    from graphflow.convert import Call, PhysicalGraph


@dataclass(frozen=True)
class KernelTask:
    """What decides about a kernel, without the calls that run it.

    `claimed` names a call and its form if the plan relies on what the kernel leaves in the padding
    of its output.
    """

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


Maker: TypeAlias = "Callable[[Mapping[str, KernelTask]], Mapping[str, LoweredKernel]]"
"""Gives the kernel of each task, by symbol."""


def lower_call(
    call: Call, target: Target, symbol: str, trace: Trace | None = None
) -> LoweredKernel:
    """The kernel of one call; the trace gets the seconds of scheduling and of the last proofs."""
    return make_kernel(
        kernel_task(call, target, symbol), Trace(Options()) if trace is None else trace
    )


def kernel_task(call: Call, target: Target, symbol: str) -> KernelTask:
    """What makes the kernel of a call."""
    definition, placements, recipe = kernel_key(call)
    claimed = _claim(call)
    return KernelTask(symbol, definition, placements, recipe, target, claimed)


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


def kernel_key(call: Call) -> tuple[PrimFunc, Placements, Recipe]:
    """Calls with equal keys run the same kernel; names of nodes do not matter."""
    return _anonymous(call.definition), placements_of(call), recipe_of(call)


def scheduled(call: Call, target: Target) -> Schedule:
    """The schedule of a call's kernel."""
    return _schedule(kernel_task(call, target, "kernel"))


def _anonymous(definition: PrimFunc) -> PrimFunc:
    return replace(definition, name="kernel")


def recipe_of(call: Call) -> Recipe:
    """The recipe of the chosen form; movement is made stage by stage, or in blocks."""
    if call.form is not None:
        return call.form.recipe
    return Crossing() if _crosses(call) else Staged()


def _crosses(call: Call) -> bool:
    """Whether a call is to be made in blocks; what runs only once is made sooner without."""
    inputs, outputs = call.definition.inputs, call.definition.outputs
    if call.prepare or len(inputs) != 1 or len(outputs) != 1:
        return False
    source, target = (call.placements[b.name].layout for b in (inputs[0], outputs[0]))
    same = source.logical_shape == target.logical_shape  # not a fill from a scalar
    return same and crosses(source, target, inputs[0].dtype)


def placements_of(call: Call) -> Placements:
    """Layouts and padding of the parameters, as the recipe takes them.

    What a conversion's definition says is physical already, so its parameters stay as they are.
    """
    if call.form is None:
        return ()
    outputs = {b.name for b in call.definition.outputs}
    found = []
    for param in call.definition.params:
        name = param.buffer.name
        place = call.placements[name]
        pad = call.pad_value if name in outputs else _assumed(call.form.demands.get(name))
        found.append((name, place.layout, pad if place.own and place.layout.is_padded else None))
    return tuple(found)


def _assumed(demand: Demand | None) -> float | str:
    """What a kernel may assume of the padding of an input: the constant it demands, or nothing."""
    if isinstance(demand, Equal):
        return float(demand.literal.value)
    return "undef"


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


def _claim(call: Call) -> str | None:
    if call.form is None or not call.relied:
        return None
    return f"{call.name}: the form {call.form.name}"


def _keeps_claim(claimed: str, func: PrimFunc, task: KernelTask) -> None:
    """What a form claims to leave in the padding of its output, it must have stored there.

    Stores under an index condition need not reach all of the box: then together they must reach
    each region of padding.  Otherwise a mask was left where the plan relies on padding that the
    kernel runs over.
    """
    layouts = {name: layout for name, layout, _ in task.placements}
    for output in task.definition.outputs:
        writes = [
            access
            for access in accesses(func.body)
            if access.kind == "write" and access.buffer.name == output.name
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


def check_storage(call: Call, physical: PhysicalGraph) -> None:
    """Accesses are proven to stay in a buffer; here, that the buffer lies in its storage."""
    for buffer in (param.buffer for param in call.definition.params):
        place = call.placements[buffer.name]
        spec = physical.storages[place.storage]
        size = place.layout.buffer(buffer.name, buffer.dtype).size
        inside = place.offset >= 0 and place.offset + size <= spec.elements
        if not inside or buffer.dtype != spec.dtype:
            raise VerifyError(
                f"{call.name}: {buffer.name} is {size} elements of {buffer.dtype} from element "
                f"{place.offset} on, and its storage {place.storage} has {spec.elements} of "
                f"{spec.dtype}"
            )


def lower_kernels(
    physical: PhysicalGraph, target: Target, make: Maker = make_here
) -> tuple[dict[str, LoweredKernel], tuple[str, ...]]:
    """The distinct kernels by symbol, and the symbol of each call in order.

    A call of a definition with a callee has that as its symbol, and there is no kernel of it.
    """
    for call in physical.calls:
        check_storage(call, physical)
    symbols: dict[tuple[object, ...], str] = {}
    tasks: dict[str, KernelTask] = {}
    order: list[str] = []
    for call in physical.calls:
        if call.definition.callee is not None:
            order.append(call.definition.callee)
            continue
        symbol = symbols.setdefault(kernel_key(call), f"k{len(symbols)}")
        task = tasks.setdefault(symbol, kernel_task(call, target, symbol))
        if task.claimed is None:  # it is enough that one of its calls is relied on
            tasks[symbol] = replace(task, claimed=_claim(call))
        order.append(symbol)
    made = make(tasks)
    return {symbol: made[symbol] for symbol in tasks}, tuple(order)
