"""Every clause of every primitive's condition has a kernel that fails it, and a refusal.

A refusal by a clause about elements shows a witness: the index or the iterations that fail it.
"""

import re
from collections.abc import Callable
from typing import Any

import pytest

from graphflow.arith import Var, at_least_zero
from graphflow.base.errors import ScheduleError
from graphflow.schedule import (
    Schedule,
    compute_at,
    infer_bounds,
    interior,
    remove_overcompute_through_branching,
    rewrite_expr,
)
from graphflow.tir import Load, PrimFunc, Select
from support.primitives.all_cases import ALL_CASES
from support.primitives.condition_cases import starting_late
from support.primitives.refusal import Refusal, clauses
from support.primitives.rfc77 import ALWAYS_SAFE, PRIMITIVES
from support.schedule_checks import kernel

REFUSALS = tuple(refusal for case in ALL_CASES for refusal in case.refusals)


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_a_clause_that_fails_is_named_with_a_witness(refusal: Refusal) -> None:
    text = refusal.text()
    assert re.search(refusal.message, text), text
    assert re.search(refusal.witness, text), text


PLACES: dict[str, Callable[[PrimFunc], Any]] = {
    "rewrite_expr": lambda f: rewrite_expr(f, "i[0]", "x[i]", chosen(f)),
    "compute_at": lambda f: compute_at(f, "i[0]", "i"),
    "remove_overcompute_through_branching": lambda f: remove_overcompute_through_branching(
        f, "i[0]", "i < 3"
    ),
    "bounds of a buffer": lambda f: infer_bounds(f).of("x"),
    "bounds of a loop": lambda f: infer_bounds(f).range("k"),
}


def chosen(func: PrimFunc) -> Select:
    """The same value on both sides of a condition on a variable that nothing binds."""
    load = Load(func.inputs[0], (Var("i"),))
    return Select(at_least_zero(Var("j")), load, load)


@pytest.mark.parametrize("name", PLACES)
def test_what_is_given_no_such_place_is_refused(name: str) -> None:
    """No lookup fails in an error of another kind, and no variable is left unbound."""
    func = kernel("for i in serial(0, 16):\n    y[i] = x[i]")
    with pytest.raises(
        ScheduleError,
        match=r"no loop|has no name|nothing writes a buffer x|no write is in a loop k",
    ):
        PLACES[name](func)


def test_a_loop_with_an_interior_has_constant_bounds() -> None:
    with pytest.raises(ScheduleError, match="the loop j starts at i; its bounds must be constant"):
        interior(starting_late(), "j")


def test_each_clause_of_each_primitive_is_refused() -> None:
    """The clauses are those that the docstrings of the catalogue's primitives number or name."""
    refused = {(refusal.primitive.__name__, refusal.clause) for refusal in REFUSALS}
    for row in PRIMITIVES:
        found = clauses(getattr(Schedule, row.name))
        assert bool(found) != (row.name in ALWAYS_SAFE), row.name
        assert [clause for clause in found if (row.name, clause) not in refused] == [], row.name
