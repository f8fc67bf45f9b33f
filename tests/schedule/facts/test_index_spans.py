"""Tests of the spans of indices: against all values of the variables, and what has none."""

import pytest

from graphflow.arith import Domain, Var, const, evaluate, floor_div
from graphflow.schedule.facts.index_spans import span_of

O, I, J, K = map(Var, "oijk")
DOMAIN = (
    Domain().inside(O, 0, 5).inside(I, 3 * O, 3 * O + 3).inside(J, I - 1, I + 3).inside(K, 2, 4)
)


def _points(o):
    for i in range(3 * o, 3 * o + 3):
        for j in range(i - 1, i + 3):
            yield from ({O: o, I: i, J: j, K: k} for k in (2, 3))


@pytest.mark.parametrize(
    ("index", "gapless"),
    [
        (const(7), True),
        (floor_div(O, 2) + K, True),
        (I + J, True),
        (I - J, True),
        (O - 2 * K, False),
        (2 * K + I, True),
        (8 * J + K, False),
    ],
)
def test_both_ends_are_taken(index, gapless):
    span = span_of(index, DOMAIN, {O})
    for o in range(5):
        values = {evaluate(index, point) for point in _points(o)}
        base = evaluate(span.base, {O: o})
        assert (base + span.low, base + span.high) == (min(values), max(values))
        assert not span.gapless or len(values) == span.high - span.low + 1
    assert span.gapless is gapless


def test_variables_inside_a_floor_or_of_unknown_extent_have_none():
    assert span_of(floor_div(I, 2), DOMAIN, {O}) is None
    assert span_of(J, Domain().inside(J, 0, O), {O}) is None
    assert span_of(I, Domain().inside(J, 0, 4), {J}) is None
