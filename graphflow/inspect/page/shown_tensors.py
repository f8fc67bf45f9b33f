"""Tensors as the page shows them.

In: a `Compiled` model.  Out: `ShownTensor`s.  What always holds:
a tensor says what `explain` says about it.
"""

from __future__ import annotations

from math import isfinite

from graphflow.inspect.explain import edge_notes
from graphflow.inspect.page.page_data import (
    ShownOther,
    ShownPair,
    ShownPin,
    ShownReading,
    ShownTensor,
)
from graphflow.inspect.page.shown_layouts import ShownEdgeTypes
from graphflow.inspect.page.shown_pins import shown_pins
from graphflow.inspect.tensor_decisions import (
    GRAPH_OUTPUT,
    Reading,
    TensorDecision,
    value_decisions,
)
from graphflow.pipeline.compiler import Compiled
from graphflow.plan import EdgeType, LayoutPlan, Other
from graphflow.tir import DTYPES


def shown_tensors(compiled: Compiled, edge_types: ShownEdgeTypes) -> tuple[ShownTensor, ...]:
    """The decisions about all values; their edge types are added to `edge_types`."""
    pairs, pins = _pairs(compiled.plan), shown_pins(compiled)
    return tuple(
        _shown_tensor(compiled, edge, edge_types, pairs.get(name, ()), pins.get(name, ()))
        for name, edge in value_decisions(compiled).items()
    )


def _shown_tensor(
    compiled: Compiled,
    edge: TensorDecision,
    edge_types: ShownEdgeTypes,
    pairs: tuple[ShownPair, ...],
    pins: tuple[ShownPin, ...],
) -> ShownTensor:
    layout, known = edge.layout, DTYPES.get(edge.dtype)
    return ShownTensor(
        name=edge.name,
        dtype=edge.dtype,
        logical_shape=edge.logical_shape,
        where=edge.where,
        edge_type=None if layout is None else edge_types.place(EdgeType(layout, edge.facts)),
        decided_by=edge.decided_by,
        reason=edge.reason,
        producer=edge.producer,
        consumers=edge.consumers,
        readings=tuple(map(_shown_reading, edge.readings)),
        pairs=pairs,
        others=tuple(shown_other(other.edge_type.describe(), other) for other in edge.others),
        notes=tuple(f"{word} {text}" for word, text in edge_notes(compiled, edge)),
        place=_place(compiled, edge.name),
        element_bytes=None if known is None else known.itemsize,
        lanes=0 if known is None else compiled.target.lanes(edge.dtype),
        pins=pins,
    )


def shown_other(name: str, other: Other) -> ShownOther:
    """A candidate that was not taken, called `name`."""
    known = other.extra is not None and isfinite(other.extra)
    return ShownOther(
        name=name,
        variant=other.variant,
        seconds=other.seconds,
        measured=other.measured,
        extra=other.extra if known else None,
        price=other.price(),
    )


def _shown_reading(use: Reading) -> ShownReading:
    proofs = tuple(map(str, use.proofs))
    return ShownReading(
        use.consumer, use.position, use.buffer, use.layout, use.demand, use.conversion, proofs
    )


def _pairs(plan: LayoutPlan) -> dict[str, tuple[ShownPair, ...]]:
    """The pairs of crop and pad around each tensor: those that were cancelled, then those
    refused."""
    found: dict[str, list[ShownPair]] = {}
    for gone in plan.cancelled:
        pair = ShownPair(gone.consumer or GRAPH_OUTPUT, tuple(map(str, gone.proofs)))
        found.setdefault(gone.value, []).append(pair)
    for kept in plan.refused:
        pair = ShownPair(kept.consumer or GRAPH_OUTPUT, reason=kept.reason, repair=kept.repair)
        found.setdefault(kept.value, []).append(pair)
    return {value: tuple(pairs) for value, pairs in found.items()}


def _place(compiled: Compiled, value: str) -> str | None:
    """Where the memory of a tensor is, in words; None for one without a place in a run."""
    place = compiled.physical.values.get(value)
    if place is None:
        return None
    if place.storage == value:
        return "in memory of its own"
    if place.storage == f"output:{value}":
        return "in the array that the run returns"
    begin = f"from element {place.offset} on" if place.offset else "from its first element on"
    return f"inside {place.storage}, {begin}, as {place.layout.describe()}"
