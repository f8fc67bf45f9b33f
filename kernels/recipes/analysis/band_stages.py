"""The stages of a band of rows in a scheduled kernel, found by what they read and write.

In: the loop over bands of rows, whose stages are in lanes and register tiles: scores of all keys
and their maxima, powers in the place of the scores and their sum, and sums of values weighted with
the powers.  Out: its `BandStages`; a ScheduleError where the stages are others.

What always holds: each access to the scores, the powers and the maxima is one of those described;
computing the scores and maxima again changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from graphflow import tir
from graphflow.arith import IndexExpr, Var, constant_value, substitute, terms_of, variables
from graphflow.base.errors import ScheduleError
from graphflow.kernels.recipes.analysis.masked_scores import (
    KEY,
    KEY_BLOCK,
    SUM,
    ZERO,
    depends_on,
    require_masked,
    with_indices,
    with_names,
)
from graphflow.kernels.recipes.analysis.roles import summed_factors

LOWEST = tir.Literal(float("-inf"), "float32")

VECTOR, LANE = Var("vector.excluded"), Var("lane.excluded")
"""Stand for a row of a band: a lane of one of its vectors."""


class ScoreTile(Struct, frozen=True):
    """Register sums of a tile of scores, with what is made of them.

    `score` is the value of a score in terms of `SUM`; it, and the factors `query` and `key_element`
    of a term, are at the key `KEY` and in the lane of `BandStages.lane`.  There are so many `keys`
    from `first` on; a single one is itself in the place of `KEY`.
    """

    sums: tir.Buffer
    first: IndexExpr
    keys: int
    score: tir.Expr
    query: tir.Load
    key_element: tir.Load
    terms: tuple[tir.For, ...]

    def is_like(self, other: ScoreTile) -> bool:
        """Whether the other tile makes its scores as this one does; it may have a single key."""
        here = with_indices(self.score, {KEY: other.first})
        return other.score in (self.score, here)


class BandStages(Struct, frozen=True, dict=True):
    """The stages of a band: `begun` has begun the maxima, `scores` ends with them, `powers` is one
    statement, and `behind` sums weighted values."""

    loop: tir.For
    begun: tir.Body
    scores: tir.Body
    powers: tir.For
    behind: tir.Body
    held: tir.Buffer
    largest: tir.Buffer
    tiles: tuple[ScoreTile, ...]
    rows: int
    width: int
    lanes: int

    @staticmethod
    def of(loop: tir.For, rows: int, width: int, lanes: int) -> BandStages:
        """The stages in a loop over bands; ScheduleError where they are others."""
        body = loop.body
        at, held, most = _powers_at(body)
        begin = _only(
            k
            for k, stmt in enumerate(body[:at])
            if any(_is_start(w, most, LOWEST) for w in tir.writes_in((stmt,)))
        )
        scores = body[begin + 1 : at]
        powers = body[at]
        assert isinstance(powers, tir.For)
        tiles = tuple(_tiles(scores, held, most, lanes))
        if not tiles or any(not tiles[0].is_like(tile) for tile in tiles):
            raise ScheduleError("the scores of a band are not all made in the same way")
        found = BandStages(
            loop, body[: begin + 1], scores, powers, body[at + 1 :], held, most, tiles,
            rows, width, lanes,
        )  # fmt: skip
        if found.keys <= KEY_BLOCK:
            raise ScheduleError(f"{found.keys} keys are no more than a band looks at together")
        require_masked(tiles[0].score, SUM, KEY)
        found.require_repeatable()
        found.require_powers()
        return found

    @property
    def keys(self) -> int:
        """The number of keys."""
        return self.held.shape[0]

    @cached_property
    def inside(self) -> frozenset[Var]:
        """The variables of the loops of a band."""
        return frozenset(x.var for x in tir.loops_of(self.loop.body))

    @property
    def lane(self) -> IndexExpr:
        """The row of a band in terms of `VECTOR` and `LANE`."""
        return VECTOR * self.lanes + LANE

    def require_repeatable(self) -> None:
        """ScheduleError where the scores and their maxima cannot be computed twice: they read
        nothing that they write, besides registers that they begin."""
        own = {s.buffer for s in tir.walk(self.scores) if isinstance(s, tir.Allocate)}
        for write in tir.writes_in(self.scores):
            is_most = isinstance(write, tir.Reduce) and write.buffer == self.largest
            is_constant = isinstance(write, tir.Store) and isinstance(write.value, tir.Literal)
            is_held = isinstance(write, tir.Store) and write.buffer == self.held
            if not (write.buffer in own or is_most or is_constant or is_held):
                raise ScheduleError(f"the scores of a band write {write.buffer.name} too")
        read = {load.buffer for load in tir.loads_in(self.scores)}
        written = {write.buffer for write in tir.writes_in(self.scores)} - own
        behind = {load.buffer for load in tir.loads_in((self.powers, *self.behind))}
        if not read.isdisjoint(written) or not own.isdisjoint(behind):
            raise ScheduleError("the scores of a band read what they write")

    def require_powers(self) -> None:
        """ScheduleError where the loop of powers does more than to store these, in the place of
        the scores, and to add them up."""
        self.require_all_keys(self.powers)
        stores = 0
        for write in tir.writes_in((self.powers,)):
            stores += write.buffer == self.held
            is_sum = isinstance(write, tir.Reduce) and write.op is tir.ReduceOp.ADD
            own = isinstance(write.value, tir.Load) and write.value.buffer == self.held
            adds = is_sum and own and self._begins_with_zero(write.buffer)
            if not adds and not (write.buffer == self.held and isinstance(write, tir.Store)):
                raise ScheduleError(f"the powers of a band write {write.buffer.name} too")
        key = self.powers.var
        at = (a.indices[0] for a in tir.accesses((self.powers,)) if a.buffer == self.held)
        if stores != 1 or any(index is not key for index in at):
            raise ScheduleError("the powers of a band are not stored key by key")

    @cached_property
    def weights(self) -> tir.For | None:
        """The loop that makes weights of values from the powers, in their place; None where these
        are the weights.  ScheduleError where it is no loop over keys."""
        found = [x for x in self.behind if any(w.buffer == self.held for w in tir.writes_in((x,)))]
        if not found:
            return None
        only = found[0]
        if len(found) > 1 or not isinstance(only, tir.For):
            raise ScheduleError("weights are made of powers in several stages")
        self.require_all_keys(only)
        return only

    def weights_of_zero(self) -> tuple[tir.Expr, ...]:
        """What has to be 0, so that the weight of a power that is 0 is 0, or NaN where all weights
        of its row are; ScheduleError where that is not known.

        A weight is a power times the reciprocal of the sum of all of them, or what a selection that
        does not depend on keys gives instead.  One of the powers of a row is 1, or all are NaN; so
        the sum is at least 1, or NaN, and 0 times its reciprocal is 0 or NaN.
        """
        if self.weights is None:
            return ()
        writes = [*tir.writes_in((self.weights,))]
        place = writes[0].indices
        power = tir.Load(self.held, place)
        value: tir.Expr = power
        for write in writes:
            if not isinstance(write, tir.Store) or write.buffer != self.held:
                raise ScheduleError("more than weights is made of powers")
            if write.indices != place or place[0] is not self.weights.var:
                raise ScheduleError("weights are not stored in the place of powers")
            value = tir.exchanged(write.value, power, value)
        others: list[tir.Expr] = []
        while isinstance(value, tir.Select):
            sides = (value.if_true, value.if_false)
            kept = [side for side in sides if depends_on(side, power)]
            rest = tir.exchanged(value, kept[0], ZERO) if len(kept) == 1 else value
            if self.weights.var in tir.expression_variables(rest) or depends_on(rest, power):
                raise ScheduleError("weights are selected by keys")
            others += [side for side in sides if side is not kept[0]]
            value = kept[0]
        match value:
            case tir.Binary("mul", left, tir.Load() as share) if left == power:
                pass
            case tir.Binary("mul", tir.Load() as share, right) if right == power:
                pass
            case _:
                raise ScheduleError("weights are no shares of powers")
        if any(tir.expression_variables(other) & self.inside for other in others):
            raise ScheduleError("weights are selected that differ from row to row")
        if share.indices != place[1:] or not self._is_share(share.buffer):
            raise ScheduleError("weights are no shares of powers")
        return tuple(others)

    def _is_share(self, buffer: tir.Buffer) -> bool:
        """Whether each element of a buffer is the reciprocal of the sum of a row's powers."""
        stores = [w for w in tir.writes_in(self.loop.body) if w.buffer == buffer]
        sums = {w.buffer for w in tir.writes_in((self.powers,)) if isinstance(w, tir.Reduce)}
        match stores:
            case [tir.Store(_, at, tir.Binary("div", tir.Literal(1.0), tir.Load(total, row)))]:
                return total in sums and at == row
        return False

    def require_all_keys(self, loop: tir.For) -> None:
        """ScheduleError where a loop runs over other numbers than those of all keys."""
        bounds = constant_value(loop.start), constant_value(loop.stop)
        if bounds != (0, self.keys) or loop.kind is not tir.LoopKind.SERIAL:
            raise ScheduleError(f"the loop {loop.var} is none over all keys")

    def _begins_with_zero(self, total: tir.Buffer) -> bool:
        before = (*self.begun, *self.scores)
        starts = [w for w in tir.writes_in(before) if w.buffer == total]
        return len(starts) == 1 and _is_start(starts[0], total, ZERO)


def _only(found: Iterator[int]) -> int:
    numbers = [*found]
    if len(numbers) != 1:
        raise ScheduleError("the stages of a band begin no maxima, or do so several times")
    return numbers[0]


def _is_start(write: tir.Store | tir.Reduce, buffer: tir.Buffer, value: tir.Literal) -> bool:
    return isinstance(write, tir.Store) and write.buffer == buffer and write.value == value


def _powers_at(body: tir.Body) -> tuple[int, tir.Buffer, tir.Buffer]:
    """The statement that stores powers `exp(x − most)` in the place of the x, and both buffers."""
    for number, stmt in enumerate(body):
        for write in tir.writes_in((stmt,)) if isinstance(stmt, tir.For) else ():
            match write.value:
                case tir.Unary("exp", tir.Binary("sub", tir.Load() as x, tir.Load() as most)) if (
                    x == tir.Load(write.buffer, write.indices)
                    and len(x.indices) == 2
                    and most.indices == x.indices[1:]
                ):
                    return number, x.buffer, most.buffer
    raise ScheduleError("the stages of a band store no powers in the place of scores")


def _bodies(body: tir.Body) -> Iterator[tir.Body]:
    yield body
    for stmt in body:
        for inner in tir.sub_bodies(stmt):
            yield from _bodies(inner)


def _tiles(
    scores: tir.Body, held: tir.Buffer, largest: tir.Buffer, lanes: int
) -> Iterator[ScoreTile]:
    """The tiles of scores, each of which is taken into the maxima and stored."""
    writes = [*tir.writes_in(scores)]
    stores = [w for w in writes if w.buffer == held]
    maxima = [w for w in writes if w.buffer == largest]
    ends = [body for body in _bodies(scores) if body and any(body[-1] is w for w in maxima)]
    if not len(stores) == len(maxima) == len(ends):
        raise ScheduleError("scores are not stored as they enter the maximum")
    for body in ends:
        last = body[-1]
        assert isinstance(last, tir.Reduce)
        if last.op is not tir.ReduceOp.MAX or not isinstance(last.value, tir.Load):
            raise ScheduleError("a maximum of other values than scores is taken")
        base = last.value
        value: tir.Expr = base
        for stmt in reversed(body[:-1]):
            if not isinstance(stmt, tir.Store) or base != tir.Load(stmt.buffer, stmt.indices):
                raise ScheduleError("the stages of a band make more of a score than a maximum")
            value = tir.exchanged(value, base, stmt.value)
        kept = [w for w in stores if _is_load(w.value, base.buffer)]
        if len(kept) != 1:
            raise ScheduleError("scores are not stored as they enter the maximum")
        yield _tile(writes, kept[0], last, tir.exchanged(value, base, SUM), scores, lanes)


def _is_load(value: tir.Expr, buffer: tir.Buffer) -> bool:
    return isinstance(value, tir.Load) and value.buffer == buffer


def _tile(
    writes: Sequence[tir.Store | tir.Reduce],
    kept: tir.Store | tir.Reduce,
    last: tir.Reduce,
    value: tir.Expr,
    scores: tir.Body,
    lanes: int,
) -> ScoreTile:
    """The tile whose scores `kept` stores and `last` takes into the maximum."""
    assert isinstance(kept.value, tir.Load)
    assert isinstance(last.value, tir.Load)
    sums = kept.value
    updates = [w for w in writes if w.buffer == sums.buffer and isinstance(w, tir.Reduce)]
    starts = [w for w in writes if _is_start(w, sums.buffer, ZERO)]
    factors = summed_factors(updates[0]) if len(updates) == 1 else None
    if factors is None or len(starts) != 1 or {f.dtype for f in factors} != {"float32"}:
        raise ScheduleError("scores are no sums of products of float32 from zero on")
    there = _at_key(kept, sums, updates[0].indices, lanes)
    query, other = (with_names(f, there) for f in factors)
    if LANE not in {v for e in query.indices for v in variables(e)}:
        query, other = other, query
    here = _at_key(kept, sums, last.value.indices, lanes)
    score = with_indices(value, here)
    key, lane = (substitute(e, _names(sums, last.value.indices)) for e in kept.indices)
    if last.indices != (lane,):
        raise ScheduleError("a maximum is not that of the row of its scores")
    read = {v for e in (*query.indices, *other.indices) for v in variables(e)}
    terms = tuple(
        loop
        for loop in tir.loops_of(scores)
        if loop.var in read and any(w is updates[0] for w in tir.writes_in(loop.body))
    )
    if {x.kind for x in terms} != {tir.LoopKind.SERIAL} or any(x.extent is None for x in terms):
        raise ScheduleError("the terms of scores are not summed by loops of their own")
    own = next((v for v in here if here[v] not in (VECTOR, LANE)), None)
    first = key if own is None else key - own
    axis = None if own is None else last.value.indices.index(own)
    keys = 1 if axis is None else sums.buffer.shape[axis]
    return ScoreTile(sums.buffer, first, keys, score, query, other, terms)


def _names(sums: tir.Load, indices: Sequence[IndexExpr]) -> dict[Var, IndexExpr]:
    pairs = zip(sums.indices, indices, strict=True)
    return {place: index for place, index in pairs if isinstance(place, Var)}


def _at_key(
    kept: tir.Store | tir.Reduce, sums: tir.Load, indices: Sequence[IndexExpr], lanes: int
) -> dict[Var, IndexExpr]:
    """What the variables in `indices` of a register are at `KEY` and in a lane of a vector, where
    `kept` stores the element `sums` at its key and in its lane."""
    key, lane = (substitute(e, _names(sums, indices)) for e in kept.indices)
    found: dict[Var, IndexExpr] = {}
    for var, factor in terms_of(key)[0]:
        if factor == 1 and isinstance(var, Var) and var in indices:
            found[var] = KEY - (key - var)
    if len(found) != (constant_value(key) is None):
        raise ScheduleError("the elements of a tile are not those of keys")
    for var, factor in terms_of(lane)[0]:
        if not isinstance(var, Var) or factor not in (1, lanes):
            raise ScheduleError("the lanes of a band are not vectors side by side")
        found[var] = LANE if factor == 1 else VECTOR
    return found
