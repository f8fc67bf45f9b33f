"""Programs of earlier compilations, which are kept in a folder, for this process or others.

In: a model and the arguments of a compilation.  Out: what was compiled before from the same, as a
model that runs and answers without the compiler.  What always holds: the key of a program is a
digest of everything that it depends on: the bytes of the model, each argument and option that the
compiler sees, the number of threads, this processor with what was measured of it, and the files of
graphflow and of the packages that it compiles with.  So a cached program is the one that would be
compiled now.

A cached program is native code.  So a folder that other users may write to is not used, and what is
read from it has to pass the checks of saved models.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphflow.api.model import Model, OpenModel
from graphflow.api.model_source import ModelSource, files_digest
from graphflow.api.saved import SavedModel, plain_interface, read_interface, saved_program
from graphflow.base.available_memory import available_memory
from graphflow.base.decisions import SavedEdge
from graphflow.base.declaration import Declaration
from graphflow.base.errors import GraphflowError
from graphflow.base.fields import replace
from graphflow.base.offered_names import HOST
from graphflow.base.options import Options, assumed_host, program_folder, rates_file
from graphflow.base.plain import mapping, text, texts
from graphflow.base.target import Target
from graphflow.base.version import VERSION
from graphflow.processes.cached_files import CachedFiles
from graphflow.processes.digest import Digests
from graphflow.runtime import (
    SavedProgram,
    default_threads,
    host_identity,
    load_programs,
    replace_file,
    save_programs,
)

if TYPE_CHECKING:
    from graphflow.frontends import OnnxModel
    from graphflow.inspect import TensorDecision
    from graphflow.pipeline.compiler import Compiled

MOST_BYTES = 4 << 30
"""The most bytes of the programs in a folder together; that of ResNet50 has 126 MiB."""

LARGEST = MOST_BYTES // 4
"""The most bytes of a program that is kept, so that one does not drive out all others."""

MOST_ELEMENTS = 1 << 10
"""The most elements of a default that is kept: more than those of values that decide shapes."""

OWN_PACKAGES = ("graphflow", "graphflow.frontends", "graphflow.kernels")
"""Those that have the compiler; in a checkout the last two lie beside the first."""

PACKAGES = ("islpy", "llvmlite", "ml_dtypes", "networkx", "numpy", "onnx", "onnxruntime", "scipy")
"""The packages on which results of the compiler depend."""

IMPORTED = time.time_ns()
"""When this module was imported."""

NOT_IN_KEY = ("cache", "debug", "dump", "programs", "validate", "workers")
"""The options that make no difference to a program."""

_PROGRAM, _ABOUT = ".gfx", ".json"

_FILE_NAME = "file name"
"""The document of a program with the name of its file, by which one that was copied to the name of
another is refused."""


class CachedModel(SavedModel):
    """A cached program as a `Model`, which is compiled again for what its file does not have."""

    def __init__(self, path: Path, saved: SavedProgram, compiled: Callable[[], Model]) -> None:
        super().__init__(path, saved, None)
        self._compile = compiled

    @cached_property
    def _again(self) -> Model:
        """The same model, compiled in this process."""
        return self._compile()

    @property
    def compiled(self) -> Compiled:
        """The results of the compiler's stages, which run now."""
        return self._again.compiled

    @property
    def layouts(self) -> Mapping[str, TensorDecision] | Mapping[str, SavedEdge]:
        """The decision about each tensor, which is made again."""
        return self._again.layouts

    def page(self) -> str:
        """What `graphflow inspect --html` writes."""
        return self._again.page()


class ProgramCache:
    """The programs of one model, compiled with the same arguments for all shapes of runs.

    `locations` are the files with external data of the model, relative to its folder.  `opened` is
    what is known of a model with open shapes; `declaration` is None where nothing is kept.
    """

    def __init__(self, files: CachedFiles, source: ModelSource, key: bytes) -> None:
        self.source = source
        self._files, self._key = files, key
        self.locations: tuple[str, ...] = ()
        self.opened: OpenModel | None = None
        self.declaration: Declaration | None = None
        self._read_about()
        source.include(self.locations)

    def program(self, part: object, compiled: Callable[[], Model]) -> CachedModel | None:
        """The program for the shapes and values that `part` states; None if none is kept.

        `compiled` compiles it, for what its file does not have.
        """
        try:
            name = self._program_name(part)
        except TypeError:  # extents of another type, which the compiler may refuse
            return None
        path = self._files.found(name)
        if path is None:
            return None
        try:
            saved = load_programs(path)[0]
            documents = dict(saved.documents)
            if documents.pop(_FILE_NAME, b"") == name.encode():
                return CachedModel(path, replace(saved, documents=documents), compiled)
        except GraphflowError:  # it is damaged, or this process may not use what it needs
            pass
        self._files.remove(path)
        return None

    def keep(self, part: object, model: Model, opened: OpenModel | None = None) -> None:
        """Keep a program for later, and what is known of the model; one that is too large, or that
        cannot be written, is not kept."""
        if len(model.program.prepared) > LARGEST or not self.source.is_unchanged():
            return
        try:
            self.source.include(self.locations)
            if not self.source.is_older(self.locations):  # asked last: their digest takes a while
                return
            self._write_about(opened)
            name, saved = self._program_name(part), saved_program(model)
            saved = replace(saved, documents={**saved.documents, _FILE_NAME: name.encode()})
            save_programs(self._files.place(name), [saved], VERSION, survives_crashes=False)
        except (GraphflowError, OSError, TypeError, ValueError):  # or JSON has not its defaults
            return
        self._files.trim()

    def _read_about(self) -> None:
        """Take over what an earlier compilation knew of the model."""
        path = self._files.found(self._key.hex() + _ABOUT)
        if path is None:
            return
        try:
            about = dict(mapping(json.loads(path.read_bytes())))
            if about.pop("digest") != self._digest_of(about):
                raise ValueError("it is damaged, or of another model")
            opened = _opened(about) if about["inputs"] else None
            declared = Declaration.from_plain(about["declaration"])
            self.locations, self.opened, self.declaration = texts(about["files"]), opened, declared
        except (OSError, KeyError, TypeError, ValueError, GraphflowError):
            self._files.remove(path)

    def _write_about(self, opened: OpenModel | None) -> None:
        assert self.declaration is not None, "the model was read"
        about: dict[str, Any] = {
            "files": self.locations,
            "declaration": self.declaration.plain(),
            "inputs": [],
        }
        if opened is not None:
            defaults = opened.interface.defaults
            # Later runs may find out that others of them decide.
            small = [name for name in defaults if defaults[name].size <= MOST_ELEMENTS]
            about |= {
                **plain_interface(opened.interface, (*opened.symbolic, *opened.needed, *small)),
                "symbolic": opened.symbolic,
                "needed": opened.needed,
                "lost": opened.lost,
            }
        content = json.dumps({**about, "digest": self._digest_of(about)}).encode()
        place = str(self._files.place(self._key.hex() + _ABOUT))
        replace_file(place, lambda file: file.writelines([content]), survives_crashes=False)

    def _digest_of(self, about: Mapping[str, Any]) -> str:
        return Digests().of((self._key, json.dumps(about))).hex()

    def _program_name(self, part: object) -> str:
        return Digests().of((self._key, self.source.of_files, part)).hex() + _PROGRAM


def _opened(about: Mapping[str, Any]) -> OpenModel:
    """What `about` says of open shapes; KeyError, TypeError or ValueError if it is damaged."""
    interface = read_interface(about)
    symbolic, needed = texts(about["symbolic"]), texts(about["needed"])
    if not {*symbolic, *needed} <= {tensor.name for tensor in interface.inputs}:
        raise ValueError(f"{symbolic} and {needed} are not inputs")
    return OpenModel(interface, symbolic, needed, text(about["lost"]))


def cache_for(
    model: OnnxModel, options: Options, target: Target | str | None, **stated: object
) -> ProgramCache | None:
    """The cached programs of a model and of the arguments that were `stated` besides.

    None if nothing can be kept: there is no folder for it, the model cannot be read, an argument
    is no plain value, or the options want to see the compiler at work.
    """
    folder = program_folder(options.cache)
    if folder is None or options.debug or options.dump is not None or options.validate:
        return None
    try:
        source = ModelSource(model)
        key = Digests().of(
            (
                source.digest,
                source.path,
                None if target == HOST else _plain(target),
                tuple((name, _plain(value)) for name, value in sorted(stated.items()) if value),
                _settings(options),
                assumed_host(),
                _content(rates_file()),
                host_identity(),
                made_by(),
            )
        )
        return ProgramCache(CachedFiles(folder, (_PROGRAM, _ABOUT), MOST_BYTES), source, key)
    except (OSError, TypeError, ValueError, GraphflowError):
        return None  # whatever is wrong, the compiler says it


def _settings(options: Options) -> tuple[object, ...]:
    """The options that make a difference to a program, with what they refer to."""
    named = [field.name for field in fields(Options) if field.name not in NOT_IN_KEY]
    measured = b"" if options.timings is None else files_digest([options.timings])
    threads = default_threads() if options.threads is None else options.threads
    # A model that needs more is refused.
    memory = available_memory() if options.memory_limit is None else options.memory_limit
    return (*((name, getattr(options, name)) for name in named), measured, threads, memory)


def _plain(value: object) -> object:
    """A value as `Digests` takes it, without the order of mappings; TypeError for others."""
    if isinstance(value, Mapping):
        return tuple((str(name), _plain(value[name])) for name in sorted(value, key=str))
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError("objects have no digest")
        # Types of one size that numpy does not know itself have one `str`.
        return array.dtype.name, array.dtype.str, array.shape, array.tobytes()
    if isinstance(value, list | tuple):
        return tuple(_plain(each) for each in value)
    if not f"{type(value).__module__}.".startswith(("builtins.", "graphflow.")):
        raise TypeError("no key has the code of other classes, which may make their values")
    return value


def _content(path: str) -> bytes:
    """What a file has; nothing if it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


@lru_cache(maxsize=1)
def made_by() -> tuple[object, ...]:
    """Which compiler this is: the names, sizes and times of writing of graphflow's modules, those
    of its packages with their versions, and Python's version.

    ValueError if one was written after this module was imported: another one may have been
    imported before it.
    """
    own = [place for name in OWN_PACKAGES for place in _places(name)]
    modules = sorted(module for place in own for module in _modules(place))
    found = (find_spec(name) for name in PACKAGES)
    packages = [_stamp(spec.origin) for spec in found if spec is not None and spec.origin]
    if any(written > IMPORTED for _, _, written in (*modules, *packages)):
        raise ValueError("graphflow, or what it compiles with, was changed since it was imported")
    return (sys.version, VERSION, tuple(modules), tuple(packages), _installed(packages))


def _installed(packages: Iterable[tuple[str, int, int]]) -> tuple[str, ...]:
    """The names and versions of packages beside these; builders of images give all files one time
    of writing."""
    folders = {os.path.dirname(os.path.dirname(origin)) for origin, _, _ in packages}
    names = (name for folder in sorted(folders) for name in sorted(os.listdir(folder)))
    kinds = (".dist-info", ".egg-info")
    return tuple(name for name in names if name.startswith(PACKAGES) and name.endswith(kinds))


def _places(package: str) -> Iterable[str]:
    """The folders of a package, which is not imported."""
    spec = find_spec(package)
    return () if spec is None else spec.submodule_search_locations or ()


def _modules(folder: str) -> list[tuple[str, int, int]]:
    found: list[tuple[str, int, int]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                found.append(_stamp(entry.path))
            elif entry.is_dir() and entry.name != "__pycache__":
                found += _modules(entry.path)
    return found


def _stamp(path: str) -> tuple[str, int, int]:
    status = os.stat(path)
    return path, status.st_size, status.st_mtime_ns
