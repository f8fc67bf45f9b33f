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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.base.errors import InvalidModel, VerifyError
from graphflow.base.fields import of_row, replace, row_of
from graphflow.base.plain import boolean, integer, listed, mapping, text, texts
from graphflow.base.sizes import Relation
from graphflow.foreign import ForeignNode, ObjectSpec, Section
from graphflow.llvm import read_object
from graphflow.program import (
    ALIGNMENT,
    SIZE_BYTES,
    BufferRef,
    ComputedSize,
    GuardedOutput,
    InputSize,
    PackedOutput,
    ProgramSpec,
    ProgramStep,
    SectionSpec,
    SharingPrices,
    Signature,
    Space,
    StateSpec,
    TensorSpec,
    TrimmedOutput,
)
from graphflow.runtime.container import Bytes, Container, write_container
from graphflow.runtime.driver import DriverObject, bring_driver, driver_object
from graphflow.runtime.executor import Program
from graphflow.runtime.processor import Processor, check_host

_DRIVER = "driver"
_DOCUMENT = "document:"
_SECTION = "section:"


class SavedProgram(Struct, frozen=True, eq=False):
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
    used = _reachable(spec.objects, set(signatures))
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


def _reachable(objects: tuple[tuple[str, bytes], ...], wanted: Iterable[str]) -> set[str]:
    """The symbols of the objects that define `wanted`, or what those need in turn."""
    files = {kernel: read_object(kernel, code) for kernel, code in objects}
    owner = {name: kernel for kernel, file in files.items() for name in file.defined}
    found: set[str] = set()
    todo = [owner[name] for name in wanted if name in owner]
    while todo:
        kernel = todo.pop()
        if kernel not in found:
            found.add(kernel)
            todo += [owner[name] for name in files[kernel].needed if name in owner]
    return found


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
        for ref in () if step.portion is None else step.portion.places:
            if ref.space == space:
                yield ref, SIZE_BYTES


def save_programs(
    path: str | Path,
    programs: Sequence[SavedProgram],
    written_by: str,
    survives_crashes: bool = True,
) -> None:
    """Write the file, as `write_container` does; raises GraphflowError, with the old file
    unchanged, if the system refuses.

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
        "driver_made_of": driver_object().made_of,
    }
    sections: dict[str, Bytes] = {_DRIVER: driver_object().code}
    for number, owner in enumerate(_owners(programs)):
        sections |= _file_sections(programs[number], number, owner)
    write_container(path, header, sections, survives_crashes)


def _owners(programs: Sequence[SavedProgram]) -> list[int]:
    """For each program the first one with the same constants; one alone has no digest, which takes
    as long as to write them."""
    if len(programs) == 1:
        return [0]
    first: dict[bytes, int] = {}
    digests = (hashlib.sha256(saved.constants.data).digest() for saved in programs)
    return [first.setdefault(digest, number) for number, digest in enumerate(digests)]


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
    bring_driver(DriverObject(text(header["driver_made_of"]), file.read(_DRIVER)))
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

_ROWS: Mapping[str, Any] = {
    "run": tuple[ProgramStep, ...],
    "constant_bytes": int,
    "arena_bytes": int,
    "inputs": tuple[TensorSpec, ...],
    "outputs": tuple[TensorSpec, ...],
    "objects_in": tuple[ObjectSpec, ...],
    "objects_out": tuple[ObjectSpec, ...],
    "hidden": int,
    "guards": tuple[GuardedOutput, ...],
    "trimmed": tuple[TrimmedOutput, ...],
    "sizes": tuple[InputSize, ...],
    "computed": tuple[ComputedSize, ...],
    "packed": tuple[PackedOutput, ...],
    "relations": tuple[Relation, ...],
    "sharing": SharingPrices,
    "states": tuple[StateSpec, ...],
}
"""The fields of a `ProgramSpec` that a file has as rows, and their types."""


def _program(spec: ProgramSpec) -> dict[str, Any]:
    return {
        "objects": [[symbol, len(code)] for symbol, code in spec.objects],
        "signatures": [[symbol, *row_of(limits)] for symbol, limits in spec.signatures.items()],
        "sections": [_section(section) for section in spec.sections],
        **{name: row_of(getattr(spec, name)) for name in _ROWS},
    }


def _section(spec: SectionSpec) -> dict[str, Any]:
    """The description of a section without its model, which is stored as a section of the file."""
    section = spec.section
    return {
        "name": section.name,
        "nodes": row_of(section.nodes),
        "tensors": row_of(spec.tensors),
        **{field: list(getattr(section, field)) for field in _SECTION_NAMES},
    }


_SECTION_NAMES = ("inputs", "outputs", "objects_in", "objects_out")


def _section_spec(row: Any, models: Mapping[str, bytes]) -> SectionSpec:
    saved = mapping(row)
    section = Section(
        text(saved["name"]),
        models[saved["name"]],
        of_row(tuple[ForeignNode, ...], saved["nodes"]),
        **{field: texts(saved[field]) for field in _SECTION_NAMES},
    )
    tensors = of_row(tuple[TensorSpec, ...], saved["tensors"])
    if len(tensors) < len(section.inputs) + len(section.outputs):
        raise ValueError(f"{section.name} names more tensors than it takes")
    return SectionSpec(section, tensors)


def _spec(program: Mapping[str, Any], code: bytes, models: Mapping[str, bytes]) -> ProgramSpec:
    """The program; `models` are the models of its sections by name."""
    read = {name: of_row(kind, program[name]) for name, kind in _ROWS.items()}
    sections = tuple(_section_spec(row, models) for row in listed(program["sections"]))
    of_sections = (tensor for section in sections for tensor in section.tensors)
    for tensor in (*read["inputs"], *read["outputs"], *of_sections):
        if np.dtype(tensor.dtype).name != tensor.dtype:
            raise ValueError(f"{tensor.dtype!r} is no name of an element type")
    spec = ProgramSpec(
        objects=_objects(program["objects"], code),
        prepare=(),
        constants=(),
        signatures={
            text(symbol): of_row(Signature, limits)
            for symbol, *limits in map(listed, listed(program["signatures"]))
        },
        sections=sections,
        **read,
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


def _objects(sizes: Any, code: bytes) -> tuple[tuple[str, bytes], ...]:
    found, offset = [], 0
    for symbol, size in of_row(tuple[tuple[str, int], ...], sizes):
        found.append((symbol, code[offset : offset + size]))
        offset += size
    if offset != len(code):
        raise VerifyError(f"it has {len(code)} bytes of object code instead of {offset}")
    return tuple(found)


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
    for *row, offset in map(listed, listed(table)):
        tensor = of_row(TensorSpec, row)
        if known.get(tensor.name) != tensor:
            raise ValueError(f"{tensor} is no input of the program")
        found[tensor.name] = np.ndarray(
            tensor.shape, np.dtype(tensor.dtype), buffer=content, offset=integer(offset)
        )
    return found
