"""Sums of products of bytes in lanes, whose lanes are kept in another order.

In: a kernel.  Out: its buffers in registers that may have their lanes in another order, and the
orders of lanes and bytes.  A dot product adds up the four bytes of each lane, and so a product in
each lane needs its byte alone in 32 bits: widening 16 bytes to these takes the one port that
shuffles.  A load that repeats 16 bytes four times does not.  Then lane n has the bytes 4 (n mod 4)
to 4 (n mod 4) + 3, of which weights that are 0 elsewhere choose byte n div 4:

    lane             0  1  2   3   4  5  6   7   8  9 10  11  12 13 14  15
    element of it    0  4  8  12   1  5  9  13   2  6 10  14   3  7 11  15

What always holds: every access to such a buffer is to whole vectors of it, in the order of their
elements, so that one shuffle where a vector is loaded or stored by anything else gives its order
back.  It is its own inverse.
"""

from __future__ import annotations

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const, variables

LANES, SIDE = 16, 4

_IN_LANES = tir.Store | tir.Reduce | tir.Let | tir.Block

LANE_ORDER = [SIDE * (lane % SIDE) + lane // SIDE for lane in range(LANES)]
"""The element that each lane has, and the lane that has each element."""

CHOSEN_BYTES = [-(byte % SIDE == byte // LANES) for byte in range(SIDE * LANES)]
"""By the bytes of a vector all ones where the element of the lane is, else zeros."""


def transposed_sums(func: tir.PrimFunc, product: tir.PrimFunc) -> frozenset[str]:
    """The names of the buffers whose lanes may be kept in that order: those in registers to which
    calls of `product` add, no other call does anything, and every access is to a whole vector."""
    calls = tir.calls_in(func.body)
    sums = (c.windows[0].buffer for c in calls if c.definition == product)
    found = {buffer for buffer in sums if buffer.scope == "register" and buffer.shape[-1] == LANES}
    found -= {w.buffer for c in calls if c.definition != product for w in c.windows}
    lanes = {loop.var for loop in tir.loops_of(func.body) if _is_whole_vector(loop)}
    for access in tir.accesses(func.body) if found else ():
        if access.buffer in found and not _in_order(access.indices, lanes):
            found.discard(access.buffer)
    return frozenset(buffer.name for buffer in found)


def _in_order(indices: tuple[IndexExpr, ...], lanes: set[Var]) -> bool:
    """Whether the elements of an access are those of a whole vector, in order."""
    *outer, last = indices
    return last in lanes and not any(last in variables(index) for index in outer)


def _is_whole_vector(loop: tir.For) -> bool:
    """Whether a loop has the lanes of a vector, each of which executes all its statements.

    A loop with others may be emitted lane by lane, or have a mask.
    """
    whole = (loop.start, loop.stop) == (const(0), const(LANES))
    vectorized = loop.kind is tir.LoopKind.VECTORIZED
    return whole and vectorized and all(isinstance(s, _IN_LANES) for s in tir.walk(loop.body))
