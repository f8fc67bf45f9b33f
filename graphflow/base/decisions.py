"""The decisions of a plan as plain texts and numbers, for tables, saved models and explanations.

In: texts that `inspect` makes of a compiled model, or that a saved model has.  What always holds:
nothing of the compiler is needed to hold, store or search them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from itertools import islice
from typing import Any

from msgspec import Struct

from graphflow.base.errors import InvalidModel

REPORT_SCHEMA = 1
"""The version of the JSON Schema of reports; a change that a reader of reports can notice needs
another one."""

STORED, REGISTER, CONSTANT, REMOVED = "stored", "register", "constant", "removed"
"""Where a tensor is: in memory, inside a fused kernel, known before the first run, or removed."""


class SavedEdge(Struct, frozen=True):
    """The decision about one tensor, in texts instead of the compiler's objects.

    `layout` is the layout's name, None for a tensor without storage; `edge_type` is the layout with
    the facts about padding; `regions`, `demands` and `conversions` are as in the report.
    """

    name: str
    dtype: str
    logical_shape: tuple[int, ...]
    where: str
    physical_shape: tuple[int, ...] | None
    layout: str | None
    edge_type: str
    decided_by: str
    reason: str
    producer: str | None
    variant: str | None
    consumers: tuple[str, ...]
    regions: tuple[Mapping[str, Any], ...]
    demands: tuple[Mapping[str, Any], ...]
    conversions: tuple[Mapping[str, Any], ...]

    def describe(self) -> str:
        """The layout's name with the facts about padding; a dash for a tensor without storage."""
        return self.edge_type


def refusal_line(variant: str, reason: str, chosen: bool) -> str:
    """The line of `explain --full` about a refused step: the variant does not exist, or, if it was
    `chosen`, it is built without this step."""
    return f"  refused   {'a step of ' if chosen else ''}variant {variant}: {reason}"


def microseconds(seconds: float) -> str:
    """A time with one decimal, or two digits if it is less than 0.1 µs."""
    value = 1e6 * seconds
    return f"{value:.1f} µs" if value >= 0.1 or value == 0 else f"{value:.2g} µs"


def byte_count(count: int) -> str:
    """A number of bytes, from a mebibyte on also in a larger unit."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= size:
            return f"{count} bytes ({count / size:.1f} {unit})"
    return f"{count} bytes"


def unknown_tensor(name: str, known: Collection[str]) -> InvalidModel:
    """The error for a tensor that a model does not have; it lists similar names, or the first ones.

    TypeError for what is no name.
    """
    if not isinstance(name, str):
        raise TypeError(f"the name of a tensor is a str, not {type(name).__name__} ({name!r})")
    if close := get_close_matches(name, known, 5):
        names = f"similar names are {', '.join(close)}"
    else:
        first = ", ".join(islice(known, 5))
        names = f"its tensors are {first}{' …' if len(known) > 5 else ''}"
    return InvalidModel(f"the model has no tensor {name!r}; {names}")
