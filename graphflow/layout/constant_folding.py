"""Constant folding: the result of an operator on constants, where all implementations agree on it.

In: an operator and literals.  Out: the literal that the interpreter and native code both give, or
None.  None is returned where the result is NaN (its bits are not specified), where a transcendental
function or a power is not known to be exact in native code, for an integer division by zero, and
for a cast of a float to an integer type that it does not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from math import isnan
from typing import Any

import numpy as np

from graphflow import tir
from graphflow.base.dtypes import FLOATING, integer_limits


def fold_unary(op: tir.UnaryOp, operand: tir.Literal) -> tir.Literal | None:
    """`op(operand)`."""
    if op == "bits" and isnan(operand.value):
        return None  # there are many NaNs
    elementary = tir.ELEMENTARY.get(op)
    if elementary is not None and operand.value not in elementary.exact:
        return None
    return _literal(tir.UNARY_FUNCTIONS[op], operand)


def fold_binary(op: tir.BinaryOp, left: tir.Literal, right: tir.Literal) -> tir.Literal | None:
    """`left op right`, rounded once."""
    if op == "div" and left.dtype not in tir.FLOATS and right.value == 0:
        return None
    if op == "pow" and not _exact_power(left, right):
        return None
    return _literal(tir.BINARY_FUNCTIONS[op], left, right)


def fold_cast(operand: tir.Literal, dtype: str) -> tir.Literal | None:
    """`operand` converted; None where a float does not fit the integer type."""
    value = operand.value
    if isnan(value) and dtype != "bool":
        return None
    if operand.dtype in tir.FLOATS and dtype not in (*FLOATING, "bool"):
        low, high = integer_limits(dtype)
        if not low <= value <= high or int(value) > high:
            return None
    return _literal(lambda x: x.astype(tir.DTYPES[dtype]), operand)


def scalar(literal: tir.Literal) -> Any:
    """The literal as a numpy scalar of its dtype."""
    return np.asarray(literal.value, tir.DTYPES[literal.dtype])[()]


def _exact_power(base: tir.Literal, exponent: tir.Literal) -> bool:
    if base.dtype not in tir.FLOATS:
        return exponent.value >= 0
    return exponent.value == 0 or base.value == 1 or (base.value == 0 and exponent.value > 0)


def _literal(function: Callable[..., Any], *operands: tir.Literal) -> tir.Literal | None:
    with np.errstate(all="ignore"):
        value = function(*(scalar(operand) for operand in operands))
    if value != value:
        return None
    return tir.Literal(value.item(), value.dtype.name)
