"""Sampling: the elements of an output to compare where computing all of them would take too long.

In: a lowered kernel, one of its outputs and the positions of its elements.  Out: elements, those
that reveal most first, so that a budget may end the list anywhere.  What always holds: the same
kernel and seed give the same elements, each once.

From each store of the lowered kernel come the elements of the first, the last and some random
iterations, so that remainders of tiles and masked parts are among them.  Then come the corners of
the tensor, its borders, and the two sides of each block boundary of the layout; then random
elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product, zip_longest

import numpy as np

from graphflow.arith import Axis, FloorDiv, FloorMod, IndexExpr, Var, evaluate, holds, terms_of
from graphflow.layout import Layout
from graphflow.tir import Access, AccessKind, PrimFunc, accesses
from graphflow.validation.parameter_positions import PlacedParameter

MOST = 3000
"""The most elements of a sample."""

PER_STORE = 24
"""The number of random iterations of each store."""

TRIES = 8
"""The number of attempts to find an iteration at which the conditions of a store hold."""

MOST_CORNERS = 64


def samples(func: PrimFunc, placed: PlacedParameter, seed: int) -> list[int]:
    """Logical positions of elements of an output, at most `MOST`."""
    if placed.buffer.size == 0:
        return []
    rng = np.random.default_rng([seed, 1])
    stores = _stored(func, placed, rng)
    ends = [position for store in stores for position in store[:2]]
    inner = [position for row in zip_longest(*(s[2:] for s in stores)) for position in row]
    edges = [_position(index, placed) for index in _edges(placed, rng)]
    others = rng.integers(0, placed.buffer.size, MOST).tolist()
    mixed = chain.from_iterable(zip_longest(inner, edges, others[: MOST // 2]))
    order = chain(ends, mixed, others)
    found = dict.fromkeys(position for position in order if position is not None)
    return list(found)[:MOST]


def _position(index: tuple[int, ...], placed: PlacedParameter) -> int:
    return int(np.ravel_multi_index(index, placed.buffer.shape)) if index else 0


# Stores of the lowered kernel ---------------------------------------------------------------------


def _stored(
    func: PrimFunc, placed: PlacedParameter, rng: np.random.Generator
) -> list[list[int | None]]:
    """Elements that each store of the kernel writes, in its first, its last and random iterations.

    Iterations that write padding give None.
    """
    found = []
    seen = set()
    for access in accesses(func.body):
        if access.kind is AccessKind.READ or access.buffer.name != placed.buffer.name:
            continue
        key = access.indices, access.domain
        if key not in seen:
            seen.add(key)
            found.append([_element(access, placed, pick) for pick in _picks(rng)])
    return found


def _picks(rng: np.random.Generator) -> Iterator[_Pick]:
    yield _Pick(0.0)
    yield _Pick(1.0)
    for _ in range(PER_STORE):
        yield _Pick(rng)


class _Pick:
    """Chooses an iteration: at a fraction of each loop's extent, or at random."""

    def __init__(self, where: float | np.random.Generator) -> None:
        self._where = where

    @property
    def again(self) -> bool:
        """Whether another attempt may give another iteration."""
        return not isinstance(self._where, float)

    def value(self, start: int, stop: int) -> int:
        """A value of the variable of a loop that is not empty."""
        if isinstance(self._where, float):
            return start + round(self._where * (stop - 1 - start))
        return int(self._where.integers(start, stop))


def _element(access: Access, placed: PlacedParameter, pick: _Pick) -> int | None:
    for _ in range(TRIES if pick.again else 1):
        values = _iteration(access.domain.axes, pick)
        if values is not None and holds(access.domain.where, values):
            flat = evaluate(access.buffer.flat_index(access.indices), values)
            inside = 0 <= flat < placed.size  # it is a wrong kernel that we are looking for
            element = int(placed.elements[flat]) if inside else -1
            if element >= 0:
                return element
    return None


def _iteration(axes: tuple[Axis, ...], pick: _Pick) -> dict[Var, int] | None:
    values: dict[Var, int] = {}
    for axis in axes:
        start, stop = evaluate(axis.start, values), evaluate(axis.stop, values)
        if start >= stop:
            return None
        values[axis.var] = pick.value(start, stop)
    return values


# Corners, borders, block boundaries ---------------------------------------------------------------


def _edges(placed: PlacedParameter, rng: np.random.Generator) -> Iterator[tuple[int, ...]]:
    """The corners of the tensor, then elements at both sides of each boundary along each axis."""
    shape = placed.buffer.shape
    corners = product(*(dict.fromkeys((0, n - 1)) for n in shape))
    for number, corner in enumerate(corners):
        if number < MOST_CORNERS:
            yield corner
    for axis, extent in enumerate(shape):
        for value in _marks(extent, _block(placed.layout, axis)):
            index = [int(rng.integers(0, n)) for n in shape]
            index[axis] = value
            yield tuple(index)


def _marks(extent: int, block: int) -> list[int]:
    """The first and last indices of an axis, and those at its first and last block boundary."""
    last = (extent - 1) // block * block
    wanted = (0, 1, extent - 1, extent - 2, block - 1, block, last - 1, last)
    return list(dict.fromkeys(k for k in wanted if 0 <= k < extent))


def _block(layout: Layout | None, axis: int) -> int:
    """The width of the blocks into which a layout splits an axis; 1 if it does not."""
    if layout is None:
        return 1
    var: IndexExpr = layout.index_map.inputs[axis]
    atoms = (atom for output in layout.index_map.outputs for atom, _ in terms_of(output)[0])
    divisors = [
        atom.divisor
        for atom in atoms
        if isinstance(atom, FloorDiv | FloorMod) and atom.numerator is var
    ]
    return max(divisors, default=1)
