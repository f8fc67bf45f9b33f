"""The models of a server: which are there, which are served, and what became of the others.

In: the files of models, and requests to load and unload them.  Out: for a name and a version what
serves it.  What always holds: a model that is loaded again is served without a gap, and what was
accepted before is answered by the model that accepted it; a load that fails leaves what was served.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Literal, TypeAlias

from graphflow.base.errors import GraphflowError
from graphflow.serve.model_files import Identity, ModelFile, ModelFiles
from graphflow.serve.refused import RefusedRequest, unavailable
from graphflow.serve.serve_limits import ServeLimits
from graphflow.serve.serve_metrics import ServeMetrics
from graphflow.serve.served_model import ServedModel
from graphflow.serve.serving import Serving

State: TypeAlias = Literal["LOADING", "READY", "UNLOADING", "UNAVAILABLE"]

Loads: TypeAlias = Callable[[ModelFile], Awaitable[ServedModel]]
"""Loads a model; GraphflowError if it cannot."""

_log = logging.getLogger("graphflow.serve")


@dataclass(slots=True)
class _ModelVersion:
    """One version of a model."""

    state: State
    reason: str = ""
    serving: Serving | None = None
    identity: Identity | None = None
    """Of the file when it was loaded."""
    tried: Identity | None = None
    """Of the file that was loaded last, also if that failed."""

    def waiting(self) -> int:
        """How many requests wait for a run."""
        return 0 if self.serving is None else self.serving.waiting


class Repository:
    """The models of one server.  `load` one or `load_all`; `close` when all is over."""

    def __init__(
        self, files: ModelFiles, loads: Loads, limits: ServeLimits, metrics: ServeMetrics
    ) -> None:
        self._files = files
        self._loads = loads
        self._limits = limits
        self._metrics = metrics
        self._places: dict[str, dict[str, _ModelVersion]] = defaultdict(dict)
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._closings: set[asyncio.Task[None]] = set()
        self._is_open = True

    # Questions --------------------------------------------------------------------------------

    def serving(self, name: str, version: str | None = None) -> Serving:
        """What serves a version of a model, or its latest one; RefusedRequest if nothing does."""
        versions = self._places.get(name, {})
        if version is None:
            ready = [v for v, place in versions.items() if place.serving is not None]
            version = max(ready or versions, key=int, default=None)
        place = None if version is None else versions.get(version)
        if place is None:
            raise RefusedRequest(
                HTTPStatus.NOT_FOUND, f"there is no model {_shown(name, version)}", "unknown_model"
            )
        if place.serving is None:
            raise unavailable(
                f"the model {_shown(name, version)} is {place.state.lower()}"
                + (f": {place.reason}" if place.reason else ""),
                "not_ready",
            )
        return place.serving

    def versions(self, name: str) -> list[str]:
        """The versions of a model that are served, in order."""
        places = self._places.get(name, {})
        return sorted((v for v, place in places.items() if place.serving is not None), key=int)

    @property
    def is_ready(self) -> bool:
        """Whether every model that is to be served is, and the server does not stop."""
        places = [place for places in self._places.values() for place in places.values()]
        return self._is_open and all(
            place.serving is not None or place.reason in (_UNLOADED, _GONE) for place in places
        )

    async def index(self) -> list[dict[str, str]]:
        """Every version of every model that is there or was asked for, with its state."""
        found = await asyncio.to_thread(self._files.found)
        names = sorted({*found, *self._places})
        return [
            {"name": name, "version": version, **self._described(name, version)}
            for name in names
            for version in sorted({*found.get(name, ()), *self._places.get(name, ())}, key=int)
        ]

    def _described(self, name: str, version: str) -> dict[str, str]:
        place = self._places.get(name, {}).get(version, _ModelVersion("UNAVAILABLE", "not loaded"))
        state = "READY" if place.serving is not None else place.state
        return {"state": state, "reason": place.reason}

    # Changes ----------------------------------------------------------------------------------

    async def load_all(self) -> None:
        """Load every model that is there; GraphflowError with the first one that fails, when all
        others are loaded."""
        names = await asyncio.to_thread(self._files.found)
        for versions in names.values():
            for file in versions.values():
                self._place(file)
        done = await asyncio.gather(*map(self.load, names), return_exceptions=True)
        for result in done:
            if isinstance(result, BaseException):
                raise result

    async def load(self, name: str) -> None:
        """Load the versions of a model that are there and not served as they are now.

        Raises RefusedRequest for a name that is not there, and GraphflowError for the first version
        that cannot be loaded.
        """
        if name not in await asyncio.to_thread(self._files.found):
            raise RefusedRequest(
                HTTPStatus.NOT_FOUND,
                f"there are no files of a model {name!r:.130}",
                "unknown_model",
            )
        async with self._turns[name]:  # after the check: clients do not make locks
            found = (await asyncio.to_thread(self._files.found)).get(name, {})
            for version in set(self._places[name]) - set(found):
                self._remove(name, version, _GONE)
            done = await asyncio.gather(*map(self._load, found.values()), return_exceptions=True)
        for result in done:
            if isinstance(result, BaseException):
                raise result

    def _place(self, file: ModelFile) -> _ModelVersion:
        """What is known of a version, which begins to be loaded if nothing is."""
        place = self._places[file.name].get(file.version)
        if place is None:
            place = self._places[file.name][file.version] = _ModelVersion("LOADING")
            self._metrics.waiting.labels(file.name, file.version).set_function(place.waiting)
        return place

    async def _load(self, file: ModelFile) -> None:
        place = self._place(file)
        identity = await asyncio.to_thread(file.identity)
        if place.serving is not None and identity == place.identity:
            return
        place.state, place.tried = "LOADING", identity
        try:
            model = await self._loads(file)
        except BaseException as error:  # also one that is cancelled, or a disk that is full
            place.state, place.reason = "UNAVAILABLE", str(error) or repr(error)
            _log.error("model %s cannot be loaded: %r", _shown(file.name, file.version), error)
            raise
        if not self._is_open:
            return
        before = place.serving
        place.serving = Serving(file, model, self._limits, self._metrics)
        place.state, place.reason, place.identity = "READY", "", identity
        self._metrics.ready.labels(file.name, file.version).set(1)
        self._metrics.changed.labels(file.name, file.version).set(0)
        interface = model.interface
        shared = f"up to {interface.most_rows} rows in a run"
        _log.info(
            "model %s is served from %s (SHA-256 %s); %s",
            _shown(file.name, file.version),
            file.path,
            model.digest,
            shared if interface.most_rows > 1 else f"a run for each request: {interface.alone}",
        )
        if before is not None:
            self._close(before)

    async def unload(self, name: str) -> None:
        """Serve a model no more, and return when all that was accepted is answered; RefusedRequest
        for a name that is not there."""
        if name not in self._places:
            raise RefusedRequest(
                HTTPStatus.NOT_FOUND, f"there is no model {name!r:.130}", "unknown_model"
            )
        async with self._turns[name]:
            closings = [self._remove(name, version, _UNLOADED) for version in self._places[name]]
            await asyncio.gather(*(task for task in closings if task is not None))

    def _remove(self, name: str, version: str, reason: str) -> asyncio.Task[None] | None:
        place = self._places[name][version]
        serving, place.serving = place.serving, None
        place.state, place.reason = "UNAVAILABLE", reason
        self._metrics.ready.labels(name, version).set(0)
        return None if serving is None else self._close(serving)

    def _close(self, serving: Serving) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(serving.close())
        self._closings.add(task)
        task.add_done_callback(self._closings.discard)
        return task

    async def look_for_changes(self, loads: bool) -> None:
        """Note which files changed since they were loaded; with `loads`, load these again."""
        for name, versions in list(self._places.items()):
            for version, place in list(versions.items()):
                if place.serving is None:
                    continue
                file = place.serving.file
                identity = await asyncio.to_thread(file.identity)
                has_changed = identity != place.identity
                self._metrics.changed.labels(name, version).set(int(has_changed))
                if not has_changed:
                    continue
                if not place.reason:
                    place.reason = (
                        f"the file {file.path} changed since it was loaded; load the model to "
                        "serve the new one"
                        if identity is not None
                        else f"the file {file.path} is gone"
                    )
                    _log.warning("model %s: %s", _shown(name, version), place.reason)
                if loads and identity is not None and identity != place.tried:
                    try:
                        await self.load(name)
                    except GraphflowError:
                        continue  # noted, and logged

    async def close(self) -> None:
        """Serve nothing any more, and return when all that was accepted is answered."""
        self._is_open = False
        for name, versions in self._places.items():
            for version in versions:
                self._remove(name, version, "the server stops")
        await asyncio.gather(*self._closings)

    def stop_being_ready(self) -> None:
        """Say from now on that the server is not ready, and go on serving."""
        self._is_open = False


_UNLOADED = "unloaded"
_GONE = "its file is gone"
"""Why a version is not served that nobody wants to be."""


def _shown(name: str, version: str | None) -> str:
    return f"{name!r:.130}" if version is None else f"{name!r:.130}, version {version:.20}"


def model_metadata(serving: Serving, versions: list[str]) -> Mapping[str, Any]:
    """What the protocol says of a model."""
    model = serving.model
    return {
        "name": serving.file.name,
        "versions": versions,
        "platform": f"graphflow: {model.platform}",
        "inputs": [tensor.metadata() for tensor in model.interface.inputs],
        "outputs": [tensor.metadata() for tensor in model.interface.outputs],
        "parameters": {
            "sha256": model.digest,
            "rows_in_a_run": model.interface.most_rows,
            "alone_because": model.interface.alone,
        },
    }
