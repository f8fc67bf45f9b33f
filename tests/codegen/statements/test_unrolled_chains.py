"""Tests of chains that are emitted side by side: which they are, and that results are the same."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.codegen import avx2_target, host_target
from graphflow.codegen.statements.unrolled_chains import SIDE_BY_SIDE, unrolled_chains
from support.native import Native

TARGETS = (host_target(), avx2_target())

ROUNDED = """
    h[i, j, v] = cast({half}, x[16*i + 8*j + v])
    w[i, j, v] = cast(f32, h[i, j, v])
    y[16*i + 8*j + v] = w[i, j, v] * w[i, j, v]
"""


def kernel(body: str, half: str = "bf16") -> tir.PrimFunc:
    """Chains over 11 × 2 vectors of 8 lanes."""
    lines = "\n".join(" " * 24 + line.strip() for line in body.strip().splitlines())
    return tir.parse(f"""
    @primfunc
    def k(x: f32[176], y: inout[f32[176]]):
        with block("chains"):
            h = alloc({half}[11, 2, 8], register)
            w = alloc(f32[11, 2, 8], register)
            for i in unrolled(0, 11):
                for j in unrolled(0, 2):
                    for v in vectorized(0, 8):
{lines.format(half=half)}
    """)


def outermost(func: tir.PrimFunc) -> tir.For:
    return next(loop for loop in tir.loops_of(func.body) if loop.var.name == "i")


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_chains_that_round_take_turns(half: str) -> None:
    func = kernel(ROUNDED, half)
    found = unrolled_chains(outermost(func))
    assert found is not None
    assert [len(points) for points in found.rounds()] == [SIDE_BY_SIDE, 22 - SIDE_BY_SIDE]
    x = np.random.default_rng(0).standard_normal(176).astype(np.float32)
    x[:6] = np.nan, np.inf, -np.inf, -0.0, 1e-40, 3.4e38
    arrays = {"x": x, "y": np.zeros(176, np.float32)}
    expected = tir.interpret(func, arrays)["y"]
    for target in TARGETS:
        given = {name: array.copy() for name, array in arrays.items()}
        np.testing.assert_array_equal(Native(func, target)(given)["y"], expected)


@pytest.mark.parametrize(
    "body",
    [
        # Nothing is rounded.
        "w[i, j, v] = x[16*i + 8*j + v] * f32(2.0)\ny[16*i + 8*j + v] = w[i, j, v] + f32(1.0)",
        # A single statement.
        "h[i, j, v] = cast({half}, x[16*i + 8*j + v])",
        # Iterations share elements of a buffer.
        "h[0, j, v] = cast({half}, x[16*i + 8*j + v])\ny[16*i + 8*j + v] = cast(f32, h[0, j, v])",
        # An iteration reads what another one wrote.
        "h[i, j, v] = cast({half}, x[16*i + 8*j + v])\ny[16*i + 8*j + v] = cast(f32, h[i, 0, v])",
        # Two statements write the same buffer.
        "h[i, j, v] = cast({half}, x[16*i + 8*j + v])\nh[i, j, v] = cast({half}, y[8*j + v])",
        # A statement reads what the next iteration of another one overwrites.
        "h[i, j, v] = cast({half}, y[v])\ny[16*i + 8*j + v] = cast(f32, h[i, j, v])",
    ],
)
def test_other_iterations_do_not(body: str) -> None:
    assert unrolled_chains(outermost(kernel(body))) is None
