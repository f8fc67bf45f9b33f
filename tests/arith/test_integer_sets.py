"""Tests of integer sets: bounds, boxes and predicates agree with the points."""

from __future__ import annotations

from random import Random

import pytest

from graphflow.arith import (
    Axis,
    Domain,
    IntegerSet,
    Predicate,
    Undecided,
    Var,
    at_most,
    box,
    conjunction,
    const,
    disjunction,
    equal,
    evaluate,
    floor_div,
    floor_mod,
    holds,
    less_than,
)

o, i, e = Var("o"), Var("i"), Var("e")
SIZE = 6


def condition(dice: Random) -> Predicate:
    """A random condition on o and i."""
    k, m, c = dice.choice((1, 2, 3)), dice.choice((-2, -1, 1, 2)), dice.randint(-4, 8)
    left = k * o + m * i + c
    match dice.randrange(4):
        case 0:
            return at_most(0, left)
        case 1:
            return less_than(floor_div(left, 3), dice.randint(-1, 3))
        case 2:
            return equal(floor_mod(left, dice.choice((2, 3))), 0)
        case _:
            return disjunction((less_than(o, i), at_most(0, left - 6)))


def drawn(seed: int) -> tuple[IntegerSet, dict[int, list[int]]]:
    """A random set over (o, i), and its values of i for each value of o."""
    dice = Random(seed)
    where = conjunction(condition(dice) for _ in range(dice.randint(0, 2)))
    rows = {a: [b for b in range(SIZE) if holds(where, {o: a, i: b})] for a in range(SIZE)}
    return IntegerSet.of(box((o, i), (SIZE, SIZE)).given(where)), rows


def test_bounds_of_a_set_agree_with_its_points() -> None:
    exact = 0
    for seed in range(120):
        points, rows = drawn(seed)
        if not any(rows.values()):
            assert points.is_empty
            continue
        low, high = points.bounds(i, (o,))
        exact += low.exact and high.exact
        for a, row in rows.items():
            if row:
                ends = evaluate(low.expr, {o: a}), evaluate(high.expr, {o: a})
                assert ends[0] <= row[0] and row[-1] <= ends[1]
                assert not low.exact or ends[0] == row[0]
                assert not high.exact or ends[1] == row[-1]
        assert points.extent(i, (o,)) == max(row[-1] - row[0] + 1 for row in rows.values() if row)
        start, length = points.offset(i, (o,))
        for a, row in rows.items():
            assert all(0 <= b - evaluate(start, {o: a}) < length for b in row)
    assert exact > 80


def test_a_predicate_holds_in_the_set_alone() -> None:
    undecided = 0
    whole = IntegerSet.of(box((o, i), (SIZE, SIZE)))
    for seed in range(120):
        points, rows = drawn(seed)
        try:
            found = points.predicate(whole)
        except Undecided:
            undecided += 1
            continue
        for a, row in rows.items():
            assert [b for b in range(SIZE) if holds(found, {o: a, i: b})] == row
    assert undecided < 12


def test_a_minimum_that_isl_gives_value_by_value_is_found_in_the_constraints() -> None:
    domain = Domain((Axis(o, const(0), const(2)), Axis(i, const(0), const(16))))
    points = IntegerSet.of(domain.given(less_than(16 * o + i, 20)))
    low, high = points.bounds(i, (o,))
    assert (str(low.expr), str(high.expr), high.exact) == ("0", "min(-16*o + 19, 15)", True)


def test_a_window_may_begin_beyond_the_border() -> None:
    domain = Domain((Axis(o, const(0), const(4)), Axis(i, const(0), const(10))))
    moved = 8 * o + i - 1
    points = IntegerSet.of(domain).image((e,), (moved,))
    inside = IntegerSet.of(Domain((Axis(e, const(0), const(32)),)))
    start, length = (points & inside).offset(e, (o,))
    assert (str(start), length) == ("8*o - 1", 10)


def test_projection_union_and_difference() -> None:
    points = IntegerSet.of(box((o, i), (3, 4)))
    assert points.over((i,)).equals(IntegerSet.of(box((i,), (4,))))
    rest = points - IntegerSet.of(box((o, i), (3, 2)))
    assert rest.least() == (0, 2)
    assert (rest | IntegerSet.of(box((o, i), (3, 2)))).equals(points)
    assert (points & IntegerSet.nothing((o, i))).is_empty
    with pytest.raises(Undecided, match="no point"):
        IntegerSet.nothing((o,)).sample()
