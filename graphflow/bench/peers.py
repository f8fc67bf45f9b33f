"""The runtimes that graphflow is compared with: onnxruntime, and openvino where installed.

In: a model, a number of threads.  Out: a loaded `Peer`, or a `PeerFailure` where the runtime cannot
load or run the model.  This part, `foreign` and `quantization` are the only ones that import
another runtime.  openvino is not a dependency; it is set to compute in float32, because its default
on some processors is bfloat16.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import onnx
import onnxruntime
from numpy.typing import NDArray

from graphflow.base.errors import GraphflowError
from graphflow.base.offered_names import PEER_NAMES
from graphflow.frontends import OnnxModel

try:
    import openvino
except ImportError:
    openvino = None

Arrays = Mapping[str, NDArray[Any]]

REASON_LINES = 3
"""How many lines of a peer's error message are repeated; the first may name a source file alone."""


class Peer(Protocol):
    """A loaded model; `load_seconds` is the time that loading took."""

    load_seconds: float

    def run(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        """Outputs by name."""
        ...


class OnnxRuntime:
    """onnxruntime's CPU provider with its default settings: all graph optimizations."""

    def __init__(self, model: OnnxModel, threads: int, flush_denormals: bool = False) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        if flush_denormals:
            options.add_session_config_entry("session.set_denormal_as_zero", "1")
        source = model_source(model)
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

    def __init__(self, model: OnnxModel, threads: int, flush_denormals: bool = False) -> None:
        if openvino is None:
            raise GraphflowError("openvino is not installed; leave it out of --against")
        source = model_source(model)
        start = time.perf_counter()
        core = openvino.Core()
        read = core.read_model(source)
        settings = {
            "INFERENCE_PRECISION_HINT": "f32",
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
        }
        if flush_denormals:
            settings["CPU_DENORMALS_OPTIMIZATION"] = "YES"
        self._request = core.compile_model(read, "CPU", settings).create_infer_request()
        self.load_seconds = time.perf_counter() - start
        self._names = [output.get_any_name() for output in read.outputs]

    def run(self, inputs: Arrays) -> dict[str, NDArray[Any]]:
        """Outputs by name."""
        results = self._request.infer(dict(inputs)).to_tuple()
        return dict(zip(self._names, results, strict=True))


PEERS: dict[str, Callable[[OnnxModel, int, bool], Peer]] = dict(
    zip(PEER_NAMES, (OnnxRuntime, OpenVino), strict=True)
)
"""Functions that load a peer, by the names that `--against` accepts."""


class PeerFailure(GraphflowError):
    """A peer cannot load a model, or cannot run it."""


def load_peer(name: str, model: OnnxModel, threads: int, flush_denormals: bool = False) -> Peer:
    """The peer of that name with `model` loaded; denormals count as zero if `flush_denormals`.

    Raises GraphflowError for a peer that does not exist, with the names of all, or that is not
    installed, and PeerFailure if the peer raises any other error.
    """
    if name not in PEERS:
        raise GraphflowError(f"there is no peer {name!r}; the peers are {', '.join(PEERS)}")
    with _failure(f"{name} cannot load the model"):
        return PEERS[name](model, threads, flush_denormals)


def peer_outputs(name: str, peer: Peer, inputs: Arrays) -> dict[str, NDArray[Any]]:
    """The outputs of one run of a peer; PeerFailure if it raises an error."""
    with _failure(f"{name} cannot run the model"):
        return peer.run(inputs)


@contextmanager
def _failure(what: str) -> Iterator[None]:
    try:
        yield
    except GraphflowError:
        raise
    except Exception as error:  # each runtime has exception classes of its own
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = " ".join(lines[:REASON_LINES]) or type(error).__name__
        raise PeerFailure(f"{what}: {reason}") from error


def model_source(model: OnnxModel) -> str | bytes:
    """The form of a model that peers read: a path, which may have external data beside it, or
    bytes."""
    if isinstance(model, onnx.ModelProto):
        return bytes(model.SerializeToString())
    return str(model) if isinstance(model, Path) else model
