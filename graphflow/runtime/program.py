"""A compiled model as plain data: objects, two tables of steps, memory sizes, inputs and outputs.

In: what the compiler made, or what a saved file holds.  Out: a `ProgramSpec`, which
`executor.Program` links and runs.  Nothing here touches LLVM or native memory, so a spec can be
built, compared and stored anywhere.  What always holds: a `ProgramSpec` is consistent, that is,
every symbol has an object, every reference lies inside its block and is aligned, tensor names are
unique, and constants fit.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphflow.dtypes import STORED
from graphflow.errors import VerifyError
from graphflow.foreign import ObjectSpec, Section

Space: TypeAlias = Literal["arena", "constant", "input", "output"]

ALIGNMENT = 64
"""Bytes; the base of every storage is a multiple of it."""

_KINDS = "biufc"


def _is_numeric(dtype: np.dtype[Any]) -> bool:
    """Whether tensors have such elements; numpy knows no kind of those that `ml_dtypes` adds."""
    return dtype.kind in _KINDS or dtype.name in STORED


@dataclass(frozen=True, slots=True)
class BufferRef:
    """Where a kernel parameter lives.

    `position` is a byte offset (a multiple of 64) for "arena" and "constant", the index of a graph
    input or output for "input" and "output".  The parameter begins `offset` bytes behind that.
    """

    space: Space
    position: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """One kernel call of the program.

    `extent` is the number of iterations of the kernel's parallel loop (1: sequential, 0: nothing
    to do).  At most `threads` threads (0: all of the program's) have even shares of them; who is
    done first takes from those of the others.
    """

    symbol: str
    buffers: tuple[BufferRef, ...]
    extent: int
    threads: int = 0

    def workers(self, threads: int) -> int:
        """How many of `threads` threads get iterations of this step."""
        return min(self.threads or threads, threads, self.extent)


@dataclass(frozen=True, slots=True)
class Signature:
    """What a kernel may be called with: at most `extent` iterations of its parallel loop, and for
    each parameter how many bytes it may touch behind the address that it is given."""

    extent: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """A graph input or output: numpy's name of the element type, logical row-major shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        try:
            known = _is_numeric(np.dtype(self.dtype))
        except TypeError:
            known = False
        if not known:
            raise VerifyError(f"tensor {self.name!r}: {self.dtype!r} is not a numeric dtype")
        if any(extent < 0 for extent in self.shape):
            raise VerifyError(f"tensor {self.name!r}: negative extent in shape {self.shape}")

    @property
    def nbytes(self) -> int:
        """Bytes of the row-major tensor."""
        return math.prod(self.shape) * int(np.dtype(self.dtype).itemsize)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True, slots=True)
class OpenTensor:
    """An input or output of a model whose extents are not all known.

    An extent is a number, the name that the model has for it, or `?`.  `shape` is None where even
    the rank is not known.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...] | None

    def __str__(self) -> str:
        extents = "…" if self.shape is None else ", ".join(map(str, self.shape))
        return f"{self.name}: {self.dtype}[{extents}]"

    @property
    def is_number(self) -> bool:
        """Whether it is a tensor of a dtype that kernels may have; `?` stands for no tensor."""
        try:
            dtype = np.dtype(self.dtype)
            # "?" says that the type is not known, and is numpy's letter for bool.
            return dtype.kind in _KINDS and dtype.name == self.dtype
        except TypeError:
            return False

    @property
    def is_open(self) -> bool:
        """Whether an extent is not known."""
        return self.shape is None or any(isinstance(extent, str) for extent in self.shape)


@dataclass(frozen=True, slots=True)
class GuardedOutput:
    """After a run, each element of output number `output` has to be from `lo` to `hi`.

    `subject` names the tensor, and the node that asks for it, at the beginning of the error.
    """

    output: int
    lo: int
    hi: int
    subject: str


@dataclass(frozen=True, slots=True)
class TrimmedOutput:
    """Of output number `output`, a run gives along `axis` only the first n elements.

    n is element `element`, in row-major order, of output number `extents`.
    """

    output: int
    axis: int
    extents: int
    element: int = 0


@dataclass(frozen=True, slots=True)
class SectionSpec:
    """A foreign part of the program: steps whose symbol is its name run it.

    `tensors` are what the step's buffers hold, the inputs of the section and then its outputs.
    """

    section: Section
    tensors: tuple[TensorSpec, ...]

    @property
    def name(self) -> str:
        """The symbol of its steps."""
        return self.section.name


@dataclass(frozen=True, slots=True, eq=False)
class ProgramSpec:
    """A whole model as one native program.

    `objects` pairs each symbol with the relocatable object that defines it.  `prepare` runs once
    when the program is loaded and turns the initial `constants` (byte offset, array) into the form
    that `run` reads; it may use the arena as scratch.  `run` is executed at every run; of the
    constant block it touches the first `kept_bytes` only (None: all), the rest is `prepare`'s.
    `sections` are what runs in onnxruntime, and `objects_in` and `objects_out` what a run takes and
    gives for them alone.
    The last `hidden` outputs are not the model's: they are what `guards` and `trimmed` read.
    Steps of kernels that `signatures` has stay within their memory, as far as a signature says.
    Raises VerifyError if the parts do not fit together.
    """

    objects: tuple[tuple[str, bytes], ...]
    prepare: tuple[Step, ...]
    run: tuple[Step, ...]
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

    @property
    def input_names(self) -> list[str]:
        """The names of everything that a run takes."""
        return [*(t.name for t in self.inputs), *(o.name for o in self.objects_in)]

    @property
    def results(self) -> tuple[TensorSpec, ...]:
        """The model's own outputs; one that is trimmed has here the largest shape it can have."""
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
        self._check_objects()
        symbols = {symbol for symbol, _ in self.objects}
        for phase, steps in (("prepare", self.prepare), ("run", self.run)):
            for index, step in enumerate(steps):
                if phase == "run" and step.symbol in sections:
                    self._check_section(f"{phase} step {index} ({step.symbol})", step)
                    continue
                self._check_step(f"{phase} step {index} ({step.symbol})", phase, step, symbols)

    def _check_objects(self) -> None:
        """Whether each object that a section takes or that a run gives is there by then."""
        there = {known.name for known in self.objects_in}
        sections = {spec.name: spec.section for spec in self.sections}
        for index, step in enumerate(self.run):
            if (section := sections.get(step.symbol)) is not None:
                if not there.issuperset(section.objects_in):
                    raise VerifyError(f"run step {index} ({step.symbol}) takes what nothing gives")
                there.update(section.objects_out)
        for known in self.objects_out:
            if known.name not in there:
                raise VerifyError(f"nothing gives the output {known}")

    def _check_constants(self) -> None:
        for offset, array in self.constants:
            where = f"constant at byte {offset}"
            if offset < 0 or offset % ALIGNMENT:
                raise VerifyError(f"{where}: the offset is not a multiple of {ALIGNMENT}")
            if offset + array.nbytes > self.constant_bytes:
                raise VerifyError(
                    f"{where}: {array.nbytes} bytes leave the block of {self.constant_bytes}"
                )
            if not _is_numeric(array.dtype):
                raise VerifyError(f"{where}: {array.dtype} is not a numeric dtype")

    def _check_hidden(self) -> None:
        if not 0 <= self.hidden <= len(self.outputs):
            raise VerifyError(f"{self.hidden} outputs are hidden, of {len(self.outputs)}")
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
            self._check_integers(where, trim.extents)
            if not 0 <= trim.element < math.prod(self.outputs[trim.extents].shape):
                raise VerifyError(
                    f"{where}: output {trim.extents} has no element {trim.element} to trim it by"
                )

    def _check_integers(self, where: str, output: int) -> None:
        if not 0 <= output < len(self.outputs):
            raise VerifyError(f"{where}: there is no output {output}")
        tensor = self.outputs[output]
        if np.dtype(tensor.dtype).kind not in "iu":
            raise VerifyError(f"{where}: output {output} is {tensor.dtype} and not integers")

    def _check_step(self, where: str, phase: str, step: Step, symbols: set[str]) -> None:
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

    def _check_section(self, where: str, step: Step) -> None:
        (spec,) = (spec for spec in self.sections if spec.name == step.symbol)
        sizes = tuple(tensor.nbytes for tensor in spec.tensors)
        self._check_call(where, "run", step, Signature(1, sizes))

    def _check_call(self, where: str, phase: str, step: Step, signature: Signature) -> None:
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
