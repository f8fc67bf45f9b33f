"""A model as it travels to workers, and the executable that a worker makes of it.

In: saved models, or an ONNX model.  Out: a `PortableModel`, which is bytes with a digest; and in a
worker an executable, one for each model and process.  What always holds: a worker runs the first of
the saved programs that its processor can execute, or compiles the ONNX model for itself; the saved
programs are files of this machine, so processes of one user share their weights.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from msgspec import Struct

from graphflow.api.executable import Executable, load
from graphflow.api.row_batches import RowBatches, row_batches
from graphflow.base.errors import CodegenError, GraphflowError, InvalidModel
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.runtime import is_container, replace_file


class PortableModel(Struct, frozen=True):
    """Saved programs of one model, or the ONNX model; `digest` is the SHA-256 of all that.

    `threads` are those of a run in a worker.
    """

    digest: str
    saved: tuple[bytes, ...]
    onnx: bytes
    sizes: tuple[tuple[str, int, int | None], ...]
    threads: int | None

    def __repr__(self) -> str:
        return f"PortableModel({self.digest[:12]})"


def portable_model(
    *paths: str | Path,
    sizes: Mapping[str, tuple[int, int | None]] | None = None,
    threads: int | None = 1,
) -> PortableModel:
    """The model in saved files, of which each worker takes the first that its processor can
    execute; an ONNX model among them is compiled where none can, with `sizes`.

    Raises InvalidModel for a file that cannot be read, and GraphflowError for more than one ONNX
    model.
    """
    saved: list[bytes] = []
    models: list[bytes] = []
    for path in paths:
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise InvalidModel(f"cannot read the model {path}: {error}") from error
        (saved if is_container(path) else models).append(content)
    if len(models) > 1 or not paths:
        raise GraphflowError(
            f"{len(models)} ONNX models are given, and {len(saved)} saved ones; give saved models "
            "of one network, or one ONNX model, or both"
        )
    stated = tuple((name, lo, hi) for name, (lo, hi) in sorted((sizes or {}).items()))
    digest = hashlib.sha256(repr(stated).encode())
    for content in (*saved, *models):
        digest.update(hashlib.sha256(content).digest())
    return PortableModel(digest.hexdigest(), tuple(saved), b"".join(models), stated, threads)


class WorkerModel(Struct, frozen=True):
    """A model in a worker: its executable, and which rows may be put together in a run."""

    exe: Executable
    rows: RowBatches


_MOST_MADE = 4
"""The models that a worker keeps: the workers of a cluster outlive the runs of many models."""

_MADE: OrderedDict[tuple[str, int | None], WorkerModel] = OrderedDict()
_TURN = threading.Lock()


def worker_model(model: PortableModel) -> WorkerModel:
    """A model in this process; it is made once, while no more than `_MOST_MADE` are in use."""
    key = (model.digest, model.threads)
    with _TURN:
        found = _MADE.get(key)
        if found is None:
            exe = _made(model)
            found = _MADE[key] = WorkerModel(exe, row_batches(exe))
            while len(_MADE) > _MOST_MADE:
                _MADE.popitem(last=False)
        _MADE.move_to_end(key)
        return found


def _made(model: PortableModel) -> Executable:
    refusals = []
    for content in model.saved:
        try:
            return _loaded(content, model.threads)
        except CodegenError as error:  # for another processor
            refusals.append(str(error))
    if not model.onnx:
        raise CodegenError("; ".join(refusals) + "; give the ONNX model beside the saved ones")
    sizes = {name: (lo, hi) for name, lo, hi in model.sizes}
    # Workers of the compiler would compete with those of the cluster.
    options = replace(Options.from_environment(), threads=model.threads, workers=0)
    # Importing the compiler takes a second in each worker, which saved programs do without.
    compile_model = import_module("graphflow.api.compilation").compile
    exe: Executable = compile_model(model.onnx, sizes=sizes, options=options)
    return exe


def _loaded(content: bytes, threads: int | None) -> Executable:
    digest = hashlib.sha256(content).hexdigest()
    path = own_folder("models") / f"{digest}.gfx"
    if not path.exists():
        replace_file(str(path), lambda file: file.writelines([content]))
    return load(path, threads=threads, sha256=digest)


def own_folder(purpose: str) -> Path:
    """A folder of this user on this machine's disk, for one purpose, which all its workers share.

    Raises GraphflowError if others may write there.
    """
    folder = Path(tempfile.gettempdir(), f"graphflow-{purpose}-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if not is_own or found.st_mode & 0o022:
        raise GraphflowError(f"{folder} belongs to others, or others may write there; remove it")
    return folder
