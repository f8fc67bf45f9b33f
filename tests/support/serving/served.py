"""A server in a thread of this process, models that are told what to do, and plain HTTP requests.

The server is the real one, on a real socket of this machine; only the models may be others.
"""

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import numpy as np

from graphflow.base.errors import InvalidModel, RunError
from graphflow.serve.model_files import ModelFile, ModelFiles
from graphflow.serve.repository import Loads
from graphflow.serve.serve_limits import ServeLimits
from graphflow.serve.serve_process import ModelServer, ServeOptions, listening
from graphflow.serve.served_model import ANY, ModelInterface, ServedModel, ServedTensor

LIMITS = ServeLimits(check_seconds=0.05, stop_seconds=10)

WIDTH = 4

BAD_ROW = 13.0
"""A run whose input has it fails."""


class ScaledRows:
    """A model: y = factor · x, for rows of `WIDTH` numbers.

    A run waits for `gate`, and `runs` has the rows of each.
    """

    def __init__(self, factor: float = 2.0) -> None:
        self.factor = factor
        self.gate = threading.Event()
        self.gate.set()
        self.runs: list[int] = []

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """One run."""
        x = inputs["x"]
        self.runs.append(len(x))
        assert self.gate.wait(60)
        if (x == BAD_ROW).any():
            raise RunError("the row is bad")
        with np.errstate(over="ignore"):
            return {"y": x * np.float32(self.factor)}


def scaled(program: Any, most_rows: int = 4) -> ServedModel:
    """What serves a program such as `ScaledRows`."""
    x, y = (
        ServedTensor(name, "float32", (ANY, WIDTH), {0: (1, 4)} if name == "x" else {})
        for name in ("x", "y")
    )
    interface = ModelInterface((x,), (y,), frozenset({"x"}), most_rows, "")
    return ServedModel(interface, program, "0" * 64, "test")


async def loads_a_factor(file: ModelFile) -> ServedModel:
    """The model whose factor a file has; InvalidModel for another file."""
    try:
        text = file.path.read_text(encoding="ascii")
        return scaled(ScaledRows(float(text)))
    except (OSError, ValueError) as error:
        raise InvalidModel(f"{file.path} has no factor: {error}") from error


@dataclass(frozen=True)
class Served:
    """A server that runs, and the port that it listens on."""

    server: ModelServer
    port: int

    def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """The status of an answer, and its JSON, or its bytes where it has none."""
        status, found, _ = self.answer(method, path, body, headers)
        return status, found

    def answer(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any, Mapping[str, str]]:
        """The same, with the headers."""
        sent = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, sent, dict(headers or {}))
            return _read(connection.getresponse())
        finally:
            connection.close()

    def infer(self, rows: Sequence[float], name: str = "m", **fields: Any) -> tuple[int, Any]:
        """An inference with rows that each have one number."""
        return self.request("POST", f"/v2/models/{name}/infer", {**inference(rows), **fields})


def _read(response: HTTPResponse) -> tuple[int, Any, Mapping[str, str]]:
    content = response.read()
    headers = {name.lower(): value for name, value in response.getheaders()}
    is_json = headers.get("content-type") == "application/json"
    return response.status, json.loads(content) if is_json else content, headers


def inference(rows: Sequence[float]) -> dict[str, Any]:
    """A request for `ScaledRows`."""
    data = [value for value in rows for _ in range(WIDTH)]
    x = {"name": "x", "shape": [len(rows), WIDTH], "datatype": "FP32", "data": data}
    return {"inputs": [x]}


@contextmanager
def served(options: ServeOptions, loads: Loads) -> Iterator[Served]:
    """A server in a thread, until the context ends."""
    listener = listening(options.host, options.port)
    started: list[ModelServer] = []
    is_started = threading.Event()

    async def serve() -> None:
        started.append(ModelServer(options, loads))
        is_started.set()
        await started[0].serve(listener)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert is_started.wait(60)
        yield Served(started[0], listener.getsockname()[1])
    finally:
        started[0].stop()
        thread.join(120)
        assert not thread.is_alive()


@contextmanager
def served_program(
    program: Any, folder: Path, limits: ServeLimits = LIMITS, most_rows: int = 4
) -> Iterator[Served]:
    """A server of one model `m`, which is this program."""

    async def loads(_: ModelFile) -> ServedModel:
        return scaled(program, most_rows)

    path = folder / "m.gfx"
    path.write_bytes(b"any")
    options = ServeOptions(ModelFiles((ModelFile("m", "1", path),)), port=0, limits=limits)
    with served(options, loads) as found:
        wait_until_ready(found)
        yield found


def wait_until_ready(server: Served) -> None:
    """Return when all models are loaded; AssertionError after some seconds."""
    for _ in range(400):
        if server.request("GET", "/v2/health/ready")[0] == 200:
            return
        threading.Event().wait(0.02)
    raise AssertionError("the server is not ready")
