"""From a file to a `ServedModel`: what a loaded executable lets its clients do.

In: a saved file, or an ONNX model, which is compiled first.  Out: a `ServedModel`.  What always
holds: what is served is the file whose digest is reported; the work is done in a thread, and an
ONNX model is compiled by a process beside the server, which itself never imports the compiler.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from graphflow.api.executable import Executable, load
from graphflow.api.row_batches import RowBatches, row_batches, sized_axes_in
from graphflow.base.errors import InvalidModel
from graphflow.program import OpenTensor, TensorSpec
from graphflow.runtime import Program, is_container
from graphflow.serve.model_files import ModelFile
from graphflow.serve.served_model import ANY, ModelInterface, ServedModel, ServedTensor
from graphflow.serve.tensor_types import protocol_type

NICENESS = 10
"""How much the compiler yields to the server where both want a processor."""

_SHOWN = 2000
"""The most characters of what the compiler says that an error has."""


class LoadOptions(Struct, frozen=True):
    """How models are loaded: threads of a run, the options of `graphflow compile` for ONNX models,
    the folder for what is compiled, and whether requests may share runs at all."""

    threads: int | None
    compile_options: tuple[str, ...]
    folder: Path
    shares_runs: bool = True


async def load_model(file: ModelFile, options: LoadOptions) -> ServedModel:
    """Load a model; an ONNX model is compiled first.  Raises GraphflowError if that fails."""
    digest = await asyncio.to_thread(file.digest)
    if await asyncio.to_thread(is_container, file.path):
        return await asyncio.to_thread(_loaded, file.path, digest, options)
    saved = options.folder / f"{digest}.gfx"
    if not saved.exists():
        await _compile_beside(file.path, saved, options.compile_options)
        if await asyncio.to_thread(file.digest) != digest:
            saved.unlink()
            raise InvalidModel(f"{file.path} changed while it was compiled; load it again")
    return await asyncio.to_thread(_loaded, saved, digest, options)


def _loaded(path: Path, digest: str, options: LoadOptions) -> ServedModel:
    """A saved model; for what was compiled here the digest is that of the ONNX model."""
    stated = None if path.parent == options.folder else digest
    exe = load(path, threads=options.threads, sha256=stated)
    return ServedModel(interface_of(exe, options.shares_runs), exe, digest, exe.title)


def interface_of(exe: Executable, shares_runs: bool = True) -> ModelInterface:
    """What clients have to know of an executable; InvalidModel if the protocol cannot express its
    inputs and outputs."""
    made = exe.specializations
    alone = made[0] if len(made) == 1 else None
    bounds = {} if alone is None else _bounds(alone.program)
    inputs = tuple(_served(tensor, bounds) for tensor in (alone or exe).inputs)
    report: Mapping[str, Any] = {} if alone is None else alone.report()
    outputs = tuple(_output(tensor, report) for tensor in (alone or exe).outputs)
    if any(one.program.spec.packed or one.program.spec.objects_out for one in made):
        raise InvalidModel("it has outputs that are sequences or optionals; these are not served")
    if any(one.program.spec.objects_in for one in made):
        raise InvalidModel("it has inputs that are sequences or optionals; these are not served")
    rows = row_batches(exe) if shares_runs else RowBatches(1, 1, "no runs are to be shared")
    return ModelInterface(inputs, outputs, frozenset(exe.required), rows.most, rows.refusal)


def _bounds(program: Program) -> dict[tuple[str, int], tuple[int, int]]:
    """The least and the greatest extent of axes of inputs, by the names of these."""
    spec = program.spec
    return {
        (spec.inputs[number].name, axis): (size.lo, size.hi)
        for size in spec.sizes
        for number, axis in size.axes
    }


def _served(
    tensor: TensorSpec | OpenTensor, bounds: Mapping[tuple[str, int], tuple[int, int]]
) -> ServedTensor:
    if protocol_type(tensor.dtype) is None:
        raise InvalidModel(
            f"the tensor {tensor} has an element type that the protocol does not have"
        )
    shape = None
    if tensor.shape is not None:
        shape = tuple(n if isinstance(n, int) else ANY for n in tensor.shape)
    own = {axis: limits for (name, axis), limits in bounds.items() if name == tensor.name}
    return ServedTensor(tensor.name, tensor.dtype, shape, own)


def _output(tensor: TensorSpec | OpenTensor, report: Mapping[str, Any]) -> ServedTensor:
    """An output; the report knows along which axes its extents differ from run to run."""
    served = _served(tensor, {})
    if served.shape is None:
        return served
    cut = {trim["axis"] for trim in report.get("trimmed", ()) if trim["edge"] == tensor.name}
    cut.update(sized_axes_in(report, tensor.name))
    shape = tuple(ANY if axis in cut else n for axis, n in enumerate(served.shape))
    return ServedTensor(served.name, served.dtype, shape, {})


async def _compile_beside(model: Path, saved: Path, options: Sequence[str]) -> None:
    """Compile `model` and save it as `saved`; InvalidModel with the compiler's error if not.

    The compiler has a lower priority than the server, and ends when this task is cancelled.
    """
    command = (sys.executable, "-P", "-m", "graphflow", "compile", str(model), "-o", str(saved))
    process = await asyncio.create_subprocess_exec(
        *command,
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # its workers are in its group, and end with it
    )
    try:
        with contextlib.suppress(OSError):  # it has ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise InvalidModel(f"cannot compile {model}: {_error_in(said)}")


def _error_in(said: bytes) -> str:
    """The error among what the compiler printed, or the end of it."""
    text = said.decode(errors="replace").strip()
    _, marker, error = text.rpartition("error: ")
    return (error if marker else text)[-_SHOWN:] or "it was stopped"
