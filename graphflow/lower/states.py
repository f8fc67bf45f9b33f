"""States: inputs that an output repeats, so that both may be one memory.

In: the calls of a physical graph, their kernels, and their steps.  Out: for each such pair the step
to execute where both are one memory, or the reason why they are not.  What always holds: a step is
exchanged only if it is proven that every tensor of a run is the same then.

A decoder gives the keys of all tokens so far, which it was given up to the last run: the pair
(past, present).  In one memory, a run writes the new rows behind those that are there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from graphflow.base.errors import ScheduleError
from graphflow.kernels.lowering import (
    KernelTask,
    LoweredKernel,
    Repeated,
    appending,
    repeats,
    writes_behind,
)
from graphflow.layout import row_major
from graphflow.physical import PhysicalCall, PhysicalGraph
from graphflow.tir import Buffer, PrimFunc, writes_in


@dataclass(frozen=True, slots=True)
class StatePair:
    """An input and an output of a graph, which call number `call` repeats.

    symbol: the kernel that is executed where both are one memory.
    axis: as that of a `StateSpec`.
    refusal: why they cannot be one memory; empty if they can.
    """

    input: str
    output: str
    call: int
    symbol: str = ""
    axis: int | None = None
    refusal: str = ""


def state_pairs(
    physical: PhysicalGraph, symbols: Sequence[str], kernels: Mapping[str, LoweredKernel]
) -> tuple[tuple[StatePair, ...], dict[str, KernelTask]]:
    """The pairs of inputs and outputs that may be one memory or are refused, and the tasks of the
    kernels for these, by symbol.

    Each input, each output and each call is in one pair at most.
    """
    found: list[StatePair] = []
    tasks: dict[str, KernelTask] = {}
    made: dict[tuple[str, Repeated], str] = {}
    inputs = {name: name for name in physical.inputs}
    outputs = {f"output:{name}": name for name in physical.outputs}
    for number, (call, symbol) in enumerate(zip(physical.calls, symbols, strict=True)):
        sources = _whole(call, call.definition.inputs, inputs, physical)
        targets = _whole(call, call.definition.outputs, outputs, physical)
        for names, repeated in _candidates(call, sources, targets) if symbol in kernels else ():
            func = kernels[symbol].func
            is_taken = any(
                one.symbol and (one.call == number or {one.input, one.output} & {*names})
                for one in found
            )
            if is_taken or not repeats(func, repeated):
                continue
            try:
                _require_unread(names[0], number, physical)
                func = appending(func, repeated)
            except ScheduleError as refusal:
                found.append(StatePair(*names, number, refusal=f"{call.name}: {refusal}"))
                continue
            axis = _kept_axis(call, repeated, func)
            name = made.setdefault((symbol, repeated), f"{symbol}_{len(made)}")
            tasks[name] = replace(kernels[symbol].task, symbol=name, repeated=repeated)
            found.append(StatePair(*names, number, name, axis))
    return tuple(found), tasks


def _whole(
    call: PhysicalCall, buffers: Sequence[Buffer], names: Mapping[str, str], physical: PhysicalGraph
) -> list[tuple[Buffer, str]]:
    """The parameters of a call that are a graph input or output, as it is and in row-major order,
    with its name; `names` has those by storage."""
    found = []
    for buffer in () if call.prepare else buffers:
        place = call.placements[buffer.name]
        name = names.get(place.storage, "")
        # A constant that is returned is a value of no call, but copied at the end.
        if name not in physical.values or not buffer.shape or place.offset:
            continue
        if place.layout == row_major(physical.values[name].layout.logical_shape):
            found.append((buffer, name))
    return found


def _candidates(
    call: PhysicalCall, sources: Sequence[tuple[Buffer, str]], targets: Sequence[tuple[Buffer, str]]
) -> Iterator[tuple[tuple[str, str], Repeated]]:
    """A graph input and a graph output that may be given back as it, and the parameters of a call
    that are these: of one dtype, and of one shape unless a run decides extents of the input."""
    for (target, output), (source, given) in product(targets, sources):
        is_alike = (source.dtype, len(source.shape)) == (target.dtype, len(target.shape))
        if is_alike and (source.shape == target.shape or call.counted.get(source.name)):
            yield (given, output), Repeated(source.name, target.name)


def _kept_axis(call: PhysicalCall, repeated: Repeated, func: PrimFunc) -> int | None:
    """The axis along which a kernel writes no row of its output that a run gives of its input.

    None where it writes any rows, or that is not proven.
    """
    given = call.counted.get(repeated.source, {})
    result = call.counted.get(repeated.target, {})
    params = {call.placements[b.name].storage: b.name for b in call.definition.inputs}
    sizes = [
        params[size] for axes in call.counted.values() for size in axes.values() if size in params
    ]
    if not any(write.buffer.name == repeated.target for write in writes_in(func.body)):
        return 0 if func.param(repeated.target).shape else None
    grown = [axis for axis, size in given.items() if result.get(axis) != size and size in params]
    for axis in grown:
        if writes_behind(func, repeated, axis, params[given[axis]], sizes):
            return axis
    return None


def _require_unread(name: str, number: int, physical: PhysicalGraph) -> None:
    """Raise ScheduleError if a call other than call `number` reads an input."""
    for other, call in enumerate(physical.calls):
        places = call.placements.values() if other != number else ()
        if any(place.storage == name for place in places):
            raise ScheduleError(f"{call.name} reads {name} too")
