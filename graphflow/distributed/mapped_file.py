"""One file through a model: what a worker does with it.

In: the name of a file, a model, and the record of an earlier run.  Out: a file with the outputs,
and a record of it.  What always holds: the output appears under its name complete or not at all;
the record has the digests of both files; a file that fails is a record with its error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import asdict

from graphflow.base.errors import GraphflowError
from graphflow.distributed.file_formats import mapped_content
from graphflow.distributed.file_stores import put_file, read_file, stem_and_suffix
from graphflow.distributed.portable_model import PortableModel, worker_model


class FileRecord(Struct, frozen=True):
    """What became of one input: the names and SHA-256 of it and of its output, or its `error`.

    `model` is the digest of the model, and of the columns that were its input if they were named.
    """

    input: str
    output: str
    model: str
    input_sha256: str = ""
    output_sha256: str = ""
    error: str = ""

    def plain(self) -> dict[str, str]:
        """The record as a line of a manifest has it."""
        return asdict(self)


class FileTask(Struct, frozen=True):
    """One input, where its output goes, the columns that are the model's input, and what an earlier
    run recorded."""

    input: str
    output: str
    columns: tuple[str, ...] | None = None
    earlier: FileRecord | None = None


class MappedFile(Struct, frozen=True):
    """The record of a file, and whether it was done before."""

    record: FileRecord
    was_there: bool = False


def map_file(model: PortableModel, task: FileTask) -> MappedFile:
    """Run the model on a file and write the outputs, unless the output is there already, made by
    this model of this input.

    Raises GraphflowError if this worker cannot load the model, which no file is to blame for.
    """
    worker_model(model)
    digest = task_digest(model, task.columns)
    try:
        content = read_file(task.input)
        read = _sha256(content)
        if _is_done(task, digest, read):
            assert task.earlier is not None
            return MappedFile(task.earlier, was_there=True)
        _, suffix = stem_and_suffix(task.input)
        written = mapped_content(model, suffix, content, task.columns)
        put_file(task.output, written)
    # A file may be wrong in ways that its reader, or the store, has no common error for.
    except Exception as error:
        return MappedFile(FileRecord(task.input, task.output, digest, error=_text_of(error)))
    return MappedFile(FileRecord(task.input, task.output, digest, read, _sha256(written)))


def task_digest(model: PortableModel, columns: Sequence[str] | None) -> str:
    """What decides the output for an input: the model, and which columns are its input."""
    if columns is None:
        return model.digest
    return _sha256("\n".join([model.digest, *map(repr, columns)]).encode())


def _is_done(task: FileTask, digest: str, input_sha256: str) -> bool:
    """Whether the output is there as the record of an earlier run says."""
    earlier = task.earlier
    if earlier is None or earlier.error or earlier.output != task.output:
        return False
    if earlier.model != digest or earlier.input_sha256 != input_sha256:
        return False
    try:
        return _sha256(read_file(task.output)) == earlier.output_sha256
    except OSError:
        return False


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _text_of(error: Exception) -> str:
    if isinstance(error, GraphflowError):
        return str(error)
    return f"{type(error).__name__}: {error}" if str(error) else repr(error)
