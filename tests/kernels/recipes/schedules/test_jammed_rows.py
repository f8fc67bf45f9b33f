"""Tests of rows inside serial loops: `kernels/recipes/schedules/jammed_rows.py`."""

from __future__ import annotations

import numpy as np
import pytest

import graphflow as gf
from graphflow import tir
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.kernels.definitions import recurrent
from graphflow.kernels.recipes import Staged, kernel_schedule
from graphflow.kernels.recipes.analysis.jammable_rows import jammable_rows
from graphflow.schedule import Schedule
from graphflow.tir import LoopKind, PrimFunc

TARGETS = [pytest.param(host_target(), id="host"), pytest.param(avx2_target(), id="avx2")]

SIGMOID, TANH = (recurrent.ACTIVATIONS[name][1] for name in ("sigmoid", "tanh"))


def layer(batch: int, hidden: int = 24, counted: bool = False) -> PrimFunc:
    r = recurrent.Recurrence(5, batch, hidden, (SIGMOID, TANH, TANH), counted=counted)
    return recurrent.lstm(r)


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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("rows", [2, 4, 8])
def test_blocks_of_rows_compute_what_single_rows_do(rows: int, target: Target) -> None:
    random, results = np.random.default_rng(0), []
    func = layer(8)
    feeds = {b.name: random.standard_normal(b.shape, np.float32) for b in func.inputs}
    for together in (1, rows):
        s = scheduled(func, together, target)
        assert not s.refusals
        results.append(gf.build(s, target=target, threads=2).run(feeds))
    for name, array in results[0].items():
        np.testing.assert_array_equal(results[1][name], array)


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
