"""Positions by their keys, largest first, as a part of kernels that pick some of many elements.

In: the number of keys and their type.  Out: statements that find the position of the largest key
and take it away, of equal keys the first.  What always holds: taking one looks at the largest keys
of all chunks and at the keys of one chunk, of which there are about as many.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.indexing import as_int64
from graphflow.kernels.definitions.scalar_functions import add

LANES = 16
"""Elements that are compared at once."""


def whole_vectors(extent: int) -> int:
    """The extent of whole vectors with room for so many elements."""
    return -(-extent // LANES) * LANES


class LargestFirst:
    """The keys of some positions, none of them NaN, and the largest of each chunk and of all.

    A key that is `lowest` counts as taken.
    """

    def __init__(self, extent: int, dtype: str = "float32") -> None:
        self.extent, self.lowest = extent, stages.neutral(tir.ReduceOp.MAX, dtype)
        # Of no keys there is one chunk, in which all count as taken.
        self.chunk = whole_vectors(max(isqrt(extent), 1))
        self.chunks = max(-(-extent // self.chunk), 1)
        self.keys = tir.Buffer("keys", (self.chunks * self.chunk,), dtype)
        self.peaks = tir.Buffer("peaks", (whole_vectors(self.chunks),), dtype)
        self.best = tir.Buffer("best", (), dtype)
        self.peak, self.place = (tir.Buffer(name, (), "int32") for name in ("peak", "within"))
        self.other, self.high_of_chunk = (tir.Buffer(n, (), dtype) for n in ("other", "next_peak"))
        self.high = tir.Buffer("high", (LANES,), dtype)
        self.soon = tir.Buffer("soon", (LANES,), "int32")
        self.buffers = (
            self.keys, self.peaks, self.best, self.peak, self.place, self.other,
            self.high_of_chunk, self.high, self.soon,
        )  # fmt: skip

    def started(self) -> tir.Body:
        """Behind the stores of all keys: fills what is behind them, and finds the largest."""
        ((p, _),) = behind = stages.loops_over("p", (self.keys.size - self.extent,))
        ((q, _),) = clear = stages.loops_over("q", (self.peaks.size,))
        ((c, _),) = chunks = stages.loops_over("c", (self.chunks,))
        return (
            *tir.nest(behind, (tir.Store(self.keys, (p + self.extent,), self.lowest),)),
            *tir.nest(clear, (tir.Store(self.peaks, (q,), self.lowest),)),
            *tir.nest(chunks, self._highest(c, "each")),
            *self._highest(None, "all"),
        )

    def is_left(self) -> tir.Expr:
        """Whether there is a key that is not taken."""
        return tir.Comparison("gt", tir.Load(self.best, ()), self.lowest)

    def taken(self, row: Var, body: tir.Body) -> tir.Body:
        """Executes `body` with `row` bound to the position of the largest key, and takes it.

        What is the largest without it is found before the key is overwritten: a vector that is
        loaded behind a store of one of its lanes waits until that is in the cache.
        """
        chunk, peak = Var("chunk"), tir.Load(self.high_of_chunk, ())
        here = add(tir.IndexValue(chunk * self.chunk), as_int64(tir.Load(self.place, ())))
        other = tir.Load(self.other, ())
        in_chunk = (
            *self._first(chunk, "within"),
            *self._highest(chunk, "again", tir.Load(self.place, ())),
            stages.matched(
                row, self.extent, here, (tir.Store(self.keys, (row,), self.lowest), *body)
            ),
            tir.Store(self.peaks, (chunk,), peak),
            tir.Store(self.best, (), tir.Select(tir.Comparison("gt", peak, other), peak, other)),
        )
        return (
            *self._first(None, "among"),
            *self._highest(None, "next", tir.Load(self.peak, ())),
            stages.matched(chunk, self.chunks, as_int64(tir.Load(self.peak, ())), in_chunk),
        )

    def _highest(
        self, part: IndexExpr | None, name: str, without: tir.Expr | None = None
    ) -> tir.Body:
        """Finds the largest key of a chunk, or the best of all peaks, in both cases `without` the
        one at a place, if that is given."""
        (values, offset, extent), high = self._part(part), self.high
        to, at = (self.best, ()) if part is None else (self.peaks, (part,))
        if without is not None:
            to, at = self.other if part is None else self.high_of_chunk, ()

        def raised(place: IndexExpr, lane: Var) -> tir.Stmt:
            value: tir.Expr = tir.Load(values, (offset + place,))
            highest = tir.Load(high, (lane,))
            # A select, as no key is NaN, which a maximum would have to keep.
            is_larger: tir.Expr = tir.Comparison("gt", value, highest)
            if without is not None:
                is_other = tir.Comparison("ne", tir.IndexValue(place, "int32"), without)
                is_larger = tir.Binary("and", is_larger, is_other)
            return tir.Store(high, (lane,), tir.Select(is_larger, value, highest))

        return _in_lanes(name, tir.ReduceOp.MAX, high, self.lowest, to, at, extent, raised)

    def _first(self, part: IndexExpr | None, name: str) -> tir.Body:
        """Finds the first chunk whose peak is the best key, or the first such place in one."""
        (values, offset, extent), soon = self._part(part), self.soon
        to, none = self.peak if part is None else self.place, stages.literal(extent, "int32")

        def sooner(place: IndexExpr, lane: Var) -> tir.Stmt:
            value = tir.Load(values, (offset + place,))
            is_best = tir.Comparison("eq", value, tir.Load(self.best, ()))
            number = tir.Select(is_best, tir.IndexValue(place, "int32"), none)
            return tir.Reduce(tir.ReduceOp.MIN, soon, (lane,), number)

        return _in_lanes(name, tir.ReduceOp.MIN, soon, none, to, (), extent, sooner)

    def _part(self, part: IndexExpr | None) -> tuple[tir.Buffer, IndexExpr, int]:
        """The keys of a chunk, or all peaks: a buffer, where they begin and how many."""
        if part is None:
            return self.peaks, const(0), self.peaks.size
        return self.keys, part * self.chunk, self.chunk


def _in_lanes(
    name: str,
    op: tir.ReduceOp,
    lanes: tir.Buffer,
    neutral: tir.Literal,
    to: tir.Buffer,
    at: tuple[IndexExpr, ...],
    extent: int,
    step: Callable[[IndexExpr, Var], tir.Stmt],
) -> tir.Body:
    """A reduction into `to[at]` of lanes, each of which has a result of its own before, so that no
    vector waits for the fold of another one.  `step(place, lane)` reduces into a lane."""
    clear, k, v, fold = (Var(f"{name}_{part}") for part in ("z", "k", "v", "f"))
    return (
        *tir.nest(((clear, LANES),), (tir.Store(lanes, (clear,), neutral),)),
        *tir.nest(((k, extent // LANES), (v, LANES)), (step(LANES * k + v, v),)),
        tir.Store(to, at, neutral),
        *tir.nest(((fold, LANES),), (tir.Reduce(op, to, at, tir.Load(lanes, (fold,))),)),
    )
