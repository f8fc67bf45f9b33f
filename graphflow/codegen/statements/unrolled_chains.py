"""Chains of statements in unrolled loops, whose iterations are emitted side by side.

In: an unrolled loop.  Out: the statements that its iterations execute on vectors, and the loops
around them, where the statements of several iterations may take turns.

    before:  for i in unrolled(0, 14): for v in vectorized(0, 16): S1; S2; …; S9
    emitted: S1 of i = 0, S1 of i = 1, …; S2 of i = 0, S2 of i = 1, …; …

Each statement of a chain reads what the one before it wrote.  A processor looks some 300
instructions ahead, in which there are few chains where these follow each other: it waits for
results.  Side by side, chains fill its pipelines.

What always holds: no iteration reads or overwrites what another one writes, so the order among them
does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import TypeAlias

from msgspec import Struct

from graphflow import tir
from graphflow.arith import Const, Var
from graphflow.base.dtypes import BYTES, STORED_FLOATS
from graphflow.codegen.saturated import Saturated, packable

SIDE_BY_SIDE = 16
"""Iterations whose statements take turns.  Sums of 256 products, 128 × 1024 of them, with seven
roundings to float16 and an error function behind each, take 708 µs one by one on a Zen 4, 690 by
twos, 668 by eights, 660 by 16 and 659 by 32, in bfloat16 725 and 667; with AVX2 933 and 784.  Sums
of 16 products with two roundings to bfloat16 take 647 and 587 µs, with AVX2 940 and 746."""


Point: TypeAlias = tuple[int, ...]
"""The values of the variables of unrolled loops in one iteration."""

VECTORS = (8, 16)
"""The lanes of the vectors of which bytes are made four at once."""

WORD_VECTORS = (8,)
"""The lanes of those of which words are made two at once; of more, an instruction narrows one."""


class UnrolledChains(Struct, frozen=True):
    """The vectorized loop whose body is a chain, and the unrolled loops around it, outermost first.

    `starts` and `extents` are those of the unrolled loops.
    """

    variables: tuple[Var, ...]
    starts: tuple[int, ...]
    extents: tuple[int, ...]
    lanes: tir.For

    @property
    def last_store(self) -> tir.Store:
        """The last statement of a chain."""
        store = self.lanes.body[-1]
        assert isinstance(store, tir.Store)
        return store

    @property
    def width(self) -> int:
        """The lanes of a vector."""
        return _extent(self.lanes)

    @property
    def packed(self) -> Saturated | None:
        """What the last statement rounds to bytes or words, if those of several iterations may be
        made at once."""
        return _packed(self.lanes, self.variables)

    def rounds(self) -> Iterator[list[Point]]:
        """The values of the loop variables, in order, by so many iterations as take turns."""
        ranges = (
            range(start, start + extent)
            for start, extent in zip(self.starts, self.extents, strict=True)
        )
        points = list(product(*ranges))
        for begin in range(0, len(points), SIDE_BY_SIDE):
            yield points[begin : begin + SIDE_BY_SIDE]


@tir.kept_by_node
def unrolled_chains(loop: tir.For) -> UnrolledChains | None:
    """The chains of an unrolled loop; None where its iterations are emitted one by one.

    Only chains that round to a stored type are emitted side by side, as each rounding is some ten
    cycles in which nothing else of its chain can begin, and those that end in bytes, of which four
    iterations make one vector.
    """
    nest = [loop]
    while (inner := _only_loop(nest[-1])) is not None and inner.kind is tir.LoopKind.UNROLLED:
        nest.append(inner)
    lanes = _only_loop(nest[-1])
    if lanes is None or lanes.kind is not tir.LoopKind.VECTORIZED:
        return None
    bounds = [(one.start, one.stop) for one in nest]
    known = [(a.value, b.value) for a, b in bounds if isinstance(a, Const) and isinstance(b, Const)]
    variables = tuple(one.var for one in nest)
    gains = _rounds(lanes.body) or _packed(lanes, variables) is not None
    if len(known) < len(nest) or not gains:
        return None
    if not _independent(lanes.body, variables):
        return None
    starts, extents = zip(*((start, max(stop - start, 0)) for start, stop in known), strict=True)
    return UnrolledChains(variables, starts, extents, lanes)


def _only_loop(loop: tir.For) -> tir.For | None:
    """The loop that is all that another one executes."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    return inner if isinstance(inner, tir.For) else None


def _rounds(body: tir.Body) -> bool:
    """Whether statements are stores, several of them, and one rounds to a stored type."""
    values = [stmt.value for stmt in body if isinstance(stmt, tir.Store)]
    if len(values) < len(body) or len(values) < 2:
        return False
    return any(isinstance(v, tir.Cast) and v.dtype in STORED_FLOATS for v in values)


def _extent(loop: tir.For) -> int:
    """The extent of a loop; 0 where it is no constant."""
    extent = loop.stop - loop.start
    return extent.value if isinstance(extent, Const) else 0


def _packed(lanes: tir.For, variables: tuple[Var, ...]) -> Saturated | None:
    """What the last of nothing but stores rounds to bytes or words, in whole vectors."""
    last = lanes.body[-1]
    stores = all(isinstance(stmt, tir.Store) for stmt in lanes.body)
    if not isinstance(last, tir.Store) or not stores:
        return None
    if _extent(lanes) not in (VECTORS if last.buffer.dtype in BYTES else WORD_VECTORS):
        return None
    return packable(last, {*variables, lanes.var})


def _independent(body: tir.Body, variables: tuple[Var, ...]) -> bool:
    """Whether iterations of loops over `variables` touch different elements of what they write.

    Each statement writes a buffer of its own.  If another statement accesses that too, all access
    one element in an iteration, and each loop variable is one of its indices.
    """
    accesses = [(a, number) for number, stmt in enumerate(body) for a in tir.accesses((stmt,))]
    written = [a.buffer for a, _ in accesses if a.kind is not tir.AccessKind.READ]
    if len(set(written)) < len(body):
        return False
    for buffer in written:
        places = {access.indices for access, _ in accesses if access.buffer == buffer}
        users = {number for access, number in accesses if access.buffer == buffer}
        if len(users) > 1 or len(places) > 1:
            own = len(places) == 1 and all(v in next(iter(places)) for v in variables)
            if not own:
                return False
    return True
