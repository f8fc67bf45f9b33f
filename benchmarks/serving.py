"""Throughput and latency of `graphflow serve` over real sockets, beside onnxruntime behind the same
server.

    python benchmarks/serving.py [--network dense] [--connections 1 8 64 1000] [--seconds 2]

Each way to serve is a process of its own: graphflow and onnxruntime, with requests that share runs
and with a run for each request.  A client process keeps so many connections busy: each sends its
next request, in binary form, when it has the answer to the last one.  For each number of
connections and each way, the medians over alternating rounds: requests a second, and the median and
the 99th percentile of their latency.  The last lines have the ratio of throughputs with and without
sharing.  Every answer is compared with that of a run in this process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import uvloop

import graphflow as gf
from graphflow.models import ModelBuilder, named, with_open_batch
from graphflow.serve.model_files import ModelFile, ModelFiles
from graphflow.serve.model_loading import interface_of
from graphflow.serve.serve_limits import ServeLimits
from graphflow.serve.serve_process import ModelServer, ServeOptions, listening
from graphflow.serve.served_model import ServedModel

BATCH = "batch"
LIMITS = ServeLimits(queue=4096, connections=8192)
HEADER = "Inference-Header-Content-Length"


def dense(width: int = 1024, layers: int = 6) -> onnx.ModelProto:
    """Dense layers: a run of one row reads all weights for one product with each."""
    build = ModelBuilder(seed=1, name="dense")
    x = build.input("x", (BATCH, width))
    for _ in range(layers):
        x = build.relu(build.node("MatMul", [x, build.weight(width, width, scale=width**-0.5)]))
    build.output(x)
    return build.model()


def network(name: str) -> onnx.ModelProto:
    """A network whose batch is open."""
    if name == "dense":
        return dense()
    model = named(name)
    if model is None:
        raise SystemExit(f"{name} is no network of the zoo")
    return with_open_batch(model, BATCH)


# Servers ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """A way to serve a model; `delay` is in seconds."""

    runtime: str
    shares_runs: bool
    threads: int
    delay: float

    def __str__(self) -> str:
        return f"{self.runtime}, {'shared runs' if self.shares_runs else 'a run for each'}"


class OrtProgram:
    """onnxruntime's session in the place of an executable."""

    def __init__(self, path: Path, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(path), options)
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """One run."""
        return dict(zip(self._names, self._session.run(self._names, dict(inputs)), strict=True))


def serve(way: Way, folder: Path, port: Connection) -> None:
    """The process of one server, which tells its port."""

    async def load(_: ModelFile) -> ServedModel:
        exe = gf.load(folder / "model.gfx", threads=way.threads)
        interface = interface_of(exe, way.shares_runs)
        is_ours = way.runtime == "graphflow"
        program = exe if is_ours else OrtProgram(folder / "model.onnx", way.threads)
        return ServedModel(interface, program, "", str(way))

    async def main() -> None:
        listener = listening("127.0.0.1", 0)
        port.send(listener.getsockname()[1])
        limits = replace(LIMITS, delay_seconds=way.delay)
        files = ModelFiles((ModelFile("m", "1", folder / "model.gfx"),))
        await ModelServer(ServeOptions(files, limits=limits), load).serve(listener)

    uvloop.run(main())


# Clients ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """What clients send, and the bytes that an answer ends with, up to rounding."""

    request: bytes
    expected: np.ndarray[Any, Any]

    def require(self, body: bytes) -> None:
        """Stop at a wrong answer."""
        found = np.frombuffer(body[-self.expected.nbytes :], self.expected.dtype)
        np.testing.assert_allclose(found, self.expected.reshape(-1), rtol=1e-3, atol=1e-4)


def load_of(exe: gf.Executable) -> Load:
    """A request of one row, with the answer that it should get."""
    (tensor,) = exe.inputs
    shape = (1, *(n for n in (tensor.shape or ())[1:] if isinstance(n, int)))
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    entry = {"name": tensor.name, "shape": list(shape), "datatype": "FP32"}
    entry["parameters"] = {"binary_data_size": x.nbytes}
    text = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    head = (
        f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\n{HEADER}: {len(text)}\r\n"
        f"Content-Length: {len(text) + x.nbytes}\r\n\r\n"
    )
    (expected,) = exe.run({tensor.name: x}).values()
    return Load(head.encode() + text + x.tobytes(), expected)


class Client(asyncio.Protocol):
    """A connection that sends the next request when it has an answer."""

    def __init__(self, load: Load, until: float) -> None:
        self._load, self._until = load, until
        self._answer = bytearray()
        self._length: int | None = None
        self._sent = 0.0
        self.seconds: list[float] = []
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        """Begin."""
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._sent = time.perf_counter()
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        """Read an answer, and ask again until the time is over."""
        self._answer += data
        if self._length is None:
            end = self._answer.find(b"\r\n\r\n")
            if end < 0:
                return
            assert self._answer.startswith(b"HTTP/1.1 200"), bytes(self._answer[:300])
            head = bytes(self._answer[:end]).lower()
            length = int(head.partition(b"\r\ncontent-length: ")[2].split(b"\r\n")[0])
            self._length = end + 4 + length
        if len(self._answer) < self._length:
            return
        now = time.perf_counter()
        if not self.seconds:
            self._load.require(bytes(self._answer))
        self.seconds.append(now - self._sent)
        self._answer.clear()
        self._length = None
        if now < self._until:
            self._ask()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """The end, as it should be or not."""
        if error is None and self.seconds:
            self.over.set_result(None)
        else:
            self.over.set_exception(error or ConnectionError("closed without an answer"))


async def latencies(port: int, load: Load, connections: int, seconds: float) -> list[float]:
    """The seconds of all requests that so many connections made."""
    until = time.perf_counter() + seconds
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(connections):
        _, client = await loop.create_connection(lambda: Client(load, until), "127.0.0.1", port)
        clients.append(client)
    await asyncio.gather(*(client.over for client in clients))
    return [one for client in clients for one in client.seconds]


# Measuring ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """One round: requests a second, and milliseconds."""

    rate: float
    median: float
    p99: float

    @staticmethod
    def of(found: list[float], seconds: float) -> Measured:
        """From the seconds of requests."""
        cuts = statistics.quantiles(found, n=100) if len(found) > 1 else [found[0]] * 99
        return Measured(len(found) / seconds, 1e3 * statistics.median(found), 1e3 * cuts[98])


def measured_round(port: int, load: Load, connections: int, seconds: float) -> Measured:
    """One round at one server."""
    begin = time.perf_counter()
    found = uvloop.run(latencies(port, load, connections, seconds))
    return Measured.of(found, time.perf_counter() - begin)


def compile_network(name: str, most: int, folder: Path) -> gf.Executable:
    """Save a network as an ONNX model, and compiled."""
    model = network(name)
    onnx.save(model, folder / "model.onnx")
    exe = gf.compile(model, sizes={BATCH: (1, most)})
    exe.save(folder / "model.gfx")
    return exe


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--network", default="dense", help="dense, or a network of the zoo")
    parser.add_argument("--connections", type=int, nargs="+", default=[1, 8, 64, 1000])
    parser.add_argument("--seconds", type=float, default=2.0, help="of one round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1, help="of a run")
    parser.add_argument("--most", type=int, default=32, help="rows in a run")
    parser.add_argument("--delay", type=float, default=0.0, help="milliseconds")
    wanted = parser.parse_args()
    ways = [
        Way(runtime, shares, wanted.threads, wanted.delay / 1e3)
        for runtime in ("graphflow", "onnxruntime")
        for shares in (True, False)
    ]
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as place:
        folder = Path(place)
        load = load_of(compile_network(wanted.network, wanted.most, folder))
        processes, ports = [], {}
        for way in ways:
            here, there = context.Pipe()
            process = context.Process(target=serve, args=(way, folder, there), daemon=True)
            process.start()
            processes.append(process)
            ports[way] = here.recv()
            asyncio.run(until_ready(ports[way]))
        try:
            measure_all(wanted, ways, ports, load)
        finally:
            for process in processes:
                process.terminate()
                process.join()


async def until_ready(port: int) -> None:
    """Wait until a server serves its model."""
    for _ in range(1000):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /v2/health/ready HTTP/1.1\r\nHost: x\r\n\r\n")
            is_ready = b" 200 " in await reader.readline()
            writer.close()
            if is_ready:
                return
        except ConnectionError:
            pass
        await asyncio.sleep(0.02)
    raise SystemExit("a server is not ready")


def measure_all(
    wanted: argparse.Namespace, ways: list[Way], ports: Mapping[Way, int], load: Load
) -> None:
    """The rows for each number of connections."""
    for connections in wanted.connections:
        found: dict[Way, list[Measured]] = {way: [] for way in ways}
        for number in range(wanted.rounds):
            for way in ways[:: 1 if number % 2 else -1]:
                done = measured_round(ports[way], load, connections, wanted.seconds)
                found[way].append(done)
        rates = {}
        for way, rounds in found.items():
            rate, median, p99 = (
                statistics.median(getattr(one, name) for one in rounds)
                for name in ("rate", "median", "p99")
            )
            rates[way.runtime, way.shares_runs] = rate
            print(
                f"{wanted.network:10} {connections:5} connections  {way!s:28} "
                f"{rate:8.0f} requests/s  median {median:8.2f} ms  99th {p99:8.2f} ms",
                flush=True,
            )
        for runtime in ("graphflow", "onnxruntime"):
            gain = rates[runtime, True] / rates[runtime, False]
            print(f"{'':10} {connections:5} connections  {runtime}: sharing runs gives {gain:.2f}")


if __name__ == "__main__":
    main()
