"""Points that reach a tuple: solved for where indices add an axis once, and sufficient always."""

import pytest

from graphflow.arith import (
    ANYWHERE,
    Axis,
    Domain,
    IndexExpr,
    Var,
    at_most,
    box,
    conjunction,
    const,
    less_than,
    predicate_variables,
    prove,
)
from graphflow.arith.reaching_points import condition_to_reach

i, j, o, w = Var("i"), Var("j"), Var("o"), Var("w")


def proven(wanted: tuple[IndexExpr, ...], indices: tuple[IndexExpr, ...], domain: Domain) -> bool:
    """Whether the condition holds for 0 <= i < 8 and 0 <= j < 4."""
    condition = condition_to_reach(wanted, indices, domain)
    assert condition is not None
    return prove(condition, box((i, j), (8, 4))).proven


@pytest.mark.parametrize(
    ("wanted", "indices", "extents", "expected"),
    [
        ((i + 1,), (o,), (9, 1), True),
        ((i + 1,), (o,), (8, 1), False),
        ((j, i), (const(3) - o, w), (4, 8), True),
        ((i + j, i), (o + w, w), (4, 8), True),
        ((i, i + 1), (o, o), (9, 1), False),
        ((i, i), (o, o), (8, 1), True),
        ((const(2),), (const(2) + const(0) * o,), (1, 1), True),
        ((i,), (4 * o + w,), (2, 4), False),  # it is reached, at a point that is not tried
    ],
)
def test_a_condition_holds_where_the_point_is_in_the_domain(
    wanted: tuple[IndexExpr, ...],
    indices: tuple[IndexExpr, ...],
    extents: tuple[int, int],
    expected: bool,
) -> None:
    assert proven(wanted, indices, box((o, w), extents)) is expected


def test_bounds_of_inner_axes_and_conditions_are_those_at_the_point() -> None:
    rows = (Axis(o, const(0), const(8)), Axis(w, 4 * o, 4 * o + 4))
    assert proven((i, j), (o, w - 4 * o), Domain(rows))
    assert not proven((i, j), (o, w - 4 * o), Domain(rows, less_than(w, 31)))
    assert proven((i, j), (o, w - 4 * o), Domain(rows, less_than(w, 32)))


def test_an_axis_of_the_same_name_is_another_one() -> None:
    assert proven((j, i), (i, j), box((i, j), (4, 8)))
    assert not proven((j, i), (i, j), box((i, j), (8, 4)))


def test_what_is_known_of_the_tuple_is_left_out() -> None:
    shared = (Axis(o, const(0), const(8)), Axis(w, 4 * o, 4 * o + 4))
    given = Domain((*shared, Axis(i, const(0), const(8))))
    condition = condition_to_reach((o, w, i), (o, w, j), Domain((*shared, Axis(j, o, w))), given)
    assert condition == conjunction((at_most(o, i), less_than(i, w)))
    # The bounds of w are those at another o.
    moved = condition_to_reach((i, w), (o, w), Domain(shared), given)
    assert moved is not None and predicate_variables(moved) == {i, w}


def test_a_parameter_is_no_axis() -> None:
    assert condition_to_reach((i,), (o + j,), box((o,), (8,))) is None
    assert condition_to_reach((i,), (o,), Domain((Axis(o, const(0), j),))) is None
    assert condition_to_reach((i,), (o,), box((o,), (8,)).given(less_than(j, 2))) is None


def test_nothing_is_reached_in_an_empty_domain() -> None:
    condition = condition_to_reach((), (), box((o,), (0,)))
    assert condition is not None and not prove(condition, ANYWHERE).proven
