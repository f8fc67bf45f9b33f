"""Tensors inside others begin with their first element, so that kernels do not depend on where.

In: a physical graph.  Out: the same graph, in which a tensor that a kernel reads or writes inside
of another one is in a box that begins at the tensor's own first element: the place of the box is
the offset into the storage, which a step has, and no longer part of the layout, which the kernel
has.  What always holds: each element stays where it is, and each box ends inside its storage.

A network that concatenates the results of many equal convolutions has one kernel for these then,
and not one for each place in the result.
"""

from __future__ import annotations

from graphflow.base.fields import replace
from graphflow.physical import PhysicalCall, PhysicalGraph, Placement, StorageSpec

MOST_GROWTH = 8
"""A storage grows by at most one in so many elements."""


def at_window_origins(physical: PhysicalGraph) -> PhysicalGraph:
    """The graph with the tensors inside others at the origins of their boxes.

    Rows of a box are as far apart as those of the storage, so that a box which begins inside a row
    ends behind the last row: the storage grows by that, if it is the arena's.
    """
    storages = dict(physical.storages)
    calls = tuple(_at_origins(call, storages) for call in physical.calls)
    return replace(physical, storages=storages, calls=calls)


def _at_origins(call: PhysicalCall, storages: dict[str, StorageSpec]) -> PhysicalCall:
    """A call with its placements at origins, for which `storages` grow.

    Calls without a variant stay: their definitions are over the boxes of their placements.
    """
    if call.variant is None or call.definition.callee is not None:
        return call
    placements = {
        name: place if place.own else _at_origin(place, storages)
        for name, place in call.placements.items()
    }
    return replace(call, placements=placements)


def _at_origin(place: Placement, storages: dict[str, StorageSpec]) -> Placement:
    """The placement at the origin of its box; as it is where its storage would have to grow by too
    much, or is the caller's."""
    spec = storages[place.storage]
    layout, begin = place.layout.at_origin()
    whole, moved = (one.buffer(place.storage, spec.dtype) for one in (place.layout, layout))
    offset = place.offset + sum(k * step for k, step in zip(begin, whole.strides, strict=True))
    missing = offset + moved.size - spec.elements
    if missing > 0:
        if spec.kind != "arena" or MOST_GROWTH * missing > spec.elements:
            return place
        storages[place.storage] = replace(spec, elements=spec.elements + missing)
    return replace(place, layout=layout, offset=offset)
