"""The process of a server: its socket, its signals, and its end.

In: which models to serve, where, and how.  Out: a server that runs until SIGINT or SIGTERM.  What
always holds: it listens on this machine alone unless it is told otherwise, and elsewhere only with
a token; when it is told to stop, it finishes what it accepted.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory

import uvicorn
import uvloop
from msgspec import Struct, field
from starlette.types import ASGIApp

from graphflow.base.errors import GraphflowError
from graphflow.serve.access import NoPages, TokenRequired
from graphflow.serve.connections import LimitedConfig
from graphflow.serve.model_files import ModelFiles
from graphflow.serve.model_loading import LoadOptions, load_model
from graphflow.serve.repository import Loads, Repository
from graphflow.serve.routes import application
from graphflow.serve.serve_limits import ServeLimits
from graphflow.serve.serve_metrics import ServeMetrics

_SWITCH_INTERVAL = 0.0005
"""How long a thread keeps the interpreter lock while the event loop waits for it; Python's default
of 5 ms is what a small model takes."""

_BACKLOG = 2048
"""Connections that may wait to be accepted."""

_log = logging.getLogger("graphflow.serve")


class ServeOptions(Struct, frozen=True):
    """What is served, where, and how.

    `port` 0 stands for a free one.  `reloads` loads files again that changed.  `certificate` and
    `key` are files in PEM; with them the server speaks TLS.  `access_log` has a line for each
    request.
    """

    files: ModelFiles
    host: str = "127.0.0.1"
    port: int = 8000
    limits: ServeLimits = field(default_factory=ServeLimits)
    token: str | None = None
    allows_anyone: bool = False
    certificate: Path | None = None
    key: Path | None = None
    threads: int | None = None
    compile_options: tuple[str, ...] = ()
    shares_runs: bool = True
    reloads: bool = False
    access_log: bool = False


class _Server(uvicorn.Server):
    """A server that is told when it begins to stop, so that it is not ready any more."""

    def __init__(self, config: uvicorn.Config, stops: Callable[[], None]) -> None:
        super().__init__(config)
        self._stops = stops

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no connections any more, and finish what was accepted."""
        self._stops()
        await super().shutdown(sockets)


class ModelServer:
    """The server of a repository.  Make it on the event loop that it runs on."""

    def __init__(self, options: ServeOptions, loads: Loads) -> None:
        self._options = options
        self._failure: GraphflowError | None = None
        metrics = ServeMetrics()
        self._repository = Repository(options.files, loads, options.limits, metrics)
        app: ASGIApp = NoPages(
            application(self._repository, options.limits, metrics, self._load_and_watch)
        )
        if options.token is not None:
            app = TokenRequired(app, options.token)
        self._server = _Server(_config(app, options), self._repository.stop_being_ready)

    async def serve(self, listener: socket.socket) -> None:
        """Serve until it is stopped; GraphflowError if a model that was named cannot be loaded."""
        await self._server.serve([listener])
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Begin to stop.  Any thread may call it."""
        self._server.should_exit = True

    async def _load_and_watch(self) -> None:
        try:
            await self._repository.load_all()
        except (GraphflowError, OSError) as error:
            if not self._options.files.folders:
                if isinstance(error, OSError):
                    error = GraphflowError(str(error))
                self._failure = error
                self.stop()
                return
        while True:
            await asyncio.sleep(self._options.limits.check_seconds)
            try:
                await self._repository.look_for_changes(self._options.reloads)
            except OSError as error:  # the system refuses now what it may grant in a second
                _log.error("cannot look at the files of the models: %s", error)


def _config(app: ASGIApp, options: ServeOptions) -> LimitedConfig:
    limits = options.limits
    return LimitedConfig(
        app,
        limits,
        log_config=None,
        log_level=logging.WARNING,
        access_log=options.access_log,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=max(1, int(limits.idle_seconds)),
        timeout_graceful_shutdown=max(1, int(limits.stop_seconds)),
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        ws="none",
        lifespan="on",
    )


def serve_models(options: ServeOptions) -> None:
    """Serve models until a signal ends it.

    Raises GraphflowError if the address cannot be used, or if a model that was named cannot be
    loaded.
    """
    require_access(options)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    _allow_open_files(options.limits.connections)
    sys.setswitchinterval(_SWITCH_INTERVAL)
    # uvicorn raises the signals again that it stopped for, when it has stopped.
    before = {number: signal.signal(number, _ignored) for number in _SIGNALS}
    try:
        with (
            TemporaryDirectory(prefix="graphflow-serve-") as folder,
            listening(options.host, options.port) as listener,
        ):
            load = LoadOptions(
                options.threads, options.compile_options, Path(folder), options.shares_runs
            )
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_serve(options, load, listener))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def _ignored(*_: object) -> None:
    """The handler of signals that have been obeyed."""


async def _serve(options: ServeOptions, load: LoadOptions, listener: socket.socket) -> None:
    scheme = "http" if options.certificate is None else "https"
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    _log.info("serving on %s://%s:%d; stop with Ctrl-C or SIGTERM", scheme, shown, port)
    await ModelServer(options, lambda file: load_model(file, load)).serve(listener)
    _log.info("stopped")


def require_access(options: ServeOptions) -> None:
    """Refuse to let anyone in from other machines by mistake."""
    if (options.certificate is None) != (options.key is None):
        raise GraphflowError("TLS needs a certificate and its key; give both, or none")
    with suppress(ValueError):
        if ip_address(options.host).is_loopback:
            return
    if options.host == "localhost" or options.token is not None or options.allows_anyone:
        return
    raise GraphflowError(
        f"{options.host} can be reached from other machines, and no token is given; give a file "
        "with one, or allow anyone by --allow-anyone"
    )


def listening(host: str, port: int) -> socket.socket:
    """A socket at an address; GraphflowError if it cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(_BACKLOG)  # clients that come before the server is there wait for it
    except OSError as error:
        raise GraphflowError(
            f"cannot listen on {host} port {port}: {error}; give another --port"
        ) from error
    return found


def _allow_open_files(connections: int) -> None:
    """Let this process have as many connections as it may, and some files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + 256
    if soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
