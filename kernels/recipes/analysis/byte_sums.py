"""Loops that add up neighbouring products of bytes in lanes, as instructions do.

In: a loop.  Out: whether it is one.  What always holds: nothing is asked of a target, which may sum
such products in one instruction, in several, or one by one.
"""

from __future__ import annotations

from graphflow.arith import variables
from graphflow.tir import For, LoopKind, Reduce, loads_in

BYTE_TERMS = 4
"""The terms of bytes that one instruction sums in each lane."""


def sums_terms_in_lanes(loop: For) -> bool:
    """Whether each iteration of a serial loop adds `BYTE_TERMS` neighbouring products of an
    unsigned and a signed byte to a sum of its own."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, For) or inner.extent != BYTE_TERMS or len(inner.body) != 1:
        return False
    update = inner.body[0]
    if loop.kind is not LoopKind.SERIAL or not isinstance(update, Reduce):
        return False
    types = sorted(load.dtype for load in loads_in((update,)))
    along = [variables(update.indices[-1])] if update.indices else []
    return (
        (update.buffer.dtype, types) == ("int32", ["int8", "uint8"])
        and any(loop.var in used for used in along)
        and all(inner.var not in variables(index) for index in update.indices)
    )
