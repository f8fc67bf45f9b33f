"""graphflow: a graph-level layout-propagation compiler for ONNX models.

    import graphflow as gf
    exe = gf.compile("model.onnx")
    out = exe.run({"x": array})
    print(exe.explain("conv1_out"))

The names of this module are imported on first use, so that `import graphflow` is fast and imports
no other runtime.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from graphflow.base import errors, options
from graphflow.base.collecting import imported_module
from graphflow.base.errors import GraphflowError
from graphflow.base.options import Options
from graphflow.base.version import VERSION

if TYPE_CHECKING:
    import graphflow.api.backend as backend
    from graphflow import models
    from graphflow.api.binding import Binding
    from graphflow.api.building import build, kernel
    from graphflow.api.compilation import compile
    from graphflow.api.executable import Executable, load
    from graphflow.api.layer_costs import QuantizationCosts
    from graphflow.api.progress_bar import ProgressBar
    from graphflow.api.quantizing import Quantization, quantize
    from graphflow.api.session import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        InferenceSession,
        IOBinding,
        ModelMetadata,
        NodeArg,
        OrtValue,
        RunOptions,
        SessionOptions,
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
    from graphflow.base.target import Target
    from graphflow.graph import OperatorGraph, call
    from graphflow.inspect import TensorDecision
    from graphflow.runtime import StateTensor
    from graphflow.schedule import Schedule, Sketch, sketch
    from graphflow.tuning import tune

__version__ = VERSION

_SESSION = "graphflow.api.session"
"""What has the names that scripts of onnxruntime use: all of `__all__` that are not below."""

_LATER = {
    "Binding": "graphflow.api.binding",
    "StateTensor": "graphflow.runtime",
    "TensorDecision": "graphflow.inspect",
    "Executable": "graphflow.api.executable",
    "OperatorGraph": "graphflow.graph",
    "ProgressBar": "graphflow.api.progress_bar",
    "Quantization": "graphflow.api.quantizing",
    "QuantizationCosts": "graphflow.api.layer_costs",
    "Schedule": "graphflow.schedule",
    "Sketch": "graphflow.schedule",
    "Target": "graphflow.base.target",
    "build": "graphflow.api.building",
    "call": "graphflow.graph",
    "compile": "graphflow.api.compilation",
    "kernel": "graphflow.api.building",
    "load": "graphflow.api.executable",
    "quantize": "graphflow.api.quantizing",
    "sketch": "graphflow.schedule",
    "tune": "graphflow.tuning",
}
_LATER_MODULES = {"backend": "graphflow.api.backend", "models": "graphflow.models"}


def __getattr__(name: str) -> Any:
    if name in _LATER_MODULES:
        return imported_module(_LATER_MODULES[name])
    if name in __all__:
        return getattr(imported_module(_LATER.get(name, _SESSION)), name)
    raise AttributeError(f"module 'graphflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


__all__ = [
    "Binding",
    "Executable",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "GraphflowError",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OperatorGraph",
    "Options",
    "OrtValue",
    "ProgressBar",
    "Quantization",
    "QuantizationCosts",
    "RunOptions",
    "Schedule",
    "SessionOptions",
    "Sketch",
    "StateTensor",
    "Target",
    "TensorDecision",
    "backend",
    "build",
    "call",
    "compile",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "errors",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "get_version_string",
    "kernel",
    "load",
    "models",
    "options",
    "quantize",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
    "sketch",
    "tune",
]
