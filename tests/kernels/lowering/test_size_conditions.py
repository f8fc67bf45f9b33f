"""Tests of conditions on sizes: which statements of a kernel get one, and that the rows that a run
gives are written as without."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import tir
from graphflow.kernels.lowering import SizedAxis, axes_with_sizes, with_size_conditions
from graphflow.kernels.lowering.sized_rows import BoxAxis
from graphflow.layout import Layout, row_major

TILES = """
@primfunc
def tiles(x: f32[40, 8], y: out[f32[40, 8]]):
    with block("all"):
        for panel in parallel(0, 2):
            cache = alloc(f32[4], scratch)
            for c in vectorized(0, 4):
                cache[c] = x[0, 4*panel + c]
            for t in serial(0, 3):
                total = alloc(f32[13, 4], scratch)
                for i in serial(0, 13):
                    for c_1 in vectorized(0, 4):
                        total[i, c_1] = x[13*t + i, 4*panel + c_1] + cache[c_1]
                for i_1 in serial(0, 13):
                    for c_2 in vectorized(0, 4):
                        y[13*t + i_1, 4*panel + c_2] = total[i_1, c_2]
            rest = alloc(f32[4], scratch)
            for c_3 in serial(0, 4):
                rest[c_3] = x[39, 4*panel + c_3] + cache[c_3]
            for c_4 in vectorized(0, 4):
                y[39, 4*panel + c_4] = rest[c_4]
"""

REVERSED = """
@primfunc
def backwards(x: f32[6, 8], y: out[f32[6, 8]]):
    for t in serial(0, 6):
        for c in serial(0, 8):
            y[5 - t, c] = x[5 - t, c] * f32(2.0)
"""

COLLAPSED = """
@primfunc
def collapsed(x: f32[3, 6, 8], y: out[f32[3, 6, 8]]):
    for k in serial(0, 18):
        for c in serial(0, 8):
            y[k // 6, k % 6, c] = x[k // 6, k % 6, c]
"""

ONLY_PARALLEL = """
@primfunc
def rows(x: f32[6, 8], y: out[f32[6, 8]]):
    for t in parallel(0, 6):
        for c in serial(0, 8):
            y[t, c] = x[t, c]
"""

ACROSS = """
@primfunc
def across(x: f32[6, 8], y: out[f32[6, 8]]):
    for t in serial(0, 6):
        for c in serial(0, 8):
            y[(t + c) % 6, c] = x[t, c]
"""

CARRIED = """
@primfunc
def carried(x: f32[6, 8], y: out[f32[6, 8]]):
    total = alloc(f32[8], scratch)
    for c in serial(0, 8):
        total[c] = f32(0.0)
    for t in serial(0, 6):
        for c_1 in serial(0, 8):
            total[c_1] += x[5 - t, c_1]
            y[5 - t, c_1] = total[c_1]
"""

READ_BACK = """
@primfunc
def read_back(x: f32[6, 8], y: out[f32[6, 8]]):
    for t in serial(0, 6):
        for c in serial(0, 8):
            y[5 - t, c] = x[5 - t, c]
    for t_1 in serial(0, 6):
        for c_1 in serial(0, 8):
            y[t_1, c_1] = y[t_1, c_1] + y[5, c_1]
"""


def guarded(text: str, *axes: tuple[str, int]) -> tuple[tir.PrimFunc, tir.PrimFunc]:
    """A kernel, and the same with conditions on the sizes of some axes of its output `y`."""
    func = tir.parse(text.strip())
    box = func.param("y").shape
    sized = tuple(SizedAxis(n, box[axis], (BoxAxis("y", box, axis),)) for n, axis in axes)
    made, params = with_size_conditions(func, sized)
    tir.verify(made, "lowered")
    assert [p.buffer for p in params] == [p.buffer for p in made.params[len(func.params) :]]
    return func, made


def conditions(func: tir.PrimFunc) -> list[str]:
    """The conditions on sizes, in program order."""
    found = (stmt for stmt in tir.walk(func.body) if isinstance(stmt, tir.If))
    return [str(stmt.condition) for stmt in found]


def run(func: tir.PrimFunc, x: np.ndarray, **sizes: int) -> np.ndarray:
    held = {name: np.array(size, np.int64) for name, size in sizes.items()}
    return tir.interpret(func, {"x": x, **held})["y"]


def drawn(func: tir.PrimFunc) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(func.param("x").shape).astype(np.float32)


def test_tiles_and_the_rest_have_conditions_and_what_they_share_has_none() -> None:
    _, made = guarded(TILES, ("n", 0))
    (loop,) = (loop for loop in tir.loops_of(made.body) if loop.kind is tir.LoopKind.PARALLEL)
    allocation, cached, tiles, rest = loop.body
    assert isinstance(allocation, tir.Allocate) and allocation.buffer.name == "cache"
    assert isinstance(cached, tir.For)
    assert isinstance(tiles, tir.For) and isinstance(tiles.body[0], tir.If)
    assert len(tiles.body) == 1 and isinstance(rest, tir.If) and len(rest.then) == 3
    assert len(conditions(made)) == 2


@pytest.mark.parametrize("size", [1, 12, 13, 14, 26, 39, 40])
def test_only_tiles_with_a_row_before_the_size_are_computed(size: int) -> None:
    """Counted by the rows that are written."""
    func, made = guarded(TILES, ("n", 0))
    x = drawn(func)
    found = run(made, x, size=size)
    written = min(-(-size // 13) * 13, 39) + (size == 40)
    assert not np.isnan(found[:written]).any() and np.isnan(found[written:]).all()
    np.testing.assert_array_equal(found[:written], run(func, x)[:written])


@pytest.mark.parametrize("text", [REVERSED, COLLAPSED], ids=["reversed", "collapsed"])
def test_rows_in_any_order(text: str) -> None:
    func, made = guarded(text, *((("n", 0), ("m", 1)) if text is COLLAPSED else (("n", 0),)))
    x = drawn(func)
    whole, names = run(func, x), [p.buffer.name for p in made.params[2:]]
    shape = whole.shape[: len(names)]
    for sizes in np.ndindex(shape):
        counts = tuple(size + 1 for size in sizes)
        found = run(made, x, **dict(zip(names, counts, strict=True)))
        given_part = tuple(slice(0, count) for count in counts)
        np.testing.assert_array_equal(found[given_part], whole[given_part])
        assert np.count_nonzero(~np.isnan(found)) == np.prod(counts) * 8


@pytest.mark.parametrize("text", [ONLY_PARALLEL, ACROSS, CARRIED, READ_BACK])
def test_where_there_is_no_condition(text: str) -> None:
    """A part of the parallel loop is left out by the caller; rows behind the size may be needed for
    those before it, or be written together with them."""
    func, made = guarded(text, ("n", 0))
    assert made == func


def test_short_statements_have_no_condition_each() -> None:
    func, made = guarded(REVERSED.replace("8", "2"), ("n", 0))
    assert made == func


@st.composite
def row_kernels(draw: st.DrawFn) -> tuple[str, int]:
    """A kernel whose stages write the rows of `y` in tiles, a rest or in reverse, and its rows."""
    rows, lines = 0, list[str]()
    for number in range(draw(st.integers(1, 3))):
        tile, count = draw(st.integers(1, 4)), draw(st.integers(1, 4))
        place = draw(st.sampled_from(["{t}*{tile} + {i}", "{last} - {t}*{tile} - {i}"]))
        index = place.format(t=f"t{number}", tile=tile, i=f"i{number}", last=tile * count - 1)
        at, acc = f"{rows} + {index}", f"acc{number}[i{number}, c{number}]"
        lines += [
            f"for t{number} in serial(0, {count}):",
            f"    acc{number} = alloc(f32[{tile}, 4], scratch)",
            f"    for i{number} in serial(0, {tile}):",
            f"        for c{number} in serial(0, 4):",
            f"            {acc} = x[{at}, c{number}] + shared[c{number}]",
            f"            y[{at}, c{number}] = {acc}",
        ]
        rows += tile * count
    body = "\n    ".join(lines)
    text = (
        f"@primfunc\ndef made(x: f32[{rows}, 4], y: out[f32[{rows}, 4]]):\n"
        "    shared = alloc(f32[4], scratch)\n"
        "    for c in serial(0, 4):\n"
        f"        shared[c] = x[{rows - 1}, c]\n    {body}\n"
    )
    return text, rows


@settings(derandomize=True, max_examples=40, deadline=None)
@given(row_kernels())
def test_rows_before_every_size_are_written(case: tuple[str, int]) -> None:
    text, rows = case
    if rows == 1:
        return
    func, made = guarded(text, ("n", 0))
    x, names = drawn(func), [p.buffer.name for p in made.params[2:]]
    whole = run(func, x)
    for size in range(1, rows + 1):
        found = run(made, x, **dict.fromkeys(names, size))
        np.testing.assert_array_equal(found[:size], whole[:size])


def test_a_size_that_no_condition_needs_is_no_parameter() -> None:
    _, made = guarded(COLLAPSED, ("n", 0))
    assert len(made.params) == 3
    _, made = guarded(ONLY_PARALLEL, ("n", 0))
    assert len(made.params) == 2


FEW = """
@primfunc
def few(x: f32[3, 64, 2], y: out[f32[3, 64, 2]]):
    for b in serial(0, 3):
        for t in serial(0, 64):
            for c in vectorized(0, 2):
                y[b, t, c] = x[b, t, c]
"""


def test_a_loop_over_rows_ends_at_the_size_however_little_it_does() -> None:
    func, made = guarded(FEW, ("n", 1))
    assert len(conditions(made)) == 1
    x = drawn(func)
    found = run(made, x, size=5)
    np.testing.assert_array_equal(found[:, :5], x[:, :5])
    assert np.isnan(found[:, 5:]).all()


@pytest.mark.parametrize("index", ["(t + b) % 64", "63 - t"])
def test_conditions_on_little_work_that_end_no_loop_are_left_out(index: str) -> None:
    func, made = guarded(FEW.replace("y[b, t, c]", f"y[b, {index}, c]"), ("n", 1))
    assert made == func


ROTARY = """
@primfunc
def rotary(x: f32[4, 8], y: out[f32[4, 8]]):
    for t in unrolled(0, 4):
        for c in vectorized(0, 8):
            y[t, c] = cos(x[t, c])
"""


def test_functions_of_rows_behind_the_size_are_not_computed() -> None:
    """What stands there may be large, of which a cosine takes hundreds of cycles."""
    func, made = guarded(ROTARY, ("n", 0))
    x = drawn(func)
    for size in (1, 2, 3, 4):
        found = run(made, x, size=size)
        np.testing.assert_array_equal(found[:size], run(func, x)[:size])
        assert np.isnan(found[size:]).all()
    cheap, same = guarded(ROTARY.replace("cos", "abs"), ("n", 0))
    assert len(conditions(same)) <= 1 and cheap.name == same.name


MATCHED = """
@primfunc
def matched(at: i64[()], x: f32[6, 80], y: out[f32[6, 81]]):
    for t in serial(0, 6):
        y[t, 0] = f32(0.0)
    for place in serial(0, 2):
        if data(index(place, i64) == at[()]):
            for t_1 in serial(0, 6):
                for c in serial(0, 80):
                    y[t_1, c + place] = x[t_1, c]
"""


def test_rows_inside_of_a_matched_loop_have_conditions() -> None:
    func, made = guarded(MATCHED, ("rows", 0))
    assert "data(index(t_1, i64) < size[()])" in tir.to_text(made)
    x = drawn(func)
    for at, size in product((0, 1, 5), range(7)):
        wanted, found = (
            tir.interpret(f, {"x": x, "at": np.array(at, np.int64), **more})["y"]
            for f, more in ((func, {}), (made, {"size": np.array(size, np.int64)}))
        )
        np.testing.assert_array_equal(found[:size], wanted[:size])


def test_a_loop_behind_a_known_row_ends_at_the_size() -> None:
    joined = """
@primfunc
def joined(x: f32[6, 80], y: out[f32[6, 81]]):
    for t in serial(0, 6):
        y[t, 0] = f32(0.0)
    for t_1 in serial(0, 6):
        for c in serial(0, 5):
            for v in vectorized(0, 16):
                y[t_1, 16*c + v + 1] = x[t_1, 16*c + v]
"""
    _, made = guarded(joined, ("columns", 1))
    assert "data(index(16*c + 1, i64) < size[()])" in tir.to_text(made)


@pytest.mark.parametrize("writes_padding", [False, True])
def test_a_longer_box_has_conditions_where_no_padding_is_written(writes_padding: bool) -> None:
    text = """
@primfunc
def longer(x: f32[6, 8], y: out[f32[7, 8]]):
    for t in serial(0, 6):
        for c in serial(0, 8):
            y[t, c] = x[t, c]
"""
    padding = "    for p in serial(0, 8):\n        y[6, p] = f32(0.0)\n"
    func = tir.parse((text + padding * writes_padding).strip())
    layout = Layout(row_major((6, 8)).index_map, (6, 8), (7, 8))
    sized = axes_with_sizes({"y": layout}, {"y": {0: "rows"}})
    assert [(axis.room, axis.places[0].box) for axis in sized] == [(6, (7, 8))]
    made, _ = with_size_conditions(func, sized)
    assert bool(conditions(made)) is not writes_padding
