"""Cases of fuzz tests as Python source, which stays valid where what draws them changes.

In: a case: numbers, kernels, steps of schedules, layouts, models, arrays, and dataclasses of them.
Out: the text of a module with the case as `CASE`.  Kernels are written as their text, large arrays
and models as compressed bytes.
"""

import base64
import zlib
from collections.abc import Mapping
from dataclasses import fields
from types import FunctionType
from typing import Any

import ml_dtypes  # noqa: F401 (numpy then knows the names of its types)
import numpy as np
import onnx

from graphflow.base.fields import replace
from graphflow.layout import Layout
from graphflow.schedule import ScheduleStep
from graphflow.schedule.user.python_source import Source


def array(dtype: str, shape: tuple[int, ...], content: str) -> Any:
    """The array that `source_of` wrote."""
    return np.frombuffer(_bytes(content), np.dtype(dtype)).reshape(shape).copy()


def model(content: str) -> onnx.ModelProto:
    """The model that `source_of` wrote."""
    return onnx.ModelProto.FromString(_bytes(content))


def _bytes(content: str) -> bytes:
    return zlib.decompress(base64.b85decode(content))


def _text(content: bytes) -> str:
    return base64.b85encode(zlib.compress(content, 9)).decode()


class CaseSource(Source):
    """Source of all that cases hold."""

    def of(self, value: Any) -> str:
        match value:
            case np.ndarray():
                name = self.global_name(array)
                content = _text(np.ascontiguousarray(value).tobytes())
                return f"{name}({value.dtype.name!r}, {self.of(value.shape)}, {content!r})"
            case np.generic():
                return f"{self.of(np.asarray(value))}[()]"
            case onnx.ModelProto():
                return f"{self.global_name(model)}({_text(value.SerializeToString())!r})"
            case bytes():
                return repr(value)
            case Mapping():
                inside = ", ".join(f"{self.of(k)}: {self.of(v)}" for k, v in value.items())
                return f"{{{inside}}}"
            case set() | frozenset():
                return f"{self.global_name(frozenset)}([{', '.join(map(self.of, sorted(value)))}])"
            case Layout():  # steps may have a function of indices in its place, and cases not
                parts = [
                    self.of(getattr(value, field.name)) for field in fields(value) if field.init
                ]
                return f"{self.global_name(Layout)}({', '.join(parts)})"
            case FunctionType() | type():
                return self.global_name(value)
            case ScheduleStep():
                return super().of(replace(value, proofs=(), places={}, made={}, fields=()))
            case _:
                return super().of(value)

    def global_name(self, thing: Any) -> str:
        return thing.__name__ if thing is frozenset else super().global_name(thing)


def source_of(case: Any, about: str) -> str:
    """The module; ScheduleError where something in the case has no source."""
    source = CaseSource(("CASE",))
    made = f"CASE = {source.of(case)}"
    about = about.replace("\\", "/").replace('"""', "'''")
    head = f'# ruff: noqa\n# fmt: off\n"""{about.strip()}\n"""'
    return "\n\n".join((head, "\n".join(source.imports()), *source.definitions, made)) + "\n"


def case_in(text: str) -> Any:
    """The case of a module that `source_of` wrote."""
    names: dict[str, Any] = {}
    exec(compile(text, "case", "exec"), names)
    return names["CASE"]
