"""Tests of index expressions, predicates and proofs against evaluation at every point."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterator

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from graphflow.arith import (
    FALSE,
    TRUE,
    Const,
    Domain,
    Extremum,
    FloorDiv,
    FloorMod,
    Image,
    IndexExpr,
    Predicate,
    Sum,
    Var,
    Verdict,
    at_least_zero,
    at_most,
    bounds,
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
    linear,
    maximum,
    minimum,
    negation,
    point_in,
    prove,
    prove_empty,
    prove_injective,
    simplify,
    simplify_predicate,
    substitute,
    substitute_in,
    variables,
    within,
)
from support.strategies import NAMES, I, J, K, index_exprs, predicates

values = st.fixed_dictionaries({name: st.integers(-50, 50) for name in NAMES})
shapes = st.tuples(*(st.integers(1, 5) for _ in NAMES))


def points(shape: tuple[int, ...]) -> Iterator[dict[Var, int]]:
    for point in itertools.product(*map(range, shape)):
        yield dict(zip(NAMES, point, strict=True))


def rebuilt(expr: IndexExpr) -> IndexExpr:
    """`expr` built once more from its parts."""
    match expr:
        case Sum():
            return linear([(rebuilt(atom), k) for atom, k in expr.terms], expr.constant)
        case FloorDiv():
            return floor_div(rebuilt(expr.numerator), expr.divisor)
        case FloorMod():
            return floor_mod(rebuilt(expr.numerator), expr.divisor)
        case Extremum():
            pick = minimum if expr.kind == "min" else maximum
            return pick(*map(rebuilt, expr.operands))
    return expr


# -- expressions


@given(index_exprs(), index_exprs(), values, st.integers(-9, 9), st.integers(1, 12))
def test_operators_mean_what_python_means(
    a: IndexExpr, b: IndexExpr, at: dict[Var, int], k: int, c: int
) -> None:
    x, y = evaluate(a, at), evaluate(b, at)
    assert evaluate(a + b, at) == x + y
    assert evaluate(a - b, at) == x - y
    assert evaluate(-a, at) == -x
    assert evaluate(a * k, at) == x * k
    assert evaluate(a // c, at) == x // c
    assert evaluate(a % c, at) == x % c
    assert evaluate(minimum(a, b), at) == min(x, y)
    assert evaluate(maximum(a, b), at) == max(x, y)


@given(index_exprs(), values)
def test_text_is_python_for_the_same_number(expr: IndexExpr, at: dict[Var, int]) -> None:
    names = {var.name: value for var, value in at.items()}
    assert eval(str(expr), {"min": min, "max": max}, names) == evaluate(expr, at)


@given(index_exprs())
def test_normal_form_is_stable_and_interned(expr: IndexExpr) -> None:
    assert rebuilt(expr) is expr
    assert expr + 0 is expr
    assert expr * 1 is expr
    assert substitute(expr, {}) is expr
    assert pickle.loads(pickle.dumps(expr)) is expr


@given(index_exprs(), index_exprs())
def test_addition_commutes_and_cancels(a: IndexExpr, b: IndexExpr) -> None:
    assert a + b is b + a
    assert a - a is const(0)


@given(index_exprs(), index_exprs(), values)
def test_substitution_is_evaluation_of_the_value(
    expr: IndexExpr, value: IndexExpr, at: dict[Var, int]
) -> None:
    replaced = substitute(expr, {I: value})
    assert evaluate(replaced, at) == evaluate(expr, {**at, I: evaluate(value, at)})


@given(index_exprs(), st.integers(1, 12), values)
def test_quotient_and_rest_make_the_same_number(
    expr: IndexExpr, c: int, at: dict[Var, int]
) -> None:
    assert evaluate((expr // c) * c + expr % c, at) == evaluate(expr, at)


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
    assert isinstance((lanes // 56) * 56 + (8 * I + J + 1) % 56, Sum)
    assert isinstance((lanes // 56) % 57 * 56 + (J + I) % 56, Sum)


def test_a_quotient_with_more_terms_recombines() -> None:
    """Rows of 197 in blocks of 6, of which 32 make a plane: the block is outside the quotient."""
    row = 6 * J + I // 197
    assert (row % 32) * 197 + I % 197 is (1182 * J + I) % 6304
    flat = ((1182 * J + I) // 6304) * 6304 + (row % 32) * 197 + I % 197
    assert flat is 1182 * J + I
    later = ((6 * J + (I + 183) // 197 + 5) % 32) * 197 + (I + 183) % 197
    assert later is (1182 * J + I + 1168) % 6304
    assert isinstance(((J + 2 * (I // 197)) % 32) * 197 + I % 197, Sum)
    assert isinstance(((J - I // 197) % 32) * 197 + I % 197, Sum)


def test_a_quotient_with_more_terms_recombines_with_a_rest_that_lost_multiples() -> None:
    """Runs of 2842 through rows of 58 in planes of 28: the run is outside the quotient, and of the
    64 elements of a step the rest keeps 6."""
    step, run = 64 * I + J, Var("run")
    flat = 2842 * run + step
    assert (flat // 1624) * 1624 + (flat // 58) % 28 * 58 + flat % 58 is flat
    assert isinstance((21 * run + 2 * (step // 58)) % 28 * 58 + step % 58, Sum)
    assert isinstance((21 * run + (step + 1) // 58) % 28 * 58 + step % 58, Sum)


@given(st.integers(2, 9), st.integers(2, 9), st.integers(-9, 9), st.integers(-9, 9), st.data())
def test_recombined_quotients_keep_their_value(
    c: int, m: int, more: int, shift: int, data: st.DataObject
) -> None:
    i, j = (data.draw(st.integers(-200, 200)) for _ in range(2))
    joined = ((more * J + (I + shift) // c) % m) * c + (I + shift) % c
    expected = ((more * j + (i + shift) // c) % m) * c + (i + shift) % c
    assert evaluate(joined, {I: i, J: j}) == expected


def test_recombination_needs_the_same_number_and_divisor() -> None:
    assert isinstance((I // 4) * 4 + J % 4, Sum)
    assert isinstance((I // 4) * 8 + I % 8, Sum)
    assert isinstance((I // 4) * 4 - I % 4, Sum)


def test_division_takes_out_whole_multiples() -> None:
    assert (16 * I + J) // 16 is I + J // 16
    assert (16 * I + J) % 16 is J % 16
    assert (4 * I + 4 * J) % 8 is 4 * ((I + J) % 2)
    assert (I // 4) // 3 is I // 12
    assert isinstance(I * 0 + 5, Const)


def test_products_of_variables_are_refused_with_both() -> None:
    with pytest.raises(ValueError, match="cannot multiply i by j"):
        I * J


@pytest.mark.parametrize("divisor", [0, -2])
def test_divisors_must_be_positive(divisor: int) -> None:
    with pytest.raises(ValueError, match="positive constant"):
        I // divisor


# -- bounds and simplification


@given(index_exprs(), shapes)
def test_bounds_and_simplify_agree_with_evaluation(expr: IndexExpr, shape: tuple[int, ...]) -> None:
    ranges = box(NAMES, shape).ranges()
    low, high = bounds(expr, ranges)
    simple = simplify(expr, ranges)
    assert variables(simple) <= variables(expr)
    for point in points(shape):
        value = evaluate(expr, point)
        assert low is not None
        assert high is not None
        assert low <= value <= high
        assert evaluate(simple, point) == value


def test_simplify_uses_ranges_and_keeps_what_they_do_not_decide() -> None:
    ranges = {I: (0, 3), J: (0, 7)}
    assert simplify((8 * I + J) // 8, ranges) is I
    assert simplify((8 * I + J) % 8, ranges) is J
    assert simplify((16 * I + J + 21) // 32, ranges) is (I + 1) // 2
    assert simplify((16 * I + J + 21) % 32, ranges) is ((I + 1) % 2) * 16 + J + 5
    assert simplify(minimum(I, 5), ranges) is I
    assert simplify((4 * I + J) // 8, ranges) is (4 * I + J) // 8


@given(predicates(), shapes)
def test_simplified_predicates_hold_at_the_same_points(
    predicate: Predicate, shape: tuple[int, ...]
) -> None:
    simple = simplify_predicate(predicate, box(NAMES, shape).ranges())
    for point in points(shape):
        assert holds(simple, point) == holds(predicate, point)


# -- predicates


@given(predicates(), predicates(), values)
def test_connectives(a: Predicate, b: Predicate, at: dict[Var, int]) -> None:
    assert holds(negation(a), at) is not holds(a, at)
    assert holds(conjunction((a, b)), at) == (holds(a, at) and holds(b, at))
    assert holds(disjunction((a, b)), at) == (holds(a, at) or holds(b, at))
    assert conjunction((a, a)) == a
    assert conjunction((a, TRUE)) == a
    assert conjunction((a, FALSE)) == FALSE


@given(index_exprs(), index_exprs(), values)
def test_comparisons(a: IndexExpr, b: IndexExpr, at: dict[Var, int]) -> None:
    x, y = evaluate(a, at), evaluate(b, at)
    assert holds(less_than(a, b), at) == (x < y)
    assert holds(at_most(a, b), at) == (x <= y)
    assert holds(equal(a, b), at) == (x == y)
    assert equal(a, b) == equal(b, a)


@given(predicates(), index_exprs(), values)
def test_substitution_in_predicates(
    predicate: Predicate, value: IndexExpr, at: dict[Var, int]
) -> None:
    replaced = substitute_in(predicate, {I: value})
    assert holds(replaced, at) == holds(predicate, {**at, I: evaluate(value, at)})
    assert substitute_in(predicate, {}) is predicate


@given(predicates(), values)
def test_predicate_text_is_python_for_the_same_truth(
    predicate: Predicate, at: dict[Var, int]
) -> None:
    names = {var.name: value for var, value in at.items()}
    assert eval(str(predicate), {"min": min, "max": max}, names) is holds(predicate, at)


@pytest.mark.parametrize(
    ("predicate", "text"),
    [
        (less_than(4 * I + J, 14), "4*i + j < 14"),
        (at_least_zero(I - 1), "i >= 1"),
        (within(I + J - 1, 0, 56), "i + j >= 1 and i + j < 57"),
        (at_most(I, J), "i <= j"),
        (negation(equal(I, J + 3)), "j != i - 3"),
        (disjunction((less_than(I, 2), conjunction((TRUE, less_than(J, 2))))), "i < 2 or j < 2"),
    ],
)
def test_predicates_read_as_one_would_write_them(predicate: Predicate, text: str) -> None:
    assert str(predicate) == text


# -- proofs


@given(predicates(), shapes)
def test_prove_agrees_with_all_points(claim: Predicate, shape: tuple[int, ...]) -> None:
    proof = prove(claim, box(NAMES, shape))
    assume(proof.verdict is not Verdict.UNKNOWN)
    assert proof.proven == all(holds(claim, point) for point in points(shape))


@given(predicates(), predicates(), shapes)
def test_prove_uses_what_is_given(
    given_: Predicate, claim: Predicate, shape: tuple[int, ...]
) -> None:
    proof = prove(claim, box(NAMES, shape).given(given_))
    assume(proof.verdict is not Verdict.UNKNOWN)
    inside = (point for point in points(shape) if holds(given_, point))
    assert proof.proven == all(holds(claim, point) for point in inside)


@given(predicates(), shapes)
def test_a_point_that_is_found_lies_inside(given_: Predicate, shape: tuple[int, ...]) -> None:
    domain = box(NAMES, shape).given(given_)
    point = point_in(domain)
    if point is not None:
        assert holds(given_, point)
        assert all(0 <= point[var] < extent for var, extent in zip(NAMES, shape, strict=True))
    elif domain == box(NAMES, shape):
        assert 0 in shape


def test_a_refutation_names_a_point_where_the_claim_fails() -> None:
    proof = prove(less_than(I, 3), box((I,), (4,)))
    assert proof.verdict is Verdict.REFUTED
    assert proof.reason == "fails at i=3"


def test_bounds_may_use_outer_variables() -> None:
    triangle = Domain().inside(I, 0, 8).inside(J, 0, I + 1)
    assert prove(at_most(J, I), triangle).proven
    assert not prove(less_than(J, I), triangle).proven
    assert prove_empty(triangle.given(less_than(I, J))).proven


@given(st.tuples(index_exprs(depth=2), index_exprs(depth=2)), shapes)
def test_injective_agrees_with_all_points(
    indices: tuple[IndexExpr, ...], shape: tuple[int, ...]
) -> None:
    proof = prove_injective(indices, box(NAMES, shape))
    assume(proof.verdict is not Verdict.UNKNOWN)
    images = [tuple(evaluate(e, point) for e in indices) for point in points(shape)]
    assert proof.proven == (len(set(images)) == len(images))


def test_a_blocked_layout_is_injective_and_a_smaller_block_is_not() -> None:
    domain = box((I,), (14,))
    assert prove_injective((I // 4, I % 4), domain).proven
    assert prove_injective((I // 4, I % 3), domain).verdict is Verdict.REFUTED


@given(st.tuples(index_exprs(depth=2), index_exprs(depth=2)), predicates((I, J)), shapes)
def test_covers_agrees_with_all_points(
    indices: tuple[IndexExpr, ...], region: Predicate, shape: tuple[int, ...]
) -> None:
    target = (3, 4)
    proof = Image(box(NAMES, shape), indices).covers(region, (I, J), target)
    assume(proof.verdict is not Verdict.UNKNOWN)
    reached = {tuple(evaluate(e, point) for e in indices) for point in points(shape)}
    wanted = itertools.product(*map(range, target))
    missing = [p for p in wanted if holds(region, {I: p[0], J: p[1]}) and p not in reached]
    assert proof.proven == (not missing)


def test_image_of_a_padded_axis() -> None:
    image = Image(box((K,), (14,)), (K // 4, K % 4))
    assert image.inside(TRUE, (I, J), (4, 4)).proven
    assert not image.inside(TRUE, (I, J), (3, 4)).proven
    assert image.covers(less_than(4 * I + J, 14), (I, J), (4, 4)).proven
    assert image.covers(TRUE, (I, J), (4, 4)).verdict is Verdict.REFUTED


def test_a_budget_that_ends_while_a_set_is_read_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """isl calls that a syntax error."""
    monkeypatch.setattr("graphflow.arith.sets.OPERATION_BUDGET", 5)
    claim = less_than((8 * (I // 9 % 2) + J) // 10 + (7 * I + J) // 13 % 5 - J // 10, 6)
    proof = prove(claim, box((I, J), (101, 103)))
    assert proof.verdict is Verdict.UNKNOWN and "5 operations" in proof.reason


def test_what_bounds_say_is_given() -> None:
    """An axis from max(a, 0) is at least a; one up to max(a, 0) need not be below a."""
    k, y = Var("k"), Var("y")
    outer = Domain().inside(y, 0, 8)
    tap = outer.inside(k, maximum(1 - y, 0), minimum(9 - y, 3))
    proof = prove(conjunction((at_most(1, k + y), less_than(k + y, 9))), tap)
    assert proof.proven and proof.method == "premises"
    wide = outer.inside(k, minimum(1 - y, 0), maximum(9 - y, 3))
    assert prove(at_most(1, k + y), wide).verdict is Verdict.REFUTED
    assert prove(less_than(k + y, 9), wide).verdict is Verdict.REFUTED
