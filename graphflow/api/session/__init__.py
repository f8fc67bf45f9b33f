"""Sessions as onnxruntime has them, over executables: a script changes its import.

In: the arguments of onnxruntime's Python API.  Out: its results, computed by graphflow.  What
always holds: importing this package imports neither ONNX nor the compiler, nor does a session of a
saved model, or of one whose program is cached.  docs/onnxruntime.md lists what is mapped to what.
"""

from graphflow.api.session.inference_session import InferenceSession
from graphflow.api.session.io_binding import IOBinding
from graphflow.api.session.ort_values import OrtValue
from graphflow.api.session.providers import (
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_device,
    get_version_string,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_seed,
)
from graphflow.api.session.session_options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from graphflow.base.declaration import ModelMetadata, NodeArg

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtValue",
    "RunOptions",
    "SessionOptions",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_version_string",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]
