"""The kernel cache: kernels of earlier compilations, in memory and in a folder.

In: `KernelTask`s.  Out: their `LoweredKernel`s and object code, if the cache has them.  What always
holds: the key of a kernel is a digest of everything that it depends on: its task with every field,
the sources of lowering and code generation and of what they import, and the versions of LLVM, isl
and Python.  So a kernel from the cache equals the one that would be made now, with its schedule and
its proofs.

An entry is a pickle and holds native code, so whoever can write one can run code in this process.
That is why `EntryStore` accepts only a folder that nobody else may write to, and verifies the
checksum of each entry before it is read.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import TypeAlias

import llvmlite
import numpy as np
from islpy import version as islpy_version
from llvmlite import binding as llvm
from msgspec import Struct

from graphflow.arith import Proof
from graphflow.base.fields import replace
from graphflow.base.trace import Trace
from graphflow.codegen import renamed
from graphflow.kernels import recipes
from graphflow.kernels.lowering import KernelTask, LoweredKernel, SizeParam
from graphflow.processes.digest import SIZE, Digests
from graphflow.processes.store import MOST_BYTES, EntryStore
from graphflow.schedule import Refusal, Schedule, ScheduleStep
from graphflow.tir import Buffer, PrimFunc

PACKAGES = ("arith", "codegen", "cost", "effects", "layout", "llvm", "schedule", "tir")
MODULES = (
    "base/dtypes",
    "base/errors",
    "base/fields",
    "base/plain",
    "base/processors",
    "base/shared_scope",
    "base/target",
    "pipeline/kernel_cache",
    "processes/digest",
    "processes/store",
    "processes/uninterrupted",
)
"""The modules and folders below graphflow's that make kernels, besides `kernels`; their sources are
in the key."""

Made: TypeAlias = "tuple[LoweredKernel, bytes]"
"""A kernel and its object code, under the symbol that it was made for."""


class _Entry(Struct, frozen=True):
    """A kernel with its object code, without the fields that its task has.

    `definition` is that of the schedule; None if it is the task's.
    """

    symbol: str
    func: PrimFunc
    definition: PrimFunc | None
    scheduled: PrimFunc
    steps: tuple[ScheduleStep, ...]
    refusals: tuple[Refusal, ...]
    extent: int
    workspace: tuple[Buffer, ...]
    proofs: tuple[Proof, ...]
    sizes: tuple[SizeParam, ...]
    code: bytes

    @staticmethod
    def of(kernel: LoweredKernel, code: bytes) -> _Entry:
        """The entry of a kernel."""
        schedule, own = kernel.schedule, kernel.schedule.definition == kernel.task.definition
        return _Entry(
            kernel.symbol,
            kernel.func,
            None if own else schedule.definition,
            schedule.func,
            schedule.steps,
            schedule.refusals,
            kernel.extent,
            kernel.workspace,
            kernel.proofs,
            kernel.sizes,
            code,
        )

    def kernel(self, task: KernelTask) -> LoweredKernel:
        """The kernel, under the names of the task."""
        definition = task.definition if self.definition is None else self.definition
        schedule = Schedule(definition, self.scheduled, self.steps, self.refusals)
        func = replace(self.func, name=task.symbol)
        return LoweredKernel(
            task.symbol, func, schedule, self.extent, self.workspace, self.proofs, task, self.sizes
        )


class KernelCache:
    """The cache of one compilation; without a folder it uses the `earlier` kernels alone.

    `earlier` are kernels by the digests of their tasks, those of the programs that a model with
    open shapes keeps; None for a model with one program.  The cache only reads them, so a kernel is
    freed together with the last program that uses it.  `found` counts the kernels that were found,
    `expected` says whether all were expected to be.
    """

    def __init__(
        self,
        folder: str | None,
        trace: Trace,
        most_bytes: int = MOST_BYTES,
        earlier: Mapping[bytes, Made] | None = None,
    ) -> None:
        self.found = 0
        self.expected = False
        self._trace = trace
        self._folder = folder
        self._store: EntryStore | None = None
        self._digests = Digests()
        self._earlier = earlier
        self._keys: dict[str, bytes] = {}
        self._found: set[str] = set()
        self._objects: dict[str, bytes] = {}
        self._requests: list[bytes] = []
        if folder is None:
            return
        try:
            makers()
            self._store = EntryStore(folder, most_bytes)
        except OSError as error:
            trace.notice(f"no kernels are cached: {error}")

    def expects(self, *request: object) -> bool:
        """Whether the cache probably has all kernels, because the same was requested before.

        A request is any value that determines the kernels, or nearly so; `keep` records all that
        were asked for.
        """
        key = self._digest(request) if self._store is not None else None
        if key is not None:
            self._requests.append(key)
        self.expected = key is not None and self._get(key) is not None
        return self.expected

    def kernels(self, tasks: Mapping[str, KernelTask]) -> dict[str, LoweredKernel]:
        """The kernels that the cache has, by symbol."""
        found: dict[str, LoweredKernel] = {}
        if self._store is None and self._earlier is None:
            return found
        for symbol, task in tasks.items():
            # A kernel does not depend on the names of calls and symbols.
            claimed = None if task.claimed is None else ""
            key = self._digest(replace(task, symbol="", claimed=claimed))
            if key is None:
                continue
            self._keys[symbol] = key
            known = self._known(key, task)
            if known is not None:
                found[symbol], self._objects[symbol] = known
        self._found |= found.keys()
        self.found = len(self._found)
        return found

    @property
    def digests(self) -> Mapping[str, bytes]:
        """The digests of the tasks that the cache was asked for, by symbol; without those that have
        none."""
        return self._keys

    @property
    def objects(self) -> Mapping[str, bytes]:
        """The object code of kernels, by symbol: of those found, and of those given to `take`."""
        return self._objects

    def take(self, symbol: str, code: bytes) -> None:
        """Take the object code of a kernel that was not found, made together with it."""
        self._objects[symbol] = code

    def keep(self, kernels: Mapping[str, LoweredKernel], objects: Mapping[str, bytes]) -> None:
        """Keep the kernels that were not found, with their object code.

        A kernel that cannot be pickled is left out; the first that cannot be written ends it with a
        notice.
        """
        if self._store is None:
            return
        new = [symbol for symbol in self._keys if symbol not in self._found]
        for symbol in new:
            data = _pickled(_Entry.of(kernels[symbol], objects[symbol]))
            if data is not None and not self._store.put(_name(self._keys[symbol]), data):
                self._trace.notice(f"the kernel cache {self._folder} cannot be written")
                return
        for request in self._requests:
            if new or self._get(request) is None:
                self._store.put(_name(request), b"")
        if new:
            self._store.trim()

    def _known(self, key: bytes, task: KernelTask) -> Made | None:
        """The kernel of a task and its object code, under the names of the task; None if there is
        none."""
        made = None if self._earlier is None else self._earlier.get(key)
        if made is not None:
            kernel, code = made
            func = replace(kernel.func, name=task.symbol)
            known = replace(kernel, symbol=task.symbol, func=func, task=task)
            return known, renamed(code, kernel.symbol, task.symbol)
        entry = self._entry(key)
        if entry is None:
            return None
        return entry.kernel(task), renamed(entry.code, entry.symbol, task.symbol)

    def _entry(self, key: bytes) -> _Entry | None:
        data = self._get(key)
        if data is None:
            return None
        try:
            entry = pickle.loads(data)
        except Exception as error:  # the checksum is right, so the entry was made by other code
            self._trace.notice(f"an entry of the kernel cache cannot be read: {error!r}")
            return None
        return entry if isinstance(entry, _Entry) else None

    def _get(self, key: bytes) -> bytes | None:
        return None if self._store is None else self._store.get(_name(key))

    def _digest(self, value: object) -> bytes | None:
        """The key of a value; None for a value that has no digest."""
        try:
            return self._digests.of(value)
        except TypeError:
            return None


def _name(digest: bytes) -> str:
    """The name of an entry in the folder."""
    return blake2b(makers() + digest, digest_size=SIZE).hexdigest()


def _pickled(entry: _Entry) -> bytes | None:
    try:
        return pickle.dumps(entry, pickle.HIGHEST_PROTOCOL)
    except Exception:  # a user's __reduce__ may raise anything
        return None


@lru_cache(maxsize=1)
def makers() -> bytes:
    """A digest of everything that makes kernels: graphflow's sources, libraries, and this Python.

    Raises OSError if the sources are not files.
    """
    made = blake2b(digest_size=SIZE)
    versions = (islpy_version.VERSION_TEXT, llvmlite.__version__, llvm.llvm_version_info)
    made.update(repr((sys.version, np.__version__, *versions)).encode())
    for path in sorted(source_files()):
        made.update(path.read_bytes())
        made.update(b"\0")
    return made.digest()


def source_files() -> list[Path]:
    """The files that `makers` reads."""
    here = Path(__file__).parents[1]
    found = [here / f"{name}.py" for name in MODULES]
    for package in (*(here / name for name in PACKAGES), Path(*recipes.__path__).parent):
        files = list(package.rglob("*.py"))
        if not files:
            raise FileNotFoundError(f"{package} has no sources")
        found += files
    return found
