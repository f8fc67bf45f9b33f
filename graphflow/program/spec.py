"""A compiled model as plain data: object code, two step tables, memory sizes, inputs and outputs.

In: what `lower` assembled, or what a saved file holds.  Out: a `ProgramSpec`, which
`runtime.Program` links and runs.  Nothing here touches LLVM or native memory, so a spec can be
built, compared and stored anywhere.  What always holds: a `ProgramSpec` is consistent: every symbol
has an object, every reference is aligned and inside its block, tensor names are unique, and
constants fit.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import VerifyError
from graphflow.base.sizes import Relation, SizeStep
from graphflow.foreign import ObjectSpec
from graphflow.program.program_sizes import ComputedSize, InputSize, StateSpec
from graphflow.program.program_steps import (
    BufferRef,
    Portion,
    ProgramStep,
    SharingPrices,
    Signature,
)
from graphflow.program.program_tensors import (
    GuardedOutput,
    PackedOutput,
    SectionSpec,
    TensorSpec,
    TrimmedOutput,
    is_numeric,
)

ALIGNMENT = 64
"""The alignment of every storage in bytes: a cache line, and an AVX-512 vector."""

SIZE_BYTES = 8
"""The bytes of a size, which is an int64."""


@dataclass(frozen=True, slots=True, eq=False)
class ProgramSpec:
    """A whole model as one native program.

    - objects: each symbol with the relocatable object that defines it.
    - prepare: the steps that run once when the program is loaded; the arena is their scratch
      memory.
    - run: the steps of every run.
    - constants: (byte offset, array) pairs: the constant block before `prepare`.  Behind
      `kept_bytes` no step writes into them, and a step that reads one names its offset as the
      position.
    - kept_bytes: how many bytes of the constant block `run` accesses (None: all).
    - sections: the parts that run in onnxruntime.
    - objects_in, objects_out: inputs and outputs that are no tensors; only sections take and make
      them.
    - hidden: how many of the last outputs are not the model's, but read by `guards` and `trimmed`.
    - signatures: the limits of kernels; steps of these kernels stay inside the program's memory.
    - sizes: the extents of inputs that each run decides; `inputs` and `outputs` have room for the
      greatest; relations: what holds between these in each run.
    - packed: outputs that a run returns as parts of lists, or as optionals.
    - computed: sizes that each run computes from those in `sizes` and from earlier ones.
    - states: inputs that may stay in the memory of an output.
    - sharing: by which runs of smaller sizes decide which steps threads share.

    Raises VerifyError if the parts are not consistent.
    """

    objects: tuple[tuple[str, bytes], ...]
    prepare: tuple[ProgramStep, ...]
    run: tuple[ProgramStep, ...]
    constants: tuple[tuple[int, NDArray[Any]], ...]
    constant_bytes: int
    arena_bytes: int
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    kept_bytes: int | None = None
    hidden: int = 0
    guards: tuple[GuardedOutput, ...] = ()
    trimmed: tuple[TrimmedOutput, ...] = ()
    sections: tuple[SectionSpec, ...] = ()
    objects_in: tuple[ObjectSpec, ...] = ()
    objects_out: tuple[ObjectSpec, ...] = ()
    signatures: Mapping[str, Signature] = field(default_factory=dict)
    sizes: tuple[InputSize, ...] = ()
    relations: tuple[Relation, ...] = ()
    computed: tuple[ComputedSize, ...] = ()
    packed: tuple[PackedOutput, ...] = ()
    states: tuple[StateSpec, ...] = ()
    sharing: SharingPrices = field(default_factory=SharingPrices)

    @property
    def held(self) -> frozenset[int]:
        """The numbers of the inputs that hold sizes, which a run is not given."""
        return frozenset(self._holders)

    @property
    def _holders(self) -> list[int]:
        return [*(size.input for size in self.sizes), *(size.input for size in self.computed)]

    @property
    def input_names(self) -> list[str]:
        """The names of all inputs that a run is given: tensors, then objects."""
        held = self.held
        given = (t.name for k, t in enumerate(self.inputs) if k not in held)
        return [*given, *(o.name for o in self.objects_in)]

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """The model's own outputs; a trimmed output has the largest shape that is possible."""
        return self.outputs[: len(self.outputs) - self.hidden]

    @property
    def run_constant_bytes(self) -> int:
        """Bytes of the constant block that are needed after `prepare`."""
        return self.constant_bytes if self.kept_bytes is None else self.kept_bytes

    def __post_init__(self) -> None:
        sections = [section.name for section in self.sections]
        _check_unique("symbol", [*(symbol for symbol, _ in self.objects), *sections])
        _check_unique("input", self.input_names)
        outputs = [*(t.name for t in self.outputs), *(o.name for o in self.objects_out)]
        _check_unique("output", outputs)
        if not 0 <= self.run_constant_bytes <= self.constant_bytes:
            raise VerifyError(
                f"{self.kept_bytes} bytes of constants are to be kept, of {self.constant_bytes}"
            )
        self._check_constants()
        self._check_hidden()
        self._check_sizes()
        self._check_objects()
        symbols = {symbol for symbol, _ in self.objects}
        self._check_states(symbols)
        for phase, steps in (("prepare", self.prepare), ("run", self.run)):
            for index, step in enumerate(steps):
                if phase == "run" and step.symbol in sections:
                    self._check_section(f"{phase} step {index} ({step.symbol})", step)
                    continue
                self._check_step(f"{phase} step {index} ({step.symbol})", phase, step, symbols)
        self._check_jumps(sections)

    def _check_objects(self) -> None:
        """Check that each object that a section takes, or a run returns, has been made before, and
        that what a section makes is taken or returned."""
        there = {known.name for known in self.objects_in}
        sections = {spec.name: spec.section for spec in self.sections}
        for index, step in enumerate(self.run):
            if (section := sections.get(step.symbol)) is not None:
                if not there.issuperset(section.objects_in):
                    raise VerifyError(
                        f"run step {index} ({step.symbol}) takes an object before it is made"
                    )
                there.update(section.objects_out)
        for known in self.objects_out:
            if known.name not in there:
                raise VerifyError(f"no step makes the output {known}")
        wanted = {known.name for known in self.objects_out}
        wanted = wanted.union(*(section.objects_in for section in sections.values()))
        for name, section in sections.items():
            if unused := set(section.objects_out) - wanted:
                raise VerifyError(f"nothing takes {sorted(unused)[0]!r}, which {name} makes")

    def _check_constants(self) -> None:
        offsets = [offset for offset, _ in self.constants]
        for offset, array in self.constants:
            where = f"constant at byte {offset}"
            if not array.size and offsets.count(offset) > 1:
                raise VerifyError(f"{where}: it is empty, and another one is there")
            if offset < 0 or offset % ALIGNMENT:
                raise VerifyError(f"{where}: the offset is not a multiple of {ALIGNMENT}")
            if offset + array.nbytes > self.constant_bytes:
                raise VerifyError(
                    f"{where}: {array.nbytes} bytes leave the block of {self.constant_bytes}"
                )
            if not is_numeric(array.dtype):
                raise VerifyError(f"{where}: {array.dtype} is not a numeric dtype")

    def _check_hidden(self) -> None:
        if not 0 <= self.hidden <= len(self.outputs):
            raise VerifyError(f"{self.hidden} outputs are hidden, of {len(self.outputs)}")
        parts = [number for packed in self.packed for number in packed.outputs]
        if len(set(parts)) < len(parts) or not set(parts) <= set(range(len(self.results))):
            raise VerifyError(f"outputs {parts} of {len(self.results)} are parts of lists")
        if any(len(packed.outputs) > 1 for packed in self.packed if not packed.is_list):
            raise VerifyError("an optional has several tensors")
        for guard in self.guards:
            self._check_integers(f"the guard {guard.subject!r}", guard.output)
            if guard.lo > guard.hi:
                raise VerifyError(f"the guard {guard.subject!r} allows nothing")
        for trim in self.trimmed:
            where = f"trimmed output {trim.output}"
            if not 0 <= trim.output < len(self.results):
                raise VerifyError(f"{where}: the model has {len(self.results)} outputs")
            if not 0 <= trim.axis < len(self.outputs[trim.output].shape):
                raise VerifyError(f"{where}: it has no axis {trim.axis}")
            if trim.is_size:
                if trim.extents not in self.held:
                    raise VerifyError(f"{where}: input {trim.extents} holds no size")
                continue
            self._check_integers(where, trim.extents)
            if not 0 <= trim.element < math.prod(self.outputs[trim.extents].shape):
                raise VerifyError(
                    f"{where}: output {trim.extents} has no element {trim.element} to trim it by"
                )

    def _check_sizes(self) -> None:
        _check_unique("input of a size", list(map(str, self._holders)))
        _check_unique("axis of a size", [str(axis) for size in self.sizes for axis in size.axes])
        for size in self.sizes:
            where = f"the size {size.name}"
            self._check_holder(where, size.input)
            has_source = size.axes or size.element is not None
            if not 0 <= size.lo <= size.hi or size.hi < 1 or not has_source:
                raise VerifyError(f"{where}: from {size.lo} to {size.hi} of {len(size.axes)} axes")
            self._check_element(where, size)
            for number, axis in size.axes:
                # A run takes the extents from inputs that stand before the one that holds them.
                shape = self.inputs[number].shape if 0 <= number < size.input else ()
                if not 0 <= axis < len(shape) or shape[axis] != size.hi:
                    raise VerifyError(f"{where}: axis {axis} of input {number} is not {size.hi}")
        bounds = {size.input: (size.lo, size.hi) for size in self.sizes}
        for computed in self.computed:
            self._check_computed(computed, bounds)
            bounds[computed.input] = computed.lo, computed.hi
        for relation in self.relations:
            if not {relation.size, *dict(relation.factors)} <= {size.name for size in self.sizes}:
                raise VerifyError(f"the relation {relation} names what is no size")
            if isinstance(relation, SizeStep) and relation.step < 1:
                raise VerifyError(f"the relation {relation} has a step below 1")
        for step in self.prepare:
            if step.portion is not None:
                raise VerifyError(f"a step of {step.symbol} in prepare depends on a size")
        for step in self.run:
            if step.portion is not None:
                _check_portion(step, step.portion, bounds)
                for place in step.portion.places:
                    self._check_ref(f"a size of {step.symbol}", "run", place, SIZE_BYTES)
            for inner in step.within:
                _check_bounds(step, inner.input, inner.most, bounds)

    def _check_element(self, where: str, size: InputSize) -> None:
        """Check the input whose only element is a size."""
        if size.element is None:
            return
        known = self.inputs[size.element] if size.element < size.input else None
        if known is None or math.prod(known.shape) != 1 or np.dtype(known.dtype).kind not in "iu":
            raise VerifyError(f"{where}: input {size.element} is not one integer in front of it")

    def _check_states(self, symbols: set[str]) -> None:
        _check_unique("state of an input", [str(state.input) for state in self.states])
        _check_unique("state of an output", [str(state.output) for state in self.states])
        _check_unique("step of a state", [str(state.step) for state in self.states])
        for state in self.states:
            where = f"the state of input {state.input} and output {state.output}"
            if not (
                0 <= state.input < len(self.inputs)
                and 0 <= state.output < len(self.results)
                and 0 <= state.step < len(self.run)
            ):
                raise VerifyError(f"{where}, and step {state.step}: there is none of these numbers")
            given, result = self.inputs[state.input], self.outputs[state.output]
            if (given.dtype, len(given.shape)) != (result.dtype, len(result.shape)):
                raise VerifyError(f"{where}: {given} and {result} cannot be one memory")
            if state.axis is not None and not 0 <= state.axis < len(given.shape):
                raise VerifyError(f"{where}: {given} has no axis {state.axis}")
            self._check_step(where, "run", state.instead, symbols)

    def _check_holder(self, where: str, number: int) -> None:
        """Check the input that holds a size."""
        if not 0 <= number < len(self.inputs):
            raise VerifyError(f"{where}: there is no input {number}")
        held = self.inputs[number]
        if (held.dtype, held.shape) != ("int64", ()):
            raise VerifyError(f"{where}: {held} is no integer")

    def _check_computed(self, size: ComputedSize, bounds: Mapping[int, tuple[int, int]]) -> None:
        """Check a size that is computed from those before it, which have these bounds.

        Its own bounds may be narrower than what these give, as parts of a sum are related, and
        wider, as those of a part may be; each run checks them.
        """
        where = f"the size {size.name}"
        self._check_holder(where, size.input)
        if unknown := [k for k in size.operands if k not in bounds]:
            raise VerifyError(f"{where}: input {unknown[0]} is no size before it")
        if not size.formula.takes(len(size.operands)):
            raise VerifyError(f"{where}: {size.formula} of {len(size.operands)} sizes")
        lo, hi = size.formula.bounds([bounds[k] for k in size.operands])
        if not max(lo, size.lo) <= min(hi, size.hi) or size.lo > size.hi:
            raise VerifyError(f"{where}: from {size.lo} to {size.hi}, computed from {lo} to {hi}")

    def _check_integers(self, where: str, output: int) -> None:
        if not 0 <= output < len(self.outputs):
            raise VerifyError(f"{where}: there is no output {output}")
        tensor = self.outputs[output]
        if np.dtype(tensor.dtype).kind not in "iu":
            raise VerifyError(f"{where}: output {output} is {tensor.dtype} and not integers")

    def _check_step(self, where: str, phase: str, step: ProgramStep, symbols: set[str]) -> None:
        if step.symbol not in symbols:
            raise VerifyError(f"{where}: no object defines this symbol")
        if step.extent < 0 or step.threads < 0:
            raise VerifyError(f"{where}: extent {step.extent}, threads {step.threads} below 0")
        for ref in step.buffers:
            if phase == "prepare" and ref.space in ("input", "output"):
                raise VerifyError(f"{where}: there are no graph {ref.space}s when loading")
            self._check_ref(where, phase, ref, 0)
        if (signature := self.signatures.get(step.symbol)) is not None:
            self._check_call(where, phase, step, signature)

    def _check_jumps(self, sections: Collection[str]) -> None:
        """Check that each jump reads a bool of the program's memory and stays between sections."""
        for index, step in enumerate(self.run):
            if step.jump is None:
                continue
            where, target = f"run step {index} ({step.symbol})", index + step.jump.distance
            self._check_ref(where, "run", step.jump.flag, 1)
            if step.extent < 1 or not 0 < target <= len(self.run):
                raise VerifyError(f"{where}: it jumps to step {target} of {len(self.run)}")
            # Nothing jumps back to the first step behind a section: see the driver.
            passed = self.run[index:target] if target > index else self.run[target - 1 : index]
            if any(other.symbol in sections for other in passed):
                raise VerifyError(f"{where}: it jumps over a section")
        if any(step.jump is not None for step in self.prepare):
            raise VerifyError("a step jumps in prepare, where no run decides anything")

    def _check_section(self, where: str, step: ProgramStep) -> None:
        (spec,) = (spec for spec in self.sections if spec.name == step.symbol)
        known = {*spec.section.inputs, *spec.section.outputs}
        buffers = {tensor.name for tensor in spec.tensors}
        # Buffers of no bytes only keep sections in their order.
        if missing := (known - buffers) | ({t.name for t in spec.tensors if t.nbytes} - known):
            raise VerifyError(f"{where}: its tensors and its buffers differ in {min(missing)!r}")
        sizes = tuple(tensor.nbytes for tensor in spec.tensors)
        self._check_call(where, "run", step, Signature(1, sizes))

    def _check_call(self, where: str, phase: str, step: ProgramStep, signature: Signature) -> None:
        if len(step.buffers) != len(signature.sizes) or step.extent > signature.extent:
            raise VerifyError(
                f"{where}: {len(step.buffers)} buffers and {step.extent} iterations, the kernel "
                f"takes {len(signature.sizes)} and at most {signature.extent}"
            )
        for ref, size in zip(step.buffers, signature.sizes, strict=True):
            if size < 0:
                raise VerifyError(f"{where}: a parameter of {size} bytes")
            self._check_ref(where, phase, ref, size)

    def _check_ref(self, where: str, phase: str, ref: BufferRef, size: int) -> None:
        constants = self.constant_bytes if phase == "prepare" else self.run_constant_bytes
        match ref.space:
            case "arena" | "constant":
                limit = self.arena_bytes if ref.space == "arena" else constants
                # An empty buffer may sit right behind the last byte, hence "<=".
                fits = ref.position % ALIGNMENT == 0 and ref.position >= 0
                fits = fits and ref.position + ref.offset + size <= limit
            case "input" | "output":
                tensors = self.inputs if ref.space == "input" else self.outputs
                limit = len(tensors)
                fits = 0 <= ref.position < limit
                fits = fits and ref.offset + size <= tensors[ref.position].nbytes
            case _:
                fits, limit = False, 0
        fits = fits and ref.offset >= 0
        if not fits:
            raise VerifyError(
                f"{where}: {ref.space} {ref.position} + {ref.offset} is misaligned or outside "
                f"(limit {limit}, {size} bytes are touched)"
            )


def _check_unique(what: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise VerifyError(f"{what} {name!r} occurs twice in the program")
        seen.add(name)


def _check_bounds(
    step: ProgramStep, number: int, most: int, bounds: Mapping[int, tuple[int, int]]
) -> None:
    """Check that an input holds a size, which has these bounds, and is at most `most`."""
    lo, hi = bounds.get(number, (-1, -1))
    if not 0 <= lo <= hi <= most or most < 1:
        raise VerifyError(f"a step of {step.symbol} depends on input {number}, no size")


def _check_portion(step: ProgramStep, part: Portion, bounds: Mapping[int, tuple[int, int]]) -> None:
    """Check the digits of a step's portion; `bounds` has those of the sizes, by their inputs."""
    if step.meets:
        raise VerifyError(f"{step.symbol} is in phases, of which a run executes all iterations")
    for digit in part.digits:
        if digit.place is not None:
            is_written = digit.place.space in ("arena", "output")
            if digit.input is not None or not is_written or digit.most < 1:
                raise VerifyError(f"a step of {step.symbol} depends on {digit}, no size")
        elif digit.input is not None:
            _check_bounds(step, digit.input, digit.most, bounds)
    counts = [digit.count for digit in part.digits]
    if min(counts, default=0) < 1 or part.extent != step.extent:
        raise VerifyError(f"{step.extent} iterations are not numbered by digits of {counts}")
