"""Instructions whose meaning depends on configuration state, matched where the state is known.

In: a kernel, a place, and a definition that reads fields of configuration state.  Out: the call
that performs the statements there.  What always holds: a definition is simplified only by values
that the effect analysis proves the fields to hold whenever the place is reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice, product
from operator import eq, ge, gt, le, lt, ne
from typing import cast

import numpy as np

from graphflow.arith import Proof
from graphflow.base.errors import ScheduleError
from graphflow.effects import held_constant
from graphflow.layout import fold_binary, fold_cast, fold_unary
from graphflow.schedule.addresses import path_of
from graphflow.schedule.place_names import fresh_name, has_place
from graphflow.schedule.places import rewrite_around
from graphflow.tir import (
    DTYPES,
    Allocate,
    Assume,
    Binary,
    Body,
    Buffer,
    Call,
    Cast,
    Comparison,
    Condition,
    Expr,
    If,
    Literal,
    Load,
    NotUnifiable,
    PrimFunc,
    Reduce,
    Select,
    Stmt,
    Store,
    Unary,
    expressions_of,
    is_predicate,
    loads_in,
    map_body,
    unify,
    walk,
    walk_expr,
    writes_in,
)

MOST_STATES = 32
"""Combinations of values of fields that are tried for the message of a refusal."""

_COMPARISONS = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq, "ne": ne}

State = Mapping[Buffer, Literal]
"""Known values of fields of configuration state."""


def unify_in_state(
    func: PrimFunc, place: str, definition: PrimFunc, body: Body, name: str
) -> tuple[Call, tuple[Proof, ...]]:
    """The call `name` of `definition` that performs `body`, the statements at `place`.

    Where the definition reads fields of configuration state that the body does not, it is matched
    as it is for the values that the fields hold there: with the sides of conditions that they
    decide, and without the assumptions that they make true.  The proofs say which values these are.
    NotUnifiable with the first difference; ScheduleError, with both values, where it would match if
    a field held another one.
    """
    written = {write.buffer for write in writes_in(definition.body)}
    read = {load.buffer for load in loads_in(body)}
    loads = dict.fromkeys(load.buffer for load in loads_in(definition.body))
    fields = [b for b in loads if b.is_field and b not in written and b not in read]
    try:
        return unify(definition, body, name), ()
    except NotUnifiable as error:
        if not fields:
            raise
        difference = error
    found = {field: _known(func, place, field) for field in fields}
    state = {field: value for field, (value, _) in found.items() if value is not None}
    call = _matched(definition, state, body, name)
    if call is not None:
        return call, tuple(proof for _, proof in found.values() if proof.proven)
    needed = _state_that_matches(definition, fields, state, body, name)
    if needed is None:
        raise difference
    field = next(field for field in fields if needed.get(field) != state.get(field))
    value, proof = found[field]
    there = f"holds {value.value}" if value else f"is not known to hold it ({proof.reason})"
    raise ScheduleError(
        f"state: {definition.name} does this where {field.name} is {needed[field].value}, and at "
        f"{place} {field.name} {there}"
    )


def _known(func: PrimFunc, place: str, field: Buffer) -> tuple[Literal | None, Proof]:
    """The value of a field whenever a place is reached, if it is one constant."""
    held = Buffer(fresh_name("value", lambda n: has_place(func, n)), (), field.dtype)
    load = Load(field, ())
    *around, (position, _) = path_of(func, place)
    head = (Allocate(held), Store(held, (), load))
    probe = rewrite_around(func, place, lambda body, at, _d: (*body[:at], *head, *body[at:]))
    value, proof = held_constant(probe, (*around, (position + 1, False)), load)
    claim = f"{field.name} is {value.value if value else 'one constant'} at {place}"
    return value, replace(proof, claim=claim)


def _matched(definition: PrimFunc, state: State, body: Body, name: str) -> Call | None:
    """The call that performs `body` in a state; None where there is none."""
    if not state:
        return None
    settled = replace(definition, body=in_state(definition.body, state))
    if any(isinstance(s, Assume) and s.claim == _FALSE for s in walk(settled.body)):
        return None
    try:
        return replace(unify(settled, body, name), definition=definition)
    except NotUnifiable:
        return None


def _state_that_matches(
    definition: PrimFunc, fields: list[Buffer], state: State, body: Body, name: str
) -> dict[Buffer, Literal] | None:
    """The state, of values with which the definition compares its fields, in which it matches."""
    choices = [
        [(field, value) for value in dict.fromkeys((*_compared(definition, field),))]
        or [(field, value) for value in (state[field],) if field in state]
        for field in fields
    ]
    for values in islice(product(*choices), MOST_STATES):
        if _matched(definition, dict(values), body, name) is not None:
            return dict(values)
    return None


def _compared(definition: PrimFunc, field: Buffer) -> tuple[Literal, ...]:
    """The constants with which a definition compares a field."""
    found = []
    for stmt in walk(definition.body):
        for expr in expressions_of(stmt):
            for node in walk_expr(expr):
                if isinstance(node, Comparison) and Load(field, ()) in (node.left, node.right):
                    found += [e for e in (node.left, node.right) if isinstance(e, Literal)]
    return tuple(found)


_FALSE, _TRUE = Literal(False, "bool"), Literal(True, "bool")


def in_state(body: Body, state: State) -> Body:
    """`body` with the values of fields put in, and what they decide simplified."""

    def on_stmt(stmt: Stmt) -> Stmt | Body:
        match stmt:
            case Store() | Reduce():
                return replace(stmt, value=_settled(stmt.value, state))
            case If():
                condition = _settled_condition(stmt.condition, state)
                if condition in (_TRUE, _FALSE):
                    return stmt.then if condition == _TRUE else stmt.orelse
                return replace(stmt, condition=condition)
            case Assume():
                claim = _settled(stmt.claim, state)
                return () if claim == _TRUE else replace(stmt, claim=claim)
            case _:
                return stmt

    return map_body(body, on_stmt)


def _settled_condition(condition: Condition, state: State) -> Condition:
    return condition if is_predicate(condition) else _settled(cast(Expr, condition), state)


def _settled(expr: Expr, state: State) -> Expr:
    """An expression with values of fields put in; parts without fields stay as they are."""
    if not any(isinstance(node, Load) and node.buffer in state for node in walk_expr(expr)):
        return expr
    folded: Expr | None = None
    match expr:
        case Load():
            return state[expr.buffer]
        case Unary() | Cast():
            operand = _settled(expr.operand, state)
            expr = replace(expr, operand=operand)
            if isinstance(operand, Literal):
                cast_to = isinstance(expr, Cast)
                folded = fold_cast(operand, expr.dtype) if cast_to else None
                folded = fold_unary(expr.op, operand) if isinstance(expr, Unary) else folded
        case Binary() | Comparison():
            left, right = _settled(expr.left, state), _settled(expr.right, state)
            expr = replace(expr, left=left, right=right)
            if isinstance(left, Literal) and isinstance(right, Literal):
                if isinstance(expr, Binary):
                    folded = fold_binary(expr.op, left, right)
                else:
                    folded = _compare(expr, left, right)
        case Select():
            condition = _settled_condition(expr.condition, state)
            sides = _settled(expr.if_true, state), _settled(expr.if_false, state)
            if condition in (_TRUE, _FALSE):
                return sides[condition == _FALSE]
            return Select(condition, *sides)
        case _:
            pass
    return expr if folded is None else folded


def _compare(expr: Comparison, left: Literal, right: Literal) -> Literal:
    sides = (np.asarray(one.value, DTYPES[one.dtype])[()] for one in (left, right))
    return Literal(bool(_COMPARISONS[expr.op](*sides)), "bool")
