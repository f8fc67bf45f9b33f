"""Instructions whose meaning depends on configuration state, matched where the state is known.

In: a kernel, a place, and a definition that reads fields of configuration state.  Out: the call
that performs the statements there.  What always holds: a definition is simplified only by values
that the effect analysis proves the fields to hold whenever the place is reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice, product
from operator import eq, ge, gt, le, lt, ne
from typing import cast

import numpy as np

from graphflow import arith, effects, layout, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.places import addresses

MOST_STATES = 32
"""Combinations of values of fields that are tried for the message of a refusal."""

_COMPARISONS = {"lt": lt, "le": le, "gt": gt, "ge": ge, "eq": eq, "ne": ne}

State = Mapping[tir.Buffer, tir.Literal]
"""Known values of fields of configuration state."""


def unify_in_state(
    func: tir.PrimFunc, place: str, definition: tir.PrimFunc, body: tir.Body, name: str
) -> tuple[tir.Call, tuple[arith.Proof, ...]]:
    """The call `name` of `definition` that performs `body`, the statements at `place`.

    Where the definition reads fields of configuration state that the body does not, it is matched
    as it is for the values that the fields hold there: with the sides of conditions that they
    decide, and without the assumptions that they make true.  The proofs say which values these are.
    NotUnifiable with the first difference; ScheduleError, with both values, where it would match if
    a field held another one.
    """
    written = {write.buffer for write in tir.writes_in(definition.body)}
    read = {load.buffer for load in tir.loads_in(body)}
    loads = dict.fromkeys(load.buffer for load in tir.loads_in(definition.body))
    fields = [b for b in loads if b.is_field and b not in written and b not in read]
    try:
        return tir.unify(definition, body, name), ()
    except tir.NotUnifiable as error:
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


def _known(
    func: tir.PrimFunc, place: str, field: tir.Buffer
) -> tuple[tir.Literal | None, arith.Proof]:
    """The value of a field whenever a place is reached, if it is one constant."""
    path = addresses.path_of(func, place)
    value, proof = effects.held_constant(func, path, tir.Load(field, ()))
    claim = f"{field.name} is {value.value if value else 'one constant'} at {place}"
    return value, proof.of(claim)


def _matched(definition: tir.PrimFunc, state: State, body: tir.Body, name: str) -> tir.Call | None:
    """The call that performs `body` in a state; None where there is none."""
    if not state:
        return None
    settled = replace(definition, body=in_state(definition.body, state))
    if any(isinstance(s, tir.Assume) and s.claim == _FALSE for s in tir.walk(settled.body)):
        return None
    try:
        return replace(tir.unify(settled, body, name), definition=definition)
    except tir.NotUnifiable:
        return None


def _state_that_matches(
    definition: tir.PrimFunc, fields: list[tir.Buffer], state: State, body: tir.Body, name: str
) -> dict[tir.Buffer, tir.Literal] | None:
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


def _compared(definition: tir.PrimFunc, field: tir.Buffer) -> tuple[tir.Literal, ...]:
    """The constants with which a definition compares a field."""
    found = []
    for stmt in tir.walk(definition.body):
        for expr in tir.expressions_of(stmt):
            for node in tir.walk_expr(expr):
                if isinstance(node, tir.Comparison) and tir.Load(field, ()) in (
                    node.left,
                    node.right,
                ):
                    found += [e for e in (node.left, node.right) if isinstance(e, tir.Literal)]
    return tuple(found)


_FALSE, _TRUE = tir.Literal(False, "bool"), tir.Literal(True, "bool")


def in_state(body: tir.Body, state: State) -> tir.Body:
    """`body` with the values of fields put in, and what they decide simplified."""

    def on_stmt(stmt: tir.Stmt) -> tir.Stmt | tir.Body:
        match stmt:
            case tir.Store() | tir.Reduce():
                return replace(stmt, value=_settled(stmt.value, state))
            case tir.If():
                condition = _settled_condition(stmt.condition, state)
                if condition in (_TRUE, _FALSE):
                    return stmt.then if condition == _TRUE else stmt.orelse
                return replace(stmt, condition=condition)
            case tir.Assume():
                claim = _settled(stmt.claim, state)
                return () if claim == _TRUE else replace(stmt, claim=claim)
            case _:
                return stmt

    return tir.map_body(body, on_stmt)


def _settled_condition(condition: tir.Condition, state: State) -> tir.Condition:
    return condition if tir.is_predicate(condition) else _settled(cast(tir.Expr, condition), state)


def _settled(expr: tir.Expr, state: State) -> tir.Expr:
    """An expression with values of fields put in; parts without fields stay as they are."""
    if not any(isinstance(node, tir.Load) and node.buffer in state for node in tir.walk_expr(expr)):
        return expr
    folded: tir.Expr | None = None
    match expr:
        case tir.Load():
            return state[expr.buffer]
        case tir.Unary() | tir.Cast():
            operand = _settled(expr.operand, state)
            expr = replace(expr, operand=operand)
            if isinstance(operand, tir.Literal):
                cast_to = isinstance(expr, tir.Cast)
                folded = layout.fold_cast(operand, expr.dtype) if cast_to else None
                folded = (
                    layout.fold_unary(expr.op, operand) if isinstance(expr, tir.Unary) else folded
                )
        case tir.Binary() | tir.Comparison():
            left, right = _settled(expr.left, state), _settled(expr.right, state)
            expr = replace(expr, left=left, right=right)
            if isinstance(left, tir.Literal) and isinstance(right, tir.Literal):
                if isinstance(expr, tir.Binary):
                    folded = layout.fold_binary(expr.op, left, right)
                else:
                    folded = _compare(expr, left, right)
        case tir.Select():
            condition = _settled_condition(expr.condition, state)
            sides = _settled(expr.if_true, state), _settled(expr.if_false, state)
            if condition in (_TRUE, _FALSE):
                return sides[condition == _FALSE]
            return tir.Select(condition, *sides)
        case _:
            pass
    return expr if folded is None else folded


def _compare(expr: tir.Comparison, left: tir.Literal, right: tir.Literal) -> tir.Literal:
    sides = (np.asarray(one.value, tir.DTYPES[one.dtype])[()] for one in (left, right))
    return tir.Literal(bool(_COMPARISONS[expr.op](*sides)), "bool")
