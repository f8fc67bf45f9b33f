"""What the file of a model declares: inputs, outputs and metadata, in onnxruntime's words.

In: what was read of an ONNX model.  Out: the same, as plain values too, which files keep beside a
program.  What always holds: it says what the file says, whatever shapes a program is compiled for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from msgspec import Struct

from graphflow.base.plain import integer, listed, mapping, text

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
    """What the file of a model says about it; empty but for `graph_name` where no file did."""

    producer_name: str = ""
    graph_name: str = ""
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = UNKNOWN_VERSION
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


class Declaration(Struct, frozen=True):
    """What a file declares.

    inputs: what each run gives; overridable: the inputs with an initializer, which a run may give.
    """

    inputs: tuple[NodeArg, ...]
    outputs: tuple[NodeArg, ...]
    overridable: tuple[NodeArg, ...]
    metadata: ModelMetadata

    def plain(self) -> dict[str, Any]:
        """The declaration as plain values."""
        about = self.metadata
        return {
            **{
                which: [[arg.name, arg.type, arg.shape] for arg in getattr(self, which)]
                for which in _ARGS
            },
            "metadata": {
                **{each.name: getattr(about, each.name) for each in fields(about)},
                "custom_metadata_map": dict(about.custom_metadata_map),
            },
        }

    @staticmethod
    def from_plain(plain: Any) -> Declaration:
        """The declaration of plain values; KeyError, TypeError or ValueError for others."""
        told = mapping(plain)
        about = mapping(told["metadata"])
        custom = mapping(about["custom_metadata_map"])
        metadata = ModelMetadata(
            **{name: text(about[name]) for name in _TEXTS},
            version=integer(about["version"], -(1 << 63)),
            custom_metadata_map={key: text(value) for key, value in custom.items()},
        )
        return Declaration(
            **{which: tuple(map(_arg, listed(told[which]))) for which in _ARGS}, metadata=metadata
        )


_ARGS = ("inputs", "outputs", "overridable")
_TEXTS = ("producer_name", "graph_name", "domain", "description", "graph_description")


def _arg(plain: Any) -> NodeArg:
    name, kind, shape = listed(plain, 3)
    return NodeArg(text(name), text(kind), [_extent(extent) for extent in listed(shape)])


def _extent(plain: Any) -> int | str | None:
    return plain if plain is None or isinstance(plain, str) else integer(plain)
