"""Positions sorted by their elements digit by digit, as a part of kernels that sort lines.

In: the length and the element type of a line, and how many positions are wanted.  Out: statements
that write them, of equal elements the first ones first.  What always holds: each pass keeps the
order of the passes before it (a radix sort from the lowest digit on), so the time depends on the
number of elements and of digits alone, without the highest digits, if no elements differ in them.

Where far fewer positions are wanted than there are, those elements that can be among them are
found before, by halving the interval in which the last one of them lies.
"""

from __future__ import annotations

from collections.abc import Callable

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const
from graphflow.base.dtypes import DTYPES
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.indexing import as_int64
from graphflow.kernels.definitions.data_dependent.largest_first import whole_vectors
from graphflow.kernels.definitions.scalar_functions import add, compared, subtract

DIGIT = 8
"""Bits of a digit: the counts of 256 digits, and the places that they lead to, stay in the
first-level cache."""

Element = Callable[[IndexExpr], tir.Expr]
"""The element of a line at an index."""

ElementOfColumn = Callable[[IndexExpr, IndexExpr], tir.Expr]
"""The element at an index in a column."""

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
    """Sorts the positions of a line of `extent` elements, of which `count` are wanted.

    Keys and their positions lie in one half of their buffers, and a pass moves them into the other
    one; `here` is the half in which they are.
    """

    def __init__(self, extent: int, count: int, dtype: str) -> None:
        self.extent, self.count, self.dtype = extent, count, key_type(dtype)
        self.bounded = _cycles(extent, count, dtype, True) < _cycles(extent, count, dtype, False)
        self.passes = DTYPES[self.dtype].itemsize
        room = whole_vectors(extent)
        self.keys = tir.Buffer("keys", (2, room), self.dtype)
        self.places = tir.Buffer("places", (2, room), "int32")
        self.here, self.left, self.digit = (
            tir.Buffer(name, (), "int64") for name in ("here", "left", "own_digit")
        )
        self.ends = tir.Buffer("ends", (1 << DIGIT,), "int32")
        self.first, self.last = (tir.Buffer(name, (), self.dtype) for name in ("first", "last"))
        self.before, self.number = (tir.Buffer(n, (), "int32") for n in ("before", "number"))
        self.buffers = (
            self.keys, self.places, self.here, self.left, self.digit, self.ends, self.first,
            self.last, self.before, self.number,
        )  # fmt: skip

    def sorted(self, key: Element, put: Put) -> tir.Body:
        """Puts the wanted positions in the order of their keys."""
        i = Var("key_i")
        filled = tir.nest(((i, self.extent),), (tir.Store(self.keys, (const(0), i), key(i)),))
        body = (*self._started(), *filled, *self._extremes(const(0)))
        if self.bounded:
            one = tir.Store(self.here, (), stages.literal(1, "int64"))
            body += (*self._bound(), *self._kept(), one)
        return (*body, *self._by_digits(), self._put(put))

    def sorted_by(self, columns: int, key: ElementOfColumn, put: Put) -> tir.Body:
        """Puts all positions in the order of their keys in the first column, those with equal ones
        in the order of the second column, and so on."""
        column, half, i, row = Var("column"), Var("keyed_half"), Var("key_i"), Var("key_row")
        keyed = tir.Store(self.keys, (half, i), key(row, const(columns - 1) - column))
        one = stages.matched(row, self.extent, as_int64(tir.Load(self.places, (half, i))), (keyed,))
        filled = (*tir.nest(((i, self.extent),), (one,)), *self._extremes(half))
        # A pass keeps the order of equal keys, so the column that counts most comes last.
        by_column = (self._in_half(half, filled), *self._by_digits())
        return (*self._started(), *tir.nest(((column, columns),), by_column), self._put(put))

    def _started(self) -> tir.Body:
        """All positions in order, in the first half."""
        i = Var("place_i")
        place = tir.Store(self.places, (const(0), i), tir.IndexValue(i, "int32"))
        return (
            *map(tir.Allocate, self.buffers),
            tir.Store(self.here, (), stages.literal(0, "int64")),
            tir.Store(self.left, (), stages.literal(self.extent, "int64")),
            *tir.nest(((i, self.extent),), (place,)),
        )

    def _in_half(self, half: Var, body: tir.Body) -> tir.Stmt:
        """`body` with `half` bound to the half in which the keys are."""
        return stages.matched(half, 2, tir.Load(self.here, ()), body)

    def _put(self, put: Put) -> tir.Stmt:
        """Puts the wanted positions, which are the first ones."""
        half, k = Var("put_half"), Var("put_k")
        found = as_int64(tir.Load(self.places, (half, k)))
        return self._in_half(half, tir.nest(((k, self.count),), (put(k, found),)))

    def _extremes(self, half: IndexExpr) -> tir.Body:
        """The least and the greatest key."""
        body = list[tir.Stmt]()
        for op, to in ((tir.ReduceOp.MIN, self.first), (tir.ReduceOp.MAX, self.last)):
            i = Var(f"{op.value}_i")
            body.append(tir.Store(to, (), stages.neutral(op, self.dtype)))
            found = tir.Reduce(op, to, (), tir.Load(self.keys, (half, i)))
            body += tir.nest(((i, self.extent),), (found,))
        return tuple(body)

    def _bound(self) -> tir.Body:
        """Lowers `last` while more than an eighth too many keys are up to it, by halving the
        interval from `low`, below which there are too few; `left` is how many."""
        low, middle = (tir.Buffer(name, (), self.dtype) for name in ("low", "middle"))
        under, i = tir.Buffer("under", (), "int32"), Var("under_i")
        lower, upper, number = (tir.Load(b, ()) for b in (low, self.last, under))
        half = tir.Binary("shr", subtract(upper, lower), tir.Literal(1, self.dtype))
        is_under = tir.Comparison("le", tir.Load(self.keys, (const(0), i)), tir.Load(middle, ()))
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
        """Moves the keys up to `last` into the second half, in order.

        Each is written, and stays there if the next one has another place: no branch to foresee.
        """
        i, place = Var("kept_i"), Var("kept")
        key = tir.Load(self.keys, (const(0), i))
        stores = (
            tir.Store(self.keys, (const(1), place), key),
            tir.Store(self.places, (const(1), place), tir.IndexValue(i, "int32")),
        )
        is_kept = tir.Cast(tir.Comparison("le", key, tir.Load(self.last, ())), "int64")
        moved = (
            stages.matched(place, self.extent, tir.Load(self.left, ()), stores),
            tir.Reduce(tir.ReduceOp.ADD, self.left, (), is_kept),
        )
        start = tir.Store(self.left, (), stages.literal(0, "int64"))
        return start, *tir.nest(((i, self.extent),), moved)

    def _by_digits(self) -> tir.Body:
        """Sorts by one digit after the other, as far as the keys differ in it or in higher ones."""
        number, half = Var("number"), Var("half")
        there, zero = const(1) - half, stages.literal(0, "int32")
        clear, i, j, own, digit, to = map(Var, ("clear", "i", "j", "own", "digit", "to"))
        moved = (
            tir.Store(self.keys, (there, to), tir.Load(self.keys, (half, j))),
            tir.Store(self.places, (there, to), tir.Load(self.places, (half, j))),
        )
        put_there = stages.matched(to, self.extent, as_int64(tir.Load(self.ends, (digit,))), moved)
        scattered = (
            *tir.nest(((clear, 1 << DIGIT),), (tir.Store(self.ends, (clear,), zero),)),
            *self._up_to_left(i, self._of_digit(number, tir.Load(self.keys, (half, i)), own, ())),
            *self._begun(Var("begin")),
            *self._up_to_left(
                j, self._of_digit(number, tir.Load(self.keys, (half, j)), digit, (put_there,))
            ),
        )
        spread = subtract(tir.Load(self.last, ()), tir.Load(self.first, ()))
        one_pass = (
            self._in_half(half, scattered),
            tir.Store(self.here, (), subtract(stages.literal(1, "int64"), tir.Load(self.here, ()))),
        )
        differ = compared("gt", self._shifted(spread, number), 0)
        return tir.nest(((number, self.passes),), (tir.If(differ, one_pass),))

    def _up_to_left(self, var: Var, body: tir.Body) -> tir.Body:
        """`body` for the elements that are left."""
        if not self.bounded:
            return tir.nest(((var, self.extent),), body)
        return tir.nest(((var, self.extent),), (tir.If(tir.below_count(var, self.left), body),))

    def _of_digit(self, number: Var, key: tir.Expr, digit: Var, body: tir.Body) -> tir.Body:
        """`body` with `digit` bound to that digit of a key, counted from the least key, and behind
        it one more of the digit.

        The digit is stored first, as a matched loop must not write what its value reads.
        """
        above = self._shifted(subtract(key, tir.Load(self.first, ())), number)
        value = tir.Binary("and", above, tir.Literal((1 << DIGIT) - 1, self.dtype))
        one = stages.literal(1, "int32")
        one_more = tir.Reduce(tir.ReduceOp.ADD, self.ends, (digit,), one)
        bound = stages.matched(digit, 1 << DIGIT, tir.Load(self.digit, ()), (*body, one_more))
        return tir.Store(self.digit, (), as_int64(value)), bound

    def _shifted(self, key: tir.Expr, digits: Var) -> tir.Expr:
        """A key without so many of its lowest digits."""
        return tir.Binary("shr", key, tir.IndexValue(DIGIT * digits, self.dtype))

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
