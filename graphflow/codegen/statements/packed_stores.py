"""Stores of bytes in unrolled loops, those of four iterations as one vector; or of words, of two.

In: the chains of unrolled loops (`unrolled_chains`) that end in a store of floats rounded to bytes.
Out: the bytes of four vectors, or the words of two, made at once (`packed_bytes`) and stored in as
few pieces as they are runs in memory.  What always holds: lanes are neighbours in memory, all of
them are stored, and the zero point is that of all iterations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from graphflow.base.dtypes import BYTES
from graphflow.codegen.emit_expr import Expressions
from graphflow.codegen.emit_mask import Mask
from graphflow.codegen.memory import Address, Memory
from graphflow.codegen.saturated import RUN
from graphflow.codegen.statements.neighbouring_vectors import (
    follow_one_another,
    iteration_in_lanes,
)
from graphflow.codegen.statements.packed_bytes import packed_bytes, packed_words
from graphflow.codegen.statements.unrolled_chains import Point, UnrolledChains


class PackedStores:
    """Emits the last statement of chains, which stores bytes, for several iterations at once."""

    def __init__(self, chains: UnrolledChains, expressions: Expressions, memory: Memory) -> None:
        self._chains, self._expressions, self._memory = chains, expressions, memory
        self._store, self._width = chains.last_store, chains.width
        self._words = chains.last_store.buffer.dtype not in BYTES
        self._run = RUN // 2 if self._words else RUN

    def possible(self, vector_lanes: int) -> bool:
        """Whether the chains end so, and each of their vectors is one run of memory."""
        if self._chains.packed is None or self._width > vector_lanes:
            return False
        points = [point for points in self._chains.rounds() for point in points]
        places = [self._place(point) for point in points]
        return all(place.stride == 1 and not place.place.local for place in places)

    def emit(self, points: Sequence[Point]) -> None:
        """The stores of some iterations, in order."""
        for begin in range(0, len(points), self._run):
            self._emit_run(points[begin : begin + self._run])

    def _emit_run(self, points: Sequence[Point]) -> None:
        rounded, b = self._chains.packed, self._memory.builder
        assert rounded is not None
        mask, vectors = Mask((True,) * self._width), []
        for point in points:
            with self._iteration(point):
                x = self._expressions.bounded_above(rounded, mask)
                vectors.append(b.splat(x, self._width))
        vectors += vectors[-1:] * (self._run - len(points))
        zero = self._expressions.zero_point(rounded)
        if self._words:
            found = packed_words(b, vectors, zero, (rounded.low, rounded.high))
        else:
            found = packed_bytes(b, vectors, zero, rounded.low < 0)
        for first, count, place in self._runs(points):
            lanes = b.part(found, first * self._width, count * self._width)
            self._memory.store_window(place, lanes)

    def _runs(self, points: Sequence[Point]) -> Iterator[tuple[int, int, Address]]:
        """Of iterations whose vectors follow one another in memory the number of the first one, how
        many, and where the first one stores: one, two or four."""
        places, begin = [self._place(point) for point in points], 0
        while begin < len(places):
            count = 1
            while begin + 2 * count <= len(places) and follow_one_another(
                places[begin:][: 2 * count], self._width
            ):
                count *= 2
            yield begin, count, places[begin]
            begin += count

    def _place(self, point: Point) -> Address:
        with self._iteration(point):
            return self._memory.address(self._store.buffer, self._store.indices)

    def _iteration(self, point: Point) -> AbstractContextManager[None]:
        """The indices of one iteration, in lanes."""
        numbers = dict(zip(self._chains.variables, point, strict=True))
        return iteration_in_lanes(self._memory.indices, numbers, self._chains.lanes, self._width)
