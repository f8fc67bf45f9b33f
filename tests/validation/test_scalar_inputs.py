"""Tests of the scalars that validation gives a kernel."""

import pytest

import graphflow as gf
from graphflow.graph import program_kernel
from graphflow.models import ModelBuilder
from graphflow.validation.scalar_inputs import scalar_inputs

TEXT = """
    def f(y: out[f32[8]], n: index, m: index):
        assume(unless({}), bool(False))
        for i in serial(0, 8):
            y[i] = index(n + m, f32)
"""


def test_scalars_satisfy_what_the_kernel_assumes() -> None:
    condition = "n >= 3 and n <= 60 and n % 7 == 2 and m >= -5 and m < n - 3"
    func = program_kernel(gf.kernel(TEXT.format(condition)))
    found = [{b.name: v for b, v in scalar_inputs(func, seed).items()} for seed in range(20)]
    assert all(g["n"] % 7 == 2 and 3 <= g["n"] <= 60 and -5 <= g["m"] < g["n"] - 3 for g in found)
    assert len({g["n"] for g in found}) > 3
    assert scalar_inputs(func, 4) == scalar_inputs(func, 4)


def test_scalars_that_are_not_found_are_within_their_limits() -> None:
    condition = "n >= 0 and n < 1000000 and n % 999983 == 999979 and m == 1"
    func = program_kernel(gf.kernel(TEXT.format(condition)))
    found = {b.name: v for b, v in scalar_inputs(func, 0).items()}
    assert 0 <= found["n"] < 10**6 and found["m"] == 1


def test_other_loops_are_no_scalars() -> None:
    func = gf.kernel("""
        def f(x: f32[8], at: i64[4], n: i64[()], y: out[f32[4]]):
            for i in serial(0, 4):
                y[i] = f32(0.0)
                for k in serial(0, 8):
                    if data(index(k, i64) == at[i]):
                        y[i] = x[k]
    """)
    assert scalar_inputs(func, 0) == {}


@pytest.mark.parametrize("index", ["i", "6 - i"])
def test_counts_of_what_is_written_are_whole(index: str) -> None:
    """Behind a smaller count nothing is written, as by recurrent layers, forward and backward."""
    func = gf.kernel(f"""
        def f(x: f32[7], n: i64[()], y: out[f32[7]]):
            for i in serial(0, 7):
                if data(index({index}, i64) < n[()]):
                    y[{index}] = x[{index}]
    """)
    assert [*scalar_inputs(func, 0).values()] == [7]


@pytest.mark.parametrize("direction", ["forward", "reverse"])
def test_recurrent_layers_of_counted_steps_are_validated(direction: str) -> None:
    b = ModelBuilder(1)
    x = b.input("x", ("t", 1, 4))
    weights = b.weight(1, 32, 4), b.weight(1, 32, 8)
    b.output(b.node("LSTM", [x, *weights], hidden_size=8, direction=direction))
    options = gf.Options(threads=1, workers=0, validate=True)
    gf.compile(b.model(), sizes={"t": (1, 5)}, options=options)
