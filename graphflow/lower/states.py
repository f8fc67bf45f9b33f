"""States: inputs that an output repeats, so that both may be one memory.

In: the calls of a physical graph, their kernels, and their steps.  Out: for each such pair the step
to execute where both are one memory, or the reason why they are not.  What always holds: a step is
exchanged only if it is proven that every tensor of a run is the same then.

A decoder gives the keys of all tokens so far, which it was given up to the last run: the pair
(past, present).  In one memory, a run writes the new rows behind those that are there.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import product
from math import prod

from msgspec import Struct

from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.kernels.lowering import (
    KernelTask,
    LoweredKernel,
    Repeated,
    appending,
    repeats,
    writes_behind,
)
from graphflow.layout import Layout, row_major
from graphflow.physical import PhysicalCall, PhysicalGraph, Placement
from graphflow.tir import Buffer, PrimFunc, writes_in


class StatePair(Struct, frozen=True):
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


def pairs_in_place(
    physical: PhysicalGraph,
    symbols: Sequence[str],
    kernels: Mapping[str, LoweredKernel],
    wanted: Collection[tuple[str, str]],
) -> tuple[tuple[StatePair, ...], dict[str, KernelTask]]:
    """Those of some pairs of an input and an output that may be one memory, as one call repeats the
    input at its places in the output, and the tasks of the kernels for these, by symbol.

    Each call is in one pair at most.
    """
    found: list[StatePair] = []
    tasks: dict[str, KernelTask] = {}
    made: dict[tuple[str, Repeated], str] = {}
    for given, output in wanted:
        writing = [
            (number, buffer)
            for number, call in enumerate(physical.calls)
            for buffer in call.definition.outputs
            if call.placements[buffer.name].storage == f"output:{output}"
        ]
        if len(writing) != 1 or writing[0][0] in {pair.call for pair in found}:
            continue
        ((number, target),) = writing
        call, symbol = physical.calls[number], symbols[number]
        sources = [b for b in call.definition.inputs if call.placements[b.name].storage == given]
        if call.prepare or symbol not in kernels or len(sources) != 1:
            continue
        repeated = Repeated(sources[0].name, target.name)
        places = call.placements[sources[0].name], call.placements[target.name]
        func = kernels[symbol].func
        if not _are_same_places(*places) or not repeats(func, repeated):
            continue
        try:
            _require_unread(given, number, physical)
            appending(func, repeated)
        except ScheduleError:
            continue  # what is repeated is copied then, twice in each iteration
        name = made.setdefault((symbol, repeated), f"{symbol}_{len(made)}")
        tasks[name] = replace(kernels[symbol].task, symbol=name, repeated=repeated)
        found.append(StatePair(given, output, number, name))
    return tuple(found), tasks


def _are_same_places(source: Placement, target: Placement) -> bool:
    """Whether an element of a tensor has the same position in one storage as the element of equal
    indices of another tensor has in its own."""
    one, other = source.layout, target.layout
    if source.offset or target.offset or len(one.logical_shape) != len(other.logical_shape):
        return False
    strides = _strides(one), _strides(other)
    return all(
        extent == 1 or (first is not None and first == second)
        for extent, first, second in zip(one.logical_shape, *strides, strict=True)
    )


def _strides(layout: Layout) -> list[int | None]:
    """How far the neighbours along each axis of a tensor are apart, of axes that stay in order and
    are axes of the box too; None for others."""
    places, shape = layout.simplified, layout.physical_shape
    if len(places) != len(layout.logical_shape):
        return [None] * len(layout.logical_shape)
    return [
        prod(shape[axis + 1 :]) if place is of_axis else None
        for axis, (place, of_axis) in enumerate(zip(places, layout.index_map.inputs, strict=True))
    ]


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
