"""A foreign section of a model as plain data, which knows neither graphs nor kernels.

In: neighbouring nodes without a kernel, as a serialized model of their own.  Out: a `Section`,
which is stored in programs and opened by `open_section`.
"""

from __future__ import annotations

from msgspec import Struct


class ForeignNode(Struct, frozen=True):
    """A node of the model without a kernel, and the reason."""

    name: str
    op: str
    reason: str

    def __str__(self) -> str:
        return f"{self.op} {self.name}: {self.reason}"


class Section(Struct, frozen=True):
    """Neighbouring foreign nodes as a model of their own.

    `model` is a serialized ModelProto.  `inputs` and `outputs` are tensors of known dtype and
    shape, in memory that is shared with kernels.  `objects_in` and `objects_out` are all other
    values: strings, sequences, tensors whose shape depends on data.  They pass from the caller to
    sections, between sections, and back to the caller as Python objects.
    """

    name: str
    model: bytes
    nodes: tuple[ForeignNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    objects_in: tuple[str, ...] = ()
    objects_out: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The operators of the section, for messages."""
        return ", ".join(dict.fromkeys(node.op for node in self.nodes))


class ObjectSpec(Struct, frozen=True):
    """An input or output of the model that is no tensor of known shape: its name and ONNX type.

    `place` is its position among all inputs, or all outputs, of the model.
    """

    name: str
    type: str
    place: int

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"
