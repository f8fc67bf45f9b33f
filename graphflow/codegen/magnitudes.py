"""Maxima of magnitudes: computed as maxima of integers, in one instruction for each vector.

In: a kernel.  Out: its buffers that hold nothing but −∞ and magnitudes, which are floats without a
sign, infinities and NaN among them.

A maximum of floats takes three instructions where NaN has to stay and zeros have signs.  Floats
without a sign are in the order of their bits as integers, and NaN is above infinity; the bits of
−∞, with which a maximum begins, are a negative integer.  So the largest integer is the largest
float, or NaN where there is one.
"""

from __future__ import annotations

from collections.abc import Set
from math import inf

from graphflow import tir
from graphflow.llvm import IrBuilder, IrValue, mangled

NUMBERS = "float32"
"""The type whose maxima are found so: AVX2 has no maximum of integers of 64 bits."""


def magnitude_buffers(func: tir.PrimFunc) -> frozenset[tir.Buffer]:
    """The buffers of `func` that it alone writes, and with maxima of magnitudes alone.

    A magnitude is an absolute value, or a maximum of such.
    """
    others = {param.buffer for param in func.params if param.role is not tir.Role.OUTPUT}
    for stmt in tir.walk(func.body):
        if isinstance(stmt, tir.NamedWindow):
            others.add(stmt.window.buffer)
        elif isinstance(stmt, tir.Call):
            others.update(window.buffer for window in stmt.windows)
    writes = tuple(tir.writes_in(func.body))
    maxima = {write.buffer for write in writes if isinstance(write, tir.Reduce)}
    found = frozenset(buffer for buffer in maxima - others if buffer.dtype == NUMBERS)
    while True:
        mixed = {w.buffer for w in writes if w.buffer in found and not _keeps(w, found)}
        if not mixed:
            return found
        found -= mixed


def _keeps(write: tir.Store | tir.Reduce, found: Set[tir.Buffer]) -> bool:
    """Whether an element holds −∞ or a magnitude behind a write, if it did so before."""
    if isinstance(write, tir.Reduce):
        return write.op is tir.ReduceOp.MAX and _is_magnitude(write.value, found)
    is_start = isinstance(write.value, tir.Literal) and write.value.value == -inf
    return is_start or _is_magnitude(write.value, found)


def _is_magnitude(value: tir.Expr, found: Set[tir.Buffer]) -> bool:
    match value:
        case tir.Unary(op="abs"):
            return True
        case tir.Load(buffer):
            return buffer in found
        case _:
            return False


def greatest(b: IrBuilder, left: IrValue, right: IrValue) -> IrValue:
    """The greater of two magnitudes or −∞, lane by lane; NaN where one of them is.

    Made where it is written: a kernel stores numbers by tiles and folds their maxima in the end, to
    where LLVM moved all of them, with what they are maxima of in memory meanwhile.
    """
    x, y = (b.convert("bitcast", value, "i32") for value in b.matched(left, right))
    return b.convert("bitcast", b.computed_here(b.intrinsic("smax", x, y)), "float")


def greatest_lane(b: IrBuilder, vector: IrValue) -> IrValue:
    """The greatest of the lanes of a vector of magnitudes or −∞; NaN where one of them is."""
    bits = b.convert("bitcast", vector, "i32")
    name = f"llvm.vector.reduce.smax.{mangled('i32', vector.lanes)}"
    return b.convert("bitcast", b.call(name, "i32", bits), "float")
