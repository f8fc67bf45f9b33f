"""Stores of quotients in unrolled loops, rounded to bytes: those of four iterations as one vector;
or to words, of two.

In: the iterations of an unrolled loop that round a vector of quotients each (`quotient_runs`).
Out: the bytes, or the words, of several iterations, made at once by `RoundedQuotients` and stored
as one vector.  Other bytes and words are stored so by `packed_stores`.

What always holds: vectors that are stored together follow one another in memory, all their lanes
are stored, and scale and zero point are those of all iterations.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from graphflow import tir
from graphflow.codegen.emit_mask import Mask
from graphflow.codegen.instruction_set import byte_taker, word_taker
from graphflow.codegen.memory import Address
from graphflow.codegen.saturated import QuotientRuns, without_sign
from graphflow.codegen.statements.neighbouring_vectors import (
    follow_one_another,
    iteration_in_lanes,
)
from graphflow.codegen.statements.part_writers import PartWriters
from graphflow.llvm import IrValue


class QuotientStores:
    """Emits the iterations of one unrolled loop that store quotients."""

    def __init__(self, runs: QuotientRuns, writers: PartWriters) -> None:
        self._runs, self._writers = runs, writers

    def emit(self) -> bool:
        """Whether the stores were emitted, several as one; nothing is where vectors do not follow
        one another in memory, or the target stores each of them as well."""
        runs, target = self._runs, self._writers.target
        take = (word_taker if runs.in_words else byte_taker)(target)
        if take is None or runs.width != target.computed_lanes("float32"):
            return False
        places = self._places()
        if not self._follow(places):
            return False
        dividend, sizes = without_sign(runs.quotient.left)
        expressions = self._writers.expressions
        quotients = expressions.quotients(runs.rounded, runs.quotient.right, sizes)
        less = None if runs.less is None else expressions.emit(runs.less, None)
        for begin in range(0, len(places), runs.together):
            vectors = [
                self._dividend(dividend, number)
                for number in runs.iterations[begin : begin + runs.together]
            ]
            if runs.in_words:
                found = quotients.words_of(vectors, take, less, runs.rounded.low < 0)
            else:
                found = quotients.bytes_of(vectors, take)
            self._writers.memory.store_window(places[begin], found)
        return True

    def _places(self) -> list[Address]:
        """Where each iteration stores."""
        stored, places = self._runs.store, list[Address]()
        for number in self._runs.iterations:
            with self._iteration(number):
                places.append(self._writers.memory.address(stored.buffer, stored.indices))
        return places

    def _follow(self, places: Sequence[Address]) -> bool:
        """Whether the vectors that are stored together follow one another in memory."""
        together, width = self._runs.together, self._runs.width
        stored = (places[begin : begin + together] for begin in range(0, len(places), together))
        in_runs = all(place.stride == 1 for place in places)
        return in_runs and all(follow_one_another(one, width) for one in stored)

    def _dividend(self, dividend: tir.Expr, number: int) -> IrValue:
        """The vector that an iteration divides."""
        width, b = self._runs.width, self._writers.builder
        with self._iteration(number):
            x = self._writers.expressions.dividend(dividend, Mask((True,) * width))
            return b.splat(b.freeze(x), width)

    def _iteration(self, number: int) -> AbstractContextManager[None]:
        """The indices of one iteration, in lanes."""
        runs = self._runs
        numbers = {runs.var: number}
        return iteration_in_lanes(self._writers.indices, numbers, runs.lanes, runs.width)
