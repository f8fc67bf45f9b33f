"""Turn physical calls into the step tables of a native program.

In: a physical graph and its lowered kernels.  Out: `Lowered`; and with the object code of the
kernels, a `ProgramSpec`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from graphflow.base.target import Target
from graphflow.graph import DerivedSize, Node, OperatorGraph, SizeInput, Value
from graphflow.kernels.lowering import LoweredKernel, make_here
from graphflow.lower.called_kernels import Maker, lower_kernels, sizes_of_call
from graphflow.lower.memory_plan import pack, plan_arena
from graphflow.lower.run_portions import portion_of
from graphflow.lower.states import StatePair, state_pairs
from graphflow.physical import PhysicalCall, PhysicalGraph
from graphflow.program import (
    BufferRef,
    ComputedSize,
    GuardedOutput,
    InputSize,
    ProgramSpec,
    ProgramStep,
    SectionSpec,
    Signature,
    StateSpec,
    TensorSpec,
    TrimmedOutput,
)
from graphflow.tir import DTYPES, Buffer

MOST_NAMED = 4
"""The most calls of one kernel that a message names."""


@dataclass(frozen=True)
class Lowered:
    """The lowered program: kernels by symbol, calls with their steps, and the memory of each
    storage.

    Runs touch only the first `kept_bytes` of the constant block; the rest is used by `prepare`
    alone.  `states` has for each input that an output repeats the step to execute where both are
    one memory; None where they cannot be.
    """

    kernels: Mapping[str, LoweredKernel]
    calls: tuple[tuple[PhysicalCall, ProgramStep], ...]
    places: Mapping[str, BufferRef]
    arena_bytes: int
    constant_bytes: int
    kept_bytes: int
    physical: PhysicalGraph
    states: tuple[tuple[StatePair, ProgramStep | None], ...] = ()

    def describe(self, symbol: str) -> str:
        """A kernel in words: symbol, the calls that run it, variant."""
        calls = [call for call, step in self.calls if step.symbol == symbol]
        calls += [self.calls[pair.call][0] for pair, _ in self.states if pair.symbol == symbol]
        names = [call.name for call in calls[:MOST_NAMED]]
        more = f" and {len(calls) - len(names)} more" if len(calls) > len(names) else ""
        variant = calls[0].variant
        kernel = self.kernels[symbol]
        made = (
            type(kernel.task.recipe).__name__.lower()
            if variant is None
            else f"variant {variant.name}"
        )
        return f"{symbol} ({', '.join(names)}{more}; {made})"


def lower(physical: PhysicalGraph, target: Target, make: Maker = make_here) -> Lowered:
    """The kernels, the memory plan and the steps of a physical graph; `make` makes the kernels."""
    kernels, symbols = lower_kernels(physical, target, make)
    sizes, touched = _touched_storages(physical, kernels, symbols)
    kinds = {name: s.kind for name, s in physical.storages.items()}
    arena = {n: size for n, size in sizes.items() if kinds.get(n, "arena") == "arena"}
    constant = {n: size for n, size in sizes.items() if kinds.get(n) == "constant"}
    arena_offsets, arena_bytes = plan_arena(arena, touched)
    # The constants that runs read come first, so that after `prepare` the others can be freed.
    used = {
        n for call, t in zip(physical.calls, touched, strict=True) if not call.prepare for n in t
    }
    kept = {n: size for n, size in constant.items() if n in used}
    _, kept_bytes = pack(kept)
    constant_offsets, constant_bytes = pack(kept | constant)
    places = {n: BufferRef("arena", offset) for n, offset in arena_offsets.items()}
    places |= {n: BufferRef("constant", offset) for n, offset in constant_offsets.items()}
    places |= {n: BufferRef("input", k) for k, n in enumerate(physical.inputs)}
    outputs = [f"output:{name}" for name in physical.outputs]
    places |= {n: BufferRef("output", k) for k, n in enumerate(outputs)}
    numbers = {n: k for k, n in enumerate(physical.inputs)}
    pairs, tasks = state_pairs(physical, symbols, kernels)
    kernels |= make(tasks) if tasks else {}

    def step(number: int, symbol: str) -> ProgramStep:
        call = physical.calls[number]
        shared = physical.shared or call.prepare
        return _step(number, call, symbol, kernels, places, shared, numbers)

    steps = (step(number, symbol) for number, symbol in enumerate(symbols))
    return Lowered(
        kernels,
        tuple(zip(physical.calls, steps, strict=True)),
        places,
        arena_bytes,
        constant_bytes,
        kept_bytes,
        physical,
        tuple((pair, step(pair.call, pair.symbol) if pair.symbol else None) for pair in pairs),
    )


@dataclass(frozen=True, slots=True)
class ArenaPart:
    """The memory of one storage: `bytes` from `offset` on, from step `first` of a run to `last`.

    The storage of intermediate results inside of a kernel is no `storage` of the physical graph.
    """

    storage: str
    offset: int
    bytes: int
    first: int
    last: int


def arena_parts(lowered: Lowered) -> tuple[ArenaPart, ...]:
    """What lies where in the arena during which steps of a run, in the order of the first step."""
    symbols = [step.symbol for _, step in lowered.calls]
    sizes, touched = _touched_storages(lowered.physical, lowered.kernels, symbols)
    running = [
        names for (call, _), names in zip(lowered.calls, touched, strict=True) if not call.prepare
    ]
    lives: dict[str, tuple[int, int]] = {}
    for moment, names in enumerate(running):
        for name in names:
            if lowered.places[name].space == "arena":
                lives[name] = (lives.get(name, (moment, moment))[0], moment)
    return tuple(
        ArenaPart(name, lowered.places[name].position, sizes[name], first, last)
        for name, (first, last) in lives.items()
    )


def _touched_storages(
    physical: PhysicalGraph, kernels: Mapping[str, LoweredKernel], symbols: Sequence[str]
) -> tuple[dict[str, int], list[list[str]]]:
    """The bytes of each storage, with those of workspaces, and the storages of each call."""
    sizes = {name: s.elements * DTYPES[s.dtype].itemsize for name, s in physical.storages.items()}
    touched: list[list[str]] = []
    for k, (call, symbol) in enumerate(zip(physical.calls, symbols, strict=True)):
        touched.append([p.storage for p in call.placements.values()])
        for buffer in _workspace(kernels, symbol):
            name = _workspace_name(k, buffer.name)
            sizes[name] = buffer.bytes
            touched[-1].append(name)
    return sizes, touched


def _workspace_name(call: int, buffer: str) -> str:
    return f"workspace:{call}:{buffer}"


def _workspace(kernels: Mapping[str, LoweredKernel], symbol: str) -> tuple[Buffer, ...]:
    """The scratch buffers of a kernel; a foreign section, which is no kernel, has none here."""
    return kernels[symbol].workspace if symbol in kernels else ()


def _step(
    number: int,
    call: PhysicalCall,
    symbol: str,
    kernels: Mapping[str, LoweredKernel],
    places: Mapping[str, BufferRef],
    shared: bool,
    numbers: Mapping[str, int],
) -> ProgramStep:
    """The step of a call; `numbers` has the numbers of the program's inputs."""
    buffers = []
    for buffer in (param.buffer for param in call.definition.params):
        place = call.placements[buffer.name]
        begin = place.offset * DTYPES[buffer.dtype].itemsize
        buffers.append(replace(places[place.storage], offset=begin))
    buffers += [places[_workspace_name(number, b.name)] for b in _workspace(kernels, symbol)]
    if symbol not in kernels:
        return ProgramStep(symbol, tuple(buffers), 1, 0 if shared else 1)
    kernel = kernels[symbol]
    sizes = {name: numbers[size] for name, size in sizes_of_call(call, numbers).items()}
    buffers += [BufferRef("input", sizes[param.size]) for param in kernel.sizes]
    part = portion_of(kernel, sizes) if sizes else None
    return ProgramStep(symbol, tuple(buffers), kernel.extent, 0 if shared else 1, part)


def assemble(graph: OperatorGraph, lowered: Lowered, objects: Mapping[str, bytes]) -> ProgramSpec:
    """The program of a lowered graph; `objects` has the object code of each kernel, by symbol."""
    physical = lowered.physical
    values = {**graph.values, **{value.name: value for value in physical.poisons}}
    constants = tuple(
        (lowered.places[name].position, spec.contents)
        for name, spec in physical.storages.items()
        if spec.contents is not None
    )
    numbers = {name: number for number, name in enumerate(physical.outputs)}
    return ProgramSpec(
        objects=tuple((symbol, objects[symbol]) for symbol in lowered.kernels),
        prepare=tuple(step for call, step in lowered.calls if call.prepare),
        run=tuple(step for call, step in lowered.calls if not call.prepare),
        constants=constants,
        constant_bytes=lowered.constant_bytes,
        arena_bytes=lowered.arena_bytes,
        inputs=tuple(_tensor(values[name]) for name in physical.inputs),
        outputs=tuple(_tensor(values[name]) for name in physical.outputs),
        kept_bytes=lowered.kept_bytes,
        sections=tuple(
            SectionSpec(graph.sections[node.func.callee], _section_tensors(graph, node))
            for node in graph.nodes
            if node.func.callee is not None
        ),
        objects_in=graph.objects_in,
        objects_out=graph.objects_out,
        hidden=len(graph.outputs) - len(graph.results),
        guards=tuple(GuardedOutput(numbers[g.value], g.lo, g.hi, g.subject) for g in graph.guards),
        trimmed=tuple(
            TrimmedOutput(numbers[t.output], t.axis, numbers[t.extents], t.element)
            for t in graph.trims
        ),
        signatures={symbol: _signature(kernel) for symbol, kernel in lowered.kernels.items()},
        sizes=tuple(_input_size(one, physical.inputs) for one in graph.sizes),
        relations=graph.relations,
        computed=tuple(_computed_size(one, physical.inputs) for one in graph.derived),
        states=tuple(_state_specs(lowered, len(graph.results))),
    )


def _state_specs(lowered: Lowered, results: int) -> Iterator[StateSpec]:
    """The states of a program, with the numbers of their steps among those of a run; its first
    outputs are the model's `results`."""
    physical = lowered.physical
    running = [number for number, call in enumerate(physical.calls) if not call.prepare]
    for pair, instead in lowered.states:
        output = physical.outputs.index(pair.output)
        if instead is not None and output < results:
            yield StateSpec(
                physical.inputs.index(pair.input),
                output,
                running.index(pair.call),
                instead,
                pair.axis,
            )


def _input_size(one: SizeInput, inputs: tuple[str, ...]) -> InputSize:
    axes = tuple((inputs.index(name), axis) for name, axis in one.axes)
    return InputSize(one.size.name, inputs.index(one.tensor), one.size.lo, one.size.hi, axes)


def _computed_size(one: DerivedSize, inputs: tuple[str, ...]) -> ComputedSize:
    size, operands = one.size, tuple(map(inputs.index, one.operands))
    number = inputs.index(one.tensor)
    return ComputedSize(size.name, number, size.lo, size.hi, one.formula, operands)


def _signature(kernel: LoweredKernel) -> Signature:
    """The limits of a kernel's arguments: its accesses are proven to stay inside these sizes."""
    return Signature(kernel.extent, tuple(param.buffer.bytes for param in kernel.func.params))


def _section_tensors(graph: OperatorGraph, node: Node) -> tuple[TensorSpec, ...]:
    """The parameters of a section's node, under the names that the section has for them.

    Values may have been renamed since.  Parameters that only order sections have no name in the
    section and come behind those that have.
    """
    section = graph.sections[node.func.callee or ""]
    found = []
    for names, buffers in (
        (section.inputs, node.func.inputs),
        (section.outputs, node.func.outputs),
    ):
        for buffer, name in zip_longest(buffers, names, fillvalue=""):
            assert isinstance(buffer, Buffer)
            found.append(TensorSpec(str(name) or f".{buffer.name}", buffer.dtype, buffer.shape))
    return tuple(found)


def _tensor(value: Value) -> TensorSpec:
    return TensorSpec(value.name, value.dtype, value.shape)
