"""Fills behind sizes that nothing reads.

In: the calls of a physical graph.  Out: their kernels; calls that fill a tensor behind a size are
counted there, so that their kernels end at the size too, if no kernel reads what they fill.  What
always holds: that is proven of the kernels that read the tensor.  These needed the fill for the
proof that the elements behind the size change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.kernels.lowering import LoweredKernel, filled_axes, fills_of, make_here, reads_below
from graphflow.lower.called_kernels import Maker, lower_kernels, sizes_of_call
from graphflow.lower.held_sizes import HeldSizes, held_sizes
from graphflow.physical import PhysicalCall, PhysicalGraph


def lower_with_fills(
    physical: PhysicalGraph, target: Target, make: Maker = make_here, prefix: str = ""
) -> tuple[PhysicalGraph, dict[str, LoweredKernel], tuple[str, ...]]:
    """The graph with more axes of its calls counted, its kernels by symbol, which begins with
    `prefix`, and the symbol of each call.

    Kernels of calls that fill come last: those of their readers decide about them.
    """
    are_read = any(any(call.filled.values()) for call in physical.calls)
    waiting = [k for k, call in enumerate(physical.calls) if are_read and _may_be_counted(call)]
    others = [k for k in range(len(physical.calls)) if k not in waiting]
    kernels, found = lower_kernels(physical, target, make, prefix, others)
    symbols = dict(zip(others, found, strict=True))
    if waiting:
        made = {k: kernels.get(symbol) for k, symbol in symbols.items()}
        held = held_sizes(physical)
        counted = {k: _counted(physical.calls[k], physical, made, held) for k in waiting}
        calls = tuple(counted.get(k, call) for k, call in enumerate(physical.calls))
        physical = replace(physical, calls=calls)
        more, found = lower_kernels(physical, target, make, f"{prefix}f", waiting)
        kernels |= more
        symbols |= zip(waiting, found, strict=True)
    return physical, kernels, tuple(symbols[k] for k in range(len(physical.calls)))


def _may_be_counted(call: PhysicalCall) -> bool:
    return not call.prepare and bool(fills_of(call.definition))


def _counted(
    filling: PhysicalCall,
    physical: PhysicalGraph,
    made: Mapping[int, LoweredKernel | None],
    held: Sequence[HeldSizes],
) -> PhysicalCall:
    """A call that is counted where all readers of its output end at what it fills; `made` has their
    kernels by the numbers of calls, `held` the sizes that are known before each call."""
    (output,) = filling.definition.outputs
    place = filling.placements[output.name]
    if physical.storages[place.storage].kind != "arena":
        return filling
    counts: dict[int, str] | None = None
    for number, call in enumerate(physical.calls):
        if call is filling:
            continue
        kernel = made.get(number)
        for name, other in call.placements.items():
            if other.storage != place.storage:
                continue
            found = {}
            if kernel is not None and (other.layout, other.offset) == (place.layout, place.offset):
                found = dict(_ended(call, kernel, name, held[number]))
            counts = {k: n for k, n in found.items() if counts is None or counts.get(k) == n}
    if not counts:
        return filling
    known = filling.counted.get(output.name, {})
    return replace(filling, counted={**filling.counted, output.name: {**counts, **known}})


def _ended(
    call: PhysicalCall, kernel: LoweredKernel, name: str, held: HeldSizes
) -> Iterator[tuple[int, str]]:
    """The filled axes of an input behind whose sizes its kernel reads nothing, with these sizes."""
    names = {size: local for local, size in sizes_of_call(call, held).items()}
    params = {param.size: param.buffer for param in kernel.sizes}
    # A definition may read a size itself, as products that end at it do.
    own = {call.placements[b.name].storage: b for b in call.definition.inputs if b.shape == ()}
    place = call.placements[name]
    for axis, (size, fill) in call.filled.get(name, {}).items():
        known = own.get(held[size].storage) if size in held else None
        count = params.get(names.get(size, "")) if known is None else known
        axes = filled_axes(place.layout, name, {axis: (size, fill)})
        if count is not None and axes and reads_below(kernel.func, axes[0].place, count):
            yield axis, size
