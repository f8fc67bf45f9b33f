"""Files through a model on the workers of a Dask cluster.

In: names of inputs, a model, a folder for the outputs, and a client of the cluster.  Out: an output
for each input, and a manifest.  What always holds: an input whose output is there, made by this
model, is not done again; one that fails, or that workers die of, is listed with its error, and
stops nothing; if the run ends at any moment, another one goes on where it was.

The folder has `NAME.npz`, or `NAME.parquet`, for each input NAME, and the manifest; the last record
of an input counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import distributed

from graphflow.base.errors import GraphflowError
from graphflow.distributed.clusters import model_on
from graphflow.distributed.file_formats import SUFFIXES
from graphflow.distributed.file_stores import in_folder, stem_and_suffix
from graphflow.distributed.map_manifest import open_manifest, read_manifest
from graphflow.distributed.mapped_file import (
    FileRecord,
    FileTask,
    MappedFile,
    map_file,
    task_digest,
)
from graphflow.distributed.portable_model import PortableModel

_AHEAD = 4
"""Files in work for each thread of the cluster: enough that none waits, and few enough that a run
that is ended has begun little."""

_COUNT_INTERVAL = 1.0
"""How long the number of threads of a cluster, whose workers come and go, is taken for true."""


@dataclass(slots=True)
class MapOutcome:
    """How many files were done now, how many were done before, and the records of those that
    failed."""

    done: int = 0
    before: int = 0
    failed: list[FileRecord] = field(default_factory=list)

    @property
    def total(self) -> int:
        """How many files are dealt with."""
        return self.done + self.before + len(self.failed)


def mapped_names(inputs: Sequence[str], folder: str) -> dict[str, str]:
    """The output of each input; GraphflowError where two would have one name, or where an output
    would take the place of an input."""
    names: dict[str, str] = {}
    for path in inputs:
        stem, suffix = stem_and_suffix(path)
        name = in_folder(folder, stem + SUFFIXES.get(suffix, ".npz"))
        other = names.setdefault(name, path)
        if other != path:
            raise GraphflowError(f"{other} and {path} would both be written to {name}")
    given = set(inputs)
    for name, path in names.items():
        if name in given:
            raise GraphflowError(
                f"the output of {path} would take the place of the input {name}; give another "
                "folder for the outputs"
            )
    return {path: name for name, path in names.items()}


def map_files(
    client: Any,
    model: PortableModel,
    inputs: Sequence[str],
    folder: str,
    *,
    columns: Sequence[str] | None = None,
    counting: Callable[[int, int], None] = lambda done, total: None,
) -> MapOutcome:
    """Run the model on each input that is not done yet; `columns` are those of `BatchModel`.

    Raises GraphflowError if the folder cannot be written to, if a worker cannot load the model, or
    if the cluster is lost; what was done until then stays.
    """
    outputs = mapped_names(inputs, folder)
    named = None if columns is None else tuple(columns)
    outcome = MapOutcome()
    try:
        with open_manifest(folder) as manifest:
            earlier = read_manifest(folder)
            tasks = [FileTask(name, outputs[name], named, earlier.get(name)) for name in inputs]
            for found in _mapped(client, model, tasks):
                if found.was_there:
                    outcome.before += 1
                else:
                    manifest.add(found.record)
                    outcome.done += not found.record.error
                    outcome.failed += [found.record] if found.record.error else []
                counting(outcome.total, len(inputs))
    except OSError as error:
        raise GraphflowError(
            f"the run over {len(inputs)} files ended: {error}; start it again to go on"
        ) from error
    return outcome


def _mapped(client: Any, model: PortableModel, tasks: Sequence[FileTask]) -> Iterator[MappedFile]:
    """What became of all files, as they are done.

    Dask gives the files of a worker that dies to others, which replace what it wrote.  Files that
    several workers died with are run one by one when all others are done, as one of them may have
    taken the others along.
    """
    given = model_on(client, model)
    suspects: list[FileTask] = []
    for task, future in _completed(client, given, tasks, _Room(client)):
        try:
            yield _result(future)
        except distributed.KilledWorker:
            suspects.append(task)
    for suspect in suspects:
        for task, future in _completed(client, given, [suspect], _Room(client)):
            try:
                yield _result(future)
            except distributed.KilledWorker as error:
                text = f"workers died again and again while they ran it: {error}"
                digest = task_digest(model, task.columns)
                yield MappedFile(FileRecord(task.input, task.output, digest, error=text))


def _completed(
    client: Any, model: Any, tasks: Iterable[FileTask], room: _Room
) -> Iterator[tuple[FileTask, Any]]:
    """The tasks with their futures, as these are done."""
    waiting = iter(tasks)
    done = distributed.as_completed(with_results=False)
    in_work: dict[str, FileTask] = {}

    def submit() -> None:
        for _, task in zip(range(room.count() - len(in_work)), waiting, strict=False):
            future = client.submit(map_file, model, task, pure=False, retries=3)
            in_work[future.key] = task
            done.add(future)

    submit()
    for future in done:
        yield in_work.pop(future.key), future
        submit()


def _result(future: Any) -> MappedFile:
    """What a task returned; OSError if the scheduler is lost."""
    try:
        found: MappedFile = future.result()
    except distributed.CancelledError as error:
        raise OSError(f"the scheduler is lost: {error}") from error
    return found


class _Room:
    """How many files may be in work."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._count = 0
        self._counted = 0.0

    def count(self) -> int:
        """By the threads that the cluster has, or had a moment ago."""
        now = time.monotonic()
        if not self._count or now - self._counted > _COUNT_INTERVAL:
            threads = sum(self._client.nthreads().values())
            self._count, self._counted = _AHEAD * max(1, threads), now
        return self._count
