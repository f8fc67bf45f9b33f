"""Prepared programs as a file, and back.

Comes in: programs that have run `prepare`, and documents about each that mean nothing here.  Goes
out: one file, of which the constants are mapped and not read; programs with equal constants share
them there.  The first program's sections are called `program`, `code`, `constants`…, those of the
next `1:program`….  What always holds: of the constants
only those that `run` reads are stored, in the form in which it reads them, so loading computes
nothing; what is loaded passed the checksums, the checks of `ProgramSpec` and of the linker, and is
for this processor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.errors import VerifyError
from graphflow.foreign import ForeignNode, ObjectSpec, Section
from graphflow.runtime.container import Bytes, Container, write_container
from graphflow.runtime.executor import Program
from graphflow.runtime.objects import reachable
from graphflow.runtime.processor import Processor, check_host
from graphflow.runtime.program import (
    ALIGNMENT,
    BufferRef,
    GuardedOutput,
    ProgramSpec,
    SectionSpec,
    Step,
    TensorSpec,
    TrimmedOutput,
)

_DOCUMENT = "document:"
_SECTION = "section:"


@dataclass(frozen=True, slots=True, eq=False)
class SavedProgram:
    """What a file holds.

    `spec` has no `prepare` and no initial constants; `constants` is its whole constant block,
    ready for `run`.  `arrays` are further values by name, `documents` whatever belongs to it.
    """

    spec: ProgramSpec
    constants: NDArray[np.uint8]
    processor: Processor
    flush_denormals: bool
    arrays: Mapping[str, NDArray[Any]]
    documents: Mapping[str, bytes]

    def load(
        self, threads: int | None, values: Mapping[str, NDArray[Any]] = MappingProxyType({})
    ) -> Program:
        """Link it, for these values of inputs; the errors are those of `Program`."""
        return Program(
            self.spec, threads, self.flush_denormals, prepared=self.constants, values=values
        )


def prepared_spec(spec: ProgramSpec) -> ProgramSpec:
    """The program without what only `prepare` needs."""
    used = reachable(spec.objects, {step.symbol for step in spec.run})
    return ProgramSpec(
        objects=tuple((symbol, code) for symbol, code in spec.objects if symbol in used),
        prepare=(),
        run=spec.run,
        constants=(),
        constant_bytes=spec.run_constant_bytes,
        arena_bytes=spec.arena_bytes,
        inputs=spec.inputs,
        outputs=spec.outputs,
        sections=spec.sections,
        objects_in=spec.objects_in,
        objects_out=spec.objects_out,
        hidden=spec.hidden,
        guards=spec.guards,
        trimmed=spec.trimmed,
    )


def save_programs(path: str | Path, programs: Sequence[SavedProgram], written_by: str) -> None:
    """Write the file; GraphflowError where the system refuses, with the old file untouched.

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


def load_programs(path: str | Path) -> tuple[SavedProgram, ...]:
    """Read and check a file: the programs in the order in which they were saved.

    InvalidModel for one that is damaged or of another format, CodegenError for one that is for
    another processor.
    """
    with Container(path) as file:
        try:
            header = file.header
            needed = Processor(header["cpu"], tuple(header["features"]), header["exact"])
            check_host(needed, f"the saved model {file.path}")
            if header["programs"] < 1:
                raise VerifyError("it has no program")
            constants: dict[int, NDArray[np.uint8]] = {}
            return tuple(
                _load(file, number, needed, constants) for number in range(header["programs"])
            )
        except (KeyError, TypeError, ValueError, VerifyError) as error:
            raise file.refuse(f"it does not describe a program ({error!r})") from error


def _file_sections(saved: SavedProgram, number: int, owner: int) -> dict[str, Bytes]:
    """The sections of program `number`, whose constants are those of program `owner`."""
    table, arrays = _packed(saved.arrays)
    program = {
        **_program(saved.spec),
        "flush_denormals": saved.flush_denormals,
        "arrays": table,
        "constants_of": owner,
    }
    sections: dict[str, Bytes] = {
        "program": _json(program),
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
    file: Container, number: int, needed: Processor, constants: dict[int, NDArray[np.uint8]]
) -> SavedProgram:
    """Program `number`; `constants` are those of earlier ones, which this one may share."""
    prefix = _prefix(number)
    program = json.loads(file.read(f"{prefix}program"))
    models = _named_sections(file, f"{prefix}{_SECTION}")
    spec = _spec(program, file.read(f"{prefix}code"), models)
    if program["constants_of"] == number:
        constants[number] = file.map(f"{prefix}constants")
    block = constants[program["constants_of"]]
    if len(block) != spec.constant_bytes:
        raise VerifyError(f"{len(block)} bytes of constants instead of {spec.constant_bytes}")
    return SavedProgram(
        spec=spec,
        constants=block,
        processor=needed,
        flush_denormals=program["flush_denormals"],
        arrays=_unpacked(program["arrays"], file.map(f"{prefix}arrays")),
        documents=_named_sections(file, f"{prefix}{_DOCUMENT}"),
    )


def _named_sections(file: Container, prefix: str) -> dict[str, bytes]:
    """The contents of all sections whose names begin like that, by the rest of their names."""
    return {n.removeprefix(prefix): file.read(n) for n in file.names if n.startswith(prefix)}


# The program as JSON ----------------------------------------------------------------------------


def _program(spec: ProgramSpec) -> dict[str, Any]:
    return {
        "objects": [[symbol, len(code)] for symbol, code in spec.objects],
        "run": [
            [
                step.symbol,
                step.extent,
                step.threads,
                [[b.space, b.position, b.offset] for b in step.buffers],
            ]
            for step in spec.run
        ],
        "constant_bytes": spec.constant_bytes,
        "arena_bytes": spec.arena_bytes,
        "inputs": [[t.name, t.dtype, t.shape] for t in spec.inputs],
        "outputs": [[t.name, t.dtype, t.shape] for t in spec.outputs],
        "sections": [_section(section) for section in spec.sections],
        "objects_in": [[known.name, known.type] for known in spec.objects_in],
        "objects_out": [[known.name, known.type] for known in spec.objects_out],
        "hidden": spec.hidden,
        "guards": [[g.output, g.lo, g.hi, g.subject] for g in spec.guards],
        "trimmed": [[t.output, t.axis, t.extents, t.element] for t in spec.trimmed],
    }


def _section(spec: SectionSpec) -> dict[str, Any]:
    """All but its model, which is a section of the file."""
    section = spec.section
    return {
        "name": section.name,
        "nodes": [[node.name, node.op, node.reason] for node in section.nodes],
        "tensors": [[t.name, t.dtype, t.shape] for t in spec.tensors],
        **{field: list(getattr(section, field)) for field in _SECTION_NAMES},
    }


_SECTION_NAMES = ("inputs", "outputs", "objects_in", "objects_out")


def _section_spec(saved: Mapping[str, Any], model: bytes) -> SectionSpec:
    section = Section(
        saved["name"],
        model,
        tuple(ForeignNode(*node) for node in saved["nodes"]),
        **{field: tuple(saved[field]) for field in _SECTION_NAMES},
    )
    return SectionSpec(section, _tensors(saved["tensors"]))


def _spec(program: Mapping[str, Any], code: bytes, models: Mapping[str, bytes]) -> ProgramSpec:
    """The program; `models` are those of its sections by name."""
    return ProgramSpec(
        objects=_objects(program["objects"], code),
        prepare=(),
        run=tuple(
            Step(symbol, tuple(BufferRef(*buffer) for buffer in buffers), extent, threads)
            for symbol, extent, threads, buffers in program["run"]
        ),
        constants=(),
        constant_bytes=program["constant_bytes"],
        arena_bytes=program["arena_bytes"],
        inputs=_tensors(program["inputs"]),
        outputs=_tensors(program["outputs"]),
        sections=tuple(_section_spec(s, models[s["name"]]) for s in program["sections"]),
        objects_in=tuple(ObjectSpec(*known) for known in program["objects_in"]),
        objects_out=tuple(ObjectSpec(*known) for known in program["objects_out"]),
        hidden=program["hidden"],
        guards=tuple(GuardedOutput(*guard) for guard in program["guards"]),
        trimmed=tuple(TrimmedOutput(*trim) for trim in program["trimmed"]),
    )


def _objects(sizes: list[tuple[str, int]], code: bytes) -> tuple[tuple[str, bytes], ...]:
    found, offset = [], 0
    for symbol, size in sizes:
        found.append((symbol, code[offset : offset + size]))
        offset += size
    if offset != len(code):
        raise VerifyError(f"it has {len(code)} bytes of object code instead of {offset}")
    return tuple(found)


def _tensors(listed: list[tuple[str, str, list[int]]]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, dtype, tuple(shape)) for name, dtype, shape in listed)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode("ascii")


# Arrays -----------------------------------------------------------------------------------------


def _packed(arrays: Mapping[str, NDArray[Any]]) -> tuple[list[Any], bytes]:
    """Name, dtype, shape and offset of each array, and their row-major elements."""
    table: list[Any] = []
    content = bytearray()
    for name, array in arrays.items():
        content += bytes(-len(content) % ALIGNMENT)
        native = array.astype(array.dtype.newbyteorder("="), copy=False)
        table.append([name, native.dtype.name, list(native.shape), len(content)])
        content += native.tobytes()
    return table, bytes(content)


def _unpacked(table: list[Any], content: NDArray[np.uint8]) -> dict[str, NDArray[Any]]:
    return {
        name: np.ndarray(tuple(shape), np.dtype(dtype), buffer=content, offset=offset)
        for name, dtype, shape, offset in table
    }
