"""Primitives that write the iterations of a loop out, or join two loops over adjacent ranges.

In: a kernel and its loops.  Out: the kernel with the same iterations in the same order.
"""

from __future__ import annotations

from dataclasses import replace

from graphflow.arith import IndexExpr, Proof, Var, at_most, conjunction, equal, prove
from graphflow.base.errors import ScheduleError
from graphflow.schedule.facts.dependence import independent
from graphflow.schedule.places.obligations import require, structural
from graphflow.schedule.places.place_names import fresh_copy, names_in, place_names, rename_places
from graphflow.schedule.places.places import constant_extent, find_loop, rewrite_around, rewrite_at
from graphflow.schedule.steps.frame import Rewrite
from graphflow.tir import AT_ONCE, Body, For, LoopKind, PrimFunc, Stmt, sub_bodies, substitute_body

MOST_STATEMENTS = 10_000
"""Statements that a loop is written out to at most.  16,000 take each later step that looks at the
kernel more than a second, and LLVM more than ten to compile."""


def require_few_statements(stmt: For, loop: str) -> int:
    """The number of iterations of a loop that is to be written out.

    ScheduleError where that is no constant, or the loop would become more than `MOST_STATEMENTS`.
    """
    extent = constant_extent(stmt)
    count = extent * _written_out(stmt.body)
    if count > MOST_STATEMENTS:
        raise ScheduleError(
            f"size: {loop} written out has {count:,} statements, and {MOST_STATEMENTS:,} is most; "
            "divide it, and write out the inner loop"
        )
    return extent


def _written_out(body: Body) -> int:
    """The statements of a body, those of loops that are marked to be unrolled once an iteration."""
    count = 0
    for stmt in body:
        below = sum(map(_written_out, sub_bodies(stmt)))
        if isinstance(stmt, For) and stmt.kind is LoopKind.UNROLLED:
            count += (stmt.extent or 1) * below
        else:
            count += 1 + below
    return count


def unroll_loop(func: PrimFunc, loop: str) -> Rewrite:
    """`for i in (a, b): S` → `S[i → a]`, `S[i → a + 1]`, …, `S[i → b - 1]`.

    1. The number of iterations is a constant.
    2. The loop runs at least once.
    3. *size*: the statements that it becomes are at most `MOST_STATEMENTS`.

    The places of the first copy keep their names, those of copy k end in `_k`.  The kernel grows
    with the number of iterations; `mark_unrolled` leaves writing them out to the emitter.
    """
    stmt, _ = find_loop(func, loop)
    extent = require_few_statements(stmt, loop)
    if extent == 0:
        raise ScheduleError(f"{loop} never runs: ({stmt.start}, {stmt.stop}) is empty")
    taken = set(place_names(func))
    body: list[Stmt] = []
    places: dict[str, tuple[str, ...]] = {name: (name,) for name in names_in(stmt.body)}
    for k in range(extent):
        piece = stmt.body
        if k:
            piece, names = fresh_copy(stmt.body, f"_{k}", taken)
            taken |= set(names.values())
            places = {old: (*now, names[old]) for old, now in places.items()}
        values: dict[Var, IndexExpr] = {stmt.var: stmt.start + k}
        body += substitute_body(piece, values)
    new = rewrite_at(func, loop, lambda _s, _d: tuple(body))
    proof = structural(f"{loop} runs exactly {extent} times, in this order")
    return Rewrite(new, (proof,), {loop: (), **places})


def join_loops(func: PrimFunc, loop: str, second: str) -> Rewrite:
    """`for i in (a, b): S` and `for j in (b, c): S[i → j]` → `for i in (a, c): S`.

    1. The loops are adjacent: nothing stands between them.
    2. Their bodies are identical but for the names of loops, blocks and buffers in them.
    3. The second starts where the first stops, and neither stops before it starts.
    4. They are of one kind, and where iterations run at once, all of them are independent.

    The places of the second become those of the first.  Makes the loop in the role `joined`.
    """
    one, _ = find_loop(func, loop)
    other, _ = find_loop(func, second)
    proofs: list[Proof] = []
    names = dict(zip(names_in((other,)), names_in((one,)), strict=False))

    def change(body: Body, position: int, domain: object) -> Body:
        if position + 1 >= len(body) or body[position + 1] is not other:
            raise ScheduleError(f"{second} does not follow {loop} directly")
        return (*body[:position], joined, *body[position + 2 :])

    _, domain = find_loop(func, loop)
    if one.kind is not other.kind:
        raise ScheduleError(f"{loop} is {one.kind.value} and {second} is {other.kind.value}")
    _require_equal_bodies(one, other, names)
    sides = (equal(one.stop, other.start), at_most(one.start, one.stop))
    claim = conjunction((*sides, at_most(other.start, other.stop)))
    proofs.append(require(prove(claim, domain), f"{second} starts where {loop} stops"))
    joined = replace(one, stop=other.stop)
    if joined.kind in AT_ONCE:
        proofs += independent(joined, domain)
    new = rewrite_around(func, loop, change)
    places = {old: (now,) for old, now in names.items()}
    return Rewrite(new, tuple(proofs), places, {"joined": (loop,)})


def _require_equal_bodies(one: For, other: For, names: dict[str, str]) -> None:
    """ScheduleError, with the first statements that differ, unless the bodies are identical."""
    renamed = rename_places((other,), names)[0]
    assert isinstance(renamed, For)
    same = len(names_in((one,))) == len(names_in((other,))) and renamed.body == one.body
    if not same:
        pairs = zip(one.body, renamed.body, strict=False)
        first = next((k for k, (a, b) in enumerate(pairs) if a != b), None)
        where = f"from statement {first} on" if first is not None else "in their number"
        raise ScheduleError(
            f"the bodies of {one.var} and {other.var} are not identical: they differ {where}"
        )
