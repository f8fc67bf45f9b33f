"""Expressions whose value is known where they are evaluated, and pairs of equal conditions.

In: a kernel, the path of a statement, and a load in it; or the paths of two conditions.  Out: the
constant that the load reads, or a proof that both conditions agree.  What always holds: a constant
follows from stores that must have happened, and from the claims of assumptions until a write that
may touch the element ends them.
"""

from __future__ import annotations

from typing import Any, cast

import islpy as isl

from graphflow import arith, tir
from graphflow.effects.dataflow import states_constant
from graphflow.effects.known_values import ComputedValue, ValueComparison, ValuesDiffer, plain
from graphflow.effects.paths import Path
from graphflow.effects.questions import METHOD
from graphflow.effects.relations import answered, relations_of
from graphflow.effects.statements import Statement


def held_constant(
    func: tir.PrimFunc, path: Path, load: tir.Load
) -> tuple[tir.Literal | None, arith.Proof]:
    """The constant that `load` reads wherever the statement at `path` evaluates it, with the proof.

    None, with a proof that is not PROVEN, where there is no such constant or it is not found.
    """
    relations = relations_of(func)
    statement = relations.model.at(path)
    name = tir.element_text(load.buffer, load.indices)
    claim = f"{name} is one constant in {statement.title}"
    if not any(
        (
            isinstance(a.statement.stmt, tir.Store)
            and tir.constant_of(a.statement.stmt.value) is not None
            and a.access.writes
        )
        or states_constant(a)
        for a in relations.model.of(load.buffer)
    ):
        reason = "no store and no assumption says so"
        return None, arith.Proof(arith.Verdict.UNKNOWN, claim, "structure", reason)
    held: list[tir.Literal] = []

    def ask(context: Any) -> arith.Proof:
        compared = ValueComparison(relations, context)
        try:
            for access in relations.model.made_by(statement):
                one = access.access
                if one.writes or one.buffer != load.buffer or one.indices != load.indices:
                    continue
                same = plain(relations.domain(context, access).identity())
                for value, _ in compared.contents(access, same):
                    literal = (
                        tir.constant_of(value.expr) if isinstance(value, ComputedValue) else None
                    )
                    if literal is None or (held and held[0] != literal):
                        texts = [_text_of(known) for known in (*held, literal)]
                        reason = f"{name} may hold {' or '.join(texts)}"
                        return arith.Proof(arith.Verdict.UNKNOWN, claim, METHOD, reason)
                    held.append(literal)
        except ValuesDiffer as found:
            return arith.Proof(arith.Verdict.UNKNOWN, claim, METHOD, found.reason)
        if not held:
            return arith.Proof(arith.Verdict.UNKNOWN, claim, METHOD, f"{name} is never read")
        return arith.Proof(
            arith.Verdict.PROVEN, f"{name} is {held[0].value} in {statement.title}", METHOD
        )

    proof = answered(claim, ask)
    return (held[0] if proof.proven else None), proof


def _text_of(value: tir.Literal | None) -> str:
    return "another value" if value is None else str(value.value)


def conditions_agree(func: tir.PrimFunc, path: Path, other: Path) -> arith.Proof:
    """Whether the conditions on data of two neighbouring statements have the same value.

    So it is where they compute it in the same way, from elements that are not written in between.
    The statements must be `If`s in one body; ValueError where they are not.
    """
    relations = relations_of(func)
    one, two = relations.model.at(path), relations.model.at(other)
    if path[:-1] != other[:-1] or not (
        isinstance(one.stmt, tir.If) and isinstance(two.stmt, tir.If)
    ):
        raise ValueError(f"{one.title} and {two.title} of {func.name} are no neighbours")
    claim = f"{one.title} and {two.title} agree"

    def ask(context: Any) -> arith.Proof:
        names = ", ".join(arith.isl_name(axis.var) for axis in one.domain.axes)
        text = f"{{ [{names}] : {arith.isl_constraints(one.domain)} }}"
        same = isl.Set.read_from_str(context, text).identity()
        try:
            ValueComparison(relations, context).require_same(
                ComputedValue(_condition(one), one), ComputedValue(_condition(two), two), same
            )
        except ValuesDiffer as found:
            return arith.Proof(arith.Verdict.UNKNOWN, claim, METHOD, found.reason, found.witness)
        return arith.Proof(arith.Verdict.PROVEN, claim, METHOD)

    return answered(claim, ask)


def _condition(statement: Statement) -> tir.Expr:
    """The condition on data of an `If`; ValueError for one on indices."""
    assert isinstance(statement.stmt, tir.If)
    condition = statement.stmt.condition
    if tir.is_predicate(condition):
        raise ValueError(f"{statement.title} is a condition on indices")
    return cast(tir.Expr, condition)
