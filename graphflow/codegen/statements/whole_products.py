"""Loops of products that execute all iterations they can have, and so may be unrolled.

In: the products that are put in pairs, and the indices of the loops that are open.  Out: of a loop
around others the ends that these have where they leave out nothing; and such a loop unrolled.
Windows leave out rows at borders alone, so that nearly all positions have all of them:

    before:   for r: for tile: for kh in (max(1 - r, 0), 3): products of a row
    emitted:  for r: if max(1 - r, 0) == 0: for tile: products of three rows
                     else: for tile: for kh: products of a row

What always holds: an end is tested in the innermost loop that it follows from, outside of all loops
that it does not depend on; code under the test alone takes it for known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from graphflow import tir
from graphflow.arith import IndexExpr, Var, bounds, const, variables
from graphflow.base.fields import replace
from graphflow.codegen.emit_index import Indices
from graphflow.codegen.statements.paired_products import MOST_TOGETHER, product_to_pair

Limits: TypeAlias = "dict[IndexExpr, int]"
"""Begins and ends of loops, and what they are where the loops execute all iterations."""


class WholeProducts:
    """The serial loops of products of a kernel, while its statements are emitted."""

    def __init__(self, products: Sequence[tir.PrimFunc], indices: Indices) -> None:
        self._products, self._indices = products, indices
        self._known: Limits = {}

    def limits(self, loop: tir.For, body: tir.Body) -> Limits:
        """Those of the loops in the body of a loop whose ends follow from its index, and that of
        loops around it, if all their products are few enough."""
        found: Limits = {}
        for inner in product_loops(body, self._products):
            ends = self._ends(inner)
            read = frozenset[Var]().union(*map(variables, ends))
            whole = self._whole(ends)
            if loop.var not in read or not read <= self._indices.ranges.keys() or not whole:
                continue
            if count_products(inner.body, whole) <= MOST_TOGETHER:
                limits = zip(ends, (whole.start, whole.stop), strict=True)
                found |= {end: limit for end, limit in limits if not self._is_known(end, limit)}
        return found

    @contextmanager
    def assuming(self, limits: Limits) -> Iterator[None]:
        """While the context lasts, the ends of loops are these."""
        around, self._known = self._known, self._known | limits
        yield
        self._known = around

    def unrolled(self, loop: tir.For) -> tir.For | None:
        """A loop of few products with constant ends: those of all its iterations, where it is
        known to execute these; None for other loops."""
        if product_to_pair(loop.body, self._products) is None:
            return None
        ends = self._ends(loop)
        whole = self._whole(ends)
        if not whole or count_products(loop.body, whole) > MOST_TOGETHER:
            return None
        if not all(map(self._is_known, ends, (whole.start, whole.stop))):
            return None
        return replace(loop, start=const(whole.start), stop=const(whole.stop))

    def _ends(self, loop: tir.For) -> tuple[IndexExpr, IndexExpr]:
        return self._indices.resolved(loop.start), self._indices.resolved(loop.stop)

    def _whole(self, ends: tuple[IndexExpr, IndexExpr]) -> range:
        """From the least that the first end can be to the greatest that the last one can be; empty
        where there is none."""
        ranges = self._indices.ranges
        low, high = bounds(ends[0], ranges)[0], bounds(ends[1], ranges)[1]
        return range(0) if low is None or high is None else range(low, high)

    def _is_known(self, end: IndexExpr, limit: int) -> bool:
        """Whether an end is a number wherever the code that is emitted now runs."""
        known = bounds(end, self._indices.ranges) == (limit, limit)
        return known or self._known.get(end) == limit


def product_loops(body: tir.Body, products: Sequence[tir.PrimFunc]) -> Iterator[tir.For]:
    """The serial loops of a body that consist of products, in unrolled loops if in any."""
    if not products:
        return
    for loop in tir.loops_of(body):
        serial = loop.kind is tir.LoopKind.SERIAL
        if serial and product_to_pair(loop.body, products) is not None:
            yield loop


def count_products(body: tir.Body, iterations: range) -> int:
    """The most products that an unrolled body of a loop executes in these iterations of it."""
    return len(iterations) * sum(map(_products_of, body))


def _products_of(stmt: tir.Stmt) -> int:
    match stmt:
        case tir.For(body=body):
            return (stmt.extent or 0) * sum(map(_products_of, body))
        case tir.If(then=body):
            return sum(map(_products_of, body))
    return 1
