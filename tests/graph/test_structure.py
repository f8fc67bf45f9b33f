"""Tests of elementwise kernels: what one of several stages stores as one expression."""

import numpy as np

from graphflow import tir
from graphflow.graph import composed_store

OUTER = """
@primfunc
def bias(k: i64[5], q: i64[3, 1], y: out[f32[3, 5]]):
    seen = alloc(bool[3, 5])
    with block("seen"):
        for a in serial(0, 3):
            for b in serial(0, 5):
                seen[a, b] = k[b] <= q[a, 0]
    with block("bias"):
        for i in serial(0, 3):
            for j in serial(0, 5):
                y[i, j] = select(data(seen[i, j]), f32(0.0), f32(-inf))
"""

PART = OUTER.replace("for b in serial(0, 5)", "for b in serial(0, 4)")


def test_stages_of_the_same_elements_are_one_expression() -> None:
    func = tir.parse(OUTER.strip())
    store = composed_store(func)
    assert store is not None
    assert {load.buffer.name for load in tir.loads_in((store,))} == {"k", "q"}
    outer, inner = tir.loops_of(func.body[-1:])
    alone = tir.PrimFunc("alone", func.params, (outer.around((inner.around((store,)),)),))
    given = {"k": np.arange(5), "q": np.array([[0], [2], [9]])}
    want = tir.interpret(func, given)["y"]
    np.testing.assert_array_equal(tir.interpret(alone, given)["y"], want)


def test_a_stage_over_a_part_has_none() -> None:
    assert composed_store(tir.parse(PART.strip())) is None
