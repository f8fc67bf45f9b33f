"""Operators on one number, and all that the compiler has to know of an elementary function.

`ELEMENTARY` has a row for each function of floats that native code computes within an error bound
and not exactly.  The interpreter, constant folding, the spans of results, prices and the bounds of
errors read it.  A function of the C library needs no more: native code calls it, lane by lane,
until `codegen/math.py` has something faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

import numpy as np

Trigonometric: TypeAlias = Literal[
    "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh",
]  # fmt: skip
UnaryOp: TypeAlias = Literal[
    "neg", "abs", "exp", "log", "tanh", "erf", "sqrt", "sigmoid", "floor", "ceil", "round",
    Trigonometric, "not", "bits",
]  # fmt: skip

TRIGONOMETRIC: tuple[Trigonometric, ...] = get_args(Trigonometric)
UNARY: tuple[UnaryOp, ...] = get_args(UnaryOp)


@dataclass(frozen=True, slots=True)
class ElementaryFunction:
    """What is known of an elementary function.

    `meaning` computes it in double precision; the result is rounded once to the operand's dtype.
    `exact` are the arguments, 0.0 for both zeros, at which native code gives the same number.
    `rises` is the interval on which the function increases, if it is NaN outside of it; None where
    its span follows another rule.  `overflows` says that results beyond float's range begin
    somewhere above an argument of 88 (of float64, 709), at another one in each implementation.
    `gentle` says that its derivative is nowhere larger than 2.  `cycles` is the price of one vector
    of 16 float32, None where it was not measured and counts as a simple operation.
    `library` says whether the C library has a function of this name.
    """

    meaning: Callable[[np.float64], np.float64]
    exact: tuple[float, ...]
    rises: tuple[float, float] | None = None
    overflows: bool = False
    gentle: bool = False
    cycles: float | None = None
    library: bool = True


EVERYWHERE = (-inf, inf)


def _erf(x: np.float64) -> np.float64:
    return np.float64(math.erf(x))


def _sigmoid(x: np.float64) -> np.float64:
    """`1 / (1 + exp(−x))`, for a negative x `exp(x) / (1 + exp(x))`, which cannot overflow."""
    e = np.exp(-abs(x))
    return np.float64((e if x < 0 else 1.0) / (1 + e))


_Row = ElementaryFunction
ELEMENTARY: Mapping[str, ElementaryFunction] = MappingProxyType({
    "exp": _Row(np.exp, (0.0, -inf), EVERYWHERE, overflows=True, cycles=5.0),
    "log": _Row(np.log, (1.0, 0.0), cycles=8.0),
    "tanh": _Row(np.tanh, (0.0,), EVERYWHERE, gentle=True, cycles=10.0),
    "erf": _Row(_erf, (0.0,), EVERYWHERE, gentle=True, cycles=10.0),
    "sigmoid": _Row(_sigmoid, (0.0,), EVERYWHERE, gentle=True, cycles=9.0, library=False),
    "sin": _Row(np.sin, (0.0,), gentle=True, cycles=16.0),
    "cos": _Row(np.cos, (0.0,), gentle=True, cycles=16.0),
    "tan": _Row(np.tan, (0.0,)),
    "asin": _Row(np.arcsin, (0.0,), (-1.0, 1.0), cycles=14.0),
    "acos": _Row(np.arccos, (1.0,), cycles=14.0),
    "atan": _Row(np.arctan, (0.0,), EVERYWHERE, gentle=True, cycles=14.0),
    "sinh": _Row(np.sinh, (0.0,), EVERYWHERE, overflows=True),
    "cosh": _Row(np.cosh, (0.0,), overflows=True),
    "asinh": _Row(np.arcsinh, (0.0,), EVERYWHERE, gentle=True),
    "acosh": _Row(np.arccosh, (1.0,), (1.0, inf)),
    "atanh": _Row(np.arctanh, (0.0,), (-1.0, 1.0)),
})  # fmt: skip
"""By the names of `UNARY`.  The other operators on one number are computed exactly."""
