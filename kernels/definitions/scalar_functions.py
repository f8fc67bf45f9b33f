"""Scalar functions as expressions over the primitive operators of the kernel IR.

In: operand expressions of one dtype, and attributes as numbers.  Out: an expression.  What always
holds: a function of floats returns NaN for a NaN operand, except where ONNX says otherwise
(ThresholdedRelu).  Comparisons with NaN are false, so selects have the operand itself as their last
alternative.  Nothing here knows shapes or indices.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

from graphflow.base.dtypes import CARRIERS, HALVES, STORED, STORED_FLOATS, largest
from graphflow.base.errors import UnsupportedOp
from graphflow.kernels.definitions.stages import literal
from graphflow.tir import (
    FLOATS,
    TRIGONOMETRIC,
    UNSIGNED,
    Binary,
    Cast,
    Comparison,
    ComparisonOp,
    Expr,
    Literal,
    Select,
    Unary,
    UnaryOp,
)


def add(a: Expr, b: Expr | float) -> Expr:
    """`a + b`; b may be a number, which gets the dtype of a.  So it is in the next functions."""
    return Binary("add", a, _operand(b, a.dtype))


def multiply(a: Expr, b: Expr | float) -> Expr:
    """`a · b`."""
    return Binary("mul", a, _operand(b, a.dtype))


def divide(a: Expr, b: Expr | float) -> Expr:
    """`a / b`."""
    return Binary("div", a, _operand(b, a.dtype))


def subtract(a: Expr, b: Expr | float) -> Expr:
    """`a − b`."""
    return Binary("sub", a, _operand(b, a.dtype))


def compared(op: ComparisonOp, a: Expr, b: Expr | float) -> Comparison:
    """A comparison by one of the operators of `graphflow.tir`."""
    return Comparison(op, a, _operand(b, a.dtype))


def square(x: Expr) -> Expr:
    """`x · x`."""
    return multiply(x, x)


def _operand(value: Expr | float, dtype: str) -> Expr:
    return literal(value, dtype) if isinstance(value, int | float) else value


def clipped(x: Expr, low: Expr | None, high: Expr | None) -> Expr:
    """`min(max(x, low), high)` as selects, which return NaN for a NaN x."""
    if isinstance(low, Literal) and isinstance(high, Literal) and low.value > high.value:
        low = high
    if low is None:
        return x if high is None else Select(Comparison("gt", x, high), high, x)
    raised = Select(Comparison("lt", x, low), low, x)
    if high is None:
        return raised
    if isinstance(low, Literal) and isinstance(high, Literal):
        return Select(Comparison("lt", x, low), low, Select(Comparison("gt", x, high), high, x))
    # Bounds known only at run time may cross, and then the upper one has the last word.
    return Select(Comparison("gt", raised, high), high, raised)


def converted(x: Expr, dtype: str, saturate: bool = False) -> Expr:
    """`x` converted to any dtype, by several casts if needed; to bool it is `x != 0`.

    With `saturate` and a float8 target, `x` is first clamped to the finite numbers of that type.
    """
    if x.dtype == dtype:
        return x
    if x.dtype in STORED and dtype not in CARRIERS[x.dtype]:
        return converted(Cast(x, CARRIERS[x.dtype][0]), dtype, saturate)
    if dtype == "bool":
        return compared("ne", x, 0)
    if dtype in STORED and x.dtype not in CARRIERS[dtype]:
        return converted(converted(x, CARRIERS[dtype][0]), dtype, saturate)
    if saturate and dtype in STORED_FLOATS and dtype not in HALVES:
        limit = largest(dtype)
        x = clipped(x, literal(-limit, x.dtype), literal(limit, x.dtype))
    return Cast(x, dtype)


def leaky_relu(x: Expr, alpha: Expr | float) -> Expr:
    """`alpha · x` if x is below zero, else x."""
    return Select(compared("lt", x, 0), multiply(x, alpha), x)


def _relu(x: Expr) -> Expr:
    return Select(compared("lt", x, 0), literal(0, x.dtype), x)


def _hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    line = add(multiply(x, alpha), beta)
    return clipped(line, literal(0, x.dtype), literal(1, x.dtype))


def _hard_swish(x: Expr) -> Expr:
    return multiply(x, _hard_sigmoid(x, 1 / 6, 0.5))


def _elu(x: Expr, alpha: float) -> Expr:
    below = multiply(subtract(Unary("exp", x), 1), alpha)
    return Select(compared("lt", x, 0), below, x)


def _selu(x: Expr, alpha: float, gamma: float) -> Expr:
    return multiply(_elu(x, alpha), gamma)


def _softplus(x: Expr) -> Expr:
    # log(1 + exp(x)) = max(x, 0) + log(1 + exp(−|x|)), where nothing overflows.
    small = Unary("log", add(Unary("exp", Unary("neg", Unary("abs", x))), 1))
    return Select(compared("lt", x, 0), small, add(small, x))


def _softsign(x: Expr) -> Expr:
    return divide(x, add(Unary("abs", x), 1))


def _thresholded_relu(x: Expr, alpha: float) -> Expr:
    """`x if x > alpha else 0`: also 0 for NaN, as in the function by which ONNX defines it."""
    return Select(compared("gt", x, alpha), x, literal(0, x.dtype))


def _gelu(x: Expr) -> Expr:
    return multiply(multiply(x, 0.5), add(Unary("erf", multiply(x, sqrt(0.5))), 1))


def _gelu_tanh(x: Expr) -> Expr:
    cubic = multiply(multiply(square(x), x), 0.044715)
    inner = multiply(add(x, cubic), sqrt(2 / pi))
    return multiply(multiply(x, 0.5), add(Unary("tanh", inner), 1))


def _mish(x: Expr) -> Expr:
    return multiply(x, Unary("tanh", _softplus(x)))


def _reciprocal(x: Expr) -> Expr:
    return divide(literal(1, x.dtype), x)


def _sign(x: Expr) -> Expr:
    one = literal(1, x.dtype)
    if x.dtype in UNSIGNED:
        return Select(compared("gt", x, 0), one, x)
    below = Select(compared("lt", x, 0), literal(-1, x.dtype), x)
    return Select(compared("gt", x, 0), one, below)


def _not(x: Expr) -> Expr:
    return Unary("not", x)


def _celu(x: Expr, alpha: float) -> Expr:
    below = multiply(subtract(Unary("exp", divide(x, alpha)), 1), alpha)
    return Select(compared("lt", x, 0), below, x)


def _swish(x: Expr, alpha: float) -> Expr:
    return multiply(x, Unary("sigmoid", x if alpha == 1 else multiply(x, alpha)))


def _shrink(x: Expr, lambd: float, bias: float) -> Expr:
    # NaN compares with nothing and becomes zero, as in onnx's function.
    zero = literal(0, x.dtype)
    above = Select(compared("gt", x, lambd), subtract(x, bias), zero)
    return Select(compared("lt", x, -lambd), add(x, bias), above)


def is_nan(x: Expr) -> Expr:
    """Whether a float is NaN."""
    return Comparison("ne", x, x)


def is_infinite(x: Expr, negative: bool = True, positive: bool = True) -> Expr:
    """Whether a float is one of the infinities asked for."""
    if negative and positive:
        return compared("eq", Unary("abs", x), float("inf"))
    if not negative and not positive:
        return Literal(False, "bool")
    return compared("eq", x, float("inf") if positive else float("-inf"))


def powered(p: int) -> Callable[[Expr], Expr]:
    """The function `|x|ᵖ`."""

    def power(x: Expr) -> Expr:
        if p == 2:
            return square(x)
        size = Unary("abs", x)
        return size if p == 1 else Binary("pow", size, literal(p, x.dtype))

    return power


def root(x: Expr, p: int) -> Expr:
    """The p-th root of a number that is at least zero."""
    if p == 1:
        return x
    return Unary("sqrt", x) if p == 2 else Binary("pow", x, literal(1 / p, x.dtype))


def remainder(a: Expr, b: Expr, truncated: bool) -> Expr:
    """The remainder of `a / b`, with the sign of a if `truncated`, else of b; also if it is zero.

    For integers and a divisor of zero it is a.
    """
    if a.dtype in FLOATS:
        left: Expr = Binary("fmod", a, b)
    else:
        left = subtract(a, multiply(divide(a, b), b))
    if truncated or a.dtype in UNSIGNED:
        return left
    other_sign = Comparison("ne", compared("lt", left, 0), compared("lt", b, 0))
    moved = Binary("and", compared("ne", left, 0), other_sign)
    result = Select(moved, add(left, b), left)
    if a.dtype not in FLOATS:
        return result
    zero = Select(compared("lt", b, 0), Literal(-0.0, a.dtype), Literal(0.0, a.dtype))
    return Select(compared("eq", left, 0), zero, result)


def _of_floats(op: str, make: Callable[..., Expr]) -> Callable[..., Expr]:
    def checked(x: Expr, **attributes: float) -> Expr:
        if x.dtype not in FLOATS:
            raise UnsupportedOp(f"{op} of {x.dtype} is not built; cast the input to float32")
        return make(x, **attributes)

    return checked


def _plain(op: UnaryOp) -> Callable[[Expr], Expr]:
    return lambda x: Unary(op, x)


_PLAIN: tuple[UnaryOp, ...] = (
    "exp", "log", "tanh", "erf", "sqrt", "sigmoid", "floor", "ceil", "round", *TRIGONOMETRIC,
)  # fmt: skip

_FLOATS_ONLY: dict[str, Callable[..., Expr]] = {
    **{op: _plain(op) for op in _PLAIN},
    "hard_sigmoid": _hard_sigmoid,
    "hard_swish": _hard_swish,
    "elu": _elu,
    "selu": _selu,
    "softplus": _softplus,
    "softsign": _softsign,
    "thresholded_relu": _thresholded_relu,
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "mish": _mish,
    "reciprocal": _reciprocal,
    "celu": _celu,
    "swish": _swish,
}  # fmt: skip

UNARY_VALUES: dict[str, Callable[..., Expr]] = {
    "relu": _relu,
    "leaky_relu": leaky_relu,
    "neg": _plain("neg"),
    "abs": _plain("abs"),
    "sign": _sign,
    "square": square,
    "cube": lambda x: multiply(square(x), x),
    "not": _not,
    "shrink": _shrink,
    **{op: _of_floats(op, make) for op, make in _FLOATS_ONLY.items()},
}
"""The expression of each unary op, from its operand and its attributes."""
