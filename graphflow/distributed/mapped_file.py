"""One file of arrays through a model: what a worker does with it.

In: a file `.npy` or `.npz`, and a model.  Out: a file `.npz` with the outputs, and a record of it.
What always holds: the output appears under its name complete or not at all; the record has the
digests of both files; a file that fails is a record with its error.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.distributed.portable_model import PortableModel
from graphflow.distributed.row_runs import only_input, run_rows
from graphflow.runtime import replace_file


@dataclass(frozen=True, slots=True)
class FileRecord:
    """What became of one input: the names and SHA-256 of it and of its output, or its `error`."""

    input: str
    output: str
    model: str
    input_sha256: str = ""
    output_sha256: str = ""
    error: str = ""

    def plain(self) -> dict[str, str]:
        """The record as a line of a manifest has it."""
        return asdict(self)


def map_file(model: PortableModel, input: str, output: str) -> FileRecord:
    """Run the model on the arrays of a file, and write the outputs."""
    try:
        content = Path(input).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        results = run_rows(model, _arrays(model, input))
        _write(output, results)
        return FileRecord(input, output, model.digest, digest, file_digest(output))
    except (GraphflowError, OSError, ValueError, TypeError) as error:
        return FileRecord(input, output, model.digest, error=str(error) or repr(error))


def file_digest(path: str) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _arrays(model: PortableModel, path: str) -> dict[str, NDArray[Any]]:
    if path.endswith(".npy"):
        return {only_input(model): np.load(path, allow_pickle=False)}
    if path.endswith(".npz"):
        with np.load(path, allow_pickle=False) as found:
            return dict(found)
    raise InvalidModel(f"{path} is no array; give files .npy, or .npz with an array for each input")


def _write(path: str, results: Mapping[str, NDArray[Any]]) -> None:
    def write(file: BinaryIO) -> None:
        np.savez(file, **results)  # type: ignore[arg-type]  # names of arrays, not of options

    os.makedirs(os.path.dirname(path), exist_ok=True)
    replace_file(path, write)
