"""graphflow: a graph-level layout-propagation compiler for ONNX models.

    import graphflow as gf
    exe = gf.compile("model.onnx")
    out = exe.run({"x": array})
    print(exe.explain("conv1_out"))

What is named here is imported when it is first used, so that `import graphflow` costs little; no
peer to compare with is imported at all.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphflow import errors
from graphflow.errors import GraphflowError
from graphflow.options import Options
from graphflow.version import VERSION

if TYPE_CHECKING:
    import graphflow.backend as backend
    import graphflow.models as models
    from graphflow.building import build, kernel
    from graphflow.compilation import compile
    from graphflow.executable import Executable, load
    from graphflow.graph import OperatorGraph, call
    from graphflow.inspect import EdgeType
    from graphflow.schedule import Schedule
    from graphflow.target import Target
    from graphflow.tuning import tune

__version__ = VERSION

_LATER = {
    "EdgeType": "graphflow.inspect",
    "Executable": "graphflow.executable",
    "OperatorGraph": "graphflow.graph",
    "Schedule": "graphflow.schedule",
    "Target": "graphflow.target",
    "build": "graphflow.building",
    "call": "graphflow.graph",
    "compile": "graphflow.compilation",
    "kernel": "graphflow.building",
    "load": "graphflow.executable",
    "tune": "graphflow.tuning",
}
_LATER_MODULES = ("backend", "models")


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    if name in _LATER_MODULES:
        return import_module(f"graphflow.{name}")
    raise AttributeError(f"module 'graphflow' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER, *_LATER_MODULES])


__all__ = [
    "EdgeType",
    "Executable",
    "GraphflowError",
    "OperatorGraph",
    "Options",
    "Schedule",
    "Target",
    "backend",
    "build",
    "call",
    "compile",
    "errors",
    "kernel",
    "load",
    "models",
    "tune",
]
