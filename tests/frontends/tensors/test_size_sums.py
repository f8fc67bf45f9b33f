"""Tests of sums and quotients of sizes: each is what integers give, within its bounds, and equal
expressions are equal values."""

import itertools
import random
from collections.abc import Callable, Mapping

import pytest

from graphflow.base.sizes import Size
from graphflow.frontends.tensors.size_sums import (
    SizeSum,
    divided,
    divisors_in,
    exact_ratio,
    multiples,
    product,
    quotient,
)
from support.seeds import seeds

Extents = Mapping[str, int]


def of(name: str, offset: int = 0) -> SizeSum:
    return SizeSum(((name, 1),), offset)


def number(value: int) -> SizeSum:
    return SizeSum((), value)


def drawn(
    rng: random.Random, sizes: Mapping[str, Size]
) -> list[tuple[SizeSum, Callable[[Extents], int]]]:
    """Random expressions, each with what computes it from integers."""
    pool: list[tuple[SizeSum, Callable[[Extents], int]]] = [
        (of(name), lambda extents, name=name: extents[name]) for name in sizes
    ]
    for _ in range(6):
        (one, left), (other, right) = rng.choice(pool), rng.choice(pool)
        factor, offset, divisor = rng.randint(-3, 3), rng.randint(-5, 5), rng.randint(1, 5)
        if rng.random() < 0.2:
            pool.append((product(one, other), lambda e, a=left, b=right: a(e) * b(e)))
        elif rng.random() < 0.5:
            pool.append(
                (
                    one.plus(other, factor).plus(number(offset)),
                    lambda e, a=left, b=right, f=factor, c=offset: a(e) + f * b(e) + c,
                )
            )
        else:
            pool.append((quotient(one, divisor, sizes), lambda e, a=left, d=divisor: a(e) // d))
    return pool


@pytest.mark.parametrize("seed", seeds(20, 40))
def test_sums_and_quotients_are_those_of_integers(seed: int) -> None:
    rng = random.Random(seed)
    lows = {name: rng.randint(0, 4) for name in "nmk"}
    sizes = {name: Size(name, lo, lo + rng.randint(0, 4)) for name, lo in lows.items()}
    pool = drawn(rng, sizes)
    for extents in itertools.product(*(range(size.lo, size.hi + 1) for size in sizes.values())):
        given = dict(zip(sizes, extents, strict=True))
        for total, computed in pool:
            lo, hi = total.bounds(sizes)
            assert total.value(given) == computed(given)
            assert lo <= computed(given) <= hi


SIZES = {"n": Size("n", 1, 30), "m": Size("m", 2, 5)}
N, M = of("n"), of("m")
HALF = quotient(N, 2, SIZES)


def test_equal_extents_are_equal_values() -> None:
    assert quotient(N.plus(N), 2, SIZES) == N
    assert quotient(N.plus(number(5)), 2, SIZES) == quotient(of("n", 1), 2, SIZES).plus(number(2))
    assert quotient(HALF, 3, SIZES) == quotient(N, 6, SIZES)
    assert quotient(HALF.plus(number(1)), 2, SIZES) == quotient(of("n", 2), 4, SIZES)
    assert quotient(N.plus(N).plus(number(3)), 4, SIZES) == quotient(of("n", 1), 2, SIZES)
    assert quotient(HALF.plus(M), 2, SIZES) == quotient(N.plus(M, 2), 4, SIZES)


def test_products_are_multiplied_out() -> None:
    square = product(N.plus(M), N.plus(M))
    assert square == product(N, N).plus(product(N, M), 2).plus(product(M, M))
    assert product(M, N) == product(N, M)
    assert product(HALF, M).bounds(SIZES) == (0, 75)


def test_ratios_are_exact_or_none() -> None:
    assert exact_ratio(product(of("n", 1), product(M, number(6))), product(M, number(2))) == (
        SizeSum((("n", 3),), 3)
    )
    assert exact_ratio(product(N, M), N) == M
    for dividend, divisor in ((N, M), (N, number(2)), (product(N, M), of("n", 1)), (N, number(0))):
        assert exact_ratio(dividend, divisor) is None


@pytest.mark.parametrize("seed", range(20))
def test_a_product_divided_by_one_factor_is_the_other(seed: int) -> None:
    rng = random.Random(seed)
    sizes = {name: Size(name, 1, 9) for name in "nmk"}
    pool = [total for total, _ in drawn(rng, sizes) if total != number(0)]
    for _ in range(10):
        one, other = rng.choice(pool), rng.choice(pool)
        assert exact_ratio(product(one, other), other) == one
        assert exact_ratio(product(one, other).plus(number(1)), product(other, number(2))) is None


def test_a_quotient_that_every_run_has_is_a_number() -> None:
    assert quotient(of("m", 1), 3, {"m": Size("m", 2, 4)}) == number(1)
    assert quotient(number(-7), 2, {}) == number(-4)


def test_bounds_of_a_size_less_its_half() -> None:
    assert N.plus(HALF, -1).bounds(SIZES) == (1, 15)
    assert N.plus(HALF, -2).bounds(SIZES) == (0, 1)


def test_bounds_of_what_a_multiple_lacks() -> None:
    """A quotient that is divided again is one number in both places."""
    thrice = product(HALF, number(3))
    assert thrice.plus(quotient(thrice, 4, SIZES), -4).bounds(SIZES) == (0, 3)
    both = product(HALF, M)
    assert both.plus(quotient(both, 2, SIZES), -2).bounds(SIZES) == (0, 1)


@pytest.mark.parametrize("step", [2, 3, 7])
def test_bounds_of_multiples_are_multiples(step: int) -> None:
    """As of an extent that is padded to a multiple: no run has the odd elements above the last."""
    lacks = number(step).plus(N).plus(quotient(N, step, SIZES), step).plus(N, -2)
    padded = N.plus(lacks).plus(quotient(lacks, step, SIZES), -step)
    lo, hi = padded.bounds(SIZES)
    most = SIZES["n"].hi
    assert lo % step == hi % step == 0
    assert -(-most // step) * step <= hi < most + step


def test_division_as_onnx_rounds_it() -> None:
    assert divided(N, number(2), SIZES) == HALF
    for left, right in ((N, number(0)), (N, number(-2)), (N, M), (of("n", -2), number(2))):
        assert divided(left, right, SIZES) is None


def test_multiples_of_a_size() -> None:
    """What is halved twice and doubled twice differs, except for multiples of four."""
    sizes = {"n": Size("n", 1, 40)}
    half = quotient(of("n"), 2, sizes)
    doubled = product(number(2), quotient(half, 2, sizes))
    difference = half.plus(doubled, -1)
    assert difference.factors and divisors_in(difference) == [2, 4]
    steps = {4: Size("n // 4", 1, 10), 2: Size("n // 2", 1, 20)}
    for step, size in steps.items():
        found = multiples(difference, "n", step, {"n": size})
        assert (found == number(0)) == (step == 4)
        for count in range(1, size.hi + 1):
            assert found.value({"n": count}) == difference.value({"n": step * count})


def test_text() -> None:
    assert N.plus(HALF, -1).text(SIZES) == "n - n // 2"
    assert quotient(of("n", 3), 4, SIZES).plus(number(1)).text(SIZES) == "(n + 3) // 4 + 1"
    assert HALF.plus(HALF).text(SIZES) == "2·(n // 2)"
