"""Which sums of matrix products may stay in registers while a loop runs.

In: a loop of a kernel.  Out: the windows that its products add to, one for each iteration of the
unrolled loops inside.  What always holds: the loop does nothing but matrix products, and no two of
the windows share an element.

For example, of

    for k in serial(0, 4):
        for i in unrolled(0, 2):
            matrix_product_16x16(c[16*i:16*i + 16, 0:16], a[16*i:16*i + 16, 64*k:64*k + 64], b[…])

the sums c[0:16, 0:16] and c[16:32, 0:16] stay in two registers for all k.

Before such a loop sums mostly begin with a number for each column, which all rows share
(`begun_sums`): registers load that row for each of theirs, and it is not written to memory first.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from math import prod
from typing import NamedTuple

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


class BegunSum(NamedTuple):
    """A sum all of whose rows begin with the lanes of `row`, or with zeros where that is None."""

    sums: Sum
    row: tir.BufferWindow | None


def begun_sums(fill: tir.Stmt, loop: tir.Stmt) -> tuple[BegunSum, ...] | None:
    """The sums that stay in registers while `loop` runs, where `fill` right before it writes what
    all of their rows begin with, and nothing else; None where it does something else.

        for i in serial(0, 16):
            for v in vectorized(0, 16):
                c[i, v] = b[v]                 each row of c[0:16, 0:16] begins with b[0:16]
    """
    store = _filling(fill)
    sums = None if store is None or not isinstance(loop, tir.For) else sums_of_products(loop)
    if store is None or not sums or any(window.buffer != store.buffer for window, _ in sums):
        return None
    # The sums share no element, so that they are all of the buffer if they have as many.
    if sum(prod(shape) for _, shape in sums) != store.buffer.size:
        return None
    if isinstance(store.value, tir.Literal) and store.value.value == 0:
        return tuple(BegunSum(one, None) for one in sums)
    rows = [_first_row(store, window) for window, _ in sums]
    begun = tuple(BegunSum(one, row) for one, row in zip(sums, rows, strict=True) if row)
    return begun if len(begun) == len(sums) else None


def _filling(stmt: tir.Stmt) -> tir.Store | None:
    """The store of a nest of loops that writes each element of a buffer once; None where a
    statement is anything else, or several threads share it."""
    extents: dict[IndexExpr, int | None] = {}
    while (
        isinstance(stmt, tir.For) and len(stmt.body) == 1 and stmt.kind is not tir.LoopKind.PARALLEL
    ):
        extents[stmt.var] = stmt.extent if constant_value(stmt.start) == 0 else None
        (stmt,) = stmt.body
    if not isinstance(stmt, tir.Store) or len(set(stmt.indices)) < len(stmt.indices):
        return None
    wanted = zip(stmt.indices, stmt.buffer.shape, strict=True)
    whole = all(extents.get(i) == n or (n == 1 and constant_value(i) == 0) for i, n in wanted)
    return stmt if whole and extents.keys() <= set(stmt.indices) else None


def _first_row(store: tir.Store, sums: tir.BufferWindow) -> tir.BufferWindow | None:
    """What the rows of a window begin with: neighbouring elements of a buffer, the same for each
    row; None where a row begins with anything else."""
    row, lane = (store.indices[axis] for axis in sums.kept)
    if not isinstance(store.value, tir.Load) or not isinstance(lane, Var):
        return None
    source = store.value
    along = [axis for axis, i in enumerate(source.indices) if lane in variables(i)]
    if any(variables(row) & variables(i) for i in source.indices) or len(along) != 1:
        return None
    if lane in variables(source.indices[along[0]] - lane):
        return None
    begin = {i: e for i, e in zip(store.indices, sums.starts, strict=True) if isinstance(i, Var)}
    starts = tuple(substitute(i, begin) for i in source.indices)
    return tir.BufferWindow(source.buffer, starts, (along[0],))
