"""Scalar functions as expressions over the primitive operators of the kernel IR.

In: operand expressions of one dtype, and attributes as numbers.  Out: an expression.  What always
holds: a function of floats returns NaN for a NaN operand, except where ONNX says otherwise
(ThresholdedRelu).  Comparisons with NaN are false, so selects have the operand itself as their last
alternative.  Nothing here knows shapes or indices.
"""

from __future__ import annotations

from collections.abc import Callable
from math import pi, sqrt

from graphflow import tir
from graphflow.base.dtypes import CARRIERS, HALVES, STORED, STORED_FLOATS, largest
from graphflow.base.errors import UnsupportedOp
from graphflow.kernels.definitions import stages


def add(a: tir.Expr, b: tir.Expr | float) -> tir.Expr:
    """`a + b`; b may be a number, which gets the dtype of a.  So it is in the next functions."""
    return tir.Binary("add", a, _operand(b, a.dtype))


def multiply(a: tir.Expr, b: tir.Expr | float) -> tir.Expr:
    """`a · b`."""
    return tir.Binary("mul", a, _operand(b, a.dtype))


def divide(a: tir.Expr, b: tir.Expr | float) -> tir.Expr:
    """`a / b`."""
    return tir.Binary("div", a, _operand(b, a.dtype))


def subtract(a: tir.Expr, b: tir.Expr | float) -> tir.Expr:
    """`a − b`."""
    return tir.Binary("sub", a, _operand(b, a.dtype))


def compared(op: tir.ComparisonOp, a: tir.Expr, b: tir.Expr | float) -> tir.Comparison:
    """A comparison by one of the operators of `graphflow.tir`."""
    return tir.Comparison(op, a, _operand(b, a.dtype))


def square(x: tir.Expr) -> tir.Expr:
    """`x · x`."""
    return multiply(x, x)


def _operand(value: tir.Expr | float, dtype: str) -> tir.Expr:
    return stages.literal(value, dtype) if isinstance(value, int | float) else value


def clipped(x: tir.Expr, low: tir.Expr | None, high: tir.Expr | None) -> tir.Expr:
    """`min(max(x, low), high)` as selects, which return NaN for a NaN x."""
    if isinstance(low, tir.Literal) and isinstance(high, tir.Literal) and low.value > high.value:
        low = high
    if low is None:
        return x if high is None else tir.Select(tir.Comparison("gt", x, high), high, x)
    raised = tir.Select(tir.Comparison("lt", x, low), low, x)
    if high is None:
        return raised
    if isinstance(low, tir.Literal) and isinstance(high, tir.Literal):
        return tir.Select(
            tir.Comparison("lt", x, low), low, tir.Select(tir.Comparison("gt", x, high), high, x)
        )
    # Bounds known only at run time may cross, and then the upper one has the last word.
    return tir.Select(tir.Comparison("gt", raised, high), high, raised)


def as_type(value: tir.Expr, dtype: str) -> tir.Expr:
    """A value in a type: as it is, or cast."""
    return value if value.dtype == dtype else tir.Cast(value, dtype)


def converted(x: tir.Expr, dtype: str, saturate: bool = False) -> tir.Expr:
    """`x` converted to any dtype, by several casts if needed; to bool it is `x != 0`.

    With `saturate` and a float8 target, `x` is first clamped to the finite numbers of that type.
    """
    if x.dtype == dtype:
        return x
    if x.dtype in STORED and dtype not in CARRIERS[x.dtype]:
        return converted(tir.Cast(x, CARRIERS[x.dtype][0]), dtype, saturate)
    if dtype == "bool":
        return compared("ne", x, 0)
    if dtype in STORED and x.dtype not in CARRIERS[dtype]:
        return converted(converted(x, CARRIERS[dtype][0]), dtype, saturate)
    if saturate and dtype in STORED_FLOATS and dtype not in HALVES:
        limit = largest(dtype)
        x = clipped(x, stages.literal(-limit, x.dtype), stages.literal(limit, x.dtype))
    return tir.Cast(x, dtype)


def leaky_relu(x: tir.Expr, alpha: tir.Expr | float) -> tir.Expr:
    """`alpha · x` if x is below zero, else x."""
    return tir.Select(compared("lt", x, 0), multiply(x, alpha), x)


def _relu(x: tir.Expr) -> tir.Expr:
    return tir.Select(compared("lt", x, 0), stages.literal(0, x.dtype), x)


def _hard_sigmoid(x: tir.Expr, alpha: float, beta: float) -> tir.Expr:
    line = add(multiply(x, alpha), beta)
    return clipped(line, stages.literal(0, x.dtype), stages.literal(1, x.dtype))


def _hard_swish(x: tir.Expr) -> tir.Expr:
    return multiply(x, _hard_sigmoid(x, 1 / 6, 0.5))


def _elu(x: tir.Expr, alpha: float) -> tir.Expr:
    below = multiply(subtract(tir.Unary("exp", x), 1), alpha)
    return tir.Select(compared("lt", x, 0), below, x)


def _selu(x: tir.Expr, alpha: float, gamma: float) -> tir.Expr:
    return multiply(_elu(x, alpha), gamma)


def _log_of_one_more(x: tir.Expr) -> tir.Expr:
    """log(1 + x) of a number from 0 to 1, to the precision of `x`.

    Of a small `x` the sum has few digits, or none; what it lost, which two subtractions give
    exactly, is added to the logarithm: its slope there is 1, and elsewhere the loss is below the
    last digit.
    """
    total = add(x, 1)
    return add(tir.Unary("log", total), subtract(x, subtract(total, 1)))


def _softplus(x: tir.Expr) -> tir.Expr:
    # log(1 + exp(x)) = max(x, 0) + log(1 + exp(−|x|)), where nothing overflows.
    small = _log_of_one_more(tir.Unary("exp", tir.Unary("neg", tir.Unary("abs", x))))
    return tir.Select(compared("lt", x, 0), small, add(small, x))


def _softsign(x: tir.Expr) -> tir.Expr:
    return divide(x, add(tir.Unary("abs", x), 1))


def _thresholded_relu(x: tir.Expr, alpha: float) -> tir.Expr:
    """`x if x > alpha else 0`: also 0 for NaN, as in the function by which ONNX defines it."""
    return tir.Select(compared("gt", x, alpha), x, stages.literal(0, x.dtype))


def _gelu(x: tir.Expr) -> tir.Expr:
    return multiply(multiply(x, 0.5), add(tir.Unary("erf", multiply(x, sqrt(0.5))), 1))


def _gelu_tanh(x: tir.Expr) -> tir.Expr:
    cubic = multiply(multiply(square(x), x), 0.044715)
    inner = multiply(add(x, cubic), sqrt(2 / pi))
    return multiply(multiply(x, 0.5), add(tir.Unary("tanh", inner), 1))


def _mish(x: tir.Expr) -> tir.Expr:
    return multiply(x, tir.Unary("tanh", _softplus(x)))


def _reciprocal(x: tir.Expr) -> tir.Expr:
    return divide(stages.literal(1, x.dtype), x)


def _sign(x: tir.Expr) -> tir.Expr:
    one = stages.literal(1, x.dtype)
    if x.dtype in tir.UNSIGNED:
        return tir.Select(compared("gt", x, 0), one, x)
    below = tir.Select(compared("lt", x, 0), stages.literal(-1, x.dtype), x)
    return tir.Select(compared("gt", x, 0), one, below)


def _not(x: tir.Expr) -> tir.Expr:
    return tir.Unary("not", x)


def _celu(x: tir.Expr, alpha: float) -> tir.Expr:
    below = multiply(subtract(tir.Unary("exp", divide(x, alpha)), 1), alpha)
    return tir.Select(compared("lt", x, 0), below, x)


def _swish(x: tir.Expr, alpha: float) -> tir.Expr:
    return multiply(x, tir.Unary("sigmoid", x if alpha == 1 else multiply(x, alpha)))


def _shrink(x: tir.Expr, lambd: float, bias: float) -> tir.Expr:
    # NaN compares with nothing and becomes zero, as in onnx's function.
    zero = stages.literal(0, x.dtype)
    above = tir.Select(compared("gt", x, lambd), subtract(x, bias), zero)
    return tir.Select(compared("lt", x, -lambd), add(x, bias), above)


def is_nan(x: tir.Expr) -> tir.Expr:
    """Whether a float is NaN."""
    return tir.Comparison("ne", x, x)


def is_infinite(x: tir.Expr, negative: bool = True, positive: bool = True) -> tir.Expr:
    """Whether a float is one of the infinities asked for."""
    if negative and positive:
        return compared("eq", tir.Unary("abs", x), float("inf"))
    if not negative and not positive:
        return tir.Literal(False, "bool")
    return compared("eq", x, float("inf") if positive else float("-inf"))


def powered(p: int) -> Callable[[tir.Expr], tir.Expr]:
    """The function `|x|ᵖ`."""

    def power(x: tir.Expr) -> tir.Expr:
        if p == 2:
            return square(x)
        size = tir.Unary("abs", x)
        return size if p == 1 else tir.Binary("pow", size, stages.literal(p, x.dtype))

    return power


def root(x: tir.Expr, p: int) -> tir.Expr:
    """The p-th root of a number that is at least zero."""
    if p == 1:
        return x
    return tir.Unary("sqrt", x) if p == 2 else tir.Binary("pow", x, stages.literal(1 / p, x.dtype))


def remainder(a: tir.Expr, b: tir.Expr, truncated: bool) -> tir.Expr:
    """The remainder of `a / b`, with the sign of a if `truncated`, else of b; also if it is zero.

    For integers and a divisor of zero it is a.
    """
    if a.dtype in tir.FLOATS:
        left: tir.Expr = tir.Binary("fmod", a, b)
    else:
        left = subtract(a, multiply(divide(a, b), b))
    if truncated or a.dtype in tir.UNSIGNED:
        return left
    other_sign = tir.Comparison("ne", compared("lt", left, 0), compared("lt", b, 0))
    moved = tir.Binary("and", compared("ne", left, 0), other_sign)
    result = tir.Select(moved, add(left, b), left)
    if a.dtype not in tir.FLOATS:
        return result
    zero = tir.Select(compared("lt", b, 0), tir.Literal(-0.0, a.dtype), tir.Literal(0.0, a.dtype))
    return tir.Select(compared("eq", left, 0), zero, result)


def _of_floats(op: str, make: Callable[..., tir.Expr]) -> Callable[..., tir.Expr]:
    def checked(x: tir.Expr, **attributes: float) -> tir.Expr:
        if x.dtype not in tir.FLOATS:
            raise UnsupportedOp(f"{op} of {x.dtype} is not built; cast the input to float32")
        return make(x, **attributes)

    return checked


def _plain(op: tir.UnaryOp) -> Callable[[tir.Expr], tir.Expr]:
    return lambda x: tir.Unary(op, x)


_PLAIN: tuple[tir.UnaryOp, ...] = (
    "sqrt", "floor", "ceil", "round", *(op for op in tir.UNARY if op in tir.ELEMENTARY),
)  # fmt: skip

_FLOATS_ONLY: dict[str, Callable[..., tir.Expr]] = {
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

UNARY_VALUES: dict[str, Callable[..., tir.Expr]] = {
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
