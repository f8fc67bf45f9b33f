"""Keys that a mask excludes from all rows of a band, left out.

In: the schedule of a kernel in bands of rows (`band_stages.py`).  Out: the schedule in which each
band finds how many of the first and of the last keys its mask excludes from all of its rows, and
runs its loops over the keys between.

    for keys from the last one on: while all rows of the band exclude them: limit -= 8
    for keys from the first one on: while all rows of the band exclude them: begin += 8
    for keys from begin to limit: scores; maximum
    if a power of another key might not be 0: for all keys: scores; maximum
    for keys from begin to limit: powers; their sum
    zeros[c] = -0.0;  for other keys: zeros[c] += 0 · value[key, c]
    for keys from begin to limit: sums of powers · value;  sums + zeros

What always holds: the results have the bits that they would have without these steps, whatever the
operands hold (docs/semantics.md, "Excluded keys", has the proof).  Which keys are excluded, each
run reads off the mask; so it may be a constant, an input, or computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod

from msgspec import Struct

from graphflow import tir
from graphflow.arith import (
    IndexExpr,
    Proof,
    Var,
    Verdict,
    const,
    less_than,
    substitute,
    variables,
)
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.kernels.recipes.analysis.band_stages import (
    LANE,
    LOWEST,
    VECTOR,
    BandStages,
    ScoreTile,
)
from graphflow.kernels.recipes.analysis.masked_scores import (
    INFINITE,
    KEY,
    KEY_BLOCK,
    MOST_EXCLUDED,
    SUM,
    ZERO,
    needs_bound,
    upper_bound,
    with_names,
)
from graphflow.kernels.recipes.analysis.roles import summed_factors
from graphflow.kernels.recipes.schedules.band_code import BandCode, nested
from graphflow.kernels.recipes.schedules.key_sizes import KeyElements, largest_element
from graphflow.schedule import Rewrite, names_of_places

LEAST_GAP = 105.0
"""The power of a number that is lower than the maximum by so much is 0: exp(-104) < 2⁻¹⁵⁰."""

ROUNDED = 1.01
"""More than all roundings of a sum of up to 10⁵ products add to the sum of the magnitudes."""

UNDERFLOWN = 1e-30
"""More than a sum of products is off where they, or their bound, are below the normal numbers."""


def leave_out_keys(func: tir.PrimFunc, band: str, rows: int, width: int, lanes: int) -> Rewrite:
    """The kernel without work for keys that a mask excludes from all rows of a band.

    `band` is the loop over bands of `width` rows, in vectors of `lanes`, of `rows` in all.
    ScheduleError where the stages of a band are not those of a masked attention.
    """
    (loop,) = (x for x in tir.loops_of(func.body) if x.var.name == band)
    found = BandStages.of(loop, rows, width, lanes)
    taken = {*names_of_places(func)}
    made = loop.around(_Bounded(found, taken).body())
    body = tir.map_as_written(func.body, lambda stmt: made if stmt is loop else stmt)
    claim = "a key that is left out adds zeros alone to sums, and no maximum is below its score"
    return Rewrite(replace(func, body=body), (Proof(Verdict.PROVEN, claim, "structure"),))


class _Side(Struct, frozen=True):
    """Keys at the end, or at the beginning, in the order in which they are looked at."""

    is_end: bool
    blocks: tir.Buffer
    """How many blocks of them are excluded."""

    def key(self, number: IndexExpr, keys: int) -> IndexExpr:
        """The key with a number in this order."""
        return const(keys - 1) - number if self.is_end else number

    def in_block(self, block: IndexExpr, place: IndexExpr, keys: int) -> IndexExpr:
        """The key at a place of a block, in the order of memory."""
        start = const(keys) - (block + 1) * KEY_BLOCK if self.is_end else block * KEY_BLOCK
        return start + place


class _Bounded:
    """The statements of a band with bounds of its loops over keys; their names are new."""

    def __init__(self, band: BandStages, taken: set[str]) -> None:
        self._band = band
        self._code = code = BandCode(taken, band.lanes)
        self._limit, self._begin = code.scalar("key_limit"), code.scalar("key_begin")
        self._worst = code.scalar("largest_excluded", "float32")
        names = (("excluded_behind", True), ("excluded_before", False))
        self._sides = [_Side(is_end, code.scalar(name)) for name, is_end in names]

    def body(self) -> tir.Body:
        """The statements."""
        band = self._band
        weighted = self._weighted()
        stmts = (*band.begun, *self._looks(), *self._scored(), *self._powers(), *weighted)
        return (*self._code.allocations, *stmts)

    def _in_rows(self, name: str, stmt: tir.Stmt, existing: bool = False) -> tir.Body:
        """A statement in terms of `VECTOR` and `LANE` for all rows of a band; or for those that
        exist, where it is the last one."""
        band = self._band
        vectors = self._code.loop(f"{name}_u", band.width // band.lanes, tir.LoopKind.UNROLLED)
        lane = self._code.vector(f"{name}_v", band.lanes)
        if existing and band.rows % band.width:
            row = band.loop.var * band.width + band.lane
            stmt = tir.If(less_than(row, const(band.rows)), (stmt,))
        names = {VECTOR: vectors[0], LANE: lane[0]}
        return nested((vectors, lane), tir.substitute_body((stmt,), names))

    # ---- looks at the mask

    def _looks(self) -> tir.Body:
        """How many blocks of keys are excluded at both ends, and the largest of their scores."""
        tile = self._band.tiles[0]
        size = None
        begin: tuple[tir.Stmt, ...] = ()
        if needs_bound(tile.score, SUM):
            size = self._code.buffer("query_size", (self._band.width,))
            begin = self._query_sizes(size)
        looks = [stmt for side in self._sides for stmt in self._look(side, size)]
        return (tir.Store(self._worst, (), LOWEST), *begin, *looks)

    def _look(self, side: _Side, size: tir.Buffer | None) -> tir.Body:
        """The blocks that are excluded at one end, one after the other."""
        band, here = self._band, (self._band.lane,)
        block = self._code.loop("excluded", (band.keys - 1) // KEY_BLOCK)
        high = self._code.buffer("high", (band.width,))
        top = self._code.scalar("highest", "float32")
        bound = None if size is None else self._code.buffer("bound", (band.width,))
        at_bound = INFINITE if bound is None else tir.Load(bound, here)
        element = self._code.loop("excluded_key", KEY_BLOCK)
        key = side.in_block(block[0], element[0], band.keys)
        most = upper_bound(band.tiles[0].score, SUM, at_bound)
        update = tir.Reduce(tir.ReduceOp.MAX, high, here, most)
        fold = tir.Reduce(tir.ReduceOp.MAX, top, (), tir.Load(high, here))
        highest = tir.Load(top, ())
        excluded = tir.Comparison("le", highest, tir.Literal(MOST_EXCLUDED, "float32"))
        counted = (
            tir.Store(side.blocks, (), tir.IndexValue(block[0] + 1)),
            tir.Reduce(tir.ReduceOp.MAX, self._worst, (), highest),
        )
        body: tir.Body = (
            *(() if bound is None or size is None else self._bound(bound, size, side, block[0])),
            *self._in_rows("lowest", tir.Store(high, here, LOWEST)),
            *nested((element,), self._in_rows("high", _at_key(update, key))),
            tir.Store(top, (), LOWEST),
            *self._in_rows("highest", fold, existing=True),
            tir.If(excluded, counted),
        )
        still = tir.Comparison("le", tir.IndexValue(block[0]), tir.Load(side.blocks, ()))
        if not side.is_end:  # one key is left at least
            behind = tir.IndexValue((block[0] + 1) * KEY_BLOCK)
            body = (tir.If(tir.Comparison("lt", behind, tir.Load(self._limit, ())), body),)
        return (
            tir.Store(side.blocks, (), _int(0)),
            *nested((block,), (tir.If(still, body),)),
            *self._bounds_of(side),
        )

    def _bounds_of(self, *sides: _Side) -> tir.Body:
        """The bounds of loops over keys, by the blocks that are excluded."""
        made = []
        for side in sides:
            count = tir.Binary("mul", _int(KEY_BLOCK), tir.Load(side.blocks, ()))
            last = tir.Binary("sub", _int(self._band.keys), count)
            bound, value = (self._limit, last) if side.is_end else (self._begin, count)
            made.append(tir.Store(bound, (), value))
        return tuple(made)

    def _query_sizes(self, size: tir.Buffer) -> tir.Body:
        """The largest magnitude of an element of each row's query."""
        tile, here = self._band.tiles[0], (self._band.lane,)
        loops = [self._code.loop("size", x.extent or 1) for x in tile.terms]
        names = {x.var: loop[0] for x, loop in zip(tile.terms, loops, strict=True)}
        element = tir.Unary("abs", with_names(tile.query, names))
        update = tir.Reduce(tir.ReduceOp.MAX, size, here, element)
        return (
            *self._in_rows("no_size", tir.Store(size, here, ZERO)),
            *nested(loops, self._in_rows("size", update)),
        )

    def _bound(self, bound: tir.Buffer, size: tir.Buffer, side: _Side, block: Var) -> tir.Body:
        """What sums of products with the keys of a block are within."""
        tile, here = self._band.tiles[0], (self._band.lane,)
        most = self._code.scalar("key_size", "float32")
        factor = ROUNDED * prod(x.extent or 1 for x in tile.terms)
        product = tir.Binary("mul", tir.Load(size, here), tir.Load(most, ()))
        value = tir.Binary("mul", product, tir.Literal(factor, "float32"))
        value = tir.Binary("add", value, tir.Literal(UNDERFLOWN, "float32"))
        keys = KeyElements(
            tile.key_element,
            tile.terms[:-1],
            tile.terms[-1],
            lambda place: side.in_block(block, place, self._band.keys),
        )
        return (
            *largest_element(self._code, most, keys),
            *self._in_rows("bounded", tir.Store(bound, here, value)),
        )

    # ---- loops between the bounds

    def _scored(self) -> tir.Body:
        """The scores of keys between the bounds, and of all where a power of another one may not be
        0; then the loop runs a second time."""
        band, runs = self._band, self._code.scalar("score_runs")
        gap = self._code.scalar("least_gap", "float32")
        run = self._code.loop("score_run", 2)
        most = tir.Load(band.largest, (band.lane,))
        below = tir.Binary("sub", most, tir.Load(self._worst, ()))
        far = tir.Comparison("ge", tir.Load(gap, ()), tir.Literal(LEAST_GAP, "float32"))
        weights = [w for w in band.weights_of_zero() if w != ZERO]
        again = (
            tir.Store(runs, (), _int(2)),
            *(tir.Store(side.blocks, (), _int(0)) for side in self._sides),
            *self._bounds_of(*self._sides),
        )
        check = (
            tir.Store(gap, (), INFINITE),
            *self._in_rows("gap", tir.Reduce(tir.ReduceOp.MIN, gap, (), below), existing=True),
            *(tir.Reduce(tir.ReduceOp.MIN, gap, (), _infinite_for_zero(w)) for w in weights),
            tir.If(far, (tir.Store(runs, (), _int(1)),), again),
        )
        blocks = tir.Binary("add", *(tir.Load(side.blocks, ()) for side in self._sides))
        some = tir.Comparison("lt", _int(0), blocks)
        body = (*self._scores(), tir.If(some, check))
        still = tir.below_count(run[0], runs)
        return (tir.Store(runs, (), _int(1)), *nested((run,), (tir.If(still, body),)))

    def _scores(self) -> tir.Body:
        """The tiles of scores that have keys between the bounds."""
        made: list[tir.Stmt] = []
        group: list[tir.Stmt] = []
        here: ScoreTile | None = None
        for stmt in (*self._band.scores, None):
            tile = None if stmt is None else self._tile_of(stmt)
            if here is not None and tile is not here:
                made.append(self._between(here.first, here.keys, tuple(group)))
                group, here = [], None
            if stmt is None:
                continue
            allocated = (s.buffer for s in tir.walk((stmt,)) if isinstance(s, tir.Allocate))
            if tile is None:
                made.append(stmt)
            elif isinstance(stmt, tir.For) and tile.sums in allocated:
                made.append(self._loop_between(stmt, tile.first, tile.keys))
            else:
                group, here = [*group, stmt], tile
        return tuple(made)

    def _tile_of(self, stmt: tir.Stmt) -> ScoreTile | None:
        """The tile that a statement computes a part of; None where it computes none."""
        used = _buffers((stmt,))
        found = [tile for tile in self._band.tiles if tile.sums in used]
        if len(found) > 1:
            raise ScheduleError("tiles of scores are computed together")
        return found[0] if found else None

    def _powers(self) -> tir.Body:
        loop = self._band.powers
        return (self._loop_between(loop, loop.var, 1),)

    def _between(self, first: IndexExpr, count: int, body: tir.Body) -> tir.If:
        """Statements for `count` keys from `first` on, where one of them is between the bounds."""
        begins = tir.Comparison("lt", tir.Load(self._begin, ()), tir.IndexValue(first + count))
        ends = tir.below_count(first, self._limit)
        return tir.If(ends, (tir.If(begins, body),))

    def _loop_between(self, loop: tir.For, first: IndexExpr, count: int) -> tir.For:
        """A loop whose iterations are for `count` keys from `first` on."""
        if variables(first) != {loop.var} or loop.kind is not tir.LoopKind.SERIAL:
            raise ScheduleError(f"the loop {loop.var} is none over keys")
        return loop.around((self._between(first, count, loop.body),))

    # ---- weighted values

    def _values(self) -> Iterator[tuple[tir.For, tir.Load]]:
        """The loops over keys that sum weighted values, with the value of a term."""
        band = self._band
        sums = tuple(stmt for stmt in band.behind if stmt is not band.weights)
        read = [load for load in tir.loads_in(sums) if load.buffer == band.held]
        for loop in tir.loops_of(sums):
            writes = [*tir.writes_in(loop.body)]
            factors = summed_factors(writes[0]) if len(writes) == 1 else None
            for power, value in () if factors is None else (factors, factors[::-1]):
                if power.buffer == band.held and power.indices[0] is loop.var:
                    band.require_all_keys(loop)
                    read.remove(power)
                    yield loop, value
        if read:
            raise ScheduleError("powers are read by other stages than sums of weighted values")

    def _weighted(self) -> tir.Body:
        """What is behind the powers, with sums of the values of keys between the bounds, and of
        zeros for the others."""
        found = [*self._values()]
        values = {id(loop): value for loop, value in found}
        if not found or len({value.buffer for value in values.values()}) != 1:
            raise ScheduleError("the sums of weighted values read several tensors")
        axes, *others = {self._own_axes(*one) for one in found}
        if others or found[0][1].dtype != "float32":
            raise ScheduleError("the values that a band weights are not read as one tensor")
        shape = tuple(found[0][1].buffer.shape[axis] for axis in axes)
        zeros = {
            s.is_end: self._code.buffer("excluded_values", shape, scope="scratch")
            for s in self._sides
        }

        def change(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
            if stmt is self._band.weights and isinstance(stmt, tir.For):
                return self._loop_between(stmt, stmt.var, 1)
            if not isinstance(stmt, tir.For) or id(stmt) not in values:
                return stmt
            at = tuple(values[id(stmt)].indices[axis] for axis in axes)
            before, behind = (
                self._added(stmt, tir.Load(zeros[is_end], at)) for is_end in (False, True)
            )
            return (*before, self._loop_between(stmt, stmt.var, 1), *behind)

        sums = [self._zeros(side, zeros[side.is_end], *found[0], axes) for side in self._sides]
        return (*(s for stmts in sums for s in stmts), *tir.map_body(self._band.behind, change))

    def _own_axes(self, loop: tir.For, value: tir.Load) -> tuple[int, ...]:
        """The axes of a value along which a band reads all elements, without that of the key."""
        found = []
        for axis, index in enumerate(value.indices):
            used = variables(index)
            if (used and not used & self._band.inside) or used == {loop.var}:
                continue
            if used - self._band.inside:
                raise ScheduleError("an axis of the values is indexed by planes and by others")
            if loop.var in used:
                raise ScheduleError("an axis of the values is indexed by keys and by others")
            found.append(axis)
        if not found:
            raise ScheduleError("all values of a key are one element")
        return tuple(found)

    def _added(self, loop: tir.For, zero: tir.Load) -> tir.Body:
        """Zeros added to the sums of a loop over keys."""
        added = tir.map_as_written(
            loop.body, lambda s: replace(s, value=zero) if isinstance(s, tir.Reduce) else s
        )
        return self._code.copied(added, "_z")

    def _zeros(
        self, side: _Side, zeros: tir.Buffer, loop: tir.For, value: tir.Load, axes: tuple[int, ...]
    ) -> tir.Body:
        """The sum of the products with zero of the values of keys that are left out at an end."""
        band = self._band
        *outer, last = zeros.shape
        key = self._code.loop("zeroed_key", band.keys)
        at_key = {loop.var: side.key(key[0], band.keys)}

        def for_each(stmt: Callable[[tuple[IndexExpr, ...]], tir.Stmt]) -> tir.Body:
            around = [self._code.loop("zeroed", extent) for extent in outer]
            places = tuple(x[0] for x in around)
            inner = self._code.in_vectors("zeroed", last, lambda n: stmt((*places, n)))
            return nested(around, inner)

        def update(at: tuple[IndexExpr, ...]) -> tir.Stmt:
            names = dict(zip(axes, at, strict=True))
            indices = (names.get(k, substitute(e, at_key)) for k, e in enumerate(value.indices))
            product = tir.Binary("mul", ZERO, replace(value, indices=tuple(indices)))
            return tir.Reduce(tir.ReduceOp.ADD, zeros, at, product)

        count = self._code.scalar("excluded_keys")
        total = tir.Binary("mul", _int(KEY_BLOCK), tir.Load(side.blocks, ()))
        some = tir.below_count(key[0], count)
        return (
            *for_each(lambda at: tir.Store(zeros, at, tir.Literal(-0.0, "float32"))),
            tir.Store(count, (), total),
            *nested((key,), (tir.If(some, for_each(update)),)),
        )


def _int(value: int) -> tir.Literal:
    return tir.Literal(value, "int64")


def _infinite_for_zero(value: tir.Expr) -> tir.Expr:
    """∞ where a value is 0, and neither −0 nor anything else; else −∞."""
    reciprocal = tir.Binary("div", tir.Literal(1.0, "float32"), value)
    return tir.Select(tir.Comparison("eq", reciprocal, INFINITE), INFINITE, LOWEST)


def _at_key(stmt: tir.Stmt, key: IndexExpr) -> tir.Stmt:
    return tir.substitute_body((stmt,), {KEY: key})[0]


def _buffers(body: tir.Body) -> frozenset[tir.Buffer]:
    """The buffers that statements access or allocate."""
    kinds = tir.Store | tir.Reduce | tir.Allocate
    named = {s.buffer for s in tir.walk(body) if isinstance(s, kinds)}
    return frozenset(named | {load.buffer for load in tir.loads_in(body)})
