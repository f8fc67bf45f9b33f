"""Saved programs: prepared programs as one file, and back.

In: programs that have run `prepare`, and for each some documents, which are stored unread.  Out:
one file.  The sections of the first program are called `program`, `code`, `constants`…, those of
the next one `1:program`…; programs with equal constants share them.  What always holds: only
constants that `run` reads are stored, in the layout in which it reads them, so loading maps them
and computes nothing; a loaded program has passed the checksums, the checks of `ProgramSpec` and of
the linker, and was compiled for this processor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import InvalidModel, VerifyError
from graphflow.base.plain import boolean, integer, listed, mapping, text, texts
from graphflow.base.sizes import FormulaKind, Relation, SizeFormula, SizeRelation, SizeStep
from graphflow.foreign import ForeignNode, ObjectSpec, Section
from graphflow.program import (
    ALIGNMENT,
    BufferRef,
    ComputedSize,
    GuardedOutput,
    InputSize,
    PackedOutput,
    Portion,
    PortionDigit,
    ProgramSpec,
    ProgramStep,
    SectionSpec,
    Signature,
    Space,
    StateSpec,
    StepJump,
    TensorSpec,
    TrimmedOutput,
)
from graphflow.runtime.container import Bytes, Container, write_container
from graphflow.runtime.executor import Program
from graphflow.runtime.objects import reachable
from graphflow.runtime.processor import Processor, check_host

_DOCUMENT = "document:"
_SECTION = "section:"


@dataclass(frozen=True, slots=True, eq=False)
class SavedProgram:
    """The contents of a file for one program.

    `spec` has no `prepare` and no initial constants; `constants` is its whole constant block, ready
    for `run`.  `arrays` are further values by name, `documents` are stored unread.
    """

    spec: ProgramSpec
    constants: NDArray[np.uint8]
    processor: Processor
    flush_denormals: bool
    arrays: Mapping[str, NDArray[Any]]
    documents: Mapping[str, bytes]
    watch: Callable[[], None] | None = None
    """Called before runs; raises if the file changed after `constants` or `arrays` were mapped."""

    def load(
        self, threads: int | None, values: Mapping[str, NDArray[Any]] = MappingProxyType({})
    ) -> Program:
        """A linked `Program`, for these values of inputs; raises the errors of `Program`."""
        return Program(
            self.spec,
            threads,
            self.flush_denormals,
            prepared=self.constants,
            values=values,
            watch=self.watch,
        )


def prepared_spec(spec: ProgramSpec) -> ProgramSpec:
    """The program without `prepare`, and without the objects and constants that only `prepare`
    needs.

    Raises VerifyError if a kernel has no signature, since a file states what memory each kernel
    accesses.
    """
    signatures = _signatures(spec)
    used = reachable(spec.objects, set(signatures))
    return replace(
        spec,
        objects=tuple((symbol, code) for symbol, code in spec.objects if symbol in used),
        prepare=(),
        constants=(),
        constant_bytes=spec.run_constant_bytes,
        kept_bytes=None,
        arena_bytes=_arena_bytes(spec),
        signatures=signatures,
    )


def _signatures(spec: ProgramSpec) -> dict[str, Signature]:
    """The signatures of the kernels that `run` calls; sections state their memory themselves."""
    foreign = {section.name for section in spec.sections}
    steps = (*spec.run, *(state.instead for state in spec.states))
    called = [s for s in dict.fromkeys(step.symbol for step in steps) if s not in foreign]
    missing = [symbol for symbol in called if symbol not in spec.signatures]
    if missing:
        raise VerifyError(f"the kernels {missing} have no signature")
    return {symbol: spec.signatures[symbol] for symbol in called}


def _arena_bytes(spec: ProgramSpec) -> int:
    """The bytes of the arena that the steps of `run` access, rounded up to the alignment."""
    ends = [ref.position + ref.offset + size for ref, size in _touched(spec, "arena")]
    return -(-max(ends, default=0) // ALIGNMENT) * ALIGNMENT


def _output_bytes(spec: ProgramSpec, place: int) -> int:
    """The bytes of an output that the steps of `run` access."""
    touched = _touched(spec, "output")
    return max((ref.offset + size for ref, size in touched if ref.position == place), default=0)


def _touched(spec: ProgramSpec, space: Space) -> Iterator[tuple[BufferRef, int]]:
    foreign = {s.name: tuple(tensor.nbytes for tensor in s.tensors) for s in spec.sections}
    for step in (*spec.run, *(state.instead for state in spec.states)):
        sizes = foreign.get(step.symbol) or spec.signatures[step.symbol].sizes
        for ref, size in zip(step.buffers, sizes, strict=True):
            if ref.space == space:
                yield ref, size


def save_programs(path: str | Path, programs: Sequence[SavedProgram], written_by: str) -> None:
    """Write the file; raises GraphflowError, with the old file unchanged, if the system refuses.

    All programs are for one processor.  The same programs give the same bytes.
    """
    needed = programs[0].processor
    for saved in programs:
        if saved.spec.prepare or len(saved.constants) != saved.spec.constant_bytes:
            raise VerifyError("only a prepared program can be saved")
        if saved.processor != needed:
            raise VerifyError("programs for several processors are saved in one file")
    header = {
        "graphflow": written_by,
        "cpu": needed.cpu,
        "features": needed.features,
        "exact": needed.exact,
        "programs": len(programs),
    }
    sections: dict[str, Bytes] = {}
    owners: dict[bytes, int] = {}
    for number, saved in enumerate(programs):
        owner = owners.setdefault(hashlib.sha256(saved.constants.data).digest(), number)
        sections |= _file_sections(saved, number, owner)
    write_container(path, header, sections)


def load_programs(
    path: str | Path, *, mmap: bool = True, sha256: str | None = None
) -> tuple[SavedProgram, ...]:
    """Read and check a file: the programs in the order in which they were saved.

    With `mmap` their constants are memory that is shared with the file.  Raises InvalidModel if the
    file is damaged, of another format or of another SHA-256 than the given one, CodegenError if it
    is for another processor.
    """
    with Container(path) as file:
        if sha256 is not None and file.sha256() != sha256.lower():
            raise InvalidModel(
                f"the saved model {path} has the SHA-256 {file.sha256()}, not {sha256}; it is "
                "another file than the one that is wanted"
            )
        try:
            found = _load_all(file, mmap)
        except _WRONG_FORMS as error:
            raise file.refuse(f"it does not describe a program ({error!r:.300})") from error
        file.require_unchanged()
        return found


_WRONG_FORMS = (
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    MemoryError,
    RecursionError,
    OSError,
    VerifyError,
)
"""The errors that reading data of an unexpected structure ends in."""


def _load_all(file: Container, mapped: bool) -> tuple[SavedProgram, ...]:
    header = file.header
    needed = Processor(text(header["cpu"]), texts(header["features"]), boolean(header["exact"]))
    check_host(needed, f"the saved model {file.path}")
    constants: dict[int, NDArray[np.uint8]] = {}
    count = integer(header["programs"])
    if count < 1:
        raise VerifyError("it has no program")
    return tuple(_load(file, number, needed, constants, mapped) for number in range(count))


def _file_sections(saved: SavedProgram, number: int, owner: int) -> dict[str, Bytes]:
    """The sections of program `number`, whose constants are stored with program `owner`."""
    table, arrays = _packed(saved.arrays)
    program = {
        **_program(saved.spec),
        "flush_denormals": saved.flush_denormals,
        "arrays": table,
        "constants_of": owner,
    }
    sections: dict[str, Bytes] = {
        "program": json.dumps(program, separators=(",", ":")).encode("ascii"),
        "code": b"".join(code for _, code in saved.spec.objects),
        "arrays": arrays,
        **{f"{_DOCUMENT}{name}": content for name, content in saved.documents.items()},
        **{f"{_SECTION}{spec.name}": spec.section.model for spec in saved.spec.sections},
    }
    if owner == number:
        sections["constants"] = saved.constants.data
    return {f"{_prefix(number)}{name}": content for name, content in sections.items()}


def _prefix(number: int) -> str:
    return f"{number}:" if number else ""


def _load(
    file: Container,
    number: int,
    needed: Processor,
    constants: dict[int, NDArray[np.uint8]],
    mapped: bool,
) -> SavedProgram:
    """Program `number`; it may share `constants` with earlier ones."""
    prefix = _prefix(number)
    program = mapping(json.loads(file.read(f"{prefix}program")))
    models = _named_sections(file, f"{prefix}{_SECTION}")
    spec = _spec(program, file.read(f"{prefix}code"), models)
    take = file.map if mapped else file.copy
    if program["constants_of"] == number:
        constants[number] = take(f"{prefix}constants")
    block = constants[integer(program["constants_of"])]
    if len(block) != spec.constant_bytes:
        raise VerifyError(f"{len(block)} bytes of constants instead of {spec.constant_bytes}")
    return SavedProgram(
        spec=spec,
        constants=block,
        processor=needed,
        flush_denormals=boolean(program["flush_denormals"]),
        arrays=_unpacked(program["arrays"], take(f"{prefix}arrays"), spec.inputs),
        documents=_named_sections(file, f"{prefix}{_DOCUMENT}"),
        watch=file.watch() if mapped else None,
    )


def _named_sections(file: Container, prefix: str) -> dict[str, bytes]:
    """The contents of all sections whose names begin with `prefix`, by the rest of their names."""
    return {n.removeprefix(prefix): file.read(n) for n in file.names if n.startswith(prefix)}


# The program as JSON ----------------------------------------------------------------------------


def _program(spec: ProgramSpec) -> dict[str, Any]:
    return {
        "objects": [[symbol, len(code)] for symbol, code in spec.objects],
        "signatures": [[symbol, s.extent, s.sizes] for symbol, s in spec.signatures.items()],
        "run": [_step_row(step) for step in spec.run],
        "constant_bytes": spec.constant_bytes,
        "arena_bytes": spec.arena_bytes,
        "inputs": [[t.name, t.dtype, t.shape] for t in spec.inputs],
        "outputs": [[t.name, t.dtype, t.shape] for t in spec.outputs],
        "sections": [_section(section) for section in spec.sections],
        "objects_in": [[o.name, o.type, o.place] for o in spec.objects_in],
        "objects_out": [[o.name, o.type, o.place] for o in spec.objects_out],
        "hidden": spec.hidden,
        "guards": [[g.output, g.lo, g.hi, g.subject] for g in spec.guards],
        "trimmed": [[t.output, t.axis, t.extents, t.element] for t in spec.trimmed],
        "sizes": [[s.name, s.input, s.lo, s.hi, [list(a) for a in s.axes]] for s in spec.sizes],
        "computed": [
            [s.name, s.input, s.lo, s.hi, s.formula.kind, s.formula.numbers, s.operands]
            for s in spec.computed
        ],
        "packed": [[p.name, p.place, p.outputs, int(p.is_list)] for p in spec.packed],
        "relations": [
            [r.size, r.step]
            if isinstance(r, SizeStep)
            else [r.size, [list(f) for f in r.factors], r.offset, r.is_exact]
            for r in spec.relations
        ],
        "states": [[s.input, s.output, s.step, _step_row(s.instead), s.axis] for s in spec.states],
    }


def _step_row(step: ProgramStep) -> list[Any]:
    return [
        step.symbol,
        step.extent,
        step.threads,
        [_reference_row(ref) for ref in step.buffers],
        _portion_row(step.portion),
        _jump_row(step.jump),
    ]


def _reference_row(ref: BufferRef) -> list[Any]:
    return [ref.space, ref.position, ref.offset]


def _jump_row(jump: StepJump | None) -> list[Any]:
    """Flag, condition and distance of a jump; empty for a step without one."""
    return [] if jump is None else [_reference_row(jump.flag), int(jump.when), jump.distance]


def _portion_row(part: Portion | None) -> list[list[int]]:
    """The digits of a portion; the count alone of those of which a run executes all."""
    return [
        [digit.count] if digit.input is None else [digit.count, digit.input, digit.most]
        for digit in (part.digits if part is not None else ())
    ]


def _section(spec: SectionSpec) -> dict[str, Any]:
    """The description of a section without its model, which is stored as a section of the file."""
    section = spec.section
    return {
        "name": section.name,
        "nodes": [[node.name, node.op, node.reason] for node in section.nodes],
        "tensors": [[t.name, t.dtype, t.shape] for t in spec.tensors],
        **{field: list(getattr(section, field)) for field in _SECTION_NAMES},
    }


_SECTION_NAMES = ("inputs", "outputs", "objects_in", "objects_out")


def _section_spec(row: Any, models: Mapping[str, bytes]) -> SectionSpec:
    saved = mapping(row)
    section = Section(
        text(saved["name"]),
        models[saved["name"]],
        tuple(ForeignNode(*texts(node)) for node in listed(saved["nodes"])),
        **{field: texts(saved[field]) for field in _SECTION_NAMES},
    )
    tensors = _tensors(saved["tensors"])
    if len(tensors) < len(section.inputs) + len(section.outputs):
        raise ValueError(f"{section.name} names more tensors than it takes")
    return SectionSpec(section, tensors)


def _objects_known(rows: Any) -> tuple[ObjectSpec, ...]:
    return tuple(
        ObjectSpec(text(name), text(kind), integer(place))
        for name, kind, place in (listed(row, 3) for row in listed(rows))
    )


def _guard(row: Any) -> GuardedOutput:
    output, lo, hi, subject = listed(row, 4)
    if isinstance(lo, bool) or isinstance(hi, bool) or not isinstance(lo + hi, int):
        raise ValueError(f"{lo!r} to {hi!r} is no interval of integers")
    return GuardedOutput(integer(output), lo, hi, text(subject))


def _spec(program: Mapping[str, Any], code: bytes, models: Mapping[str, bytes]) -> ProgramSpec:
    """The program; `models` are the models of its sections by name."""
    spec = ProgramSpec(
        objects=_objects(program["objects"], code),
        prepare=(),
        run=tuple(map(_step, listed(program["run"]))),
        constants=(),
        constant_bytes=integer(program["constant_bytes"]),
        arena_bytes=integer(program["arena_bytes"]),
        inputs=_tensors(program["inputs"]),
        outputs=_tensors(program["outputs"]),
        signatures=dict(map(_signature, listed(program["signatures"]))),
        sections=tuple(_section_spec(row, models) for row in listed(program["sections"])),
        objects_in=_objects_known(program["objects_in"]),
        objects_out=_objects_known(program["objects_out"]),
        hidden=integer(program["hidden"]),
        guards=tuple(map(_guard, listed(program["guards"]))),
        trimmed=tuple(
            TrimmedOutput(*map(integer, listed(row, 4))) for row in listed(program["trimmed"])
        ),
        sizes=tuple(map(_input_size, listed(program["sizes"]))),
        relations=tuple(map(_size_relation, listed(program["relations"]))),
        computed=tuple(map(_computed_size, listed(program["computed"]))),
        packed=tuple(map(_packed_output, listed(program["packed"]))),
        states=tuple(map(_state, listed(program["states"]))),
    )
    _signatures(spec)
    for place, tensor in enumerate(spec.outputs):
        if _output_bytes(spec, place) != tensor.nbytes:
            raise VerifyError(f"its steps do not write {tensor} from beginning to end")
    if spec.arena_bytes != _arena_bytes(spec):
        raise VerifyError(
            f"its steps touch {_arena_bytes(spec)} bytes of an arena of {spec.arena_bytes}"
        )
    return spec


def _step(row: Any) -> ProgramStep:
    symbol, extent, threads, buffers, part, jump = listed(row, 6)
    refs = tuple(map(_reference, listed(buffers)))
    portion = Portion(tuple(map(_portion_digit, part))) if listed(part) else None
    behind = _jump(jump) if listed(jump) else None
    return ProgramStep(text(symbol), refs, integer(extent), integer(threads), portion, behind)


def _jump(row: Any) -> StepJump:
    flag, when, distance = listed(row, 3)
    return StepJump(_reference(flag), bool(integer(when)), _signed(distance))


def _state(row: Any) -> StateSpec:
    given, output, step, instead, axis = listed(row, 5)
    kept = None if axis is None else integer(axis)
    return StateSpec(integer(given), integer(output), integer(step), _step(instead), kept)


def _portion_digit(row: Any) -> PortionDigit:
    if len(listed(row)) == 1:
        return PortionDigit(integer(row[0]))
    count, number, most = listed(row, 3)
    return PortionDigit(integer(count), integer(number), integer(most))


def _packed_output(row: Any) -> PackedOutput:
    name, place, outputs, is_list = listed(row, 4)
    numbers = tuple(map(integer, listed(outputs)))
    return PackedOutput(text(name), integer(place), numbers, bool(integer(is_list)))


def _input_size(row: Any) -> InputSize:
    name, number, lo, hi, axes = listed(row, 5)
    pairs = tuple((integer(k), integer(axis)) for k, axis in (listed(p, 2) for p in listed(axes)))
    return InputSize(text(name), integer(number), integer(lo), integer(hi), pairs)


def _computed_size(row: Any) -> ComputedSize:
    name, number, lo, hi, kind, numbers, operands = listed(row, 7)
    formula = SizeFormula(_formula_kind(kind), tuple(map(_signed, listed(numbers))))
    used = tuple(map(integer, listed(operands)))
    return ComputedSize(text(name), integer(number), _signed(lo), _signed(hi), formula, used)


def _formula_kind(value: Any) -> FormulaKind:
    for kind in get_args(FormulaKind):
        if kind == value:
            return cast(FormulaKind, kind)
    raise ValueError(f"{value!r:.60} is no kind of formula")


def _signed(value: Any) -> int:
    return integer(value, -(1 << 63))


def _size_relation(row: Any) -> Relation:
    if len(listed(row)) == 2:
        size, step = row
        return SizeStep(text(size), integer(step, 1))
    size, factors, offset, is_exact = listed(row, 4)
    pairs = ((text(name), _signed(n)) for name, n in (listed(p, 2) for p in listed(factors)))
    return SizeRelation(text(size), tuple(pairs), _signed(offset), boolean(is_exact))


def _reference(row: Any) -> BufferRef:
    space, position, offset = listed(row, 3)
    return BufferRef(space, integer(position), integer(offset))


def _signature(row: Any) -> tuple[str, Signature]:
    symbol, extent, sizes = listed(row, 3)
    return text(symbol), Signature(integer(extent), tuple(map(integer, listed(sizes))))


def _objects(sizes: Any, code: bytes) -> tuple[tuple[str, bytes], ...]:
    found, offset = [], 0
    for symbol, size in (listed(row, 2) for row in listed(sizes)):
        found.append((text(symbol), code[offset : offset + integer(size)]))
        offset += size
    if offset != len(code):
        raise VerifyError(f"it has {len(code)} bytes of object code instead of {offset}")
    return tuple(found)


def _tensors(rows: Any) -> tuple[TensorSpec, ...]:
    return tuple(_tensor(*listed(row, 3)) for row in listed(rows))


def _tensor(name: Any, dtype: Any, shape: Any) -> TensorSpec:
    if np.dtype(text(dtype)).name != dtype:
        raise ValueError(f"{dtype!r} is no name of an element type")
    return TensorSpec(text(name), dtype, tuple(map(integer, listed(shape))))


# Arrays -----------------------------------------------------------------------------------------


def _packed(arrays: Mapping[str, NDArray[Any]]) -> tuple[list[Any], bytes]:
    """Name, dtype, shape and offset of each array, and the concatenated row-major elements."""
    table: list[Any] = []
    content = bytearray()
    for name, array in arrays.items():
        content += bytes(-len(content) % ALIGNMENT)
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        table.append([name, native.dtype.name, list(native.shape), len(content)])
        content += native.tobytes()
    return table, bytes(content)


def _unpacked(
    table: Any, content: NDArray[np.uint8], inputs: tuple[TensorSpec, ...]
) -> dict[str, NDArray[Any]]:
    """The arrays of the table, each the value of an input; numpy checks that they lie inside."""
    known = {tensor.name: tensor for tensor in inputs}
    found = {}
    for name, dtype, shape, offset in (listed(row, 4) for row in listed(table)):
        tensor = _tensor(name, dtype, shape)
        if known.get(tensor.name) != tensor:
            raise ValueError(f"{tensor} is no input of the program")
        place = integer(offset)
        found[tensor.name] = np.ndarray(tensor.shape, np.dtype(dtype), buffer=content, offset=place)
    return found
