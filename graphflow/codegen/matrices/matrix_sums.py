"""Which sums of matrix products may stay in registers while a loop runs.

In: a loop of a kernel.  Out: the windows that its products add to, one for each iteration of the
unrolled loops inside.  What always holds: the loop does nothing but matrix products, and no two of
the windows share an element.

For example, of

    for k in serial(0, 4):
        for i in unrolled(0, 2):
            matrix_product_16x16(c[16*i:16*i + 16, 0:16], a[16*i:16*i + 16, 64*k:64*k + 64], b[…])

the sums c[0:16, 0:16] and c[16:32, 0:16] stay in two registers for all k.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const, constant_value, substitute, variables
from graphflow.codegen.matrices.matrix_registers import MOST_SUMS, is_matrix_product

Sum = tuple[tir.BufferWindow, tuple[int, ...]]
"""A window of sums, and its shape."""


@tir.kept_by_node  # an unrolled loop around it emits it many times
def sums_of_products(loop: tir.For) -> tuple[Sum, ...] | None:
    """The windows; None where the loop does something else, where a window depends on how often the
    loop, or a serial one inside, has run, where two windows may share an element, and where there
    are too many."""
    calls = _products((loop,), {})
    if calls is None:
        return None
    serial = {x.var for x in tir.loops_of((loop,)) if x.kind is not tir.LoopKind.UNROLLED}
    found = dict.fromkeys(calls)
    if any(serial & variables(e) for window, _ in found for e in window.starts):
        return None
    if len(found) > MOST_SUMS or not all(_are_apart(a, b) for a, b in combinations(found, 2)):
        return None
    return tuple(found)


def _products(body: tir.Body, known: Mapping[Var, IndexExpr]) -> list[Sum] | None:
    """The sums of all matrix products in a body, for each iteration of unrolled loops; None where
    there is another statement."""
    found: list[Sum] = []
    for stmt in body:
        inner: list[Sum] | None
        match stmt:
            case tir.Call(definition=definition, windows=(sums, *_)) if is_matrix_product(
                definition
            ):
                starts = tuple(substitute(e, known) for e in sums.starts)
                shape = definition.params[0].buffer.shape
                inner = [(tir.BufferWindow(sums.buffer, starts, sums.kept), shape)]
            case tir.For(kind=tir.LoopKind.UNROLLED):
                inner = _unrolled(stmt, known)
            case tir.For(kind=tir.LoopKind.SERIAL):
                inner = _products(stmt.body, known)
            case _:
                inner = None
        if inner is None:
            return None
        found += inner
    return found


def _unrolled(loop: tir.For, known: Mapping[Var, IndexExpr]) -> list[Sum] | None:
    start, extent = constant_value(loop.start), loop.extent
    if start is None or extent is None:
        return None
    found: list[Sum] = []
    for step in range(start, start + extent):
        inner = _products(loop.body, {**known, loop.var: const(step)})
        if inner is None:
            return None
        found += inner
    return found


def _are_apart(one: Sum, other: Sum) -> bool:
    """Whether two windows are known to share no element."""
    (a, shape), (b, _) = one, other
    if a.buffer != b.buffer:
        return True
    extents = dict(zip(a.kept, shape, strict=True))
    return a.kept == b.kept and any(
        (apart := constant_value(x - y)) is not None and abs(apart) >= extents.get(axis, 1)
        for axis, (x, y) in enumerate(zip(a.starts, b.starts, strict=True))
    )
