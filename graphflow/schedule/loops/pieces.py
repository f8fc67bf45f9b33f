"""Primitives that write the iterations of a loop out, or join two loops over adjacent ranges.

In: a kernel and its loops.  Out: the kernel with the same iterations in the same order.
"""

from __future__ import annotations

from graphflow import arith, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.facts.dependence import independent
from graphflow.schedule.places import obligations, place_names
from graphflow.schedule.places.places import (
    constant_extent,
    exchange_at,
    find_loop,
    loop_at,
    rewrite_around,
)
from graphflow.schedule.steps.frame import Rewrite

MOST_STATEMENTS = 10_000
"""Statements that a loop is written out to at most.  16,000 take each later step that looks at the
kernel more than a second, and LLVM more than ten to compile."""


def require_few_statements(stmt: tir.For, loop: str) -> int:
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


def _written_out(body: tir.Body) -> int:
    """The statements of a body, those of loops that are marked to be unrolled once an iteration."""
    count = 0
    for stmt in body:
        below = sum(map(_written_out, tir.sub_bodies(stmt)))
        if isinstance(stmt, tir.For) and stmt.kind is tir.LoopKind.UNROLLED:
            count += (stmt.extent or 1) * below
        else:
            count += 1 + below
    return count


def unroll_loop(func: tir.PrimFunc, loop: str) -> Rewrite:
    """`for i in (a, b): S` → `S[i → a]`, `S[i → a + 1]`, …, `S[i → b - 1]`.

    1. The number of iterations is a constant.
    2. The loop runs at least once.
    3. *size*: the statements that it becomes are at most `MOST_STATEMENTS`.

    The places of the first copy keep their names, those of copy k end in `_k`.  The kernel grows
    with the number of iterations; `mark_unrolled` leaves writing them out to the emitter.
    """
    stmt = loop_at(func, loop)
    extent = require_few_statements(stmt, loop)
    if extent == 0:
        raise ScheduleError(f"{loop} never runs: ({stmt.start}, {stmt.stop}) is empty")
    taken = set(place_names.names_of_places(func))
    body: list[tir.Stmt] = []
    places: dict[str, tuple[str, ...]] = {
        name: (name,) for name in place_names.declared_names(stmt.body)
    }
    for k in range(extent):
        piece = stmt.body
        if k:
            piece, names = place_names.fresh_copy(stmt.body, f"_{k}", taken)
            taken |= set(names.values())
            places = {old: (*now, names[old]) for old, now in places.items()}
        values: dict[arith.Var, arith.IndexExpr] = {stmt.var: stmt.start + k}
        body += tir.substitute_body(piece, values)
    new = exchange_at(func, loop, tuple(body))
    proof = obligations.structural(f"{loop} runs exactly {extent} times, in this order")
    return Rewrite(new, (proof,), {loop: (), **places})


def join_loops(func: tir.PrimFunc, loop: str, second: str) -> Rewrite:
    """`for i in (a, b): S` and `for j in (b, c): S[i → j]` → `for i in (a, c): S`.

    1. The loops are adjacent: nothing stands between them.
    2. Their bodies are identical but for the names of loops, blocks and buffers in them.
    3. The second starts where the first stops, and neither stops before it starts.
    4. They are of one kind, and where iterations run at once, all of them are independent.

    The places of the second become those of the first.  Makes the loop in the role `joined`.
    """
    one = loop_at(func, loop)
    other = loop_at(func, second)
    proofs: list[arith.Proof] = []
    names = dict(
        zip(place_names.declared_names((other,)), place_names.declared_names((one,)), strict=False)
    )

    def change(body: tir.Body, position: int, domain: object) -> tir.Body:
        if position + 1 >= len(body) or body[position + 1] is not other:
            raise ScheduleError(f"{second} does not follow {loop} directly")
        return (*body[:position], joined, *body[position + 2 :])

    _, domain = find_loop(func, loop)
    if one.kind is not other.kind:
        raise ScheduleError(f"{loop} is {one.kind.value} and {second} is {other.kind.value}")
    _require_equal_bodies(one, other, names)
    sides = (arith.equal(one.stop, other.start), arith.at_most(one.start, one.stop))
    claim = arith.conjunction((*sides, arith.at_most(other.start, other.stop)))
    proofs.append(
        obligations.require(arith.prove(claim, domain), f"{second} starts where {loop} stops")
    )
    joined = replace(one, stop=other.stop)
    if joined.kind in tir.AT_ONCE:
        proofs += independent(joined, domain)
    new = rewrite_around(func, loop, change)
    places = {old: (now,) for old, now in names.items()}
    return Rewrite(new, tuple(proofs), places, {"joined": (loop,)})


def _require_equal_bodies(one: tir.For, other: tir.For, names: dict[str, str]) -> None:
    """ScheduleError, with the first statements that differ, unless the bodies are identical."""
    renamed = place_names.rename_places((other,), names)[0]
    assert isinstance(renamed, tir.For)
    same = (
        len(place_names.declared_names((one,))) == len(place_names.declared_names((other,)))
        and renamed.body == one.body
    )
    if not same:
        pairs = zip(one.body, renamed.body, strict=False)
        first = next((k for k, (a, b) in enumerate(pairs) if a != b), None)
        where = f"from statement {first} on" if first is not None else "in their number"
        raise ScheduleError(
            f"the bodies of {one.var} and {other.var} are not identical: they differ {where}"
        )
