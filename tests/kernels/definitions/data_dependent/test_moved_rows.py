"""Tests of reshapes that copy parts of rows: interpreted and natively, beside numpy's reshape."""

from math import prod

import numpy as np
import pytest

import graphflow as gf
from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import host_target
from graphflow.kernels.definitions.data_dependent.moved_rows import CountedAxis, Rows, moved_rows
from graphflow.kernels.recipes.schedules.staged import staged
from support.targets import in_turn

N, M, K = (CountedAxis(number, room) for number, room in enumerate((40, 37, 5)))


def known(extent: int) -> CountedAxis:
    return CountedAxis(None, extent)


RESHAPES = {
    "rows of other lengths": ((N, M), (M, N)),
    "rows become one": ((N, M), (CountedAxis(3, 40 * 37),)),
    "one is divided into rows": ((CountedAxis(3, 40 * 37),), (M, N)),
    "rows of constant axes": ((N, M, known(3)), (M, known(3), N)),
    "a constant in front": ((known(3), N), (N, known(3))),
    "three axes": ((K, N, M), (M, K, N)),
    "short rows": ((N, K), (K, N)),
}
"""The axes in front and behind; count 3 is the product of the first two."""

COUNTS = ((40, 37, 5), (1, 1, 1), (2, 37, 1), (40, 3, 5), (16, 16, 4), (17, 33, 2), (33, 5, 3))


def extents(axes: tuple[CountedAxis, ...], counts: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(axis.room if axis.count is None else counts[axis.count] for axis in axes)


def room(axes: tuple[CountedAxis, ...]) -> tuple[int, ...]:
    return tuple(axis.room for axis in axes)


def drawn(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.random.default_rng(1).integers(-100, 100, shape).astype(dtype)


def fed(
    func: tir.PrimFunc, axes: tuple[CountedAxis, ...], ahead: int, numbers: tuple[int, ...]
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The inputs of a kernel, poison behind the elements of a run, and these elements."""
    dtype = func.inputs[0].dtype
    given = drawn((ahead, *extents(axes, numbers)), dtype)
    x = np.full((ahead, *room(axes)), np.nan if dtype == "float32" else 77, dtype)
    x[tuple(map(slice, given.shape))] = given
    counts = {f"count{k}": np.array(n, np.int64) for k, n in enumerate(numbers)}
    held = {buffer.name: counts[buffer.name] for buffer in func.inputs[1:]}
    return {"x": x.reshape(ahead, -1), **held}, given


def right(
    y: np.ndarray, given: np.ndarray, axes: tuple[CountedAxis, ...], numbers: tuple[int, ...]
) -> bool:
    ahead, wanted = given.shape[0], extents(axes, numbers)
    found = y.reshape(ahead, *room(axes))[tuple(map(slice, (ahead, *wanted)))]
    return np.array_equal(found, given.reshape(ahead, *wanted))


@in_turn("name dtype", RESHAPES, ["float32", "int64", "int8"])
def test_rows_are_those_of_a_reshape(name: str, dtype: str, target: Target) -> None:
    before, after = RESHAPES[name]
    func = moved_rows((2,), Rows.of(before), Rows.of(after), dtype)
    exe = gf.build(func, target=target)
    for counts in COUNTS:
        numbers = (*counts, counts[0] * counts[1])
        inputs, given = fed(func, before, 2, numbers)
        assert right(exe.run(inputs)["y"], given, after, numbers), counts


@pytest.mark.parametrize("name", RESHAPES)
def test_interpreted(name: str) -> None:
    before, after = RESHAPES[name]
    func = moved_rows((1,), Rows.of(before), Rows.of(after), "float32")
    for counts in COUNTS[-2:]:
        numbers = (*counts, counts[0] * counts[1])
        inputs, given = fed(func, before, 1, numbers)
        assert right(tir.interpret(func, inputs)["y"], given, after, numbers)


def test_a_row_begins_at_the_last_count() -> None:
    rows = Rows.of((N, known(2), M, known(3)))
    assert rows == Rows((N, known(2)), (M, known(3)))
    assert (rows.rooms, rows.room) == ((40, 2), 111)
    assert prod(Rows.of((known(4), known(5))).rooms) == 1


def test_elements_are_copied_in_lanes() -> None:
    """A mask ends them; a loop that ended at a place found in data would have none."""
    func = moved_rows((2,), Rows.of((N, M)), Rows.of((M, N)), "float32")
    made = staged(func, (), host_target()).func
    lanes = [loop for loop in tir.loops_of(made.body) if loop.kind is tir.LoopKind.VECTORIZED]
    copies = [loop for loop in lanes if isinstance(loop.body[0], tir.If)]
    assert len(copies) == 1 and tir.moves_of(replace(made, body=copies[0].body[0].then))
