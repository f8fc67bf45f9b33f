"""Every clause of every primitive's condition has a kernel that fails it, and a refusal.

A refusal by a clause about elements shows a witness: the index or the iterations that fail it.
"""

from __future__ import annotations

import re

import pytest

from graphflow.schedule import Schedule
from support.buffer_refusals import BUFFER_REFUSALS
from support.expression_refusals import EXPRESSION_REFUSALS
from support.loop_refusals import LOOP_REFUSALS
from support.refusal import Refusal, clauses
from support.rfc77_primitives import PRIMITIVES
from support.statement_refusals import STATEMENT_REFUSALS

REFUSALS = (*BUFFER_REFUSALS, *EXPRESSION_REFUSALS, *LOOP_REFUSALS, *STATEMENT_REFUSALS)
ALWAYS_SAFE = ("inline", "simplify")
"""Primitives without a condition."""


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.name)
def test_a_clause_that_fails_is_named_with_a_witness(refusal: Refusal) -> None:
    text = refusal.text()
    assert re.search(refusal.message, text), text
    assert re.search(refusal.witness, text), text


def test_each_clause_of_each_primitive_is_refused() -> None:
    """The clauses are those that the docstrings of the catalogue's primitives number or name."""
    refused = {(refusal.primitive.__name__, refusal.clause) for refusal in REFUSALS}
    for row in PRIMITIVES:
        found = clauses(getattr(Schedule, row.name))
        assert bool(found) != (row.name in ALWAYS_SAFE), row.name
        assert [clause for clause in found if (row.name, clause) not in refused] == [], row.name
