"""Lowering calls to kernels: recipes run, claims about memory proven, equal kernels made once.

In: the calls of a physical graph.  Out: `LoweredKernel`s by symbol, and for each call the symbol.
Every access of a lowered kernel is proven to stay in its buffer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from graphflow.arith import TRUE, Proof, conjunction, prove, within
from graphflow.convert import Call, PhysicalGraph
from graphflow.errors import VerifyError
from graphflow.kernels.recipes import Placements, Recipe, Staged, build
from graphflow.layout import Demand, Equal, Layout
from graphflow.lower.assumptions import remove_assume, remove_undef
from graphflow.options import Options
from graphflow.schedule import Schedule
from graphflow.target import Target
from graphflow.tir import (
    Allocate,
    Buffer,
    LoopKind,
    Param,
    PrimFunc,
    Role,
    accesses,
    loops_of,
    map_body,
    to_text,
    verify,
)
from graphflow.trace import Trace


@dataclass(frozen=True)
class LoweredKernel:
    """A kernel ready for the emitter, and the schedule that made it.

    `extent` counts the iterations of its parallel loop; `workspace` are buffers that the caller
    hands in besides the definition's parameters, after them; `proofs` that accesses stay in bounds.
    """

    symbol: str
    func: PrimFunc
    schedule: Schedule
    extent: int
    workspace: tuple[Buffer, ...]
    proofs: tuple[Proof, ...]


def lower_call(
    call: Call, target: Target, symbol: str, trace: Trace | None = None
) -> LoweredKernel:
    """The kernel of one call; the trace gets the seconds of scheduling and of the last proofs."""
    sink = Trace(Options()) if trace is None else trace
    with sink.timer("schedule", symbol):
        schedule = scheduled(call, target)
        func = remove_undef(remove_assume(schedule.func))
        func, workspace = _with_workspace(func)
        func = replace(func, name=symbol)
    with sink.timer("proofs", symbol):
        verify(func, "lowered")
        _keeps_claims(call, func)
        proofs = tuple(in_bounds(func))
    return LoweredKernel(symbol, func, schedule, _parallel_extent(func), workspace, proofs)


def kernel_key(call: Call) -> tuple[object, ...]:
    """Calls with equal keys run the same kernel; names of nodes do not matter."""
    return _anonymous(call.definition), placements_of(call), recipe_of(call)


def scheduled(call: Call, target: Target) -> Schedule:
    """The schedule of a call's kernel."""
    return build(_anonymous(call.definition), placements_of(call), recipe_of(call), target)


def _anonymous(definition: PrimFunc) -> PrimFunc:
    return replace(definition, name="kernel")


def recipe_of(call: Call) -> Recipe:
    """The recipe of the chosen form; movement is made stage by stage."""
    return Staged() if call.form is None else call.form.recipe


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
        layout = call.placements[name].layout
        pad = call.pad_value if name in outputs else _assumed(call.form.demands.get(name))
        found.append((name, layout, pad if _own_padding(call, name, layout) else None))
    return tuple(found)


def _assumed(demand: Demand | None) -> float | str:
    """What a kernel may assume of the padding of an input: the constant it demands, or nothing."""
    if isinstance(demand, Equal):
        return float(demand.literal.value)
    return "undef"


def _own_padding(call: Call, name: str, layout: Layout) -> bool:
    """Whether what surrounds the tensor is its own padding, and not another tensor's memory."""
    assert call.form is not None
    return layout.is_padded and layout == call.form.layouts[name]


def _with_workspace(func: PrimFunc) -> tuple[PrimFunc, tuple[Buffer, ...]]:
    """Large intermediates become parameters: their memory is planned with everything else."""
    found = tuple(
        s.buffer for s in func.body if isinstance(s, Allocate) and s.buffer.scope == "global"
    )
    if not found:
        return func, ()
    body = map_body(
        func.body, lambda s: () if isinstance(s, Allocate) and s.buffer in found else (s,)
    )
    params = (*func.params, *(Param(buffer, Role.OUTPUT) for buffer in found))
    return replace(func, params=params, body=body), found


def _parallel_extent(func: PrimFunc) -> int:
    for loop in loops_of(func.body):
        if loop.kind is LoopKind.PARALLEL:
            assert loop.extent is not None, "parallel loops have constant bounds"
            return loop.extent
    return 1


def in_bounds(func: PrimFunc) -> list[Proof]:
    """A proof for each access; VerifyError shows the kernel where one is missing."""
    proofs: dict[Proof, None] = {}
    for access in accesses(func.body):
        shape = access.buffer.shape
        inside = conjunction(within(e, 0, n) for e, n in zip(access.indices, shape, strict=True))
        proof = prove(inside, access.domain)
        if not proof.proven:
            where = ", ".join(map(str, access.indices))
            raise VerifyError(
                f"{func.name}: {access.buffer.name}[{where}] is not proven to stay in "
                f"{list(shape)}: {proof.reason}\nin\n{to_text(func)}"
            )
        proofs[proof] = None
    return list(proofs)


def _keeps_claims(call: Call, func: PrimFunc) -> None:
    """What a form claims to leave in the padding of its output, it must have stored there.

    A store under an index condition does not reach all of the box: then a mask was left where the
    plan relies on padding that the kernel runs over.
    """
    if call.form is None or not call.relied:
        return
    outputs = {b.name for b in call.definition.outputs}
    for access in accesses(func.body):
        if access.kind == "write" and access.buffer.name in outputs and access.domain.where != TRUE:
            raise VerifyError(
                f"{call.name}: the form {call.form.name} claims to write the padding of "
                f"{access.buffer.name}, and stores only where {access.domain.where}\n"
                f"in\n{to_text(func)}"
            )


def check_storage(call: Call, physical: PhysicalGraph) -> None:
    """Accesses are proven to stay in a buffer; here, that the buffer is its whole storage."""
    for buffer in (param.buffer for param in call.definition.params):
        place = call.placements[buffer.name]
        spec = physical.storages[place.storage]
        size = place.layout.buffer(buffer.name, buffer.dtype).size
        if size != spec.elements or buffer.dtype != spec.dtype:
            raise VerifyError(
                f"{call.name}: {buffer.name} is {size} elements of {buffer.dtype}, and its storage "
                f"{place.storage} has {spec.elements} of {spec.dtype}"
            )


def lower_kernels(
    physical: PhysicalGraph, target: Target, trace: Trace | None = None
) -> tuple[dict[str, LoweredKernel], tuple[str, ...]]:
    """The distinct kernels by symbol, and the symbol of each call in order."""
    for call in physical.calls:
        check_storage(call, physical)
    symbols: dict[tuple[object, ...], str] = {}
    kernels: dict[str, LoweredKernel] = {}
    order: list[str] = []
    for call in physical.calls:
        key = kernel_key(call)
        if key not in symbols:
            symbols[key] = f"k{len(symbols)}"
            kernels[symbols[key]] = lower_call(call, target, symbols[key], trace)
        order.append(symbols[key])
    return kernels, tuple(order)
