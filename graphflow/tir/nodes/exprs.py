"""Buffers and the scalar expressions over their elements.

Scalar expressions have a dtype and may load; index expressions (`graphflow.arith`) are integers and
may not.  `IndexValue` embeds an index in a scalar expression.  A condition is an index predicate
or a bool-typed scalar expression, never a mixture.

Meaning of the operators (also in `interpret` and in the emitter): float arithmetic is IEEE in the
operands' dtype; `max` and `min` propagate NaN and order −0.0 below +0.0; `div` of integers
truncates; `fmod` is what is left of a truncated float quotient, with the sign of the dividend;
`bits` are those of a float, as an unsigned integer of its width (which NaN it is, arithmetic leaves
open); `shl` and `shr` take the number of bits as unsigned, and shift out everything where it is not
below the width (`shr` of signed integers fills with the sign); comparisons with NaN are false
except `ne`; a `Select` evaluates only the side it takes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal as Literals
from typing import TypeAlias, assert_never, cast, get_args

import numpy as np

from graphflow.arith import IndexExpr, Predicate, constant_value, weighted
from graphflow.base.dtypes import DTYPES, STORED_FLOATS
from graphflow.base.fields import replace
from graphflow.tir.nodes.elementary import UnaryOp
from graphflow.tir.nodes.memory_space import MemorySpace
from graphflow.tir.nodes.node_bases import Hashed

BinaryOp: TypeAlias = Literals[
    "add", "sub", "mul", "div", "max", "min", "pow", "and", "or", "xor", "shl", "shr", "fmod",
]  # fmt: skip
ComparisonOp: TypeAlias = Literals["lt", "le", "gt", "ge", "eq", "ne"]

BINARY: tuple[BinaryOp, ...] = get_args(BinaryOp)
COMPARISONS: tuple[ComparisonOp, ...] = get_args(ComparisonOp)

BITS_OF = {"float32": "uint32", "float64": "uint64"}
"""The integer types that hold the bits of floats."""

ROUNDED = ("float32", *STORED_FLOATS)
"""Float types that Python's floats are rounded to."""

Scope: TypeAlias = Literals["global", "scratch", "register"]
"""Where a buffer lives: in memory that others see, in a thread's own memory, in registers."""

SCOPES: tuple[Scope, ...] = get_args(Scope)

Location: TypeAlias = Scope | Literals["config"] | MemorySpace
"""A scope, a memory that a user defines, or configuration state: a field of it is a buffer without
axes that no kernel allocates, and that keeps its value from one kernel to the next."""


@dataclass(frozen=True, slots=True)
class Buffer(Hashed):
    """A dense array.  `shape` is physical, in elements; strides are those of row-major order.

    `separators` are the positions between axes where flattening starts a new axis; a buffer with
    n separators has n + 1 axes after flattening.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str = "float32"
    scope: Location = "global"
    separators: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            known = ", ".join(DTYPES)
            raise ValueError(f"buffer {self.name}: dtype {self.dtype} is not one of {known}")
        if self.scope == "config":
            if self.shape or self.name.count(".") != 1:
                raise ValueError(f"field {self.name}: it needs a name such as mode.act and no axes")
        elif not isinstance(self.scope, MemorySpace) and self.scope not in SCOPES:
            raise ValueError(f"buffer {self.name}: scope {self.scope} is not one of {SCOPES}")
        if any(n < 0 for n in self.shape):
            raise ValueError(f"buffer {self.name}: negative extent in shape {self.shape}")

    __hash__ = Hashed.__hash__

    def _compared(self) -> object:
        return self.name, self.shape, self.dtype, self.scope, self.separators

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements between neighbours along each axis."""
        strides: list[int] = []
        step = 1
        for extent in reversed(self.shape):
            strides.append(step)
            step *= extent
        return tuple(reversed(strides))

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def flat_index(self, indices: Sequence[IndexExpr]) -> IndexExpr:
        """The position in memory, in elements, of the element at physical `indices`."""
        return weighted(zip(indices, self.strides, strict=True))

    @property
    def bytes(self) -> int:
        """Size in bytes."""
        return self.size * DTYPES[self.dtype].itemsize

    @property
    def is_field(self) -> bool:
        """Whether the buffer is a field of configuration state."""
        return self.scope == "config"

    def describe(self) -> str:
        """How the buffer reads as an argument of a schedule step."""
        return self.name


@dataclass(frozen=True, slots=True)
class Literal(Hashed):
    """A constant, rounded to its dtype; compared by bits: −0.0 is not 0.0, NaN equals itself."""

    value: float | int | bool
    dtype: str

    def __post_init__(self) -> None:
        # 0.1 as float32 is a little more than 0.1; bounds that used the latter would be wrong.
        if self.dtype in ROUNDED and isinstance(self.value, float):
            with np.errstate(over="ignore"):
                rounded = np.asarray(self.value, DTYPES[self.dtype])
            object.__setattr__(self, "value", float(rounded))

    def bits(self) -> bytes:
        """The value's bytes in its dtype."""
        return np.asarray(self.value, DTYPES[self.dtype]).tobytes()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Literal):
            return NotImplemented
        if self is other:
            return True
        return self.dtype == other.dtype and self.bits() == other.bits()

    __hash__ = Hashed.__hash__

    def _compared(self) -> object:
        return self.dtype, self.bits()


@dataclass(frozen=True, slots=True)
class Load:
    """The element of `buffer` at `indices` (physical, one an axis)."""

    buffer: Buffer
    indices: tuple[IndexExpr, ...]

    @property
    def dtype(self) -> str:
        return self.buffer.dtype


@dataclass(frozen=True, slots=True)
class IndexValue:
    """An index expression as a number."""

    index: IndexExpr
    dtype: str = "int64"


@dataclass(frozen=True, slots=True)
class Unary:
    """One of `UNARY`; `sigmoid`, `erf` … are operators so that each has one tested expansion."""

    op: UnaryOp
    operand: Expr

    @property
    def dtype(self) -> str:
        own = self.operand.dtype
        return BITS_OF.get(own, own) if self.op == "bits" else own


@dataclass(frozen=True, slots=True)
class Binary:
    """One of `BINARY` on operands of the same dtype."""

    op: BinaryOp
    left: Expr
    right: Expr

    @property
    def dtype(self) -> str:
        return self.left.dtype


@dataclass(frozen=True, slots=True)
class Comparison:
    """One of `COMPARISONS` on operands of the same dtype; the result is bool."""

    op: ComparisonOp
    left: Expr
    right: Expr

    @property
    def dtype(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True)
class Select:
    """`if_true` where the condition holds, else `if_false`; only the side taken is evaluated."""

    condition: Condition
    if_true: Expr
    if_false: Expr

    @property
    def dtype(self) -> str:
        return self.if_true.dtype


@dataclass(frozen=True, slots=True)
class Cast:
    """`operand` converted to `dtype`: float to integer truncates, integer to bool is `!= 0`.

    Types that are only stored (`dtypes.STORED`) are cast to and from their carriers alone: floats
    are rounded to the nearest number, ties to even, and integers keep their lowest bits.
    """

    operand: Expr
    dtype: str


@dataclass(frozen=True, slots=True)
class Undef:
    """Poison: any value, different at each use; see the rules in `docs/semantics.md`."""

    dtype: str


Expr: TypeAlias = Literal | Load | IndexValue | Unary | Binary | Comparison | Select | Cast | Undef
Condition: TypeAlias = Predicate | Expr
EXPRESSIONS = (Literal, Load, IndexValue, Unary, Binary, Comparison, Select, Cast, Undef)


def is_predicate(condition: Condition) -> bool:
    """Whether a condition is decided by indices alone."""
    return not isinstance(condition, EXPRESSIONS)


def constant_of(expr: Expr) -> Literal | None:
    """The constant that a literal or a constant index is; None for other expressions."""
    if isinstance(expr, Literal):
        return expr
    value = constant_value(expr.index) if isinstance(expr, IndexValue) else None
    if value is None or not isinstance(expr, IndexValue):
        return None
    return Literal(int(np.int64(value).astype(DTYPES[expr.dtype])), expr.dtype)


def float32(value: float) -> Literal:
    """A float32 constant."""
    return Literal(value, "float32")


def children(expr: Expr) -> tuple[Expr, ...]:
    """The scalar expressions directly below `expr`, a data condition included."""
    match expr:
        case Literal() | Load() | IndexValue() | Undef():
            return ()
        case Unary() | Cast():
            return (expr.operand,)
        case Binary() | Comparison():
            return (expr.left, expr.right)
        case Select():
            head = () if is_predicate(expr.condition) else (cast(Expr, expr.condition),)
            return (*head, expr.if_true, expr.if_false)
    assert_never(expr)


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """Every node of `expr`, parents before children."""
    left = [expr]  # no recursion: a sum of hundreds is as deep
    while left:
        node = left.pop()
        yield node
        left += reversed(children(node))


def exchanged(expr: Expr, old: Expr, new: Expr) -> Expr:
    """`expr` with `new` in place of each `old` in it."""
    return map_expr(expr, lambda e: new if e == old else e)


def map_expr(expr: Expr, change: Callable[[Expr], Expr]) -> Expr:
    """`expr` rebuilt from the leaves up, `change` applied to each node."""
    match expr:
        case Literal() | Load() | IndexValue() | Undef():
            return change(expr)
        case Unary() | Cast():
            operand = map_expr(expr.operand, change)
            return change(expr if operand is expr.operand else replace(expr, operand=operand))
        case Binary():
            left, right = map_expr(expr.left, change), map_expr(expr.right, change)
            if left is expr.left and right is expr.right:
                return change(expr)
            return change(Binary(expr.op, left, right))  # `replace` takes three times as long
        case Comparison():
            left, right = map_expr(expr.left, change), map_expr(expr.right, change)
            if left is expr.left and right is expr.right:
                return change(expr)
            return change(Comparison(expr.op, left, right))
        case Select():
            condition = map_condition(expr.condition, change)
            if_true, if_false = map_expr(expr.if_true, change), map_expr(expr.if_false, change)
            if (
                condition is expr.condition
                and if_true is expr.if_true
                and if_false is expr.if_false
            ):
                return change(expr)
            return change(Select(condition, if_true, if_false))
    assert_never(expr)


def map_condition(condition: Condition, change: Callable[[Expr], Expr]) -> Condition:
    """A data condition mapped as an expression; a predicate as it is."""
    return condition if is_predicate(condition) else map_expr(cast(Expr, condition), change)
