"""Positions sorted by their elements digit by digit, as a part of kernels that sort lines.

In: the length and the element type of a line, and how many positions are wanted.  Out: statements
that write them, of equal elements the first ones first.  What always holds: each pass keeps the
order of the passes before it (a radix sort from the lowest digit on), so the time depends on the
number of elements and of digits alone; digits in which no two elements differ cost a copy.

Where far fewer positions are wanted than there are, those elements that can be among them are
found before, by halving the interval in which the last one of them lies.
"""

from __future__ import annotations

from collections.abc import Callable

from graphflow import tir
from graphflow.arith import IndexExpr, Var
from graphflow.base.dtypes import DTYPES
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.indexing import as_int64, matched
from graphflow.kernels.definitions.data_dependent.largest_first import LANES, whole_vectors
from graphflow.kernels.definitions.scalar_functions import add, compared, subtract

DIGIT = 8
"""Bits of a digit: the counts of 256 digits, and the places that they lead to, stay in the
first-level cache."""

Element = Callable[[IndexExpr], tir.Expr]
"""The element of a line at an index."""

Put = Callable[[IndexExpr, tir.Expr], tir.Stmt]
"""The statement that writes a position, an int64, to a place of the result."""


def key_type(dtype: str) -> str:
    """The unsigned type as wide as an element type."""
    return f"uint{8 * DTYPES[dtype].itemsize}"


def sorting_key(x: tir.Expr, largest: bool) -> tir.Expr:
    """An unsigned integer that is the smaller the further in front an element stands.

    Equal elements have equal keys, both zeros too, and every NaN is behind the greatest number.
    """
    dtype = key_type(x.dtype)
    bits = 8 * DTYPES[dtype].itemsize
    sign, ones = (tir.Literal(n, dtype) for n in (1 << bits - 1, (1 << bits) - 1))
    if x.dtype in tir.FLOATS:
        key = _float_key(tir.Unary("bits", x), x.dtype, sign, ones)
    else:
        key = x if x.dtype == dtype else tir.Binary("xor", tir.Cast(x, dtype), sign)
    return tir.Unary("not", key) if largest else key


def _float_key(bits: tir.Expr, dtype: str, sign: tir.Literal, ones: tir.Literal) -> tir.Expr:
    infinity = int.from_bytes(tir.Literal(float("inf"), dtype).bits(), "little")
    size = tir.Binary("and", bits, tir.Unary("not", sign))
    # Negative numbers have their bits inverted, others their sign; −0.0 gets the key of 0.0.
    negative = tir.Comparison("gt", bits, sign)
    flipped = tir.Binary("xor", bits, tir.Select(negative, ones, sign))
    zero = tir.Comparison("eq", size, tir.Literal(0, bits.dtype))
    is_nan = tir.Comparison("gt", size, tir.Literal(infinity, bits.dtype))
    return tir.Select(is_nan, ones, tir.Select(zero, sign, flipped))


def sorting_cycles(extent: int, count: int, dtype: str) -> float:
    """The cycles that are expected to sort `count` of `extent` elements, measured on a Zen 4."""
    return min(_cycles(extent, count, dtype, bounded) for bounded in (True, False))


def _cycles(extent: int, count: int, dtype: str, bounded: bool) -> float:
    """As `sorting_cycles`, where the elements that can be wanted are found before, or not."""
    size = DTYPES[dtype].itemsize
    # Few integers of 64 bits are beyond 32.
    digits = size if dtype in tir.FLOATS else min(size, 4)
    sorted_elements = 1.12 * count if bounded else extent
    scans = (5.4 if size < 8 else 7) if bounded else 2
    return digits * (6.2 * sorted_elements + 600) + scans * extent + 600


class DigitSort:
    """Sorts the positions of a line of `extent` elements, of which `count` are wanted."""

    def __init__(self, extent: int, count: int, dtype: str) -> None:
        self.extent, self.count, self.dtype = extent, count, key_type(dtype)
        self.bounded = _cycles(extent, count, dtype, True) < _cycles(extent, count, dtype, False)
        self.room = whole_vectors(extent)
        self.passes = DTYPES[self.dtype].itemsize
        self.keys = [tir.Buffer(n, (self.room,), self.dtype) for n in ("keys", "moved_keys")]
        self.places = [tir.Buffer(n, (self.room,), "int32") for n in ("places", "moved_places")]
        self.ends = tir.Buffer("ends", (1 << DIGIT,), "int32")
        self.first, self.last = (tir.Buffer(name, (), self.dtype) for name in ("first", "last"))
        self.left = tir.Buffer("left", (), "int64")
        self.before, self.number = (tir.Buffer(n, (), "int32") for n in ("before", "number"))
        self.buffers = (
            *self.keys, *self.places, self.ends, self.first, self.last, self.left, self.before,
            self.number,
        )  # fmt: skip

    def sorted(self, key: Element, put: Put) -> tir.Body:
        """Puts the wanted positions in the order of their keys."""
        i = Var("key_i")
        body: tir.Body = (
            *map(tir.Allocate, self.buffers),
            *tir.nest(((i, self.extent),), (tir.Store(self.keys[0], (i,), key(i)),)),
            *self._extreme(tir.ReduceOp.MIN, self.first),
            *self._extreme(tir.ReduceOp.MAX, self.last),
            tir.Store(self.left, (), stages.literal(self.extent, "int64")),
        )
        if self.bounded:
            body += (*self._bound(), *self._kept())
        for number in range(self.passes):
            body += self._pass(number, put)
        return body

    def _extreme(self, op: tir.ReduceOp, to: tir.Buffer) -> tir.Body:
        """The least or the greatest key."""
        i = Var(f"{op.value}_i")
        found = tir.Reduce(op, to, (), tir.Load(self.keys[0], (i,)))
        start = tir.Store(to, (), stages.neutral(op, self.dtype))
        return start, *tir.nest(((i, self.extent),), (found,))

    def _bound(self) -> tir.Body:
        """Lowers `last` while more than an eighth too many keys are up to it, by halving the
        interval from `low`, below which there are too few; `left` is how many."""
        low, middle = (tir.Buffer(name, (), self.dtype) for name in ("low", "middle"))
        under, i = tir.Buffer("under", (), "int32"), Var("under_i")
        lower, upper, number = (tir.Load(b, ()) for b in (low, self.last, under))
        half = tir.Binary("shr", subtract(upper, lower), tir.Literal(1, self.dtype))
        is_under = tir.Comparison("le", tir.Load(self.keys[0], (i,)), tir.Load(middle, ()))
        one = tir.Reduce(tir.ReduceOp.ADD, under, (), tir.Cast(is_under, "int32"))
        lowered = (
            tir.Store(self.last, (), tir.Load(middle, ())),
            tir.Store(self.left, (), as_int64(number)),
        )
        raised = (tir.Store(low, (), add(tir.Load(middle, ()), 1)),)
        halved = (
            tir.Store(middle, (), add(lower, half)),
            tir.Store(under, (), stages.literal(0, "int32")),
            *tir.nest(((i, self.extent),), (one,)),
            tir.If(compared("ge", number, self.count), lowered, raised),
        )
        too_many = compared("gt", tir.Load(self.left, ()), self.count + self.count // 8)
        goes_on = tir.Binary("and", too_many, tir.Comparison("lt", lower, upper))
        return (
            *map(tir.Allocate, (low, middle, under)),
            tir.Store(low, (), tir.Load(self.first, ())),
            *tir.nest(((Var("halving"), 8 * self.passes),), (tir.If(goes_on, halved),)),
        )

    def _kept(self) -> tir.Body:
        """Moves the keys up to `last` into the other buffers, in order.

        Each is written, and stays there if the next one has another place: no branch to foresee.
        """
        i, place, key = Var("kept_i"), Var("kept"), tir.Load(self.keys[0], (Var("kept_i"),))
        stores = (
            tir.Store(self.keys[1], (place,), key),
            tir.Store(self.places[1], (place,), tir.IndexValue(i, "int32")),
        )
        is_kept = tir.Cast(tir.Comparison("le", key, tir.Load(self.last, ())), "int64")
        moved = (
            matched(place, self.extent, tir.Load(self.left, ()), stores),
            tir.Reduce(tir.ReduceOp.ADD, self.left, (), is_kept),
        )
        start = tir.Store(self.left, (), stages.literal(0, "int64"))
        return start, *tir.nest(((i, self.extent),), moved)

    def _pass(self, number: int, put: Put) -> tir.Body:
        """Sorts by one digit, into the other buffers, or, the last time, into the result."""
        is_last = number == self.passes - 1
        from_start = number == 0 and not self.bounded
        here = (number + self.bounded) % 2

        def place_of(index: IndexExpr, dtype: str) -> tir.Expr:
            if from_start:
                return tir.IndexValue(index, dtype)
            place = tir.Load(self.places[here], (index,))
            return place if dtype == place.dtype else tir.Cast(place, dtype)

        def moved(index: IndexExpr, to: IndexExpr) -> tir.Body:
            if is_last:
                return (put(to, place_of(index, "int64")),)
            return (
                tir.Store(self.keys[1 - here], (to,), tir.Load(self.keys[here], (index,))),
                tir.Store(self.places[1 - here], (to,), place_of(index, "int32")),
            )

        clear, i, j, k, own, digit, to = (
            Var(f"{name}{number}") for name in ("clear", "i", "j", "k", "own", "digit", "to")
        )
        counted = self._of_digit(number, tir.Load(self.keys[here], (i,)), own, ())
        end = as_int64(tir.Load(self.ends, (digit,)))
        room = self.count if is_last else self.extent
        put_there = (matched(to, room, end, moved(j, to)),)
        placed = self._of_digit(number, tir.Load(self.keys[here], (j,)), digit, put_there)
        zero = stages.literal(0, "int32")
        scattered = (
            *tir.nest(((clear, 1 << DIGIT),), (tir.Store(self.ends, (clear,), zero),)),
            *self._up_to_left(i, counted),
            *self._begun(Var(f"begin{number}")),
            *self._up_to_left(j, placed),
        )
        if self.bounded and not is_last:
            copied = self._by_vectors(k, moved)
        else:
            copied = tir.nest(((k, room),), moved(k, k))
        spread = subtract(tir.Load(self.last, ()), tir.Load(self.first, ()))
        differ = compared("gt", self._shifted(spread, number), 0)
        return (tir.If(differ, scattered, copied),)

    def _up_to_left(self, var: Var, body: tir.Body) -> tir.Body:
        """`body` for the elements that are left."""
        if not self.bounded:
            return tir.nest(((var, self.extent),), body)
        is_left = tir.Comparison("lt", tir.IndexValue(var), tir.Load(self.left, ()))
        return tir.nest(((var, self.extent),), (tir.If(is_left, body),))

    def _by_vectors(self, var: Var, moved: Callable[[IndexExpr, IndexExpr], tir.Body]) -> tir.Body:
        """Moves the elements that are left, and those behind them up to the end of a vector.

        With a mask in place of the latter, vectors of memory that was never touched seem to take a
        Zen 4 hundreds of cycles, though it excludes all lanes: a kernel took 17 µs without masks,
        and 1,725 with them.
        """
        lane = Var(f"{var.name}_lane")
        index = LANES * var + lane
        is_left = tir.Comparison("lt", tir.IndexValue(LANES * var), tir.Load(self.left, ()))
        vector = tir.nest(((lane, LANES),), moved(index, index))
        return tir.nest(((var, self.room // LANES),), (tir.If(is_left, vector),))

    def _of_digit(self, number: int, key: tir.Expr, digit: Var, body: tir.Body) -> tir.Body:
        """`body` with `digit` bound to that digit of a key, counted from the least key, and behind
        it one more of the digit."""
        above = self._shifted(subtract(key, tir.Load(self.first, ())), number)
        value = tir.Binary("and", above, tir.Literal((1 << DIGIT) - 1, self.dtype))
        one = stages.literal(1, "int32")
        one_more = tir.Reduce(tir.ReduceOp.ADD, self.ends, (digit,), one)
        return (matched(digit, 1 << DIGIT, as_int64(value), (*body, one_more)),)

    def _shifted(self, key: tir.Expr, digits: int) -> tir.Expr:
        """A key without its lowest digits."""
        if not digits:
            return key
        return tir.Binary("shr", key, tir.Literal(DIGIT * digits, self.dtype))

    def _begun(self, digit: Var) -> tir.Body:
        """Where there was the number of elements with a digit is now the place of the first."""
        before, number = tir.Load(self.before, ()), tir.Load(self.number, ())
        begun = (
            tir.Store(self.number, (), tir.Load(self.ends, (digit,))),
            tir.Store(self.ends, (digit,), before),
            tir.Store(self.before, (), add(before, number)),
        )
        start = tir.Store(self.before, (), stages.literal(0, "int32"))
        return start, *tir.nest(((digit, 1 << DIGIT),), begun)
