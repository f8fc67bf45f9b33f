"""Configuration state: named registers that outlive a kernel, such as the mode of an accelerator.

In: the name of a configuration, and the names and element types of its fields.  Out: each field as
a buffer without axes.  What always holds: writing a field is a store and reading it a load, so that
every analysis of buffers holds for it; it belongs to no kernel, and each kernel finds in it what
the last one left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from graphflow.tir.nodes.exprs import Buffer


@dataclass(frozen=True, slots=True)
class Config:
    """A named configuration, such as `Config("mode", {"act": "int32"})`."""

    name: str
    fields: Mapping[str, str]
    """The element type of each field, by name."""

    def field(self, name: str) -> Buffer:
        """The field called `name`; `KeyError` names those there are."""
        if name not in self.fields:
            raise KeyError(f"{self.name} has no field {name}; it has {', '.join(self.fields)}")
        return Buffer(f"{self.name}.{name}", (), self.fields[name], "config")
