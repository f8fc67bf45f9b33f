"""Inputs and outputs of a session, and what its model says of itself.

In: the interface of an executable.  Out: `NodeArg`s; for ONNX models they are made of the model
(`opened_model`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from graphflow.api.session.element_types import type_string
from graphflow.program import OpenTensor, TensorSpec

UNKNOWN_VERSION = (1 << 63) - 1
"""What onnxruntime says of a model without a version."""


@dataclass(frozen=True, slots=True)
class NodeArg:
    """An input or output: its name, its type such as `tensor(float)`, and its shape.

    An extent is a number, the model's name for it, or None if the model has no name for it.
    """

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What the file of a model says about it; empty for a saved model but for `graph_name`."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = UNKNOWN_VERSION
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


def node_args(tensors: Iterable[TensorSpec | OpenTensor]) -> tuple[NodeArg, ...]:
    """The inputs or outputs of an executable."""
    return tuple(NodeArg(t.name, type_string(t.dtype), _extents(t.shape)) for t in tensors)


def _extents(shape: Iterable[int | str] | None) -> list[int | str | None]:
    return [None if extent == "?" else extent for extent in shape or ()]
