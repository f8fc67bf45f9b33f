"""Convolutions of 3 or 3×3 taps in transformed tiles: the same sums with fewer products.

In: a kernel whose one reduction is a convolution of stride 1, and the extent of a tile of outputs.
Out: the kernel in which stages transform tiles of the image, multiply them with transformed weights
at each of their positions, and transform the sums back; what follows the convolution is unchanged.

    before:  y[o, i, j] = b[o] + Σ x[c, i + k, j + l] · w[o, c, k, l]
    after:   v = Bᵀ d B        for each tile d of (m + 2)² elements of a channel
             s[a, b, o] = Σ v[a, b, c] · u[a, b, c, o]
             y = b + Aᵀ s A    for each tile of m² outputs; u = G w Gᵀ is another input

`filtering` has the matrices and the proof that both are equal in exact arithmetic.

Convolutions of sequences, along one axis, are transformed along this one: v = Bᵀ d, y = b + Aᵀ s.
Their tiles are in rows too, for which a sequence is cut, so that threads share rows of tiles and
each is looked at by itself:

    position  0 … 3 | 4 … 7 | 8 … 11      row 0 of three tiles of 4 outputs
             12 … 15| …                   row 1

Sums of products of 16-bit integers are exact in such tiles: u is (k G) w (k G)ᵀ for the k with
which k G has integers, and Aᵀ s A is k² times the sum of products, which a shift undoes.  Where the
image, the weights and the sums are small enough (`filtered_convolutions`), the results are the same
bit for bit, and nothing is looked at beforehand.

Of floats, more is needed:

Padding takes no part in the sums, as in the definition before: elements outside of the image are
zeros, which the weights, all finite, multiply.  So are those at or behind a count, where a run
gives a part of the image: a tile of the border reads them besides elements of the run, and what
stands there may be NaN.  With elements of `LIMIT` or more in magnitude, with infinities and with
NaN, the transformed sums could overflow where the plain ones do not, or the other way round.  So
each row of tiles is looked at first (stages `zeros` and `bounded`: a sum of zeros, which is NaN if
there is such an element), and where it has one, its outputs are the plain sums (the loops called
`…_again`). docs/semantics.md has the proof that then both definitions give infinities and NaN at
the same places.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

from graphflow import tir
from graphflow.arith import (
    TRUE,
    IndexExpr,
    Predicate,
    Var,
    conjunction,
    const,
    less_than,
    within,
)
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.scalar_functions import as_type
from graphflow.kernels.definitions.stages import Loop
from graphflow.kernels.definitions.windows.filtering import TAPS, Filtering, Row, filtering_of
from graphflow.kernels.definitions.windows.plain_convolution import (
    FLOAT,
    SIDES,
    Convolution,
)

LIMIT = 2.0**65
"""Elements of an image of at least this magnitude are not transformed."""

_OVERFLOWING = 2.0**63
"""A factor by which magnitudes of at least `LIMIT` alone overflow."""


class FilteredConvolution(Struct, frozen=True):
    """The kernel; `transformed` names its further input, the transformed weights.

    It is behind that with the plain weights, which kernels of floats read too; in a kernel of
    integers it is in their place."""

    func: tir.PrimFunc
    transformed: str


Counts: TypeAlias = "tuple[tuple[int, str], ...]"
"""Axes of an image of which a run gives a part, each with the integer parameter that counts it."""


@lru_cache(maxsize=256)
def filtered_convolution(
    func: tir.PrimFunc, found: Convolution, tile: int, lanes: int = 1, counts: Counts = ()
) -> FilteredConvolution:
    """The kernel with its convolution, as `plain_convolution` found it, in transformed tiles of
    `tile` outputs along each axis; of integers only where their matrices `keeps_integers`.

    Between the stages, channels are in whole vectors of `lanes`, of which the last is filled up
    with zeros.  `counts` are parameters that the kernel has, or further ones, which come last."""
    made = _Stages(func, found, found.filters(tile), lanes, counts)
    at = func.body.index(found.stage)
    body = (*func.body[:at], *made.body(), *func.body[at + 1 :])
    params: list[tir.Param] = []
    for param in func.params:
        if param.buffer != found.w or not found.sums_integers:
            params.append(param)
        if param.buffer == found.w:
            params.append(tir.Param(made.u, tir.Role.INPUT))
    of_func = {param.buffer for param in func.params}
    counted = dict.fromkeys(b for b in made.counts.values() if b not in of_func)
    at = next(k for k, param in enumerate(params) if param.role is not tir.Role.INPUT)
    params[at:at] = (tir.Param(buffer, tir.Role.INPUT) for buffer in counted)
    return FilteredConvolution(replace(func, params=tuple(params), body=body), made.u.name)


MOST_IN_ROW = 16
"""The most tiles in a row that a sequence is cut to: about as many as a register tile has."""

TILES_OF_ONE_IN_VAIN = 24
"""Of so many tiles one may be computed in vain, for wider rows."""


def tiles_of_a_row(count: int) -> int:
    """The number of tiles in each row that a sequence of `count` tiles is cut to.

    The most with which few tiles are computed in vain, or else those with the fewest; in an even
    number of rows, which threads share in bands."""

    def order(wide: int) -> tuple[bool, int, int]:
        rows = -(-count // wide)
        in_vain = rows * wide - count
        return rows % 2 > 0, max(0, in_vain - count // TILES_OF_ONE_IN_VAIN), -wide

    return min(range(1, MOST_IN_ROW + 1), key=order)


class _Stages:
    """The stages in the place of a convolution; their names are new in the kernel.

    `how` are the matrices along the rows and along the columns of a tile.  The tiles of a sequence
    are one row high, and their rows are parts of it."""

    def __init__(
        self,
        func: tir.PrimFunc,
        found: Convolution,
        how: tuple[Filtering, Filtering],
        lanes: int,
        counts: Counts,
    ) -> None:
        self._taken = {b.name for b in tir.buffers_of(func)}
        self._taken |= {name for _, name in counts}
        self.counts = {axis: tir.Buffer(name, (), "int64") for axis, name in counts}
        self._taken |= {loop.var.name for loop in tir.loops_of(func.body)}
        self._taken |= {s.name for s in tir.walk(func.body) if isinstance(s, tir.Block)}
        self._found, (self._down, self._across) = found, how
        m, n = tuple(along.tile for along in how), tuple(along.window for along in how)
        self._outputs, self._channels = (rounded_up(count, lanes) for count in found.w.shape[:2])
        c, o = self._channels, self._outputs
        batch = found.x.shape[0]
        tiles = [-(-size // m[-1]) for size in found.y.shape[2:]]
        self._is_sequence = len(tiles) == 1
        if self._is_sequence:
            self._columns = tiles_of_a_row(tiles[0])
            self._rows = -(-tiles[0] // self._columns)
        else:
            self._rows, self._columns = tiles
        places = (batch, self._rows, self._columns)
        data, total = found.x.dtype, found.y.dtype
        self._guarded = not found.sums_integers
        self.u = self._buffer("u", (*n, c, o), found.w.dtype)
        self._zero = self._buffer("zero", (batch, self._rows, c), data)
        self._bound = self._buffer("bound", (batch, self._rows), data)
        self._d = self._buffer("d", (*places, *n, c), data)
        self._p = self._buffer("p", (*places, *n, c), data)
        self._v = self._buffer("v", (batch, *n, *places[1:], c), data)
        self._s = self._buffer("s", (batch, *n, *places[1:], o), total)
        self._q = self._buffer("q", (*places, m[0], n[1], o), total)
        self._z = self._buffer("z", (*places, *m, o), total)
        self._t = self._buffer("t", (*places, *m, o), total)

    def _fresh(self, wanted: str) -> str:
        return stages.fresh(wanted, self._taken)

    def _buffer(self, name: str, shape: Sequence[int], dtype: str) -> tir.Buffer:
        return tir.Buffer(self._fresh(name), tuple(shape), dtype)

    def _loops(self, stage: str, **extents: int) -> tuple[Loop, ...]:
        return tuple((Var(self._fresh(f"{name}_{stage}")), n) for name, n in extents.items())

    def _block(self, name: str, loops: Sequence[Loop], body: tir.Body) -> tir.Block:
        return tir.Block(self._fresh(name), tir.nest(loops, body))

    def _tiles(self, stage: str, **extents: int) -> tuple[Loop, ...]:
        batch = self._found.x.shape[0]
        return self._loops(stage, n=batch, ty=self._rows, tx=self._columns, **extents)

    def body(self) -> tir.Body:
        """The stages and their buffers; of floats, rows of tiles are looked at first."""
        guards = (self._zero, self._bound) if self._guarded else ()
        buffers = (
            *guards, self._d, self._p, self._v, self._s, self._q, self._z, self._t,
        )  # fmt: skip
        made = (
            *((self._zeros(), self._bounded()) if self._guarded else ()),
            self._data(),
            self._data_rows(),
            self._data_columns(),
            self._products(),
            self._output_rows(),
            self._output_columns(),
            self._started(),
            self._untiled(),
        )
        return (*(tir.Allocate(buffer) for buffer in buffers), *made)

    def _zeros(self) -> tir.Stmt:
        """Zeros added up for each channel: NaN where a row of tiles reads an element of it that is
        not below the limit."""
        x, shape = self._found.x, self._found.x.shape
        outer = self._loops("zeros", n=shape[0], ty=self._rows, c=self._channels)
        reach = shape[-1]
        if self._is_sequence:
            reach = (self._columns - 1) * self._across.tile + self._across.window
        inner = self._loops("zeros", i=self._down.window, w=reach)
        (batch, ty, c), (i, w) = stages.indices_of(outer), stages.indices_of(inner)
        at, inside = self._place(ty, const(0), i, w)
        if not self._is_sequence:  # the columns of an image are looked at from the first one on
            at, inside = (at[0], w), within(at[0], 0, shape[2])
        large = tir.Binary(
            "mul", tir.Load(x, (batch, c, *at)), tir.Literal(_OVERFLOWING, "float32")
        )
        value = self._given(at, tir.Binary("mul", large, _ZERO))
        return stages.reduction_stage(
            self._fresh("zeros"),
            tir.ReduceOp.ADD,
            self._zero,
            outer,
            inner,
            value,
            where=conjunction((inside, self._is_channel(c))),
        )

    def _bounded(self) -> tir.Stmt:
        """The zeros of all channels added up."""
        outer = self._loops("bounded", n=self._found.x.shape[0], ty=self._rows)
        inner = self._loops("bounded", c=self._channels)
        value = stages.element(self._zero, (*outer, *inner))
        return stages.reduction_stage(
            self._fresh("bounded"), tir.ReduceOp.ADD, self._bound, outer, inner, value
        )

    def _is_channel(self, c: IndexExpr) -> Predicate:
        """Whether the image has a channel, of those in whole vectors."""
        return self._among(c, self._channels, self._found.x.shape[1])

    def _is_output(self, o: IndexExpr) -> Predicate:
        """Whether there is an output channel, of those in whole vectors."""
        return self._among(o, self._outputs, self._found.y.shape[1])

    def _among(self, index: IndexExpr, rounded: int, count: int) -> Predicate:
        return TRUE if rounded == count else less_than(index, count)

    def _place(
        self, ty: IndexExpr, tx: IndexExpr, i: IndexExpr, j: IndexExpr
    ) -> tuple[tuple[IndexExpr, ...], Predicate]:
        """The element of the image at a place of a tile, and the condition that there is one."""
        pads, shape = self._found.pads, self._found.x.shape
        tile = ty * self._columns + tx if self._is_sequence else tx
        at: tuple[IndexExpr, ...] = (tile * self._across.tile + j - pads[-1],)
        if not self._is_sequence:
            at = (ty * self._down.tile + i - pads[0], *at)
        return at, conjunction(within(e, 0, size) for e, size in zip(at, shape[2:], strict=True))

    def _element(self, n: IndexExpr, c: IndexExpr, at: tuple[IndexExpr, ...]) -> tir.Expr:
        """An element of the image, zero at or behind a count."""
        return self._given(at, tir.Load(self._found.x, (n, c, *at)))

    def _given(self, at: tuple[IndexExpr, ...], value: tir.Expr) -> tir.Expr:
        """What is made of an element of the image, zero at or behind a count."""
        for index, axis in zip(at, SIDES, strict=False):  # a sequence has the first of them
            if axis in self.counts:
                zero = stages.literal(0, value.dtype)
                value = tir.kept_below_count(index, self.counts[axis], value, zero)
        return value

    def _data(self) -> tir.Stmt:
        x = self._found.x
        window = {"i": self._down.window, "j": self._across.window}
        loops = self._tiles("data", **window, c=self._channels)
        n, ty, tx, i, j, c = stages.indices_of(loops)
        at, inside = self._place(ty, tx, i, j)
        inside = conjunction((inside, self._is_channel(c)))
        here = (n, ty, tx, i, j, c)
        return self._block(
            "data",
            loops,
            (
                tir.Store(self._d, here, stages.literal(0, x.dtype)),
                tir.If(inside, (tir.Store(self._d, here, self._element(n, c, at)),)),
            ),
        )

    def _data_rows(self) -> tir.Stmt:
        loops = self._tiles("data_rows", j=self._across.window, c=self._channels)
        n, ty, tx, j, c = stages.indices_of(loops)
        size = self._down.window
        read = [tir.Load(self._d, (n, ty, tx, const(i), j, c)) for i in range(size)]
        stores = (
            tir.Store(self._p, (n, ty, tx, const(a), j, c), combination(row, read))
            for a, row in enumerate(self._down.data)
        )
        return self._block("data_rows", loops, tuple(stores))

    def _data_columns(self) -> tir.Stmt:
        loops = self._tiles("data_columns", a=self._down.window, c=self._channels)
        n, ty, tx, a, c = stages.indices_of(loops)
        size = self._across.window
        read = [tir.Load(self._p, (n, ty, tx, a, const(j), c)) for j in range(size)]
        stores = (
            tir.Store(self._v, (n, a, const(b), ty, tx, c), combination(row, read))
            for b, row in enumerate(self._across.data)
        )
        return self._block("data_columns", loops, tuple(stores))

    def _products(self) -> tir.Stmt:
        window = {"a": self._down.window, "b": self._across.window}
        places = {"ty": self._rows, "tx": self._columns}
        batch = self._found.x.shape[0]
        loops = self._loops("products", n=batch, **window, **places, o=self._outputs)
        reduced = self._loops("products", c=self._channels)
        n, a, b, ty, tx, o = stages.indices_of(loops)
        (c,) = stages.indices_of(reduced)
        return stages.reduction_stage(
            self._fresh("products"),
            tir.ReduceOp.ADD,
            self._s,
            loops,
            reduced,
            tir.Binary(
                "mul",
                as_type(tir.Load(self._v, (n, a, b, ty, tx, c)), self._s.dtype),
                as_type(tir.Load(self.u, (a, b, c, o)), self._s.dtype),
            ),
        )

    def _output_rows(self) -> tir.Stmt:
        loops = self._tiles("output_rows", b=self._across.window, o=self._outputs)
        n, ty, tx, b, o = stages.indices_of(loops)
        size = self._down.window
        read = [tir.Load(self._s, (n, const(a), b, ty, tx, o)) for a in range(size)]
        stores = (
            tir.Store(self._q, (n, ty, tx, const(i), b, o), combination(row, read))
            for i, row in enumerate(self._down.outputs)
        )
        return self._block("output_rows", loops, tuple(stores))

    def _output_columns(self) -> tir.Stmt:
        """The second half of the transformation, and the plain sums instead where it is not valid.

        One stage, for both store the outputs of a tile.
        """
        size = self._across.window
        around = self._tiles("output_columns")
        inner = self._loops("output_columns", i=self._down.tile, o=self._outputs)
        (n, ty, tx), (i, o) = stages.indices_of(around), stages.indices_of(inner)
        read = [tir.Load(self._q, (n, ty, tx, i, const(b), o)) for b in range(size)]
        stores = tuple(
            tir.Store(self._z, (n, ty, tx, i, const(j), o), combination(row, read))
            for j, row in enumerate(self._across.outputs)
        )
        again = self._again(n, ty, tx) if self._guarded else ()
        body = (*tir.nest(inner, stores), *again)
        return self._block("output_columns", around, body)

    def _again(self, n: IndexExpr, ty: IndexExpr, tx: IndexExpr) -> tir.Body:
        x, w = self._found.x, self._found.w
        tile = {"i": self._down.tile, "j": self._across.tile}
        loops = self._loops("again", **tile, o=self._outputs)
        taps = {"kh": 1 if self._is_sequence else TAPS, "kw": TAPS}
        reduced = self._loops("again", **taps, c=x.shape[1])
        (i, j, o), (kh, kw, c) = stages.indices_of(loops), stages.indices_of(reduced)
        at, inside = self._place(ty, tx, i + kh, j + kw)
        inside = conjunction((inside, self._is_output(o)))
        here = (n, ty, tx, i, j, o)
        tap = (kw,) if self._is_sequence else (kh, kw)
        product = tir.Binary("mul", self._element(n, c, at), tir.Load(w, (o, c, *tap)))
        update = tir.Reduce(tir.ReduceOp.ADD, self._z, here, product)
        large = tir.Comparison("ne", tir.Load(self._bound, (n, ty)), _ZERO)
        sums = (
            tir.Store(self._z, here, _ZERO),
            *tir.nest(reduced, (tir.If(inside, (update,)),)),
        )
        return (tir.If(large, tir.nest(loops, sums)),)

    def _started(self) -> tir.Stmt:
        """The outputs of a tile with what the convolution adds up from."""
        tile = {"i": self._down.tile, "j": self._across.tile}
        loops = self._tiles("started", **tile, o=self._outputs)
        *_, o = at = stages.indices_of(loops)
        own = [loop.var for loop in tir.loops_of(self._found.stage.body)]
        (start,) = tir.substitute_body((self._found.start,), {own[1]: o})
        assert isinstance(start, tir.Store)
        first, is_output = start.value, self._is_output(o)
        if is_output != TRUE and not isinstance(first, tir.Literal):
            first = tir.Select(is_output, first, stages.literal(0, first.dtype))
        return stages.elementwise_stage(
            self._fresh("started"),
            self._t,
            loops,
            tir.Binary("add", self._unscaled(tir.Load(self._z, at)), first),
        )

    def _unscaled(self, total: tir.Expr) -> tir.Expr:
        """The sum of products of which transformed weights of integers give a multiple."""
        if self._guarded:
            return total
        times = self._down.scale * self._across.scale
        bits = times.bit_length() - 1
        assert times == 1 << bits, "tiles that keep integers scale their weights by powers of two"
        return tir.Binary("shr", total, stages.literal(bits, total.dtype))

    def _untiled(self) -> tir.Stmt:
        """The outputs at their places in the image; tiles at its end have more than there are."""
        y, tile = self._found.y, self._across.tile
        names = ("n", "o", "h", "w") if len(y.shape) > 3 else ("n", "o", "w")
        loops = self._loops("untiled", **dict(zip(names, y.shape, strict=True)))
        n, o, *rows, w = stages.indices_of(loops)
        place: tuple[IndexExpr, ...]
        if self._is_sequence:
            place = (w // (tile * self._columns), w // tile % self._columns, const(0))
        else:
            place = (rows[0] // self._down.tile, w // tile, rows[0] % self._down.tile)
        read = tir.Load(self._t, (n, *place, w % tile, o))
        return stages.elementwise_stage(self._fresh("untiled"), y, loops, read)


_ZERO = tir.Literal(0.0, "float32")


def combination(row: Row, terms: Sequence[tir.Expr]) -> tir.Expr:
    """Σ row[k] · terms[k], where some factor is 1 or −1: a multiply-add for each further term."""
    present = [(factor, term) for factor, term in zip(row, terms, strict=True) if factor]
    present.sort(key=lambda pair: abs(pair[0]) != 1 or pair[0] < 0)  # stable: a plain one first
    (factor, total), *others = present
    if factor != 1:
        total = tir.Binary("mul", total, stages.literal(float(factor), total.dtype))
    for factor, term in others:
        operation: Literal["add", "sub"] = "add" if factor > 0 else "sub"
        size = abs(factor)
        by = stages.literal(float(size), term.dtype)
        scaled = term if size == 1 else tir.Binary("mul", term, by)
        total = tir.Binary(operation, total, scaled)
    return total


def rounded_up(count: int, lanes: int) -> int:
    """The least multiple of `lanes` that is no less than a count."""
    return -(-count // lanes) * lanes


@lru_cache(maxsize=256)
def transformed_weights(
    shape: tuple[int, ...], tile: int, dtype: str = FLOAT, lanes: int = 1
) -> tir.PrimFunc:
    """`u[a, b, c, o] = Σ G[a, k] · w[o, c, k, l] · G[b, l]`, for weights w of this shape, and for
    those of one axis `u[0, b, c, o] = Σ w[o, c, l] · G[b, l]`; of integers with the multiple of G
    that has integers.

    Channels that fill up whole vectors of `lanes` have zeros."""
    down, across = filtering_of(len(shape) - 2, tile)
    matrices = [how.weights if dtype == FLOAT else how.scaled_weights for how in (down, across)]
    outputs, channels = shape[:2]
    w = tir.Buffer("w", tuple(shape), dtype)
    g = tir.Buffer("g", (down.window, TAPS, channels, outputs), dtype)
    all_channels, all_outputs = rounded_up(channels, lanes), rounded_up(outputs, lanes)
    u = tir.Buffer("u", (down.window, across.window, all_channels, all_outputs), dtype)
    l1, c1, o1 = (Var(name) for name in ("l1", "c1", "o1"))
    a2, c2, o2 = (Var(name) for name in ("a2", "c2", "o2"))
    above = [(const(k),) for k in range(TAPS)] if len(shape) > 3 else [()]
    taps = [tir.Load(w, (o1, c1, *k, l1)) for k in above]
    rows = tuple(
        tir.Store(g, (const(a), l1, c1, o1), combination(row, taps))
        for a, row in enumerate(matrices[0])
    )
    halves = [tir.Load(g, (a2, const(k), c2, o2)) for k in range(TAPS)]
    columns: tir.Body = tuple(
        tir.Store(u, (a2, const(b), c2, o2), combination(row, halves))
        for b, row in enumerate(matrices[1])
    )
    if (all_channels, all_outputs) != (channels, outputs):
        given = conjunction((less_than(c2, channels), less_than(o2, outputs)))
        places = [s for s in columns if isinstance(s, tir.Store)]
        zeros = tuple(replace(s, value=stages.literal(0, dtype)) for s in places)
        columns = (tir.If(given, columns, zeros),)
    first = tir.nest(((l1, TAPS), (c1, channels), (o1, outputs)), rows)
    second = tir.nest(((a2, down.window), (c2, all_channels), (o2, all_outputs)), columns)
    body = (tir.Block("weight_rows", first), tir.Block("weight_columns", second))
    return stages.kernel_of_stages("transformed_weights", (w,), (u,), body)
