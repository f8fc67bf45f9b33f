"""Tests of index expressions, predicates and proofs against evaluation at every point."""

import itertools
import pickle
from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graphflow import arith
from support.strategies import NAMES, I, J, K, index_exprs, predicates

values = st.fixed_dictionaries({name: st.integers(-50, 50) for name in NAMES})
shapes = st.tuples(*(st.integers(1, 5) for _ in NAMES))


def points(shape: tuple[int, ...]) -> Iterator[dict[arith.Var, int]]:
    for point in itertools.product(*map(range, shape)):
        yield dict(zip(NAMES, point, strict=True))


def rebuilt(expr: arith.IndexExpr) -> arith.IndexExpr:
    """`expr` built once more from its parts."""
    match expr:
        case arith.Sum():
            return arith.linear([(rebuilt(atom), k) for atom, k in expr.terms], expr.constant)
        case arith.FloorDiv():
            return arith.floor_div(rebuilt(expr.numerator), expr.divisor)
        case arith.FloorMod():
            return arith.floor_mod(rebuilt(expr.numerator), expr.divisor)
        case arith.Extremum():
            pick = arith.minimum if expr.kind == "min" else arith.maximum
            return pick(*map(rebuilt, expr.operands))
    return expr


# -- expressions


@given(index_exprs(), index_exprs(), values, st.integers(-9, 9), st.integers(1, 12))
def test_operators_mean_what_python_means(
    a: arith.IndexExpr, b: arith.IndexExpr, at: dict[arith.Var, int], k: int, c: int
) -> None:
    x, y = arith.evaluate(a, at), arith.evaluate(b, at)
    assert arith.evaluate(a + b, at) == x + y
    assert arith.evaluate(a - b, at) == x - y
    assert arith.evaluate(-a, at) == -x
    assert arith.evaluate(a * k, at) == x * k
    assert arith.evaluate(a // c, at) == x // c
    assert arith.evaluate(a % c, at) == x % c
    assert arith.evaluate(arith.minimum(a, b), at) == min(x, y)
    assert arith.evaluate(arith.maximum(a, b), at) == max(x, y)


@given(index_exprs(), values)
def test_text_is_python_for_the_same_number(
    expr: arith.IndexExpr, at: dict[arith.Var, int]
) -> None:
    names = {var.name: value for var, value in at.items()}
    assert eval(str(expr), {"min": min, "max": max}, names) == arith.evaluate(expr, at)


@given(index_exprs())
def test_normal_form_is_stable_and_interned(expr: arith.IndexExpr) -> None:
    assert rebuilt(expr) is expr
    assert expr + 0 is expr
    assert expr * 1 is expr
    assert arith.substitute(expr, {}) is expr
    assert pickle.loads(pickle.dumps(expr)) is expr


@given(index_exprs(), index_exprs())
def test_addition_commutes_and_cancels(a: arith.IndexExpr, b: arith.IndexExpr) -> None:
    assert a + b is b + a
    assert a - a is arith.const(0)


@given(index_exprs(), index_exprs(), values)
def test_substitution_is_evaluation_of_the_value(
    expr: arith.IndexExpr, value: arith.IndexExpr, at: dict[arith.Var, int]
) -> None:
    replaced = arith.substitute(expr, {I: value})
    assert arith.evaluate(replaced, at) == arith.evaluate(
        expr, {**at, I: arith.evaluate(value, at)}
    )


@given(index_exprs(), st.integers(1, 12), values)
def test_quotient_and_rest_make_the_same_number(
    expr: arith.IndexExpr, c: int, at: dict[arith.Var, int]
) -> None:
    assert arith.evaluate((expr // c) * c + expr % c, at) == arith.evaluate(expr, at)


@given(st.integers(2, 12), st.data())
def test_quotient_and_rest_recombine(c: int, data: st.DataObject) -> None:
    below = st.integers(0, c - 1)
    expr = data.draw(below) * I + data.draw(below) * J + data.draw(st.integers(-20, 20))
    assert (expr // c) * c + expr % c is expr
    assert 3 * ((expr // c) * c) + 3 * (expr % c) is 3 * expr


def test_rest_is_reduced_after_a_recombination() -> None:
    inner = 3 * I + J
    rest = (9 * (inner // 4) + inner % 4 + 4 * I) % 5
    assert rebuilt(rest) is rest


def test_a_rest_that_lost_whole_multiples_recombines() -> None:
    """The quotient keeps 64·I, of which the rest keeps 8·I."""
    lanes = 64 * I + J
    assert (lanes // 56) * 56 + lanes % 56 is lanes
    assert (lanes // 56) % 57 * 56 + lanes % 56 is lanes % 3192
    assert isinstance((lanes // 56) * 56 + (8 * I + J + 1) % 56, arith.Sum)
    assert isinstance((lanes // 56) % 57 * 56 + (J + I) % 56, arith.Sum)


def test_a_quotient_with_more_terms_recombines() -> None:
    """Rows of 197 in blocks of 6, of which 32 make a plane: the block is outside the quotient."""
    row = 6 * J + I // 197
    assert (row % 32) * 197 + I % 197 is (1182 * J + I) % 6304
    flat = ((1182 * J + I) // 6304) * 6304 + (row % 32) * 197 + I % 197
    assert flat is 1182 * J + I
    later = ((6 * J + (I + 183) // 197 + 5) % 32) * 197 + (I + 183) % 197
    assert later is (1182 * J + I + 1168) % 6304
    assert isinstance(((J + 2 * (I // 197)) % 32) * 197 + I % 197, arith.Sum)
    assert isinstance(((J - I // 197) % 32) * 197 + I % 197, arith.Sum)


def test_a_quotient_with_more_terms_recombines_with_a_rest_that_lost_multiples() -> None:
    """Runs of 2842 through rows of 58 in planes of 28: the run is outside the quotient, and of the
    64 elements of a step the rest keeps 6."""
    step, run = 64 * I + J, arith.Var("run")
    flat = 2842 * run + step
    assert (flat // 1624) * 1624 + (flat // 58) % 28 * 58 + flat % 58 is flat
    assert isinstance((21 * run + 2 * (step // 58)) % 28 * 58 + step % 58, arith.Sum)
    assert isinstance((21 * run + (step + 1) // 58) % 28 * 58 + step % 58, arith.Sum)


@given(st.integers(2, 9), st.integers(2, 9), st.integers(-9, 9), st.integers(-9, 9), st.data())
def test_recombined_quotients_keep_their_value(
    c: int, m: int, more: int, shift: int, data: st.DataObject
) -> None:
    i, j = (data.draw(st.integers(-200, 200)) for _ in range(2))
    joined = ((more * J + (I + shift) // c) % m) * c + (I + shift) % c
    expected = ((more * j + (i + shift) // c) % m) * c + (i + shift) % c
    assert arith.evaluate(joined, {I: i, J: j}) == expected


def test_recombination_needs_the_same_number_and_divisor() -> None:
    assert isinstance((I // 4) * 4 + J % 4, arith.Sum)
    assert isinstance((I // 4) * 8 + I % 8, arith.Sum)
    assert isinstance((I // 4) * 4 - I % 4, arith.Sum)


def test_division_takes_out_whole_multiples() -> None:
    assert (16 * I + J) // 16 is I + J // 16
    assert (16 * I + J) % 16 is J % 16
    assert (4 * I + 4 * J) % 8 is 4 * ((I + J) % 2)
    assert (I // 4) // 3 is I // 12
    assert isinstance(I * 0 + 5, arith.Const)


def test_products_of_variables_are_refused_with_both() -> None:
    with pytest.raises(ValueError, match="cannot multiply i by j"):
        I * J


@pytest.mark.parametrize("divisor", [0, -2])
def test_divisors_must_be_positive(divisor: int) -> None:
    with pytest.raises(ValueError, match="positive constant"):
        I // divisor


# -- bounds and simplification


@given(index_exprs(), shapes)
def test_bounds_and_simplify_agree_with_evaluation(
    expr: arith.IndexExpr, shape: tuple[int, ...]
) -> None:
    ranges = arith.box(NAMES, shape).ranges()
    low, high = arith.bounds(expr, ranges)
    simple = arith.simplify_index(expr, ranges)
    assert arith.variables(simple) <= arith.variables(expr)
    for point in points(shape):
        value = arith.evaluate(expr, point)
        assert low is not None
        assert high is not None
        assert low <= value <= high
        assert arith.evaluate(simple, point) == value


def test_simplify_uses_ranges_and_keeps_what_they_do_not_decide() -> None:
    ranges = {I: (0, 3), J: (0, 7)}
    assert arith.simplify_index((8 * I + J) // 8, ranges) is I
    assert arith.simplify_index((8 * I + J) % 8, ranges) is J
    assert arith.simplify_index((16 * I + J + 21) // 32, ranges) is (I + 1) // 2
    assert arith.simplify_index((16 * I + J + 21) % 32, ranges) is ((I + 1) % 2) * 16 + J + 5
    assert arith.simplify_index(arith.minimum(I, 5), ranges) is I
    assert arith.simplify_index((4 * I + J) // 8, ranges) is (4 * I + J) // 8


def test_a_rest_smaller_than_what_all_other_terms_are_multiples_of_changes_no_quotient() -> None:
    """480, 64 and 960 are multiples of 32, which is in none of them alone with 960."""
    ranges = {I: (0, 15), J: (0, 36), K: (0, 15)}
    assert arith.simplify_index((480 * I + 64 * J + K) // 960, ranges) is (15 * I + 2 * J) // 30
    row = (150 * I + 4 * J) // 60
    column = (20 * I + (64 * J + K) // 24) % 40
    flat = 960 * row + 24 * column + (16 * J + K) % 24
    assert arith.simplify_index(flat, ranges) is 2400 * I + 64 * J + K


@given(predicates(), shapes)
def test_simplified_predicates_hold_at_the_same_points(
    predicate: arith.Predicate, shape: tuple[int, ...]
) -> None:
    simple = arith.simplify_predicate(predicate, arith.box(NAMES, shape).ranges())
    for point in points(shape):
        assert arith.holds(simple, point) == arith.holds(predicate, point)


# -- predicates


@given(predicates(), predicates(), values)
def test_connectives(a: arith.Predicate, b: arith.Predicate, at: dict[arith.Var, int]) -> None:
    assert arith.holds(arith.negation(a), at) is not arith.holds(a, at)
    assert arith.holds(arith.conjunction((a, b)), at) == (arith.holds(a, at) and arith.holds(b, at))
    assert arith.holds(arith.disjunction((a, b)), at) == (arith.holds(a, at) or arith.holds(b, at))
    assert arith.conjunction((a, a)) == a
    assert arith.conjunction((a, arith.TRUE)) == a
    assert arith.conjunction((a, arith.FALSE)) == arith.FALSE


@given(index_exprs(), index_exprs(), values)
def test_comparisons(a: arith.IndexExpr, b: arith.IndexExpr, at: dict[arith.Var, int]) -> None:
    x, y = arith.evaluate(a, at), arith.evaluate(b, at)
    assert arith.holds(arith.less_than(a, b), at) == (x < y)
    assert arith.holds(arith.at_most(a, b), at) == (x <= y)
    assert arith.holds(arith.equal(a, b), at) == (x == y)
    assert arith.equal(a, b) == arith.equal(b, a)


@given(predicates(), index_exprs(), values)
def test_substitution_in_predicates(
    predicate: arith.Predicate, value: arith.IndexExpr, at: dict[arith.Var, int]
) -> None:
    replaced = arith.substitute_in(predicate, {I: value})
    assert arith.holds(replaced, at) == arith.holds(predicate, {**at, I: arith.evaluate(value, at)})
    assert arith.substitute_in(predicate, {}) is predicate


@given(predicates(), values)
def test_predicate_text_is_python_for_the_same_truth(
    predicate: arith.Predicate, at: dict[arith.Var, int]
) -> None:
    names = {var.name: value for var, value in at.items()}
    assert eval(str(predicate), {"min": min, "max": max}, names) is arith.holds(predicate, at)


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (arith.less_than(4 * I + J, 14), "4*i + j < 14"),
        (arith.at_least_zero(I - 1), "i >= 1"),
        (arith.within(I + J - 1, 0, 56), "i + j >= 1 and i + j < 57"),
        (arith.at_most(I, J), "i <= j"),
        (arith.negation(arith.equal(I, J + 3)), "j != i - 3"),
        (
            arith.disjunction(
                (arith.less_than(I, 2), arith.conjunction((arith.TRUE, arith.less_than(J, 2))))
            ),
            "i < 2 or j < 2",
        ),
    ],
)
def test_predicates_read_as_one_would_write_them(predicate: arith.Predicate, text: str) -> None:
    assert str(predicate) == text


# -- proofs


@given(predicates(), shapes)
def test_prove_agrees_with_all_points(claim: arith.Predicate, shape: tuple[int, ...]) -> None:
    proof = arith.prove(claim, arith.box(NAMES, shape))
    assume(proof.verdict is not arith.Verdict.UNKNOWN)
    assert proof.proven == all(arith.holds(claim, point) for point in points(shape))


@given(predicates(), predicates(), shapes)
def test_prove_uses_what_is_given(
    given_: arith.Predicate, claim: arith.Predicate, shape: tuple[int, ...]
) -> None:
    proof = arith.prove(claim, arith.box(NAMES, shape).given(given_))
    assume(proof.verdict is not arith.Verdict.UNKNOWN)
    inside = (point for point in points(shape) if arith.holds(given_, point))
    assert proof.proven == all(arith.holds(claim, point) for point in inside)


@given(predicates(), shapes)
def test_a_point_that_is_found_lies_inside(given_: arith.Predicate, shape: tuple[int, ...]) -> None:
    domain = arith.box(NAMES, shape).given(given_)
    point = arith.point_in(domain)
    if point is not None:
        assert arith.holds(given_, point)
        assert all(0 <= point[var] < extent for var, extent in zip(NAMES, shape, strict=True))
    elif domain == arith.box(NAMES, shape):
        assert 0 in shape


def test_a_refutation_names_a_point_where_the_claim_fails() -> None:
    proof = arith.prove(arith.less_than(I, 3), arith.box((I,), (4,)))
    assert proof.verdict is arith.Verdict.REFUTED
    assert proof.reason == "fails at i=3"


def test_bounds_may_use_outer_variables() -> None:
    triangle = arith.Domain().inside(I, 0, 8).inside(J, 0, I + 1)
    assert arith.prove(arith.at_most(J, I), triangle).proven
    assert not arith.prove(arith.less_than(J, I), triangle).proven
    assert arith.prove_empty(triangle.given(arith.less_than(I, J))).proven


@given(st.tuples(index_exprs(depth=2), index_exprs(depth=2)), shapes)
def test_injective_agrees_with_all_points(
    indices: tuple[arith.IndexExpr, ...], shape: tuple[int, ...]
) -> None:
    proof = arith.prove_injective(indices, arith.box(NAMES, shape))
    assume(proof.verdict is not arith.Verdict.UNKNOWN)
    images = [tuple(arith.evaluate(e, point) for e in indices) for point in points(shape)]
    assert proof.proven == (len(set(images)) == len(images))


def test_a_blocked_layout_is_injective_and_a_smaller_block_is_not() -> None:
    domain = arith.box((I,), (14,))
    assert arith.prove_injective((I // 4, I % 4), domain).proven
    assert arith.prove_injective((I // 4, I % 3), domain).verdict is arith.Verdict.REFUTED


@given(st.tuples(index_exprs(depth=2), index_exprs(depth=2)), predicates((I, J)), shapes)
def test_covers_agrees_with_all_points(
    indices: tuple[arith.IndexExpr, ...], region: arith.Predicate, shape: tuple[int, ...]
) -> None:
    target = (3, 4)
    proof = arith.Image(arith.box(NAMES, shape), indices).covers(region, (I, J), target)
    assume(proof.verdict is not arith.Verdict.UNKNOWN)
    reached = {tuple(arith.evaluate(e, point) for e in indices) for point in points(shape)}
    wanted = itertools.product(*map(range, target))
    missing = [p for p in wanted if arith.holds(region, {I: p[0], J: p[1]}) and p not in reached]
    assert proof.proven == (not missing)


def test_image_of_a_padded_axis() -> None:
    image = arith.Image(arith.box((K,), (14,)), (K // 4, K % 4))
    assert image.covers(arith.less_than(4 * I + J, 14), (I, J), (4, 4)).proven
    assert image.covers(arith.TRUE, (I, J), (4, 4)).verdict is arith.Verdict.REFUTED


def test_a_budget_that_ends_while_a_set_is_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """isl calls that a syntax error."""
    monkeypatch.setattr("graphflow.arith.sets.OPERATION_BUDGET", 5)
    claim = arith.less_than((8 * (I // 9 % 2) + J) // 10 + (7 * I + J) // 13 % 5 - J // 10, 6)
    proof = arith.prove(claim, arith.box((I, J), (101, 103)))
    assert proof.verdict is arith.Verdict.UNKNOWN and "5 operations" in proof.reason


def test_what_bounds_say_is_given() -> None:
    """An axis from max(a, 0) is at least a; one up to max(a, 0) need not be below a."""
    k, y = arith.Var("k"), arith.Var("y")
    outer = arith.Domain().inside(y, 0, 8)
    tap = outer.inside(k, arith.maximum(1 - y, 0), arith.minimum(9 - y, 3))
    proof = arith.prove(
        arith.conjunction((arith.at_most(1, k + y), arith.less_than(k + y, 9))), tap
    )
    assert proof.proven and proof.method == "premises"
    wide = outer.inside(k, arith.minimum(1 - y, 0), arith.maximum(9 - y, 3))
    assert arith.prove(arith.at_most(1, k + y), wide).verdict is arith.Verdict.REFUTED
    assert arith.prove(arith.less_than(k + y, 9), wide).verdict is arith.Verdict.REFUTED
