"""Tests of rows inside serial loops: `kernels/recipes/schedules/jammed_rows.py`."""

import numpy as np
import pytest

import graphflow as gf
from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.kernels.definitions import recurrent, recurrent_kernel
from graphflow.kernels.recipes import Staged, kernel_schedule
from graphflow.kernels.recipes.analysis.jammable_rows import jammable_rows
from graphflow.schedule import Schedule
from graphflow.tir import LoopKind, PrimFunc
from support.targets import in_turn

TARGETS = [pytest.param(host_target(), id="host"), pytest.param(avx2_target(), id="avx2")]

DOT_PRODUCTS = {"zen4": "dot4_16", "alderlake": "dot4_8", "haswell": "split_dot8"}
"""What multiplies bytes on processors with VNNI for both widths of vectors, and without it."""

SIGMOID, TANH = (recurrent.ACTIVATIONS[name][1] for name in ("sigmoid", "tanh"))


def layer(batch: int, hidden: int = 24, counted: bool = False, quantized: bool = False) -> PrimFunc:
    r = recurrent_kernel.Recurrence(5, batch, hidden, (SIGMOID, TANH, TANH), counted=counted)
    return recurrent.lstm(r, quantized=quantized, zeros=quantized)


def feeds_of(func: PrimFunc) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)

    def drawn(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        if dtype == "float32":
            return random.standard_normal(shape, np.float32)
        return random.integers(-100, 100, shape).astype(dtype)

    feeds = {b.name: drawn(b.dtype, b.shape) for b in func.inputs}
    if "scales" in feeds:
        feeds["scales"] *= np.float32(1e-4)  # so that the gates are not saturated
    return feeds


def scheduled(func: PrimFunc, rows: int, target: Target) -> Schedule:
    return kernel_schedule(func, (), Staged(rows), target)


def unrolled_sums(func: PrimFunc) -> list[int | None]:
    """The extents of the unrolled loops around several sums."""
    unrolled = (loop for loop in tir.loops_of(func.body) if loop.kind is LoopKind.UNROLLED)
    return [
        loop.extent
        for loop in unrolled
        if sum(isinstance(stmt, tir.Reduce) for stmt in tir.walk(loop.body)) > 1
    ]


@in_turn("rows", (2, 4, 8))
def test_blocks_of_rows_compute_what_single_rows_do(rows: int, target: Target) -> None:
    func, results = layer(8), []
    feeds = feeds_of(func)
    for together in (1, rows):
        s = scheduled(func, together, target)
        assert not s.refusals
        results.append(gf.build(s, target=target, threads=2).run(feeds))
    for name, array in results[0].items():
        np.testing.assert_array_equal(results[1][name], array)


@in_turn("hidden rows", (24, 13), (1, 2, 8))
def test_blocks_of_quantized_rows_compute_what_the_definition_says(
    hidden: int, rows: int, target: Target
) -> None:
    """Units of 13 are no whole number of groups of four."""
    func = layer(8, hidden, quantized=True)
    feeds = feeds_of(func)
    s = scheduled(func, rows, target)
    assert not s.refusals
    found = gf.build(s, target=target, threads=2).run(feeds)
    for name, array in tir.interpret(func, feeds).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("processor", "name"), DOT_PRODUCTS.items())
@pytest.mark.parametrize("rows", [1, 4])
def test_products_of_bytes_are_instructions(rows: int, processor: str, name: str) -> None:
    s = scheduled(layer(8, quantized=True), rows, PROCESSORS[processor])
    assert not s.refusals
    calls = [call.definition.name for call in tir.calls_in(s.func.body)]
    assert len(calls) == 4 and set(calls) == {name}


@pytest.mark.parametrize("rows", [1, 4])
def test_a_block_has_states_of_its_own(rows: int) -> None:
    """Threads that share lines of them would wait for each other in each step."""
    for quantized in (False, True):
        s = scheduled(layer(8, quantized=quantized), rows, host_target())
        (blocks,) = (x for x in tir.loops_of(s.func.body) if x.kind is LoopKind.PARALLEL)
        inside = [stmt for stmt in blocks.body if isinstance(stmt, tir.Allocate)]
        assert inside and inside == [x for x in tir.walk(s.func.body) if x in inside]
        assert not any(isinstance(stmt, tir.Allocate) for stmt in s.func.body)


def test_states_that_exceed_a_stack_stay_in_shared_memory() -> None:
    small = replace(host_target(), name="small", stack_bytes=1024)
    s = scheduled(layer(8), 4, small)
    assert any(isinstance(stmt, tir.Allocate) for stmt in s.func.body)


def test_rows_share_what_a_step_loads() -> None:
    """Four gates of 16 units take four vectors a row; as many rows as fit are inside of the sum."""
    wide = host_target().vector_registers == 32
    for counted in (False, True):
        s = scheduled(layer(8, counted=counted), 4, host_target())
        assert not s.refusals
        assert unrolled_sums(s.func) == ([4] if wide else [])


def test_sums_that_registers_do_not_hold_stay_in_their_row() -> None:
    s = scheduled(layer(8), 8, avx2_target())
    assert not s.refusals and unrolled_sums(s.func) == []
    rows = [loop for loop in tir.loops_of(s.func.body) if loop.extent == 8]
    assert any(isinstance(stmt, tir.Reduce) for row in rows for stmt in tir.walk(row.body))


def test_rows_that_read_each_other_are_not_jammed() -> None:
    """Row b begins with what row b - 1 ended with, so that no two of them run at once."""
    func = gf.kernel("""
        def chain(w: f32[16, 16], y: inout[f32[5, 16]]):
            for b in serial(0, 4):
                for u in serial(0, 16):
                    y[b + 1, u] = y[b, u]
                for t in serial(0, 3):
                    for k in serial(0, 16):
                        for v in serial(0, 16):
                            y[b + 1, v] += y[b, k] * w[k, v]
    """)
    assert jammable_rows(func) is not None
    s = scheduled(func, 2, host_target())
    assert s.refusals
    assert all(loop.kind is not LoopKind.PARALLEL for loop in tir.loops_of(s.func.body))


def test_a_row_whose_operands_are_its_own_gains_nothing() -> None:
    func = gf.kernel("""
        def apart(w: f32[4, 16, 16], x: f32[4, 16], y: out[f32[4, 16]]):
            for b in serial(0, 4):
                for u in serial(0, 16):
                    y[b, u] = f32(0.0)
                for k in serial(0, 16):
                    for v in serial(0, 16):
                        y[b, v] += x[b, k] * w[b, k, v]
    """)
    assert jammable_rows(func) is None
