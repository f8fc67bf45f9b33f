"""Tests of stores by turns: equal to the interpreter, and when whole vectors are stored."""

from random import Random

import numpy as np
import pytest

from graphflow import tir
from graphflow.arith import Var, as_index, less_than
from graphflow.codegen import avx2_target, emit_ir, host_target
from support.native import Native

TARGETS = (host_target(), avx2_target())
C = Var("c")


def by_turns(
    turns: int, lanes: int, dtype: str = "float32", order: Random | None = None, gap: int = 1
) -> tir.PrimFunc:
    """`for c in vectorized: y[turns·c + 3 + t] = xt[gap·c]` for each t below `turns`."""
    inputs = [tir.Buffer(f"x{t}", (gap * lanes,), dtype) for t in range(turns)]
    y = tir.Buffer("y", (turns * lanes + 5,), dtype)
    stores = [
        tir.Store(y, (turns * C + 3 + t,), tir.Load(x, (gap * C,))) for t, x in enumerate(inputs)
    ]
    if order is not None:
        order.shuffle(stores)
    return written(inputs, y, tuple(stores), lanes)


def written(
    inputs: list[tir.Buffer], y: tir.Buffer, body: tuple[tir.Stmt, ...], lanes: int
) -> tir.PrimFunc:
    params = [tir.Param(b, tir.Role.INPUT) for b in inputs]
    loop = tir.For(C, as_index(0), as_index(lanes), tir.LoopKind.VECTORIZED, body)
    return tir.PrimFunc("k", (*params, tir.Param(y, tir.Role.INOUT)), (loop,))


def agree(func: tir.PrimFunc) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        p.buffer.name: rng.integers(0, 100, p.buffer.shape).astype(p.buffer.dtype)
        for p in func.params
    }
    expected = tir.interpret(func, arrays)["y"]
    for target in TARGETS:
        given = {name: array.copy() for name, array in arrays.items()}
        np.testing.assert_array_equal(Native(func, target)(given)["y"], expected)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "bool", "int64"])
@pytest.mark.parametrize(("turns", "lanes"), [(2, 16), (2, 13), (3, 7), (4, 8), (5, 3), (8, 7)])
def test_each_element_is_stored_once(turns: int, lanes: int, dtype: str) -> None:
    for gap in (1, 2, 3):
        agree(by_turns(turns, lanes, dtype, Random(turns * lanes + gap), gap))


def test_whole_vectors_are_stored() -> None:
    text = emit_ir(by_turns(4, 8), "f", avx2_target())
    assert "store <32 x float>" in text
    assert "store float" not in text


def test_a_store_that_reads_what_another_one_wrote_stays_behind_it() -> None:
    x, y = tir.Buffer("x", (8,)), tir.Buffer("y", (21,))
    first, second = (
        tir.Store(y, (2 * C + 3,), tir.Load(x, (C,))),
        tir.Store(y, (2 * C + 4,), tir.Load(y, (2 * C + 3,))),
    )
    func = written([x], y, (first, second), 8)
    assert "store float" in emit_ir(func, "f", avx2_target())
    agree(func)


@pytest.mark.parametrize("places", [(3, 3), (3, 6)])
def test_stores_that_leave_elements_out_are_stored_lane_by_lane(places: tuple[int, int]) -> None:
    x, y = tir.Buffer("x", (8,)), tir.Buffer("y", (24,))
    body = tuple(tir.Store(y, (2 * C + at,), tir.Load(x, (C,))) for at in places)
    func = written([x], y, body, 8)
    assert "store float" in emit_ir(func, "f", avx2_target())
    agree(func)


def test_lanes_under_a_condition_of_data_are_stored_lane_by_lane() -> None:
    flags, x, y = tir.Buffer("flags", (8,), "bool"), tir.Buffer("x", (8,)), tir.Buffer("y", (21,))
    body = tuple(tir.Store(y, (2 * C + 3 + t,), tir.Load(x, (C,))) for t in range(2))
    agree(written([flags, x], y, (tir.If(tir.Load(flags, (C,)), body, ()),), 8))
    agree(written([flags, x], y, (tir.If(less_than(C, 5), body, ()),), 8))


@pytest.mark.parametrize(("turns", "lanes"), [(2, 16), (3, 7), (5, 8)])
def test_turns_that_the_last_lanes_leave_out_are_stored_in_vectors(turns: int, lanes: int) -> None:
    """The conditions name the lane alone, so what each lane stores is known."""
    inputs = [tir.Buffer(f"x{t}", (lanes,)) for t in range(turns)]
    for count in (turns * lanes - 1, turns * lanes - turns + 1, turns * lanes - 2 * turns):
        y = tir.Buffer("y", (count,))
        body = tuple(
            tir.If(less_than(turns * C + t, count), (tir.Store(y, (turns * C + t,), value),))
            for t, value in enumerate(tir.Load(x, (C,)) for x in inputs)
        )
        func = written(inputs, y, body, lanes)
        pieces = emit_ir(func, "f", host_target()).count("store ")
        assert pieces == count.bit_count()
        agree(func)
