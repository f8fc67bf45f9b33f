"""Primitives on lets: naming a value, moving its evaluation outwards, and putting it back.

In: a kernel and the name of a let, or the place of the statements that get one.  Out: the kernel
with the value evaluated elsewhere.  What always holds: a value that is evaluated earlier or later
than before is the same there, since nothing that it loads is written in between; and what it loads
exists where it is evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.places import addresses, obligations, places
from graphflow.schedule.places.step_arguments import ExprGiven
from graphflow.schedule.statements.expressions import (
    before_last,
    bind,
    may_be_evaluated,
    require_scope,
    unchanged,
)
from graphflow.schedule.steps.frame import Rewrite


def bind_let(
    func: tir.PrimFunc, place: str, expr: ExprGiven, name: str, cse: bool = True
) -> Rewrite:
    """`S[e]` → `with let(e) as t: S[t]`, for all expressions in S that are equal to `expr`.

    In a loop or block S is its body; any other statement is S itself.  `expr` is given as in
    `bind_expr`, and without `cse` only the first statement that has it uses the let.  It may be the
    condition of an `if`, a select or its condition, or a part of a boolean expression;
    `lift_scope` and `lift_lets` then move it outwards.

    Conditions: *found*, *scope*, *unchanged* and *memory* of `bind_expr`.

    Makes the new let in the role `let`.
    """

    def assigned(bound: tir.Buffer, value: tir.Expr, used: tir.Body) -> tir.Body:
        return (tir.Let(bound, value, used),)

    return replace(bind(func, place, expr, name, cse, assigned), made={"let": (name,)})


def inline_let(func: tir.PrimFunc, let: str) -> Rewrite:
    """`with let(e) as t: S[t]` → `S[e]`.

    Conditions: *let*: the place is a let.  *unchanged*: nothing that e loads is written in S before
    the last use.  *call*: no call in S is given t as a buffer.
    """
    stmt, domain = _find_let(func, let)
    load, text = tir.Load(stmt.buffer, ()), tir.expr_text(stmt.value)
    for call in tir.calls_in(stmt.body):
        if any(window.buffer == stmt.buffer for window in call.windows):
            raise ScheduleError(f"call: {call.name} is given {let} as a buffer")
    users = [s for s in tir.walk(stmt.body) if _uses(s, load)]
    proofs: tuple[arith.Proof, ...] = ()
    if users:
        between = before_last(stmt.body, users)
        proofs = unchanged(
            stmt.value, between, domain, f"unchanged: {text} is the same at each use of {let}"
        )
    body = tir.map_expressions(stmt.body, lambda node: stmt.value if node == load else node)
    new = places.exchange_at(func, let, body)
    return Rewrite(new, (*proofs, obligations.structural(f"{let} is {text}")), {let: ()})


def lift_lets(func: tir.PrimFunc, place: str, conditions_only: bool = False) -> Rewrite:
    """`for i: for j: with let(e) as t: S` → `for i: with let(e) as t: for j: S`, for each let.

    The lets in the loop, block or condition `place` leave loops and conditions inside of it, each
    as far out as `lift_scope` permits; one stays below what it depends on.  With `conditions_only`
    just those move that a condition needs: an `if` or a select uses the let, or another such let.

    ScheduleError where no let moves.
    """
    root = places.stmt_at(func, place)
    lets = [stmt for stmt in tir.walk((root,)) if isinstance(stmt, tir.Let)]
    if conditions_only:
        needed = _needed_by_conditions((root,), lets)
        lets = [let for let in lets if let.buffer in needed]
    new, proofs = func, list[arith.Proof]()
    for let in lets:
        moved = _furthest(new, let.buffer.name, place)
        new = moved.func
        proofs += moved.proofs
    if new is func:
        raise ScheduleError(f"no let in {place} can leave a loop or condition")
    return Rewrite(new, tuple(proofs))


def lift_let(func: tir.PrimFunc, let: str) -> Rewrite:
    """The part of `lift_scope` for a let: `P: A; with let(e) as t: S; B` → `with let(e) as t: P: A;
    S; B`, where P is a loop, a condition, a block, another let or a named window; out of a window,
    e loads from the buffer behind it.

    Conditions: *scope*: e uses neither the loop P nor a buffer or let that begins in P.
    *unchanged*: nothing that e loads is written in P before the let; in a loop, at all.  *memory*:
    where P does not evaluate e each time, what it loads is in bounds and no forbidden padding.
    """
    _find_let(func, let)
    path = addresses.path_of(func, let)
    if len(path) == 1:
        raise ScheduleError(f"nothing is around {let}")
    above = (*path[:-2], (path[-2][0], False))
    outer, parent = addresses.statement_address(func, above), effects.statement_at(func, above)
    domain = places.find(func, outer)[1]
    beside, position = effects.body_below(parent, path[-2][1]), path[-1][0]
    stmt = beside[position]
    assert isinstance(stmt, tir.Let)
    text = tir.expr_text(stmt.value)
    require_scope(stmt.value, (parent,), domain, outer)
    before = (parent,) if isinstance(parent, tir.For) else beside[:position]
    condition = f"unchanged: {text} is the same in front of {outer}"
    proofs = (
        *unchanged(stmt.value, before, domain, condition),
        *may_be_evaluated(func, stmt.value, (parent,), domain),
    )
    body = (*beside[:position], *stmt.body, *beside[position + 1 :])
    lifted = replace(stmt, body=(effects.with_body_below(parent, path[-2][1], body),))
    return Rewrite(places.exchange_at(func, outer, (lifted,)), proofs)


def _furthest(func: tir.PrimFunc, let: str, place: str) -> Rewrite:
    """The let lifted as far as it goes inside `place`, and no further than out of the last loop or
    condition that it can leave."""
    best = here = Rewrite(func)
    while (parent := _parent(here.func, let)) is not None and addresses.statement_address(
        *parent
    ) != place:
        try:
            step = lift_let(here.func, let)
        except ScheduleError:
            break
        leaves = isinstance(effects.statement_at(*parent), tir.For | tir.If)
        here = Rewrite(step.func, (*here.proofs, *step.proofs))
        best = here if leaves else best
    return best


def _parent(
    func: tir.PrimFunc, let: str
) -> tuple[tir.PrimFunc, tuple[tuple[int, bool], ...]] | None:
    """The kernel and the path to the statement around a let; None where there is none."""
    path = addresses.path_of(func, let)
    return (func, (*path[:-2], (path[-2][0], False))) if len(path) > 1 else None


def _needed_by_conditions(body: tir.Body, lets: list[tir.Let]) -> set[tir.Buffer]:
    """The buffers of the lets that conditions load, or values of other such lets."""
    needed = {
        node.buffer
        for stmt in tir.walk(body)
        for expr in tir.expressions_of(stmt)
        for condition in _conditions(stmt, expr)
        for node in tir.walk_expr(condition)
        if isinstance(node, tir.Load)
    }
    for let in reversed(lets):  # a let is used behind it alone
        if let.buffer in needed:
            needed |= {
                node.buffer for node in tir.walk_expr(let.value) if isinstance(node, tir.Load)
            }
    return needed


def _conditions(stmt: tir.Stmt, expr: tir.Expr) -> Iterator[tir.Expr]:
    """The conditions on data in an expression of a statement."""
    if isinstance(stmt, tir.If):
        yield expr
    for node in tir.walk_expr(expr):
        if isinstance(node, tir.Select) and not tir.is_predicate(node.condition):
            yield node.condition  # type: ignore[misc]


def _find_let(func: tir.PrimFunc, let: str) -> tuple[tir.Let, arith.Domain]:
    stmt, domain = places.find(func, let)
    if not isinstance(stmt, tir.Let):
        raise ScheduleError(f"let: {let} is no let")
    return stmt, domain


def _uses(stmt: tir.Stmt, load: tir.Load) -> bool:
    return any(node == load for expr in tir.expressions_of(stmt) for node in tir.walk_expr(expr))
