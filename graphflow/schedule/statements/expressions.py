"""Primitives on expressions: bind a value to a buffer, or write an expression in another way.

In: a kernel, the place of a statement, and the expression, itself or as its text.  Out: the kernel
in which the value is computed once, or otherwise.  What always holds: the value is the same
wherever it is used; what is loaded in addition is in bounds and may be accessed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar, cast

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.buffers.relocation import still_at_once
from graphflow.schedule.facts import dependence, padding
from graphflow.schedule.places import addresses, obligations, place_names, places
from graphflow.schedule.places.step_arguments import (
    ExprGiven,
    Term,
    names_buffer,
    term_of,
    value_or_buffer,
)
from graphflow.schedule.steps.frame import Rewrite

# Binding ------------------------------------------------------------------------------------------


def bind_expr(
    func: tir.PrimFunc, place: str, expr: ExprGiven, name: str, cse: bool = True
) -> Rewrite:
    """`S[e]` → `t: T; t = e; S[t]`, for all expressions in S that are equal to `expr`.

    In a loop or block S is its body, and `t` is assigned at its head; any other statement is S
    itself.  `expr` may be given as its text, or as the name of a buffer of which S loads one
    element.  Without `cse` only the first statement that has the expression uses `t`.

    Conditions: *found*: the expression is in S, not in assumptions alone.  *scope*: it uses only
    loops around S and buffers that exist there.  *unchanged*: nothing that it loads is written
    in S before its last use.  *memory*: where S evaluates it under conditions, what it loads is in
    bounds and no padding that nothing may access.  *lanes*: no loop around is vectorized.

    Makes the new buffer in the role `buffer`.
    """
    stmt = places.stmt_at(func, place)
    lanes = [s for s in (*places.loops_around(func, place), stmt) if isinstance(s, tir.For)]
    if any(loop.kind is tir.LoopKind.VECTORIZED for loop in lanes):
        raise ScheduleError(f"lanes: the iterations of {lanes[-1].var} are lanes")

    def assigned(bound: tir.Buffer, value: tir.Expr, used: tir.Body) -> tir.Body:
        return (tir.Allocate(bound), tir.Store(bound, (), value), *used)

    return bind(func, place, expr, name, cse, assigned)


def bind(
    func: tir.PrimFunc,
    place: str,
    expr: ExprGiven,
    name: str,
    cse: bool,
    assigned: Callable[[tir.Buffer, tir.Expr, tir.Body], tir.Body],
) -> Rewrite:
    """The rewrite of `bind_expr` and `bind_let`, except for the condition *lanes*.

    `assigned` gives the statements that make the value known under the new buffer in a body that
    uses it.
    """
    place_names.require_names(name)
    place_names.require_fresh(func, name)
    _, body, proofs = bound_value(
        func,
        place,
        expr,
        lambda value: tir.Buffer(name, (), value.dtype, "register"),
        assigned,
        cse,
    )
    new = places.exchange_at(func, place, body)
    proofs += still_at_once(new)
    return Rewrite(new, tuple(dict.fromkeys(proofs)), made={"buffer": (name,)})


def bound_value(
    func: tir.PrimFunc,
    place: str,
    expr: ExprGiven,
    holder: Callable[[tir.Expr], tir.Buffer],
    assigned: Callable[[tir.Buffer, tir.Expr, tir.Body], tir.Body],
    cse: bool = True,
) -> tuple[tir.Expr, tir.Body, list[arith.Proof]]:
    """The expression, what takes the place of the statement at `place`, and the proofs for that.

    `holder` gives the buffer without axes that holds the value, and `assigned` the statements that
    assign it in front of the statements that use it.  The conditions are those of `bind_expr`,
    except for *lanes*.
    """
    stmt, domain = places.find(func, place)
    body = stmt.body if isinstance(stmt, tir.For | tir.Block) else (stmt,)
    if isinstance(stmt, tir.For):
        domain = domain.inside(stmt.var, stmt.start, stmt.stop)
    value = _found_in(body, place, value_or_buffer(func, expr))
    users = [s for s in tir.walk(body) if _has(s, value)]
    users = users if cse else users[:1]
    require_scope(value, body, domain, place)
    bound = holder(value)
    condition = f"unchanged: {tir.expr_text(value)} is the same at each use in {place}"
    proofs = [
        *unchanged(value, before_last(body, users), domain, condition),
        *may_be_evaluated(func, value, body, domain),
    ]

    def use(node: tir.Expr) -> tir.Expr:
        return tir.Load(bound, ()) if node == value else node

    used = _map_first(body, value, use) if not cse else map_values(body, use)
    made = assigned(bound, value, used)
    if isinstance(stmt, tir.For | tir.Block):
        return value, (replace(stmt, body=made),), proofs
    return value, made, proofs


def _found_in(body: tir.Body, place: str, expr: ExprGiven) -> tir.Expr:
    """The expression in a body that is equal to `expr`, or loads the buffer of this name."""
    nodes = [node for stmt in tir.walk(body) for node in _own_nodes(stmt)]
    equal: list[tir.Expr]
    if isinstance(expr, str):
        equal = [node for node in nodes if isinstance(node, tir.Load) and node.buffer.name == expr]
    else:
        equal = [node for node in nodes if node == expr]
    text = expr if isinstance(expr, str) else tir.expr_text(expr)
    if not equal:
        raise ScheduleError(f"found: {text} does not stand in {place}")
    others = [node for node in equal if node != equal[0]]
    if others:
        texts = f"{tir.expr_text(equal[0])} and {tir.expr_text(others[0])}"
        raise ScheduleError(f"found: {text} stands for {texts} in {place}")
    return equal[0]


def _own_nodes(stmt: tir.Stmt) -> Iterator[tir.Expr]:
    """The nodes of the expressions that a statement itself evaluates; an assumption has none."""
    for expr in () if isinstance(stmt, tir.Assume) else tir.expressions_of(stmt):
        yield from tir.walk_expr(expr)


def _has(stmt: tir.Stmt, value: tir.Expr) -> bool:
    return any(node == value for node in _own_nodes(stmt))


def require_scope(value: tir.Expr, body: tir.Body, domain: arith.Domain, place: str) -> None:
    """ScheduleError, which begins with `scope`, unless `value` may stand in front of a body.

    It then uses neither loops nor allocations of the body, nor what the body assumes something of.
    """
    known = {axis.var for axis in domain.axes}
    stray = sorted(var.name for var in tir.expression_variables(value) - known)
    if stray:
        raise ScheduleError(f"scope: {tir.expr_text(value)} changes with {stray[0]} inside {place}")
    loaded = {node.buffer for node in tir.walk_expr(value) if isinstance(node, tir.Load)}
    for stmt in tir.walk(body):
        if isinstance(stmt, tir.Allocate) and stmt.buffer in loaded:
            raise ScheduleError(f"scope: {stmt.buffer.name} is allocated inside {place}")
        claimed = (
            {load.buffer for load in tir.loads_in((stmt,))}
            if isinstance(stmt, tir.Assume)
            else set()
        )
        if claimed & loaded:
            raise ScheduleError(
                f"scope: {place} assumes something of what {tir.expr_text(value)} loads"
            )


def before_last(body: tir.Body, users: list[tir.Stmt]) -> tir.Body:
    """The statements of a body that may run before the last use of a value."""
    inside = [[s for s in tir.walk((stmt,)) if any(s is user for user in users)] for stmt in body]
    last = max(k for k, uses in enumerate(inside) if uses)
    # A statement evaluates its own expressions before it writes, or runs what is in it.
    alone = len(inside[last]) == 1 and inside[last][0] is body[last]
    return body[:last] if alone else body[: last + 1]


def unchanged(
    value: tir.Expr, body: tir.Body, domain: arith.Domain, condition: str
) -> tuple[arith.Proof, ...]:
    """Proofs that a body writes nothing that `value` loads, in one iteration of the loops around.

    ScheduleError, which begins with `condition`, where one is not proven.
    """
    probe = tir.Store(tir.Buffer("value", (), value.dtype), (), value)
    return dependence.ordered_commute((probe,), body, domain, (), arith.TRUE, condition)


def may_be_evaluated(
    func: tir.PrimFunc, value: tir.Expr, body: tir.Body, domain: arith.Domain
) -> Iterator[arith.Proof]:
    """Proofs that each element that `value` loads may be loaded wherever the body runs."""
    probe = tir.Store(tir.Buffer("value", (), value.dtype), (), value)
    needed = [a for a in tir.accesses((probe,), domain) if not a.writes]
    made = [a for a in tir.accesses(body, domain) if a.certain]
    for access in needed:
        name = f"{access.buffer.name}[{', '.join(map(str, access.indices))}]"
        condition = f"memory: {name} is in bounds at each point of {domain}"
        if any(_is_at_least(one, access) for one in made):
            yield obligations.structural(f"memory: {name} is accessed anyway")
            yield obligations.require(
                arith.prove(padding.in_bounds(access), access.domain), condition
            )
        else:
            yield from padding.may_load(func, access, condition)


def _is_at_least(one: tir.Access, other: tir.Access) -> bool:
    """Whether the first access is to the same element, and at all points of the second one."""
    return (one.buffer, one.indices, one.domain) == (other.buffer, other.indices, other.domain)


def map_values(body: tir.Body, change: Callable[[tir.Expr], tir.Expr]) -> tir.Body:
    """`body` with `change` applied to every node that is evaluated; assumptions stay."""
    return tir.map_body(body, lambda stmt: _map_own(stmt, change))


def _map_own(stmt: tir.Stmt, change: Callable[[tir.Expr], tir.Expr]) -> tir.Stmt:
    match stmt:
        case tir.Store() | tir.Reduce():
            value = tir.map_expr(stmt.value, change)
            return stmt if value is stmt.value else replace(stmt, value=value)
        case tir.If() if not tir.is_predicate(stmt.condition):
            condition = tir.map_expr(cast(tir.Expr, stmt.condition), change)
            return stmt if condition is stmt.condition else replace(stmt, condition=condition)
        case _:
            return stmt


def _map_first(body: tir.Body, value: tir.Expr, change: Callable[[tir.Expr], tir.Expr]) -> tir.Body:
    """`body` with the first statement that has `value` mapped."""
    for position, stmt in enumerate(body):
        new = stmt
        if _has(stmt, value):
            new = _map_own(stmt, change)
        elif isinstance(stmt, tir.Let):
            new = tir.with_performed(stmt, _map_first(tir.performed(stmt), value, change))
        elif isinstance(stmt, tir.For | tir.Block):
            new = replace(stmt, body=_map_first(stmt.body, value, change))
        elif isinstance(stmt, tir.If):
            then = _map_first(stmt.then, value, change)
            side = stmt.orelse if then != stmt.then else _map_first(stmt.orelse, value, change)
            new = replace(stmt, then=then, orelse=side)
        if new != stmt:
            return (*body[:position], new, *body[position + 1 :])
    return body


Item = TypeVar("Item", arith.IndexExpr, arith.Predicate)


# Rewriting ----------------------------------------------------------------------------------------


def rewrite_expr(func: tir.PrimFunc, place: str, old: Term | str, new: Term | str) -> Rewrite:
    """`e` → `e'`, wherever `e` stands in the statement at `place`, not in bodies below it.

    Both may be given as text, and `old` as the name of a buffer that the statement loads; an index
    must be a whole one, as of an axis or a bound, and a predicate a whole condition.

    Conditions: *found*: `e` stands in the statement, which is no assumption.  *type*: both have one
    type.  *scope*: `e'` uses only variables of loops around it and of the kernel.  *equal*: in
    every instance of the statement both have the same value: indices and predicates on integer
    sets; scalar expressions in a normal form, by what their operands are known to hold.
    *memory*: what `e'` loads and `e` does not is in bounds and no padding that nothing may access.
    """
    stmt, domain = places.find(func, place)
    if isinstance(stmt, tir.Assume):
        raise ScheduleError(f"found: {place} is an assumption, which is not evaluated")
    old = old if names_buffer(func, old) else term_of(func, old)
    new = term_of(func, new)
    if isinstance(old, (str, *tir.EXPRESSIONS)):
        if not isinstance(new, tir.EXPRESSIONS):
            raise ScheduleError("type: an index is no scalar expression")
        return _rewrite_value(func, place, stmt, domain, old, new)
    is_index = isinstance(old, arith.IndexExpr)
    if is_index != isinstance(new, arith.IndexExpr) or isinstance(new, tir.EXPRESSIONS):
        raise ScheduleError(f"type: {old} and {new} are of different kinds")
    claim = (
        arith.equal(cast(arith.IndexExpr, old), cast(arith.IndexExpr, new))
        if is_index
        else arith.equivalent(cast(arith.Predicate, old), cast(arith.Predicate, new))
    )
    rewritten: list[Term] = []

    def other(term: Item) -> Item:
        if term != old:
            return term
        rewritten.append(cast(Term, term))
        return cast(Item, new)

    (changed,) = tir.map_indices((_hollow(stmt),), other, other)
    if not rewritten:
        raise ScheduleError(f"found: {old} does not stand in {place} as a whole")
    _require_bound(func, place, domain, new)
    proof = obligations.require(arith.prove(claim, domain), f"equal: {old} and {new}")
    filled = _filled(changed, stmt)
    return Rewrite(places.exchange_at(func, place, (filled,)), (proof,))


def _require_bound(func: tir.PrimFunc, place: str, domain: arith.Domain, term: Term) -> None:
    """ScheduleError where a term uses a variable of no loop around it, nor of the kernel."""
    if isinstance(term, tir.EXPRESSIONS):
        used = frozenset(tir.expression_variables(term))
    elif isinstance(term, arith.IndexExpr):
        used = frozenset(arith.variables(term))
    else:
        used = frozenset(arith.predicate_variables(term))
    stray = sorted(var.name for var in used - {axis.var for axis in domain.axes} - {*func.scalars})
    if stray:
        raise ScheduleError(f"scope: no loop around {place} binds {stray[0]}")


def _hollow(stmt: tir.Stmt) -> tir.Stmt:
    """A statement without the bodies below it."""
    match stmt:
        case tir.For() | tir.Block():
            return replace(stmt, body=())
        case tir.If():
            return replace(stmt, then=(), orelse=())
        case _:
            return stmt


def _filled(hollow: tir.Stmt, stmt: tir.Stmt) -> tir.Stmt:
    """A hollow statement with the bodies of `stmt`."""
    if isinstance(stmt, tir.For | tir.Block) and isinstance(hollow, tir.For | tir.Block):
        return replace(hollow, body=stmt.body)
    if isinstance(stmt, tir.If) and isinstance(hollow, tir.If):
        return replace(hollow, then=stmt.then, orelse=stmt.orelse)
    return hollow


def _rewrite_value(
    func: tir.PrimFunc,
    place: str,
    stmt: tir.Stmt,
    domain: arith.Domain,
    old: ExprGiven,
    new: tir.Expr,
) -> Rewrite:
    if isinstance(stmt, tir.Let):
        place, stmt = f"{place}[-1]", tir.performed(stmt)[1]
    old_expr = _found_in((_hollow(stmt),), place, old)
    if old_expr.dtype != new.dtype:
        raise ScheduleError(
            f"type: {tir.expr_text(old_expr)} is {old_expr.dtype}, the other {new.dtype}"
        )
    _require_bound(func, place, domain, new)
    text = f"equal: {tir.expr_text(old_expr)} and {tir.expr_text(new)}"
    equal = effects.equal_values(func, addresses.path_of(func, place), old_expr, new)
    proofs = [obligations.require(equal, text)]
    known = {node for node in tir.walk_expr(old_expr) if isinstance(node, tir.Load)}
    probe = tir.Store(tir.Buffer("value", (), new.dtype), (), new)
    for access in tir.accesses((probe,), domain):
        if not access.writes and tir.Load(access.buffer, access.indices) not in known:
            proofs += padding.may_load(
                func, access, f"memory: what {tir.expr_text(new)} loads is in bounds"
            )
    changed = _map_own(stmt, lambda node: new if node == old_expr else node)
    problem = next(tir.type_errors(changed), None)
    if problem is not None:
        raise ScheduleError(f"type: {problem}")
    return Rewrite(places.exchange_at(func, place, (changed,)), tuple(proofs))
