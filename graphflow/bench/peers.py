"""The runtimes that graphflow is compared with: onnxruntime, and openvino where installed.

In: a model, a number of threads.  Out: a loaded `Peer`.  This module and `foreign` are the only
ones that import another runtime. openvino is not a dependency; it is set to compute in float32,
because its default on some processors is bfloat16.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import onnx
import onnxruntime
from numpy.typing import NDArray

from graphflow.base.errors import GraphflowError
from graphflow.pipeline.compiler_stages import Model

try:
    import openvino
except ImportError:
    openvino = None

Arrays = Mapping[str, NDArray[Any]]


class Peer(Protocol):
    """A loaded model; `load_seconds` is the time that loading took."""

    load_seconds: float

    def run(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        """Outputs by name."""
        ...


class OnnxRuntime:
    """onnxruntime's CPU provider with its default settings: all graph optimizations."""

    def __init__(self, model: Model, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        source = _source(model)
        start = time.perf_counter()
        self._session = onnxruntime.InferenceSession(
            source, options, providers=["CPUExecutionProvider"]
        )
        self.load_seconds = time.perf_counter() - start
        self._names = [output.name for output in self._session.get_outputs()]

    def run(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        """Outputs by name."""
        return dict(zip(self._names, self._session.run(self._names, dict(inputs)), strict=True))


class OpenVino:
    """openvino's CPU plugin, optimized for latency, in float32."""

    def __init__(self, model: Model, threads: int) -> None:
        if openvino is None:
            raise GraphflowError("openvino is not installed; leave it out of --against")
        source = _source(model)
        start = time.perf_counter()
        core = openvino.Core()
        read = core.read_model(source)
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
        }
        self._request = core.compile_model(read, "CPU", settings).create_infer_request()
        self.load_seconds = time.perf_counter() - start
        self._names = [output.get_any_name() for output in read.outputs]

    def run(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        """Outputs by name."""
        results = self._request.infer(dict(inputs)).to_tuple()
        return dict(zip(self._names, results, strict=True))


PEERS: dict[str, Callable[[Model, int], Peer]] = {
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
}
"""Functions that load a peer, by the names that `--against` accepts."""


def load_peer(name: str, model: Model, threads: int) -> Peer:
    """The peer of that name with `model` loaded; the GraphflowError for another name lists all."""
    if name not in PEERS:
        raise GraphflowError(f"there is no peer {name!r}; the peers are {', '.join(PEERS)}")
    return PEERS[name](model, threads)


def _source(model: Model) -> str | bytes:
    """The form of a model that peers read: a path, which may have external data beside it, or
    bytes."""
    if isinstance(model, onnx.ModelProto):
        return bytes(model.SerializeToString())
    return str(model) if isinstance(model, Path) else model
