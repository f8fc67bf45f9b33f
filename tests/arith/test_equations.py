"""Tests of what follows from equations, against all points of small domains."""

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import arith
from graphflow.arith.equations import contradict
from graphflow.arith.index_expr import IndexExpr

I, J, X, Y = (arith.Var(name) for name in "ijxy")
I2, J2, X2, Y2 = (arith.Var(name + "'") for name in "ijxy")
PAIRS = ((I, I2), (J, J2), (X, X2), (Y, Y2))


def ranges(**stops: int) -> dict[arith.Var, arith.Interval]:
    return {arith.Var(n + end): (0, stop - 1) for n, stop in stops.items() for end in ("", "'")}


def differ(*pairs: tuple[arith.Var, arith.Var]) -> arith.Predicate:
    return arith.disjunction(arith.negation(arith.equal(a, b)) for a, b in pairs)


@pytest.mark.parametrize(
    ("equations", "stops"),
    [
        (((I, I2), (J, J2)), {"i": 4, "j": 4}),
        (((16 * I + J, 16 * I2 + J2),), {"i": 4, "j": 16}),
        (((64 * X + 16 * I + J, 64 * X2 + 16 * I2 + J2),), {"i": 4, "j": 16, "x": 3}),
        (((X // 14, X2 // 14), (X % 14, X2 % 14)), {"x": 99}),
        (((X // 14 % 2, X2 // 14 % 2), (X % 14, X2 % 14), (X // 28, X2 // 28)), {"x": 99}),
        (((X % 14, X2 % 14), (5 * (X // 14) + J, 5 * (X2 // 14) + J2)), {"x": 99, "j": 5}),
        (((I + 3 * J, I2 + 3 * J2), (I, I2)), {"i": 9, "j": 4}),
        (
            tuple(
                ((3 * I + J + 2) // 5, (3 * I2 + J2 + 2) // 5)
                if whole
                else ((3 * I + J + 2) % 5, (3 * I2 + J2 + 2) % 5)
                for whole in (True, False)
            ),
            {"i": 3, "j": 3},
        ),
    ],
)
def test_equal_digits_make_equal_points(
    equations: tuple[tuple[IndexExpr, IndexExpr], ...], stops: dict[str, int]
) -> None:
    named = [pair for pair in PAIRS if pair[0].name in stops]
    same = [arith.equal(a, b) for a, b in equations]
    assert contradict(arith.conjunction((*same, differ(*named))), ranges(**stops))
    domain = arith.box([a for a, _ in named], [stops[a.name] for a, _ in named])
    proof = arith.prove_injective([a for a, _ in equations], domain)
    assert proof.proven and proof.method == "equations"


@pytest.mark.parametrize(
    ("equations", "stops"),
    [
        (((15 * I + J, 15 * I2 + J2),), {"i": 4, "j": 16}),  # 15·1 + 0 = 15·0 + 15
        (((X % 14, X2 % 14),), {"x": 99}),
        (((X // 14, X2 // 14),), {"x": 99}),
        (((X // 7, X2 // 7), (X % 8, X2 % 8), (X % 2, X2 % 2)), {"x": 1000}),
        (((X // 14 % 2, X2 // 14 % 2), (X % 14, X2 % 14)), {"x": 99}),
        (((I + J, I2 + J2),), {"i": 4, "j": 4}),
        (((2 * I - 2 * J2, 0),), {"i": 4, "j": 4}),
    ],
)
def test_digits_that_overlap_or_are_missing_say_nothing(
    equations: tuple[tuple[IndexExpr, IndexExpr], ...], stops: dict[str, int]
) -> None:
    named = [pair for pair in PAIRS if pair[0].name in stops]
    same = [arith.equal(a, b) for a, b in equations]
    assert not contradict(arith.conjunction((*same, differ(*named))), ranges(**stops))


def test_without_bounds_a_digit_may_be_any_number() -> None:
    both = arith.conjunction((arith.equal(16 * I + J, 16 * I2 + J2), differ((I, I2))))
    assert contradict(both, ranges(j=16)) and not contradict(both, {J: (0, 15)})


ATOMS = st.sampled_from(
    [e for a in (I, J, I2, J2) for e in (a, a // 2, a // 4, a % 2, a % 3, a // 2 % 2)]
)
SIDES = st.lists(st.tuples(ATOMS, st.sampled_from((-6, -4, -2, -1, 1, 2, 3, 6))), max_size=3)


@settings(max_examples=300)
@given(
    st.lists(st.tuples(SIDES, st.integers(-1, 1)), min_size=1, max_size=4),
    st.sampled_from(
        (differ((I, I2)), differ((I, I2), (J, J2)), arith.less_than(I, I2), arith.less_than(J, I2))
    ),
    st.tuples(st.integers(1, 6), st.integers(1, 4)),
)
def test_what_is_said_to_be_impossible_has_no_point(
    sums: list[tuple[list[tuple[IndexExpr, int]], int]],
    rest: arith.Predicate,
    stops: tuple[int, int],
) -> None:
    equations = [arith.equal(sum((k * a for a, k in side), start=I * 0 + c), 0) for side, c in sums]
    predicate = arith.conjunction((*equations, rest))
    if contradict(predicate, ranges(i=stops[0], j=stops[1])):
        extents = (stops[0], stops[1], stops[0], stops[1])
        for point in product(*map(range, extents)):
            assert not arith.holds(predicate, dict(zip((I, J, I2, J2), point, strict=True)))
