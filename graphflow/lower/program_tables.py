"""Turn physical calls into the step tables of a native program.

In: a physical graph and its lowered kernels.  Out: `Lowered`; and with the object code of the
kernels, a `ProgramSpec`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest

from msgspec import Struct

from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.graph import DerivedSize, Node, OperatorGraph, SizeInput, Value
from graphflow.kernels.lowering import LoweredKernel, make_here
from graphflow.lower.called_kernels import Maker, sizes_of_call
from graphflow.lower.counted_fills import lower_with_fills
from graphflow.lower.held_sizes import held_sizes
from graphflow.lower.lowered import ConstantShift, Lowered
from graphflow.lower.memory_plan import pack, plan_arena
from graphflow.lower.reductions_in_producers import reduced_in_producers
from graphflow.lower.region_steps import lower_regions
from graphflow.lower.run_portions import portion_of
from graphflow.lower.states import StatePair, pairs_in_place, state_pairs
from graphflow.lower.window_origins import at_window_origins
from graphflow.physical import PhysicalCall, PhysicalGraph
from graphflow.program import (
    BufferRef,
    ComputedSize,
    GuardedOutput,
    InputSize,
    PackedOutput,
    Portion,
    ProgramSpec,
    ProgramStep,
    SectionSpec,
    SharingPrices,
    Signature,
    SizeWithin,
    StateSpec,
    TensorSpec,
    TrimmedOutput,
    may_run_concurrently,
)
from graphflow.tir import DTYPES, Buffer


def lower(
    physical: PhysicalGraph,
    target: Target,
    make: Maker = make_here,
    prefix: str = "",
    handed_on: Collection[tuple[str, str]] | None = None,
) -> Lowered:
    """The kernels, the memory plan and the steps of a physical graph.

    `make` makes the kernels; their symbols begin with `prefix`.  `handed_on` are the pairs of an
    input and an output that may be one memory; None for those of a whole model, which it finds.
    """
    physical = reduced_in_producers(at_window_origins(physical), target)
    physical, kernels, symbols = lower_with_fills(physical, target, make, prefix)

    def lower_part(
        part: PhysicalGraph, number: int, handed_on: Collection[tuple[str, str]]
    ) -> Lowered:
        return lower(part, target, make, f"{prefix}r{number}_", handed_on)

    regions = lower_regions(physical, target, make, lower_part, prefix)
    for region in regions.values():
        kernels.update(region.kernels)
    workspaces = tuple(
        regions[k].workspace if k in regions else _workspace(kernels, symbol)
        for k, symbol in enumerate(symbols)
    )
    inner = tuple(part for region in regions.values() for part in region.programs)
    idle = [
        symbol in kernels and _leaves_threads_idle(physical, call, kernels[symbol])
        for call, symbol in zip(physical.calls, symbols, strict=True)
    ]
    memory = _memory(physical, workspaces, inner, idle)
    places = memory.places
    sizes = [
        {name: places[place.storage] for name, place in held.items()}
        for held in held_sizes(physical)
    ]
    prepared: list[tuple[PhysicalCall, ProgramStep]] = []
    calls: list[tuple[PhysicalCall, ProgramStep]] = []
    remaining = iter(memory.shifts)
    for k, (call, symbol) in enumerate(zip(physical.calls, symbols, strict=True)):
        refs = _buffers(k, call, workspaces[k], places)
        if k in regions:
            region = regions[k]
            found = region.steps(refs, [next(remaining) for _ in region.programs], places)
            prepared += [(replace(call, prepare=True), step) for step in found.prepare]
            calls += [(call, step) for step in found.run]
            continue
        shared = _is_shared(physical, call)
        calls.append((call, _step(call, symbol, kernels, refs, shared, sizes[k])))
    pairs, tasks = (
        state_pairs(physical, symbols, kernels)
        if handed_on is None
        else pairs_in_place(physical, symbols, kernels, handed_on)
    )
    kernels |= make(tasks) if tasks else {}

    def instead(pair: StatePair) -> ProgramStep | None:
        if not pair.symbol:
            return None
        call = physical.calls[pair.call]
        refs = _buffers(pair.call, call, workspaces[pair.call], places)
        shared = _is_shared(physical, call)
        return _step(call, pair.symbol, kernels, refs, shared, sizes[pair.call])

    return Lowered(
        kernels,
        (*prepared, *calls),
        places,
        memory.arena_bytes,
        memory.constant_bytes,
        memory.kept_bytes,
        memory.scratch_place,
        physical,
        tuple((pair, instead(pair)) for pair in pairs),
        workspaces,
        tuple(zip(inner, memory.shifts, strict=True)),
    )


class _Memory(Struct, frozen=True):
    """Where the storages of a program lie, and what it takes.

    `shifts` say where the constants of the parts of its regions lie; `kept_bytes` and
    `scratch_place` are as in `Lowered`.
    """

    places: Mapping[str, BufferRef]
    shifts: tuple[ConstantShift, ...]
    arena_bytes: int
    constant_bytes: int
    kept_bytes: int
    scratch_place: int


def _is_shared(physical: PhysicalGraph, call: PhysicalCall) -> bool:
    """Whether threads share a call, as they do what is executed once, before the first run."""
    pays = physical.sharing is None or physical.sharing.pays
    return call.prepare or (pays and call.saved is not None)


def _leaves_threads_idle(
    physical: PhysicalGraph, call: PhysicalCall, kernel: LoweredKernel
) -> bool:
    """Whether the step of a call leaves threads idle that could run another step meanwhile."""
    sizes = (param.buffer.bytes for param in kernel.func.params)
    is_run = not call.prepare and _is_shared(physical, call)
    return is_run and may_run_concurrently(kernel.extent, sizes)


def _with_concurrent(
    calls: Sequence[PhysicalCall], touched: list[list[str]], idle: Sequence[bool]
) -> list[list[str]]:
    """What is live at each call: what it touches, and what calls touch that may run meanwhile.

    Those are its neighbours that leave threads `idle`, as far as none touches what another one
    writes.
    """
    found: list[list[str]] = []
    begin = 0
    for number, call in enumerate(calls):
        joins = idle[number] and all(
            idle[k] and _are_apart(calls[k], call) for k in range(begin, number)
        )
        if not joins:
            begin = number
        found.append([*touched[number]])
        for k in range(begin, number):
            found[number] += touched[k]
            found[k] += touched[number]
    return found


def _are_apart(one: PhysicalCall, other: PhysicalCall) -> bool:
    """Whether neither of two calls touches a place that the other one writes."""
    places = [
        {(place.storage, place.offset) for place in call.placements.values()}
        for call in (one, other)
    ]
    written = [
        {
            (call.placements[b.name].storage, call.placements[b.name].offset)
            for b in call.definition.outputs
        }
        for call in (one, other)
    ]
    return places[0].isdisjoint(written[1]) and places[1].isdisjoint(written[0])


def _memory(
    physical: PhysicalGraph,
    workspaces: Sequence[tuple[Buffer, ...]],
    inner: Sequence[Lowered],
    idle: Sequence[bool],
) -> _Memory:
    """The memory plan of a graph whose regions have the parts `inner`.

    `idle` says of each call whether it leaves threads idle.
    """
    sizes, touched = _touched_storages(physical, workspaces)
    kinds = {name: s.kind for name, s in physical.storages.items()}
    arena = {n: size for n, size in sizes.items() if kinds.get(n, "arena") == "arena"}
    constant = {n: size for n, size in sizes.items() if kinds.get(n) == "constant"}
    arena_offsets, arena_bytes = plan_arena(arena, _with_concurrent(physical.calls, touched, idle))
    # The constants that runs read come first, so that after `prepare` the others can be freed.
    used = {
        n for call, t in zip(physical.calls, touched, strict=True) if not call.prepare for n in t
    }
    kept = {n: size for n, size in constant.items() if n in used}
    kept |= {f"kept:{k}": part.kept_bytes for k, part in enumerate(inner)}
    constant |= {f"rest:{k}": part.constant_bytes - part.kept_bytes for k, part in enumerate(inner)}
    _, kept_bytes = pack(kept)
    passing = _passing(physical)
    turns = {n: size for n, size in constant.items() if n in passing and n not in kept}
    stays = {n: size for n, size in constant.items() if n not in turns}
    constant_offsets, scratch_place = pack(kept | stays)
    scratch_offsets, scratch_bytes = plan_arena(turns, touched)
    constant_offsets |= {n: scratch_place + offset for n, offset in scratch_offsets.items()}
    places = {n: BufferRef("arena", offset) for n, offset in arena_offsets.items()}
    places |= {n: BufferRef("constant", offset) for n, offset in constant_offsets.items()}
    places |= {n: BufferRef("input", k) for k, n in enumerate(physical.inputs)}
    places |= {f"output:{n}": BufferRef("output", k) for k, n in enumerate(physical.outputs)}
    return _Memory(
        places,
        tuple(
            ConstantShift(
                part.kept_bytes, constant_offsets[f"kept:{k}"], constant_offsets[f"rest:{k}"]
            )
            for k, part in enumerate(inner)
        ),
        # Arenas of parts, which hold nothing between steps of `prepare`, are this program's then.
        max([arena_bytes, *(part.arena_bytes for part in inner)]),
        scratch_place + scratch_bytes,
        kept_bytes,
        scratch_place,
    )


def _passing(physical: PhysicalGraph) -> set[str]:
    """The storages that are written by one call, which prepares constants.

    Others may be read before anything writes them, or be written in parts, and that two constants
    are equal is known by the one step that made each.
    """
    writers = Counter(name for call in physical.calls for name in _written(call))
    prepared = {name for call in physical.calls if call.prepare for name in _written(call)}
    return {n for n in prepared if writers[n] == 1 and physical.storages[n].contents is None}


def _written(call: PhysicalCall) -> set[str]:
    """The storages that a call writes."""
    return {call.placements[buffer.name].storage for buffer in call.definition.outputs}


class ArenaPart(Struct, frozen=True):
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
    physical = lowered.physical
    sizes, touched = _touched_storages(physical, lowered.workspaces)
    of_call = {id(call): names for call, names in zip(physical.calls, touched, strict=True)}
    running = [of_call[id(call)] for call, _ in lowered.calls if not call.prepare]
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
    physical: PhysicalGraph, workspaces: Sequence[tuple[Buffer, ...]]
) -> tuple[dict[str, int], list[list[str]]]:
    """The bytes of each storage, with those of workspaces, and the storages of each call, also
    those of its sizes."""
    sizes = {name: s.elements * DTYPES[s.dtype].itemsize for name, s in physical.storages.items()}
    touched: list[list[str]] = []
    held = held_sizes(physical)
    for k, (call, workspace) in enumerate(zip(physical.calls, workspaces, strict=True)):
        touched.append([p.storage for p in (*call.placements.values(), *held[k].values())])
        for buffer in workspace:
            name = _workspace_name(k, buffer.name)
            sizes[name] = buffer.bytes
            touched[-1].append(name)
    return sizes, touched


def _workspace_name(call: int, buffer: str) -> str:
    return f"workspace:{call}:{buffer}"


def _workspace(kernels: Mapping[str, LoweredKernel], symbol: str) -> tuple[Buffer, ...]:
    """The scratch buffers of a kernel; a foreign section, which is no kernel, has none here."""
    return kernels[symbol].workspace if symbol in kernels else ()


def _buffers(
    number: int, call: PhysicalCall, workspace: Sequence[Buffer], places: Mapping[str, BufferRef]
) -> tuple[BufferRef, ...]:
    """The memory of a call's parameters and, behind these, of its workspace."""
    buffers = []
    for buffer in (param.buffer for param in call.definition.params):
        place = call.placements[buffer.name]
        begin = place.offset * DTYPES[buffer.dtype].itemsize
        buffers.append(replace(places[place.storage], offset=begin))
    return (*buffers, *(places[_workspace_name(number, b.name)] for b in workspace))


def _step(
    call: PhysicalCall,
    symbol: str,
    kernels: Mapping[str, LoweredKernel],
    buffers: tuple[BufferRef, ...],
    shared: bool,
    held: Mapping[str, BufferRef],
) -> ProgramStep:
    """The step of a call; `held` has the memory of the sizes that are known before it."""
    threads, saved = (0, _nanoseconds(call.saved or 0.0)) if shared else (1, 0)
    if symbol not in kernels:
        return ProgramStep(symbol, buffers, 1, threads)
    kernel = kernels[symbol]
    sizes = {name: held[size] for name, size in sizes_of_call(call, held).items()}
    buffers += tuple(sizes[param.size] for param in kernel.sizes)
    part = portion_of(kernel, sizes) if sizes else None
    return ProgramStep(
        symbol,
        buffers,
        kernel.extent,
        threads,
        part,
        meets=kernel.in_phases,
        saved=saved,
        within=(*_sizes_within(kernel, sizes, part), *_counts_within(call, held)),
    )


def _sizes_within(
    kernel: LoweredKernel, holders: Mapping[str, BufferRef], part: Portion | None
) -> Iterator[SizeWithin]:
    """The sizes of inputs that a kernel reads beside those that decide how many iterations are
    executed; how threads share a step is decided before other sizes are known."""
    digits = () if part is None else part.digits
    of_iterations = {digit.holder for digit in digits}
    rooms = {axis.size: axis.room for axis in kernel.task.filled}
    rooms |= {axis.size: axis.room for axis in kernel.task.sized}
    for param in kernel.sizes:
        holder = holders[param.size]
        if holder.space == "input" and holder not in of_iterations:
            yield SizeWithin(holder.position, rooms[param.size])


def _counts_within(call: PhysicalCall, held: Mapping[str, BufferRef]) -> Iterator[SizeWithin]:
    """The sizes of inputs that the definition of a call counts by, such as the keys of each row."""
    shapes = {buffer.name: buffer.shape for buffer in call.definition.outputs}
    for buffer in call.definition.inputs:
        size = call.placements[buffer.name].storage
        rooms = [
            shapes[name][axis]
            for name, counted in call.counted.items()
            for axis, count in counted.items()
            if count == size and name in shapes
        ]
        holder = held.get(size)
        if buffer.shape == () and holder is not None and holder.space == "input" and rooms:
            yield SizeWithin(holder.position, max(rooms))


def assemble(graph: OperatorGraph, lowered: Lowered, objects: Mapping[str, bytes]) -> ProgramSpec:
    """The program of a lowered graph; `objects` has the object code of each kernel, by symbol."""
    physical = lowered.physical
    values = {**graph.values, **{value.name: value for value in physical.poisons}}
    numbers = {name: number for number, name in enumerate(physical.outputs)}
    return ProgramSpec(
        objects=tuple((symbol, objects[symbol]) for symbol in lowered.kernels),
        prepare=tuple(step for call, step in lowered.calls if call.prepare),
        run=tuple(step for call, step in lowered.calls if not call.prepare),
        constants=tuple(lowered.contents()),
        constant_bytes=lowered.constant_bytes,
        arena_bytes=lowered.arena_bytes,
        inputs=tuple(_tensor(values[name]) for name in physical.inputs),
        outputs=tuple(_tensor(values[name]) for name in physical.outputs),
        kept_bytes=lowered.kept_bytes,
        sections=tuple(
            SectionSpec(graph.sections[node.func.callee], _section_tensors(graph, node))
            for node in graph.nodes
            if node.func.callee in graph.sections
        ),
        objects_in=graph.objects_in,
        objects_out=graph.objects_out,
        hidden=len(graph.outputs) - len(graph.results),
        guards=tuple(GuardedOutput(numbers[g.value], g.lo, g.hi, g.subject) for g in graph.guards),
        trimmed=tuple(_trimmed_outputs(graph, physical)),
        signatures={symbol: _signature(kernel) for symbol, kernel in lowered.kernels.items()},
        sizes=tuple(_input_size(one, physical.inputs) for one in graph.sizes),
        relations=graph.relations,
        computed=tuple(_computed_size(one, physical.inputs) for one in graph.derived),
        packed=tuple(
            PackedOutput(p.name, p.place, tuple(numbers[n] for n in p.tensors), p.is_list)
            for p in graph.packed
        ),
        states=tuple(_state_specs(lowered, len(graph.results))),
        sharing=_sharing_prices(physical),
    )


def _sharing_prices(physical: PhysicalGraph) -> SharingPrices:
    found = physical.sharing
    if found is None:
        return SharingPrices()
    return SharingPrices(_nanoseconds(found.meeting), _nanoseconds(found.waking))


def _nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def _trimmed_outputs(graph: OperatorGraph, physical: PhysicalGraph) -> Iterator[TrimmedOutput]:
    """The outputs that runs trim, by the numbers of the program's inputs and outputs."""
    held = graph.size_tensors
    for trim in graph.trims:
        is_size = trim.extents in held
        extents = (physical.inputs if is_size else physical.outputs).index(trim.extents)
        output = physical.outputs.index(trim.output)
        yield TrimmedOutput(output, trim.axis, extents, trim.element, is_size)


def _state_specs(lowered: Lowered, results: int) -> Iterator[StateSpec]:
    """The states of a program, with the numbers of their steps among those of a run; its first
    outputs are the model's `results`."""
    physical = lowered.physical
    running = [id(call) for call, _ in lowered.calls if not call.prepare]
    for pair, instead in lowered.states:
        output = physical.outputs.index(pair.output)
        if instead is not None and output < results:
            yield StateSpec(
                physical.inputs.index(pair.input),
                output,
                running.index(id(physical.calls[pair.call])),
                instead,
                pair.axis,
            )


def _input_size(one: SizeInput, inputs: tuple[str, ...]) -> InputSize:
    axes = tuple((inputs.index(name), axis) for name, axis in one.axes)
    number = inputs.index(one.tensor)
    element = None if one.element is None else inputs.index(one.element)
    return InputSize(one.size.name, number, one.size.lo, one.size.hi, axes, element)


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
