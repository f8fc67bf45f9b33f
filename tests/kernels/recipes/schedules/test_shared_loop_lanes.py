"""Lanes across rows: blocks of vectors along a shared loop, stage after stage inside them."""

import numpy as np
import pytest

from graphflow.base.errors import ScheduleError
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.recipes import SharedLoops
from graphflow.kernels.recipes.analysis.shared_loops import intermediates, joined_stages
from graphflow.kernels.recipes.schedules.shared_loop_lanes import (
    lanes_along_shared_loop,
    stages_apart,
)
from graphflow.schedule import Schedule
from graphflow.tir import If, LoopKind, interpret, is_predicate, loops_of, walk
from support.schedule_checks import kernel, same


def made(
    shape: tuple[int, ...], recipe: SharedLoops, axis: int = 1
) -> tuple[Schedule, list[int | None]]:
    """A softmax in lanes across its rows, beside the definition; the extents of loops left."""
    definition = reduction.softmax(shape, (axis,))
    s, shared = joined_stages(definition, recipe.transposed)
    s, around = lanes_along_shared_loop(s, shared, recipe)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    x.reshape(-1)[:: max(x.size // 3, 1)] = -np.inf
    want = interpret(definition, {"x": x})["y"]
    (placed,) = s.func.inputs  # axes that follow each other in memory may be one by now
    got = interpret(s.func, {"x": x.reshape(placed.shape)}, undefined=np.nan)["y"]
    np.testing.assert_allclose(got.reshape(shape), want, rtol=1e-5)
    return s, [s.loop(place).extent for place in s.present(around)]


@pytest.mark.parametrize("vectors", [1, 2, 4])
@pytest.mark.parametrize("columns", [3, 4, 5, 8, 16, 19])
def test_each_width_computes_the_same(columns: int, vectors: int) -> None:
    s, _ = made((2, 3, columns), SharedLoops(4, 1, 1, vectors))
    kinds = {loop.extent for loop in loops_of(s.func.body) if loop.kind is LoopKind.VECTORIZED}
    assert kinds == {4}


def test_axes_that_run_on_are_one() -> None:
    """The rows of an image follow each other in memory, so vectors go on in the next one."""
    _, around = made((1, 3, 4, 6), SharedLoops(4, 1, 1, 1))
    assert around == [6]


def test_only_the_last_block_has_masks_where_a_loop_is_left_for_threads() -> None:
    s, around = made((5, 3, 19), SharedLoops(4, 1, 1, 2))
    assert around == [5]
    (batch,) = (x for x in loops_of(s.func.body) if x.extent == 5)
    guards = [
        sum(isinstance(x, If) and is_predicate(x.condition) for x in walk((part,)))
        for part in batch.body
    ]
    assert guards[0] == 0 < guards[-1]


def test_a_row_of_vectors_is_in_registers_and_several_on_the_stack() -> None:
    s, _ = made((2, 3, 16), SharedLoops(4, 1, 1, 1))
    scopes = {b.name: b.scope for b in intermediates(s.func)}
    assert scopes.pop("powers") == "scratch"
    assert set(scopes.values()) == {"register"}


def test_statements_that_need_a_later_lane_stay_together() -> None:
    """Each statement gets a loop of its own only where that changes nothing."""
    apart = "for i in serial(0, 16):\n    y[i] = x[i]\n    y[i] *= i32(3)"
    s = Schedule.of(func := kernel(apart))
    s, pieces = stages_apart(s, s.handle("i"))
    assert len(pieces) == 2
    same(func, s)
    bound = """
t = alloc(i32[1])
for i in serial(0, 16):
    t[0] = x[i]
    y[i] = t[0]
"""
    s = Schedule.of(kernel(bound))
    with pytest.raises(ScheduleError):
        stages_apart(s, s.handle("i"))


@pytest.mark.parametrize("transposed", [("x",), ("y",), ("x", "y")])
@pytest.mark.parametrize(("columns", "vectors"), [(3, 1), (4, 2), (7, 1), (19, 4)])
def test_lines_are_transposed_on_the_way(
    columns: int, vectors: int, transposed: tuple[str, ...]
) -> None:
    s, around = made((2, 16, columns), SharedLoops(4, 1, 1, vectors, transposed), axis=2)
    assert around == [2 * 16 // (4 * vectors)]
    assert not s.refusals
    rows = [b for b in intermediates(s.func) if b.name.startswith("rows_")]
    assert len(rows) >= len(transposed)
    assert all(b.scope == "register" for b in rows)
    lines = [b for b in intermediates(s.func) if b.name.split("_")[-1] == "lines"]
    assert {b.shape for b in lines} == {(columns, 4 * vectors)}


def test_intermediates_lie_along_the_lanes() -> None:
    """A trap: rows are not the last axis of the tensor, so lanes would store elements apart."""
    s, _ = made((2, 16, 7), SharedLoops(4, 1, 1, 2, ("x", "y")), axis=2)
    shapes = {b.name: b.shape for b in intermediates(s.func)}
    assert shapes["powers"] == (7, 8)
    s, _ = made((2, 3, 16), SharedLoops(4, 1, 1, 2))
    shapes = {b.name: b.shape for b in intermediates(s.func)}
    assert shapes["powers"] == (3, 8)
