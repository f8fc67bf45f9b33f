"""Files through a model on the workers of a Dask cluster.

In: paths of inputs, a model, a folder for the outputs, and a client of the cluster.  Out: an output
for each input, and a manifest.  What always holds: an input whose output is there, made by this
model, is not done again; one that fails is listed with its error, and stops nothing; if the run
ends at any moment, another one goes on where it was.

The folder has `NAME.npz` for each input NAME, and `manifest.jsonl` with a line for each input that
is done; the last line of an input counts.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO

import distributed

from graphflow.base.errors import GraphflowError
from graphflow.distributed.clusters import model_on
from graphflow.distributed.mapped_file import FileRecord, file_digest, map_file
from graphflow.distributed.portable_model import PortableModel

MANIFEST = "manifest.jsonl"

_AHEAD = 4
"""Files in work for each thread of the cluster: enough that none waits, and few enough that a run
that is ended has begun little."""


@dataclass(slots=True)
class MapOutcome:
    """How many files were done now, how many were done before, and the records of those that
    failed."""

    done: int = 0
    before: int = 0
    failed: list[FileRecord] = field(default_factory=list)


def found_inputs(pattern: str) -> list[str]:
    """The files of a pattern, in order; GraphflowError if there is none."""
    found = sorted(os.path.abspath(path) for path in glob.glob(pattern, recursive=True))
    files = [path for path in found if os.path.isfile(path)]
    if not files:
        raise GraphflowError(f"no file is named as {pattern}; give a pattern such as 'in/*.npy'")
    return files


def mapped_names(inputs: Sequence[str], folder: str) -> dict[str, str]:
    """The output of each input; GraphflowError where two would have one name."""
    names: dict[str, str] = {}
    for path in inputs:
        stem, _ = os.path.splitext(os.path.basename(path))
        name = os.path.join(os.path.abspath(folder), f"{stem}.npz")
        other = names.setdefault(name, path)
        if other != path:
            raise GraphflowError(f"{other} and {path} would both be written to {name}")
    return {path: name for name, path in names.items()}


def map_files(
    client: Any,
    model: PortableModel,
    inputs: Sequence[str],
    folder: str,
    counting: Callable[[int, int], None] | None = None,
) -> MapOutcome:
    """Run the model on each input that is not done yet.

    Raises GraphflowError if the folder cannot be written to, or if the cluster is lost; what was
    done until then stays.
    """
    outputs = mapped_names(inputs, folder)
    try:
        os.makedirs(folder, exist_ok=True)
        records = read_manifest(os.path.join(folder, MANIFEST))
        left = [path for path in inputs if not _is_done(records.get(path), model)]
        outcome = MapOutcome(before=len(inputs) - len(left))
        with open(os.path.join(folder, MANIFEST), "a", encoding="utf-8") as manifest:
            for record in _records(client, model, left, outputs):
                _append(manifest, record)
                outcome.done += not record.error
                outcome.failed += [record] if record.error else []
                if counting is not None:
                    counting(outcome.before + outcome.done + len(outcome.failed), len(inputs))
    except OSError as error:
        raise GraphflowError(
            f"the run over {len(inputs)} files ended: {error}; start it again to go on"
        ) from error
    return outcome


def read_manifest(path: str) -> dict[str, FileRecord]:
    """The last record of each input; a line that a killed process wrote in part is left out."""
    found: dict[str, FileRecord] = {}
    if not os.path.exists(path):
        return found
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = FileRecord(**json.loads(line))
            except (ValueError, TypeError):
                continue
            found[record.input] = record
    return found


def _append(manifest: TextIO, record: FileRecord) -> None:
    manifest.write(json.dumps(record.plain()) + "\n")
    manifest.flush()


def _is_done(record: FileRecord | None, model: PortableModel) -> bool:
    """Whether an output is there as a record says, made by this model of this input."""
    if record is None or record.error or record.model != model.digest:
        return False
    try:
        return (
            file_digest(record.output) == record.output_sha256
            and file_digest(record.input) == record.input_sha256
        )
    except OSError:
        return False


def _records(
    client: Any, model: PortableModel, inputs: Iterable[str], outputs: Mapping[str, str]
) -> Iterable[FileRecord]:
    """The records of all inputs, as they are done.  A worker that is lost loses its files to
    others, which do them again and replace what it wrote."""
    shipped = model_on(client, model)
    waiting = iter(inputs)
    done = distributed.as_completed(with_results=False)
    threads = max(1, sum(client.nthreads().values()))

    def submit(count: int) -> None:
        for _, path in zip(range(count), waiting, strict=False):  # the range ends first
            done.add(client.submit(map_file, shipped, path, outputs[path], pure=False, retries=3))

    submit(_AHEAD * threads)
    for future in done:
        try:
            record: FileRecord = future.result()
        except distributed.KilledWorker as error:
            raise OSError(f"workers died again and again: {error}") from error
        except distributed.CancelledError as error:
            raise OSError(f"the scheduler is lost: {error}") from error
        yield record
        submit(1)
