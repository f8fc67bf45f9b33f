"""Tests of fills behind sizes that nothing reads."""

import numpy as np
import pytest

import graphflow as gf
from graphflow.lower import Lowered
from support.models.sized_runs import OPTIONS, parsed_model

ROOM = 96

WEIGHTED = """
weighted (float[2, 3, n] w, float[2, n, 32] v, float[2, n, 32] u) => (float[2, 3, 32] y, p) {{
    p = Mul(v, u)
    s = Softmax <axis = -1> (w)
    y = MatMul(s, p)
    {more}
}}
"""


def compiled(text: str, target: str | None = None) -> gf.Executable:
    return gf.compile(parsed_model(text), sizes={"n": (1, ROOM)}, options=OPTIONS, target=target)


def fill_ends(lowered: Lowered, names: str = "given") -> list[bool]:
    """Whether the kernels that fill a tensor behind a size end at the size: those that do nothing
    else, or those of such `names`."""
    return [
        bool(lowered.kernels[step.symbol].sizes)
        for call, step in lowered.calls
        if names in call.name
    ]


@pytest.mark.parametrize("target", [None, "avx2"])
def test_a_fill_ends_at_the_size_where_the_product_does(target: str | None) -> None:
    """Runs with NaN in the whole room come before each of the others."""
    exe = compiled(WEIGHTED.format(more=""), target)
    assert fill_ends(exe.compiled.lowered, "Softmax") == [True]
    rng = np.random.default_rng(0)
    for n in (1, 7, 33, ROOM - 1):
        nan = [np.full(shape, np.nan, np.float32) for shape in ((2, 3, ROOM), (2, ROOM, 32))]
        exe.run({"w": nan[0], "v": nan[1], "u": nan[1]})
        w, v, u = (
            rng.standard_normal(shape).astype(np.float32)
            for shape in ((2, 3, n), (2, n, 32), (2, n, 32))
        )
        weights = np.exp(w - w.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        found = exe.run({"w": w, "v": v, "u": u})
        np.testing.assert_allclose(found["y"], weights @ (v * u), 1e-4, 1e-5)
        np.testing.assert_allclose(found["p"], v * u, 1e-6)


@pytest.mark.parametrize("target", [None, "avx2"])
def test_copies_with_zeros_behind_end_at_the_size(target: str | None) -> None:
    """Those of integers, which a product reads with instructions that sum several at once: of the
    factor whose rows are summed."""
    text = """
    counted (int32[3, n] w, int32[n, 32] v) => (int32[3, 32] y) {
        y = MatMul(w, v)
    }
    """
    exe = compiled(text, target)
    assert fill_ends(exe.compiled.lowered, "1given") == [True]
    rng = np.random.default_rng(0)
    for n in (ROOM, 1, 7, 33, ROOM - 1):
        w, v = (rng.integers(-9, 9, shape, np.int32) for shape in ((3, n), (n, 32)))
        np.testing.assert_array_equal(exe.run({"w": w, "v": v})["y"], w @ v)


def test_a_fill_that_others_read_as_well_is_whole() -> None:
    """Windows read behind the size, as far as they reach."""
    text = """
    windows (float[1, 16, n] x, float[1, 16, n] z) => (float[1, 4, m] y, p) {
        p = Add(x, z)
        w = RandomNormal <shape = [4, 16, 5], seed = 1.0> ()
        y = Conv <pads = [2, 2]> (p, w)
    }
    """
    weights = "w = Constant <value = float[4, 16, 5] {" + ", ".join(["0.5"] * 320) + "}> ()"
    text = text.replace("w = RandomNormal <shape = [4, 16, 5], seed = 1.0> ()", weights)
    exe = compiled(text)
    assert not any(fill_ends(exe.compiled.lowered))
    for n in (ROOM, 1, 5, ROOM - 2):
        x = np.random.default_rng(n).standard_normal((1, 16, n)).astype(np.float32)
        found = exe.run({"x": x, "z": x})["y"]
        sums = np.pad(2 * x.sum(1), ((0, 0), (2, 2)))
        want = sum(0.5 * sums[:, k : k + n] for k in range(5))
        np.testing.assert_allclose(found, np.repeat(want[:, None], 4, 1), 1e-4, 1e-4)
