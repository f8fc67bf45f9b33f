"""Control regions of a program: their parts become steps of it, with jumps between them.

In: a physical graph with regions, and the program of each part.  Out: for each call of a region the
steps of its parts, in the memory of the program around it.  What always holds: a part has the
memory that the region gives it, an arena of its own while the region runs, and its constants in the
block of the whole program.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import accumulate

from msgspec import Struct

from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.graph import RegionJump, RegionPart
from graphflow.kernels.lowering import KernelTask, LoweredKernel, axes_with_sizes
from graphflow.kernels.recipes import Staged
from graphflow.layout import row_major
from graphflow.lower.called_kernels import Maker
from graphflow.lower.lowered import ConstantShift, Lowered
from graphflow.lower.run_portions import portion_of
from graphflow.physical import PhysicalGraph
from graphflow.program import BufferRef, Portion, PortionDigit, ProgramStep, StepJump
from graphflow.tir import Buffer, PrimFunc

ARENA = "region.arena"
"""The workspace of a region in which the arenas of its parts lie, one at a time."""


class RegionSteps(Struct, frozen=True):
    """The steps of a region's parts: those of each run, and those that run once before."""

    prepare: tuple[ProgramStep, ...]
    run: tuple[ProgramStep, ...]


class LoweredRegion(Struct, frozen=True, eq=False):
    """The region that a call runs: for each part its program, or its kernel."""

    names: tuple[str, ...]
    """The region's names of the call's parameters, then of its workspace without the arena."""
    parts: tuple[tuple[RegionPart[PhysicalGraph], Lowered | LoweredKernel], ...]
    workspace: tuple[Buffer, ...]

    @property
    def programs(self) -> tuple[Lowered, ...]:
        """The programs of the parts that are graphs, in order."""
        return tuple(made for _, made in self.parts if isinstance(made, Lowered))

    @property
    def kernels(self) -> dict[str, LoweredKernel]:
        """The kernels of all parts, by symbol."""
        found: dict[str, LoweredKernel] = {}
        for _, made in self.parts:
            found.update(made.kernels if isinstance(made, Lowered) else {made.symbol: made})
        return found

    def steps(
        self,
        buffers: Sequence[BufferRef],
        shifts: Sequence[ConstantShift],
        inputs: Mapping[str, BufferRef],
    ) -> RegionSteps:
        """The steps of all parts.

        `buffers` is the memory of the call's parameters and of its workspace, whose last one is the
        arena; `shifts` are those of the programs.  Inputs of a part that the region does not name
        are those of the whole program, which `inputs` has.
        """
        *given, arena = buffers
        slots = dict(zip(self.names, given, strict=True))
        prepare: list[ProgramStep] = []
        runs: list[list[ProgramStep]] = []
        remaining = iter(shifts)
        in_place: set[str] = set()
        for part, made in self.parts:
            if isinstance(made, LoweredKernel):
                is_there = part.hands_on and part.inputs[0] in in_place
                runs.append([] if is_there else [_kernel_step(part, made, slots)])
                continue
            names = made.physical.inputs
            given_names = (*part.inputs, *names[len(part.inputs) :])
            held = dict(zip(made.physical.outputs, part.outputs, strict=True))
            kept = dict(zip(names, given_names, strict=True))
            appended = {held[pair.output]: kept[pair.input] for pair, _ in made.states}
            in_place.update(appended)
            memory = _PartMemory(
                tuple(slots[n] if n in slots else inputs[n] for n in given_names),
                tuple(slots[appended.get(name, name)] for name in part.outputs),
                arena,
                next(remaining),
            )
            prepare += [memory.prepared(step) for call, step in made.calls if call.prepare]
            instead = {id(made.physical.calls[p.call]): step for p, step in made.states}
            steps = ((call, instead.get(id(call)) or step) for call, step in made.calls)
            runs.append([memory.moved(step) for call, step in steps if not call.prepare])
        starts = [0, *accumulate(map(len, runs))]
        for number, (part, _) in enumerate(self.parts):
            if part.jump is not None:
                runs[number][-1] = _jumping(runs[number], part.jump, starts, number, slots)
        return RegionSteps(tuple(prepare), tuple(step for steps in runs for step in steps))


def _kernel_step(
    part: RegionPart[PhysicalGraph], kernel: LoweredKernel, slots: Mapping[str, BufferRef]
) -> ProgramStep:
    """The step of a kernel between the graphs, which is executed for the elements that count."""
    holders = {name: slots[size] for size, name in _local_sizes(part).items()}
    refs = [slots[name] for name in (*part.inputs, *part.outputs)]
    refs += [holders[param.size] for param in kernel.sizes]
    portion = portion_of(kernel, holders) if holders else None
    return ProgramStep(kernel.symbol, tuple(refs), kernel.extent, 1, portion)


def _local_sizes(part: RegionPart[PhysicalGraph]) -> dict[str, str]:
    """The names that the kernel of a part has for its sizes."""
    found = dict.fromkeys(part.counted.values())
    return {size: f"size{number}" for number, size in enumerate(found)}


def _jumping(
    steps: Sequence[ProgramStep],
    jump: RegionJump,
    starts: Sequence[int],
    number: int,
    slots: Mapping[str, BufferRef],
) -> ProgramStep:
    """The last step of part `number` with its jump; `starts` has the first step of each part."""
    distance = starts[jump.target] - (starts[number + 1] - 1)
    return replace(steps[-1], jump=StepJump(slots[jump.flag], jump.when, distance))


class _PartMemory(Struct, frozen=True):
    """Where the memory of a part lies in that of the whole program."""

    inputs: tuple[BufferRef, ...]
    outputs: tuple[BufferRef, ...]
    arena: BufferRef
    constants: ConstantShift

    def moved(self, step: ProgramStep) -> ProgramStep:
        """A step of a run with its memory in the whole program."""
        portion, jump = step.portion, step.jump
        if portion is not None:
            portion = Portion(tuple(self._digit(digit) for digit in portion.digits))
        if jump is not None:
            jump = replace(jump, flag=self._ref(jump.flag))
        refs = tuple(map(self._ref, step.buffers))
        # Sizes within may be of an iteration; a step of a region is shared as in one of the most.
        return replace(step, buffers=refs, portion=portion, jump=jump, within=())

    def prepared(self, step: ProgramStep) -> ProgramStep:
        """A step of `prepare`, where the arena is that of the whole program."""
        refs = [ref if ref.space == "arena" else self._ref(ref) for ref in step.buffers]
        return replace(step, buffers=tuple(refs))

    def _digit(self, digit: PortionDigit) -> PortionDigit:
        """A digit with the memory of its size in the whole program."""
        holder = digit.holder
        if holder is None:
            return digit
        return PortionDigit.by(self._ref(holder), digit.count, digit.most)

    def _ref(self, ref: BufferRef) -> BufferRef:
        match ref.space:
            case "arena":
                return replace(ref, position=self.arena.position + ref.position)
            case "constant":
                return replace(ref, position=self.constants.moved(ref.position))
            case "input":
                held = self.inputs[ref.position]
            case "output":
                held = self.outputs[ref.position]
        return replace(held, offset=held.offset + ref.offset)


def _handed_on(
    part: RegionPart[PhysicalGraph],
    body: PhysicalGraph,
    parts: Sequence[RegionPart[PhysicalGraph]],
) -> Iterator[tuple[str, str]]:
    """The inputs and outputs of a body for which other parts copy the output to the input."""
    for other in parts:
        (kept,), made = other.outputs[:1], other.inputs[0] if other.inputs else ""
        if other.hands_on and made in part.outputs and part.inputs.count(kept) == 1:
            yield body.inputs[part.inputs.index(kept)], body.outputs[part.outputs.index(made)]


def lower_regions(
    physical: PhysicalGraph,
    target: Target,
    make: Maker,
    lower_part: Callable[[PhysicalGraph, int, Collection[tuple[str, str]]], Lowered],
    prefix: str,
) -> dict[int, LoweredRegion]:
    """The regions of a physical graph, by the numbers of their calls.

    `make` makes kernels, and `lower_part` the programs of parts, which it numbers, with the pairs
    of an input and an output that are handed on.
    """
    found: dict[int, LoweredRegion] = {}
    number = 0
    for k, call in enumerate(physical.calls):
        if (callee := call.definition.callee) is None or callee not in physical.regions:
            continue
        region = physical.regions[callee]
        parts: list[tuple[RegionPart[PhysicalGraph], Lowered | LoweredKernel]] = []
        for part in region.parts:
            if isinstance(part.body, PrimFunc):
                symbol = f"{prefix}r{number}_k"
                (output,) = part.body.outputs
                layouts = {output.name: row_major(output.shape)}
                local = _local_sizes(part)
                counted = {axis: local[size] for axis, size in part.counted.items()}
                sized = axes_with_sizes(layouts, {output.name: counted})
                task = KernelTask(symbol, part.body, (), Staged(), target, sized=sized)
                parts.append((part, make({symbol: task})[symbol]))
            else:
                handed_on = [*_handed_on(part, part.body, region.parts)]
                parts.append((part, lower_part(part.body, number, handed_on)))
            number += 1
        held = tuple(Buffer(value.name, value.shape, value.dtype) for value in region.held)
        arenas = [made.arena_bytes for _, made in parts if isinstance(made, Lowered)]
        workspace = (*held, Buffer(ARENA, (max(arenas, default=0),), "uint8"))
        names = (*region.inputs, *region.outputs, *(value.name for value in region.held))
        found[k] = LoweredRegion(names, tuple(parts), workspace)
    return found
