"""Partial results made where a kernel stores its output: what is proven, and what is refused."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.arith import Var
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.cost import Panels, Tiling
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.recipes import Tiled
from graphflow.kernels.recipes.analysis.partial_results import (
    PartialResults,
    partial_results,
    with_partial_results,
)
from graphflow.kernels.recipes.schedules.stored_reductions import (
    iteration_cuts,
    reduced_where_stored,
)
from graphflow.kernels.recipes.tile_kinds.broadcast_tiles import BroadcastTile
from graphflow.layout import blocked, row_major
from graphflow.schedule import Schedule, replay
from graphflow.tir import interpret, parse

IN_ROWS = """
@primfunc
def kernel(x: f32[6, 40], y: out[f32[6, 40]]):
    for i in parallel(0, 6):
        for j in serial(0, 3):
            for v in vectorized(0, 16):
                if 16*j + v < 40:
                    y[i, 16*j + v] = x[i, 16*j + v] * f32(2.0)
"""
Y = tir.Buffer("y", (6, 40), "float32")
ELEMENT = tir.Load(Y, (Var("a"), Var("b")))


def results(
    cuts: tuple[tuple[int, int], ...], shape: tuple[int, ...], op: tir.ReduceOp = tir.ReduceOp.MAX
) -> tuple[PartialResults, ...]:
    parts = tir.Buffer("parts", shape, "float32")
    return (PartialResults(parts, cuts, op, tir.Unary("abs", ELEMENT), ELEMENT),)


def scheduled(text: str, found: tuple[PartialResults, ...]) -> Schedule:
    return Schedule.of(parse(text)).apply(reduced_where_stored, "y", found)


IN_BLOCKS = """
@primfunc
def kernel(x: f32[6, 40], y: out[f32[6, 40]]):
    for i in parallel(0, 3):
        for k in serial(0, 2):
            y[2*i + k, 0] = x[2*i + k, 0] * f32(2.0)
            for j in serial(0, 39):
                y[2*i + k, j + 1] = x[2*i + k, j + 1] * f32(2.0)
"""


@pytest.mark.parametrize(("text", "count"), [(IN_ROWS, 1), (IN_BLOCKS, 2)])
def test_each_part_is_reduced(text: str, count: int) -> None:
    s = scheduled(text, results(((0, count),), (6 // count,)))
    x = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
    x[1, 39] = -np.inf
    found = interpret(s.func, {"x": x})
    np.testing.assert_array_equal(found["y"], 2 * x)
    np.testing.assert_array_equal(found["parts"], np.abs(2 * x).reshape(-1, count * 40).max(1))
    assert replay(s.definition, s.steps) == s.func


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("parallel", "serial", "no loop"),
        ("serial(0, 3)", "serial(0, 2)", "are stored 192 times"),
        ("< 40:", "< 39:", "are stored 234 times"),
        ("y[i, 16*j + v] = ", "y[i, 16*j + v] += ", "not only stored"),
        ("x[i, 16*j + v] *", "y[i, 16*j + v] *", "not only stored"),
        ("if 16*j + v < 40:", "if data(x[i, 0] > f32(0.0)):", "data decide"),
    ],
)
def test_kernels_that_store_otherwise_are_refused(old: str, new: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        scheduled(IN_ROWS.replace(old, new), results(((0, 1),), (6,)))


def test_parts_across_iterations_are_refused() -> None:
    with pytest.raises(ScheduleError, match="several parts"):
        scheduled(IN_ROWS, results(((1, 1),), (40,)))
    with pytest.raises(ScheduleError, match="independent"):
        scheduled(IN_ROWS, results(((0, 2),), (3,)))


def test_parts_are_cut_along_axes_that_memory_keeps() -> None:
    """A kernel may store rows of an image as one axis: (2, 3, 4, 16) as (2, 12, 16)."""
    y = tir.Buffer("y", (2, 3, 4, 16), "float32")
    element = tir.Load(y, tuple(map(Var, "abcd")))
    parts = tir.Buffer("parts", (1, 1), "float32")
    one = PartialResults(parts, ((3, 8), (0, 1)), tir.ReduceOp.MAX, element, element)
    assert one.in_memory(row_major(y.shape), y.shape).cuts == ((3, 8), (0, 1))
    assert one.in_memory(row_major(y.shape), (2, 12, 16)).cuts == ((2, 8), (0, 1))
    with pytest.raises(ScheduleError, match="axis 0 is one with another"):
        one.in_memory(row_major(y.shape), (24, 16))
    with pytest.raises(ScheduleError, match="other axes than the tensor"):
        one.in_memory(blocked(y.shape, 3, 8), y.shape)


@pytest.mark.parametrize(
    ("kind", "cuts"),
    [
        (BroadcastTile(), ((1, 16),)),
        (BroadcastTile(blocks=3), ((1, 16), (0, 2))),
        (BroadcastTile(blocks=3, near_blocks=True), ((0, 2), (1, 16))),
    ],
)
@pytest.mark.parametrize("rows", [6, 5])
def test_parts_are_those_of_the_loop_that_threads_share(
    rows: int, kind: BroadcastTile, cuts: tuple[tuple[int, int], ...]
) -> None:
    """Of panels and blocks of rows, in the order in which they run; the last block may lack one."""
    tiling = Tiling((Panels(3, 2, 8, 2),), panel_outermost=True)
    assert iteration_cuts(linear.matmul((rows, 5), (5, 48)), Tiled(kind, tiling), (0, 1)) == cuts


def test_definitions_with_partial_results_are_recognized() -> None:
    plain = elementwise.unary("exp", (6, 40), "float32")
    reduced = plain.outputs[0]
    element = tir.Load(reduced, (Var("a"), Var("b")))
    update = tir.Reduce(tir.ReduceOp.MIN, tir.Buffer("m", (), "float32"), (), element)
    made = with_partial_results(plain, ((1, 16), (0, 1)), update, element)
    made = with_partial_results(made, ((0, 1),), replace(update, op=tir.ReduceOp.MAX), element)
    found = partial_results(made)
    assert found is not None and found[0] == plain
    assert [one.cuts for one in found[1]] == [((1, 16), (0, 1)), ((0, 1),)]
    x = np.random.default_rng(0).standard_normal((6, 40)).astype(np.float32)
    y, least, greatest = interpret(made, {plain.inputs[0].name: x}).values()
    np.testing.assert_array_equal(least[2], y[:, 32:].min(1))
    np.testing.assert_array_equal(greatest, y.max(1))
    assert partial_results(plain) is None
    *body, last = made.body
    (nest,) = last.body  # type: ignore[union-attr]
    other = replace(last, body=(replace(nest, stop=nest.stop - 1),))
    assert partial_results(replace(made, body=(*body, other))) is None
