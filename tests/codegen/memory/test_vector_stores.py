"""Stores of lanes whose elements are known distances apart: what is written, in how many pieces."""

import numpy as np
import pytest

from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_assembly, host_target
from graphflow.tir import PrimFunc, interpret, parse
from support.native import Native

TARGETS = pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=lambda t: t.name)
DTYPES = {"u8": "uint8", "i8": "int8", "f16": "float16", "f32": "float32", "f64": "float64"}

PLACES = {
    "the first two of four": "4*(v // 2) + v % 2",
    "the last two of four": "4*(v // 2) + v % 2 + 2",
    "three of four": "4*(v // 3) + v % 3",
    "one of four": "4*v + 3",
    "the later of two": "v // 2",
    "pairs from the last to the first": "62 - 2*(v // 2) + v % 2",
    "a remainder": "(3*v) % 16",
}


def writing(dtype: str, index: str, lanes: int, value: str = "x[i, v]") -> PrimFunc:
    """A kernel that fills rows of 64 with ones, and writes lanes there."""
    return parse(f"""
    @primfunc
    def k(x: {dtype}[3, {lanes}], one: {dtype}[()], y: out[{dtype}[3, 64]]):
        for i in serial(0, 3):
            for w in serial(0, 64):
                y[i, w] = one[()]
            for v in vectorized(0, {lanes}):
                y[i, {index}] = {value}
    """)


@TARGETS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lanes", [2, 3, 6, 8, 16])
@pytest.mark.parametrize("name", PLACES)
def test_lanes_apart(target: Target, dtype: str, lanes: int, name: str) -> None:
    """Nothing between them is written; of lanes with one element the last one's stays."""
    func = writing(dtype, PLACES[name], lanes)
    x = np.arange(3 * lanes).reshape(3, lanes).astype(DTYPES[dtype])
    given = {"x": x, "one": np.ones((), DTYPES[dtype])}
    np.testing.assert_array_equal(Native(func, target)(given)["y"], interpret(func, given)["y"])


@TARGETS
@pytest.mark.parametrize("name", PLACES)
def test_one_number_of_all_lanes(target: Target, name: str) -> None:
    func = writing("i8", PLACES[name], 6, "x[i, 0]")
    x = np.arange(18).reshape(3, 6).astype(np.int8)
    given = {"x": x, "one": np.ones((), np.int8)}
    np.testing.assert_array_equal(Native(func, target)(given)["y"], interpret(func, given)["y"])


@pytest.mark.parametrize("processor", ["zen3", "zen4"])
def test_neighbours_are_stored_together(processor: str) -> None:
    """Pairs of bytes as words of 16 bits."""
    func = writing("u8", PLACES["the last two of four"], 8)
    text = emit_assembly(func, "k", PROCESSORS[processor])
    words = sum(line.strip().startswith(("movw", "vpextrw")) for line in text.splitlines())
    assert "movb" not in text and "pextrb" not in text and words == 4
