"""Values traced back through single writes, where sets of instances leave them open."""

from collections import Counter

import pytest

from graphflow.arith import Domain, Var, Verdict, const, less_than
from graphflow.effects import stores_known_value
from graphflow.effects.instance_values import MOST_INSTANCES, first_instances
from graphflow.tir import PrimFunc, parse
from support.kernels.typed_kernels import check_typed

LAST = ((1, False), (0, False))


def kernel(first: str, second: str, dtype: str = "i32") -> PrimFunc:
    return parse(f"""
@primfunc
def kernel(x: {dtype}[8], y: out[{dtype}[8]]):
    for i in serial(0, 8):
        {first}
    for k in serial(0, 8):
        {second}
""")


@pytest.mark.parametrize(
    ("first", "second", "verdict"),
    [
        ("y[i] = x[i] + i32(1)", "y[k] = i32(1) + x[k]", "proven"),
        ("y[i] = x[i] + i32(1) + i32(2)", "y[k] = x[k] + i32(3)", "proven"),
        ("y[i] = x[i] + i32(1)", "y[k] = x[k] + i32(2)", "refuted"),
        ("y[i] = x[i] + x[7 - i]", "y[k] = x[7 - k] + x[k]", "proven"),
        ("y[i] = x[i] + x[i]", "y[k] = x[k] * i32(2)", "proven"),
        ("y[i] = max(x[i], x[0])", "y[k] = x[k]", "unknown"),
        ("y[i] = max(x[i], x[0])", "y[k] = max(x[0], x[k])", "proven"),
        ("y[i] = max(x[i], x[0])", "y[k] = y[7 - k]", "unknown"),
        ("y[i] += x[i]", "y[k] = x[k]", "refuted"),
    ],
)
def test_expressions_that_compute_the_same_in_another_way(
    first: str, second: str, verdict: str
) -> None:
    assert stores_known_value(kernel(first, second), LAST).verdict is Verdict(verdict)


def test_sums_of_floats_in_another_order_stay_open() -> None:
    first, second = "y[i] = x[i] + f32(1.0) + f32(2.0)", "y[k] = x[k] + f32(3.0)"
    assert stores_known_value(kernel(first, second, "f32"), LAST).verdict is Verdict.UNKNOWN


def test_the_first_instance_that_differs_is_the_witness() -> None:
    first = "y[i] = x[i] + i32(1)"
    proof = stores_known_value(kernel(first, "y[k] = x[k % 5] + i32(1)"), LAST)
    assert proof.verdict is Verdict.REFUTED and dict(proof.witness)["k"] == 5, proof
    proof = stores_known_value(kernel(first, "y[k] = i32(1) + x[k % 5]"), LAST)
    assert proof.verdict is Verdict.REFUTED and proof.witness == (("k", 5),), proof


def test_a_store_under_a_condition_on_data_leaves_its_element_open() -> None:
    first = "if data(x[i] < i32(0)):\n            y[i] = x[i] + i32(1)"
    assert (
        stores_known_value(kernel(first, "y[k] = i32(1) + x[k]"), LAST).verdict is Verdict.UNKNOWN
    )


def test_many_instances_refute_and_do_not_prove() -> None:
    text = """
@primfunc
def kernel(x: i32[4096], y: out[i32[4096]]):
    for i in serial(0, 4096):
        y[i] = x[i] + i32(1)
    for k in serial(0, 4096):
        y[k] = {}
"""
    proof = stores_known_value(parse(text.format("i32(1) + x[k]")), LAST)
    assert proof.verdict is Verdict.UNKNOWN
    proof = stores_known_value(parse(text.format("i32(2) + x[k]")), LAST)
    assert proof.verdict is Verdict.REFUTED and proof.witness == (("k", 0),)


def test_the_first_instances_of_a_domain() -> None:
    i, j = Var("i"), Var("j")
    square = Domain().inside(i, const(0), const(4)).inside(j, i, const(4))
    points, complete = first_instances(square.given(less_than(i, j)))
    assert complete and points == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    points, complete = first_instances(Domain().inside(i, const(0), const(MOST_INSTANCES + 1)))
    assert not complete and len(points) == MOST_INSTANCES
    assert first_instances(Domain()) == ([()], True)


def test_long_chains_of_writes_stay_open() -> None:
    """However deep: a value that passed through hundreds of writes, and a sum of hundreds."""
    text = """
@primfunc
def kernel(x: i32[1000], y: out[i32[1]]):
    for i in serial(0, 1000):
        y[0] = y[0] * x[i]
    y[0] = {}
"""
    proof = stores_known_value(parse(text.format("x[0]")), ((1, False),))
    assert proof.verdict is Verdict.UNKNOWN
    total = " * ".join(["x[0]"] * 400)
    proof = stores_known_value(parse(text.format(total)), ((1, False),))
    assert proof.verdict is Verdict.UNKNOWN


def checked(seeds: range) -> Counter[Verdict]:
    return sum(map(check_typed, seeds), Counter[Verdict]())


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_proofs_about_values_of_every_type() -> None:
    found = checked(range(60))
    assert found[Verdict.PROVEN] > 30 and found[Verdict.REFUTED] > 30, found
