"""Every clause of every primitive's condition has a kernel that fails it, and a refusal.

A refusal by a clause about elements shows a witness: the index or the iterations that fail it.
"""

from __future__ import annotations

import re

import pytest

from graphflow.arith import Var, at_least_zero
from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    Schedule,
    compute_at,
    remove_overcompute_through_branching,
    rewrite_expr,
)
from graphflow.tir import Load, PrimFunc, Select
from support.primitives.buffer_refusals import BUFFER_REFUSALS
from support.primitives.expression_refusals import EXPRESSION_REFUSALS
from support.primitives.loop_refusals import LOOP_REFUSALS
from support.primitives.rare_refusals import RARE_REFUSALS
from support.primitives.refusal import Refusal, clauses
from support.primitives.statement_refusals import STATEMENT_REFUSALS
from support.rfc77.primitives import ALWAYS_SAFE, PRIMITIVES
from support.schedule_checks import kernel

REFUSALS = (
    *BUFFER_REFUSALS,
    *EXPRESSION_REFUSALS,
    *LOOP_REFUSALS,
    *RARE_REFUSALS,
    *STATEMENT_REFUSALS,
)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_a_clause_that_fails_is_named_with_a_witness(refusal: Refusal) -> None:
    text = refusal.text()
    assert re.search(refusal.message, text), text
    assert re.search(refusal.witness, text), text


PLACES = {
    "rewrite_expr": lambda f: rewrite_expr(f, "i[0]", "x[i]", chosen(f)),
    "compute_at": lambda f: compute_at(f, "i[0]", "i"),
    "remove_overcompute_through_branching": lambda f: remove_overcompute_through_branching(
        f, "i[0]", "i < 3"
    ),
}


def chosen(func: PrimFunc) -> Select:
    """The same value on both sides of a condition on a variable that nothing binds."""
    load = Load(func.inputs[0], (Var("i"),))
    return Select(at_least_zero(Var("j")), load, load)


@pytest.mark.parametrize("name", PLACES)
def test_what_is_given_no_such_place_is_refused(name: str) -> None:
    """No lookup fails in an error of another kind, and no variable is left unbound."""
    func = kernel("for i in serial(0, 16):\n    y[i] = x[i]")
    with pytest.raises(ScheduleError, match=r"no loop|has no name"):
        PLACES[name](func)


def test_each_clause_of_each_primitive_is_refused() -> None:
    """The clauses are those that the docstrings of the catalogue's primitives number or name."""
    refused = {(refusal.primitive.__name__, refusal.clause) for refusal in REFUSALS}
    for row in PRIMITIVES:
        found = clauses(getattr(Schedule, row.name))
        assert bool(found) != (row.name in ALWAYS_SAFE), row.name
        assert [clause for clause in found if (row.name, clause) not in refused] == [], row.name
