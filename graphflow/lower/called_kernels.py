"""The kernels of a program: equal calls share one, and each is made from a task.

In: the calls of a physical graph.  Out: `LoweredKernel`s by symbol, and the symbol of each call.
Kernels are made from `KernelTask`s (`graphflow.kernels.lowering`), in worker processes if there are
any.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.base.trace import Trace
from graphflow.kernels.lowering import (
    FilledAxis,
    KernelTask,
    LoweredKernel,
    SizedAxis,
    axes_with_sizes,
    filled_axes,
    make_here,
    make_kernel,
)
from graphflow.kernels.recipes import SHARED_NAME, Placements, Recipe
from graphflow.layout import Demand, Equal
from graphflow.lower.held_sizes import held_sizes
from graphflow.physical import PhysicalCall, PhysicalGraph
from graphflow.schedule import StatedPad
from graphflow.tir import PrimFunc

Maker: TypeAlias = "Callable[[Mapping[str, KernelTask]], Mapping[str, LoweredKernel]]"
"""Makes the kernel of each task, by symbol."""


def lower_call(
    call: PhysicalCall, target: Target, symbol: str, trace: Trace | None = None
) -> LoweredKernel:
    """The kernel of one call; `trace` records the seconds of scheduling and of the final proofs."""
    return make_kernel(
        kernel_task(call, target, symbol), Trace(Options()) if trace is None else trace
    )


def kernel_task(
    call: PhysicalCall, target: Target, symbol: str, held: Collection[str] = ()
) -> KernelTask:
    """The task from which the kernel of a call is made; plain data that a worker process can
    take.  It depends on the sizes in `held`, which are known before the call.
    """
    definition, placements, recipe, sized, filled = kernel_key(call, held)
    claimed = _claim(call)
    return KernelTask(symbol, definition, placements, recipe, target, claimed, sized, filled)


def kernel_key(
    call: PhysicalCall, held: Collection[str]
) -> tuple[PrimFunc, Placements, Recipe, tuple[SizedAxis, ...], tuple[FilledAxis, ...]]:
    """A key that is equal for calls which run the same kernel; names of nodes are no part of it."""
    names = {size: name for name, size in sizes_of_call(call, held).items()}
    sized = tuple(replace(axis, size=names[axis.size]) for axis in _sized(call, held))
    filled = tuple(replace(axis, size=names[axis.size]) for axis in _filled(call, held))
    return (
        replace(call.definition, name=SHARED_NAME),
        placements_of(call),
        call.recipe,
        sized,
        filled,
    )


def sizes_of_call(call: PhysicalCall, held: Collection[str]) -> dict[str, str]:
    """The values that hold sizes of a call, by the names that its kernel's task has for these; of
    those in `held`."""
    found = dict.fromkeys(axis.size for axis in _sized(call, held))
    found |= dict.fromkeys(axis.size for axis in _filled(call, held))
    return {f"size{number}": size for number, size in enumerate(found)}


def _sized(call: PhysicalCall, held: Collection[str]) -> tuple[SizedAxis, ...]:
    """The axes of a call's outputs of which a run gives a part, as the sizes in `held` say; those
    that are known only behind the call are left out."""
    if call.prepare or not any(call.counted.values()):
        return ()
    layouts = {b.name: call.placements[b.name].layout for b in call.definition.outputs}
    return tuple(axis for axis in axes_with_sizes(layouts, call.counted) if axis.size in held)


def _filled(call: PhysicalCall, held: Collection[str]) -> tuple[FilledAxis, ...]:
    """The axes of a call's inputs with a known number behind the elements that a run gives."""
    if call.prepare:
        return ()
    return tuple(
        axis
        for name, fills in call.filled.items()
        for axis in filled_axes(call.placements[name].layout, name, fills)
        if axis.size in held
    )


def placements_of(call: PhysicalCall) -> Placements:
    """The layout and the padding of each parameter, as recipes take them.

    Empty for conversions, whose definitions are over physical buffers already.
    """
    if call.variant is None:
        return ()
    outputs = {b.name for b in call.definition.outputs}
    found = []
    for param in call.definition.params:
        name = param.buffer.name
        place = call.placements[name]
        pad = call.pad_value if name in outputs else _assumed(call.variant.demands.get(name))
        found.append((name, place.layout, pad if place.own and place.layout.is_padded else None))
    return tuple(found)


def _assumed(demand: Demand | None) -> StatedPad:
    """What a kernel may assume of an input's padding: the demanded constant, or `undef`."""
    if isinstance(demand, Equal):
        return float(demand.literal.value)
    return "undef"


def _claim(call: PhysicalCall) -> str | None:
    if call.variant is None or not call.relied:
        return None
    return f"{call.name}: the variant {call.variant.name}"


def check_storage(call: PhysicalCall, physical: PhysicalGraph) -> None:
    """Check that each parameter's buffer is inside its storage and has its element type.

    That accesses stay inside the buffer is proven elsewhere.  Raises VerifyError.
    """
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
    physical: PhysicalGraph,
    target: Target,
    make: Maker = make_here,
    prefix: str = "",
    numbers: Collection[int] | None = None,
) -> tuple[dict[str, LoweredKernel], tuple[str, ...]]:
    """The distinct kernels by symbol, which begins with `prefix`, and the symbol of each call; of
    the calls with these `numbers`, by default all.

    A call whose definition has a callee (a foreign section) has that as its symbol, and no kernel.
    """
    symbols: dict[tuple[object, ...], str] = {}
    held = held_sizes(physical)
    tasks: dict[str, KernelTask] = {}
    order: list[str] = []
    for number in range(len(physical.calls)) if numbers is None else numbers:
        call = physical.calls[number]
        check_storage(call, physical)
        if call.definition.callee is not None:
            order.append(call.definition.callee)
            continue
        symbol = symbols.setdefault(kernel_key(call, held[number]), f"{prefix}k{len(symbols)}")
        task = tasks.setdefault(symbol, kernel_task(call, target, symbol, held[number]))
        if task.claimed is None:  # shared kernels: one call whose padding is relied on is enough
            tasks[symbol] = replace(task, claimed=_claim(call))
        order.append(symbol)
    made = make(tasks) if tasks else {}
    return {symbol: made[symbol] for symbol in tasks}, tuple(order)
