"""Tests of facts and demands: the table `SERVES`, the order of facts, and their joins."""

from itertools import pairwise, product
from math import inf, nan

import pytest

from graphflow.layout import (
    SERVES,
    Constant,
    Equal,
    NoAccess,
    Range,
    Readable,
    Undefined,
    Unused,
    at_least_as_strong,
    fact_of,
    join,
    reduction_demand,
    serves,
)
from graphflow.tir import Literal, ReduceOp, float32


def f32(value):
    return fact_of(value, "float32")


FACTS = {
    "+0": f32(0.0),
    "-0": f32(-0.0),
    "1": f32(1.0),
    "inf": f32(inf),
    "-inf": f32(-inf),
    "nan": f32(nan),
    "double 0": fact_of(0.0, "float64"),
    "zeros": Range(-0.0, 0.0),
    "unit": Range(0.0, 1.0),
    "wide": Range(-2.0, 2.0),
    "undef": Undefined(),
    "no access": NoAccess(),
}

DEMANDS = {
    "none": Unused(),
    "readable": Readable(),
    "+0": Equal(float32(0.0)),
    "-0": Equal(float32(-0.0)),
    "-inf": Equal(float32(-inf)),
    "nan": Equal(float32(nan)),
}

SERVED = {
    "+0": {"none", "readable", "+0"},
    "-0": {"none", "readable", "-0"},
    "1": {"none", "readable"},
    "inf": {"none", "readable"},
    "-inf": {"none", "readable", "-inf"},
    "nan": {"none", "readable", "nan"},
    "double 0": {"none", "readable"},
    "zeros": {"none", "readable"},
    "unit": {"none", "readable"},
    "wide": {"none", "readable"},
    "undef": {"none", "readable"},
    "no access": {"none"},
}


@pytest.mark.parametrize(("fact", "demand"), list(product(FACTS, DEMANDS)))
def test_which_fact_serves_which_demand(fact, demand):
    assert serves(FACTS[fact], DEMANDS[demand]) == (demand in SERVED[fact])


def test_the_table_has_each_pair_of_classes():
    facts, demands = (Constant, Range, Undefined, NoAccess), (Unused, Readable, Equal)
    assert set(SERVES) == set(product(facts, demands))


def test_a_stronger_fact_serves_at_least_the_same():
    for a, b in product(FACTS.values(), repeat=2):
        if at_least_as_strong(a, b):
            for demand in DEMANDS.values():
                assert serves(a, demand) or not serves(b, demand)


def test_the_order_is_a_partial_order():
    facts = tuple(FACTS.values())
    for a in facts:
        assert at_least_as_strong(a, a)
    for a, b, c in product(facts, repeat=3):
        if at_least_as_strong(a, b) and at_least_as_strong(b, a):
            assert a == b
        if at_least_as_strong(a, b) and at_least_as_strong(b, c):
            assert at_least_as_strong(a, c)


def test_the_chain():
    chain = [f32(1.0), Range(0.0, 1.0), Undefined(), NoAccess()]
    for stronger, weaker in pairwise(chain):
        assert at_least_as_strong(stronger, weaker)
        assert not at_least_as_strong(weaker, stronger)
    for special in (inf, -inf, nan):
        assert not at_least_as_strong(f32(special), Range(-1e38, 1e38))
        assert at_least_as_strong(f32(special), Undefined())


def test_joins_are_least_upper_bounds_among_these():
    facts = tuple(FACTS.values())
    for a, b in product(facts, repeat=2):
        joined = join(a, b)
        assert joined == join(b, a)
        assert at_least_as_strong(a, joined)
        assert at_least_as_strong(b, joined)
        for c in facts:
            if at_least_as_strong(a, c) and at_least_as_strong(b, c):
                assert at_least_as_strong(joined, c)


def test_joins_of_constants():
    assert join(f32(0.0), f32(-0.0)) == Range(-0.0, 0.0)
    assert join(f32(-1.0), f32(2.0)) == Range(-1.0, 2.0)
    assert join(f32(inf), f32(1.0)) == Undefined()
    assert join(f32(nan), f32(nan)) == f32(nan)
    assert join(fact_of(3, "int32"), fact_of(-1, "int32")) == Range(-1, 3)


def test_zeros_are_told_apart():
    assert f32(0.0) != f32(-0.0)
    assert Range(-0.0, 0.0) != Range(0.0, 0.0)
    assert hash(Range(-0.0, 0.0)) != hash(Range(0.0, 0.0))
    assert not Range(0.0, 1.0).holds(-0.0)
    assert Range(-0.0, 1.0).holds(-0.0)
    with pytest.raises(ValueError, match="empty"):
        Range(0.0, -0.0)
    with pytest.raises(ValueError, match="finite"):
        Range(0.0, inf)


def test_neutral_elements_of_reductions():
    assert reduction_demand(ReduceOp.ADD, "float32") == (Equal(float32(0.0)), Equal(float32(-0.0)))
    assert reduction_demand(ReduceOp.ADD, "int32") == (Equal(Literal(0, "int32")),)
    assert reduction_demand(ReduceOp.MUL, "float32") == (Equal(float32(1.0)),)
    assert reduction_demand(ReduceOp.MAX, "float32") == (Equal(float32(-inf)),)
    assert reduction_demand(ReduceOp.MIN, "float32") == (Equal(float32(inf)),)
    assert reduction_demand(ReduceOp.MAX, "int8") == (Equal(Literal(-128, "int8")),)
