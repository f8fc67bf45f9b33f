"""Tests of integer sets: bounds, boxes and predicates agree with the points."""

from random import Random

import pytest

from graphflow import arith

o, i, e = arith.Var("o"), arith.Var("i"), arith.Var("e")
SIZE = 6


def condition(dice: Random) -> arith.Predicate:
    """A random condition on o and i."""
    k, m, c = dice.choice((1, 2, 3)), dice.choice((-2, -1, 1, 2)), dice.randint(-4, 8)
    left = k * o + m * i + c
    match dice.randrange(4):
        case 0:
            return arith.at_most(0, left)
        case 1:
            return arith.less_than(arith.floor_div(left, 3), dice.randint(-1, 3))
        case 2:
            return arith.equal(arith.floor_mod(left, dice.choice((2, 3))), 0)
        case _:
            return arith.disjunction((arith.less_than(o, i), arith.at_most(0, left - 6)))


def drawn(seed: int) -> tuple[arith.IntegerSet, dict[int, list[int]]]:
    """A random set over (o, i), and its values of i for each value of o."""
    dice = Random(seed)
    where = arith.conjunction(condition(dice) for _ in range(dice.randint(0, 2)))
    rows = {a: [b for b in range(SIZE) if arith.holds(where, {o: a, i: b})] for a in range(SIZE)}
    return arith.IntegerSet.of(arith.box((o, i), (SIZE, SIZE)).given(where)), rows


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
                ends = arith.evaluate(low.expr, {o: a}), arith.evaluate(high.expr, {o: a})
                assert ends[0] <= row[0] and row[-1] <= ends[1]
                assert not low.exact or ends[0] == row[0]
                assert not high.exact or ends[1] == row[-1]
        assert points.extent(i, (o,)) == max(row[-1] - row[0] + 1 for row in rows.values() if row)
        start, length = points.offset(i, (o,))
        for a, row in rows.items():
            assert all(0 <= b - arith.evaluate(start, {o: a}) < length for b in row)
    assert exact > 80


def test_a_predicate_holds_in_the_set_alone() -> None:
    undecided = 0
    whole = arith.IntegerSet.of(arith.box((o, i), (SIZE, SIZE)))
    for seed in range(120):
        points, rows = drawn(seed)
        try:
            found = points.predicate(whole)
        except arith.Undecided:
            undecided += 1
            continue
        for a, row in rows.items():
            assert [b for b in range(SIZE) if arith.holds(found, {o: a, i: b})] == row
    assert undecided < 12


def test_a_minimum_that_isl_gives_value_by_value_is_found_in_the_constraints() -> None:
    domain = arith.Domain(
        (
            arith.Axis(o, arith.const(0), arith.const(2)),
            arith.Axis(i, arith.const(0), arith.const(16)),
        )
    )
    points = arith.IntegerSet.of(domain.given(arith.less_than(16 * o + i, 20)))
    low, high = points.bounds(i, (o,))
    assert (str(low.expr), str(high.expr), high.exact) == ("0", "min(-16*o + 19, 15)", True)


def test_a_window_may_begin_beyond_the_border() -> None:
    domain = arith.Domain(
        (
            arith.Axis(o, arith.const(0), arith.const(4)),
            arith.Axis(i, arith.const(0), arith.const(10)),
        )
    )
    moved = 8 * o + i - 1
    points = arith.IntegerSet.of(domain).image((e,), (moved,))
    inside = arith.IntegerSet.of(arith.Domain((arith.Axis(e, arith.const(0), arith.const(32)),)))
    start, length = (points & inside).offset(e, (o,))
    assert (str(start), length) == ("8*o - 1", 10)


def test_projection_union_and_difference() -> None:
    points = arith.IntegerSet.of(arith.box((o, i), (3, 4)))
    assert points.over((i,)).equals(arith.IntegerSet.of(arith.box((i,), (4,))))
    rest = points - arith.IntegerSet.of(arith.box((o, i), (3, 2)))
    assert rest.least() == (0, 2)
    assert (rest | arith.IntegerSet.of(arith.box((o, i), (3, 2)))).equals(points)
    assert (points & arith.IntegerSet.nothing((o, i))).is_empty
    with pytest.raises(arith.Undecided, match="no point"):
        arith.IntegerSet.nothing((o,)).sample()
