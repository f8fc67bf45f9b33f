"""Short names of layouts, for reports.

In: an index map, the logical shape and the box.  Out: `NCHW`, `NHWC`, `NHWC padded to 64`,
`NCHW16c`, `row-major`, or the text of the map where it has no common name.  Only blocks of channels
have a common name; blocks of another axis are spelled out: `NCHW with N in blocks of 32`.  A box
that is larger than the name implies is added in brackets.
"""

from __future__ import annotations

from functools import lru_cache

from graphflow import arith
from graphflow.layout.index_map import IndexMap

AXIS_LETTERS = {3: "NCW", 4: "NCHW", 5: "NCDHW"}
"""What the axes are called by rank; other ranks have no letters."""

CHANNELS = "C"

Shape = tuple[int, ...]


@lru_cache(maxsize=4096)
def describe(index_map: IndexMap, logical_shape: Shape, physical_shape: Shape) -> str:
    """The name of the map, and of the box where it is not the one that the name implies."""
    name, implied = _name(index_map, logical_shape)
    offsets = tuple(arith.terms_of(e)[1] for e in index_map.outputs)
    if implied is None and any(offsets):
        unshifted = index_map.then(IndexMap.shift([-offset for offset in offsets]))
        name, implied = _name(unshifted, logical_shape)
        if implied is None:
            return f"{index_map} in {_list(physical_shape)}"
        return f"{name} at {_list(offsets)} in {_list(physical_shape)}"
    if physical_shape == implied:
        return name
    if implied is None:
        return f"{name} in {_list(physical_shape)}"
    channels_last = name in {_channels_last_letters(rank) for rank in AXIS_LETTERS}
    if channels_last and physical_shape[:-1] == implied[:-1]:
        return f"{name} padded to {physical_shape[-1]}"
    return f"{name} in {_list(physical_shape)}"


def _list(numbers: Shape) -> str:
    return f"[{', '.join(map(str, numbers))}]"


def _channels_last_letters(rank: int) -> str:
    letters = AXIS_LETTERS[rank]
    return letters[0] + letters[2:] + letters[1]


def _name(index_map: IndexMap, shape: Shape) -> tuple[str, Shape | None]:
    """A name, and the box it implies (None: none)."""
    rank = len(shape)
    letters = AXIS_LETTERS.get(rank)
    if index_map == IndexMap.identity(rank):
        return letters or "row-major", shape
    order = _permutation(index_map)
    if order is not None:
        box = tuple(shape[axis] for axis in order)
        return _permuted_name(letters, order), box
    inner = index_map.outputs[-1] if index_map.outputs else None
    if isinstance(inner, arith.FloorMod) and inner.numerator in index_map.inputs:
        axis, width = index_map.inputs.index(inner.numerator), inner.divisor
        if letters and index_map == IndexMap.split(rank, axis, width, inner_last=True):
            blocks = -(-shape[axis] // width)
            box = (*shape[:axis], blocks, *shape[axis + 1 :], width)
            return _blocked_name(letters, axis, width), box
    return str(index_map), None


def _permutation(index_map: IndexMap) -> tuple[int, ...] | None:
    if index_map.physical_rank != index_map.logical_rank:
        return None
    if not all(isinstance(e, arith.Var) for e in index_map.outputs):
        return None
    return tuple(index_map.inputs.index(e) for e in index_map.outputs if isinstance(e, arith.Var))


def _blocked_name(letters: str, axis: int, width: int) -> str:
    if letters[axis] == CHANNELS:
        return f"{letters}{width}{CHANNELS.lower()}"
    return f"{letters} with {letters[axis]} in blocks of {width}"


def _permuted_name(letters: str | None, order: tuple[int, ...]) -> str:
    if letters is None:
        return f"axes in order {list(order)}"
    return "".join(letters[axis] for axis in order)
