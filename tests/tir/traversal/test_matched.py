"""Tests of matched loops: which loops match, that the interpreter and native code run only the
iteration that data names, and that schedules leave such loops alone."""

from textwrap import dedent
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import tir
from graphflow.codegen import avx2_target, emit_assembly, host_target
from graphflow.cost import operation_cycles
from graphflow.graph import Node, OperatorGraph, fuse_groups
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.data_dependent import indexing
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.recipes import Staged, kernel_schedule, kernel_variants
from graphflow.schedule import Schedule, require_in_bounds, transform_layout
from support.native import Native
from support.targets import in_turn

TARGETS = (host_target(), avx2_target())
EXTREMES = (0, 6, 7, -1, -7, -8, np.iinfo(np.int64).min, np.iinfo(np.int64).max, 2**32, 3)


def kernel(text: str) -> tir.PrimFunc:
    return tir.parse("@primfunc\n" + dedent(text).lstrip())


def loop_called(func: tir.PrimFunc, name: str) -> tir.For:
    return next(loop for loop in tir.loops_of(func.body) if loop.var.name == name)


def row_loop(body: str, head: str = "serial(0, 7)", after: str = "") -> tir.For:
    """The loop over `row` of a kernel with this body inside it."""
    text = f"""
        def k(x: f32[7], ids: i64[3], y: out[f32[7]], z: out[i64[3]]):
            for i in serial(0, 3):
                for row in {head}:
                    {body}
                    {after}
    """
    return loop_called(kernel(text), "row")


STORE = "y[row] = x[row]"
MATCHED = [
    f"if data(index(row, i64) == ids[i]):\n                        {STORE}",
    f"if data(ids[i] == index(row, i64)):\n                        {STORE}",
    f"if data(index(row, i64) == cast(i64, x[i])):\n                        {STORE}",
    f"if data(index(row, i64) == index(i + 1, i64)):\n                        {STORE}",
]
OTHERS = {
    "another order": f"if data(index(row, i64) <= ids[i]):\n                        {STORE}",
    "its variable": f"if data(index(row, i64) == ids[i] + index(row, i64)):\n"
    f"                        {STORE}",
    "a position that depends on it": f"if data(index(row, i64) == cast(i64, x[row])):\n"
    f"                        {STORE}",
    "what the body writes": "if data(index(row, i64) == z[i]):\n"
    "                        z[i] = index(row + 1, i64)",
    "numbers that wrap": f"if data(index(row, i8) == cast(i8, ids[i])):\n"
    f"                        {STORE}",
    "a function of it": f"if data(index(row // 2, i64) == ids[i]):\n"
    f"                        {STORE}",
    "undef": f"if data(index(row, i64) == undef(i64)):\n                        {STORE}",
    "an index condition": "if row == i:\n                        y[row] = x[row]",
}


@pytest.mark.parametrize("body", MATCHED)
def test_a_loop_that_data_picks_one_iteration_of(body: str) -> None:
    assert tir.matched_value(row_loop(body)) is not None


@pytest.mark.parametrize("body", OTHERS.values(), ids=OTHERS)
def test_a_loop_with_another_condition_is_not_matched(body: str) -> None:
    assert tir.matched_value(row_loop(body)) is None


def test_a_loop_that_does_more_or_is_not_serial_is_not_matched() -> None:
    assert tir.matched_value(row_loop(MATCHED[0], after="z[i] = ids[i]")) is None
    assert tir.matched_value(row_loop(f"{MATCHED[0]}\n                    else:\n"
                                  "                        y[row] = f32(0.0)")) is None  # fmt: skip
    for kind in tir.LoopKind:
        found = tir.matched_value(row_loop(MATCHED[0], head=f"{kind.value}(0, 7)"))
        assert (found is not None) is (kind is tir.LoopKind.SERIAL)


def test_the_text_of_a_matched_loop_is_read_back() -> None:
    func = indexing.gather_nd((4, 5, 6), (3, 2), 0, "float32", "int32")
    again = tir.parse(tir.to_text(func))
    assert again == func and len(tir.matched_variables(again.body)) == 2


def same(func: tir.PrimFunc, arrays: dict[str, Any]) -> dict[str, Any]:
    """The interpreter's results, which native code for each target has to give too."""
    wanted = tir.interpret(func, arrays)
    for target in TARGETS:
        found = Native(func, target)(arrays)
        for name, array in wanted.items():
            np.testing.assert_array_equal(found[name], array)
    return wanted


def as_ordinary(func: tir.PrimFunc) -> tir.PrimFunc:
    """`func` with loops over rows that run all their iterations."""
    return tir.parse(tir.to_text(func).replace("for row in serial", "for row in unrolled"))


def test_one_iteration_is_run_where_the_value_is_in_range_and_none_elsewhere() -> None:
    func = kernel("""
        def k(x: f32[7, 20], ids: i64[10], y: out[f32[10, 20]]):
            for i in serial(0, 10):
                for j in vectorized(0, 20):
                    y[i, j] = f32(-1.0)
                for row in serial(0, 7):
                    if data(index(row, i64) == ids[i]):
                        for k in vectorized(0, 20):
                            y[i, k] = x[row, k]
    """)
    x = np.arange(140, dtype=np.float32).reshape(7, 20)
    ids = np.array(EXTREMES)
    found = same(func, {"x": x, "ids": ids})["y"]
    wanted = [x[n] if 0 <= n < 7 else np.full(20, -1) for n in EXTREMES]
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(
        tir.interpret(as_ordinary(func), {"x": x, "ids": ids})["y"], wanted
    )


def test_a_matched_loop_is_one_test_and_no_loop_in_native_code() -> None:
    func = kernel("""
        def k(x: f32[1000], ids: i64[1], y: out[f32[1]]):
            for row in serial(0, 1000):
                if data(index(row, i64) == ids[0]):
                    y[0] = x[row]
    """)
    for target in TARGETS:
        body = emit_assembly(func, "k", target).partition("k.body:")[2].partition("retq")[0]
        assert "cmpq\t$999" in body or "cmpq\t$1000" in body
        jumps = [line for line in body.splitlines() if line.strip().startswith("j")]
        assert len(jumps) <= 1


def test_bounds_that_depend_on_outer_loops_and_loops_without_iterations() -> None:
    # Where the inner loop is empty, its value would be read outside of ids.
    func = kernel("""
        def k(ids: i64[3], y: out[i64[6]]):
            for i in serial(0, 6):
                y[i] = i64(-1)
                for row in serial(i, 3):
                    if data(index(row, i64) == ids[i]):
                        y[i] = index(row + 10, i64)
    """)
    require_in_bounds(func)
    for ids in ([0, 1, 2], [2, 0, 3], [-1, 2, 1]):
        found = same(func, {"ids": np.array(ids)})["y"]
        wanted = [10 + n if i <= n < 3 else -1 for i, n in enumerate(ids)]
        assert found.tolist() == [*wanted, -1, -1, -1]


def test_inside_lanes_that_match_alike_and_lanes_that_match_apart() -> None:
    func = kernel("""
        def k(x: f32[7, 12], ids: i64[12], n: i64[1], y: out[f32[12]], z: out[f32[12]]):
            for j in vectorized(0, 12):
                y[j] = f32(0.0)
                for row in serial(0, 7):
                    if data(index(row, i64) == n[0]):
                        y[j] = x[row, j]
            for k in vectorized(0, 12):
                z[k] = f32(0.0)
                for at in serial(0, 7):
                    if data(index(at, i64) == ids[k]):
                        z[k] = x[at, k]
    """)
    x = np.arange(84, dtype=np.float32).reshape(7, 12)
    ids = np.array([*EXTREMES, 5, 5])
    for n in (0, 6, 7, -1):
        found = same(func, {"x": x, "ids": ids, "n": np.array([n])})
        assert found["y"].tolist() == (x[n] if 0 <= n < 7 else np.zeros(12)).tolist()
        wanted = [x[n, j] if 0 <= n < 7 else 0 for j, n in enumerate(ids.tolist())]
        assert found["z"].tolist() == wanted


def test_inside_a_mask_of_lanes() -> None:
    func = kernel("""
        def k(x: f32[7, 12], n: i64[1], y: out[f32[12]]):
            for j in vectorized(0, 12):
                y[j] = f32(-1.0)
                if data(x[0, j] > f32(4.0)):
                    for row in serial(0, 7):
                        if data(index(row, i64) == n[0]):
                            y[j] = x[row, j]
    """)
    x = np.arange(84, dtype=np.float32).reshape(7, 12)
    for n in (0, 6, 7, -(2**63)):
        found = same(func, {"x": x, "n": np.array([n])})["y"]
        assert found.tolist() == [x[n, j] if j > 4 and 0 <= n < 7 else -1 for j in range(12)]


def test_an_index_that_was_never_written_reads_nothing_outside() -> None:
    func = kernel("""
        def k(x: f32[7], y: out[f32[1]]):
            ids = alloc(i64[4], scratch)
            y[0] = f32(-1.0)
            for row in serial(0, 7):
                if data(index(row, i64) == ids[2]):
                    y[0] = x[row]
    """)
    x = np.arange(7, dtype=np.float32)
    for target in TARGETS:
        assert Native(func, target)({"x": x})["y"][0] in (-1, *range(7))


def test_a_cast_of_nan_and_infinity_reads_nothing_outside() -> None:
    func = kernel("""
        def k(x: f32[7], at: f32[8], y: out[f32[8]]):
            for i in serial(0, 8):
                y[i] = f32(-1.0)
                for row in serial(0, 7):
                    if data(index(row, i64) == cast(i64, floor(at[i]))):
                        y[i] = x[row]
    """)
    at = np.array([np.nan, np.inf, -np.inf, 1e30, -1e30, 6.9, 7.0, -0.5], np.float32)
    x = np.arange(7, dtype=np.float32)
    for target in TARGETS:
        found = Native(func, target)({"x": x, "at": at})["y"]
        assert found[3:].tolist() == [-1, -1, 6, -1, -1]
        assert set(found[:3].tolist()) <= {-1, *range(7)}


# Schedules, layouts, graphs ----------------------------------------------------------------------


def staged(func: tir.PrimFunc, *placements: Any) -> tir.PrimFunc:
    return kernel_schedule(func, placements, Staged(), host_target()).func


def test_rows_are_copied_in_lanes_and_shared_by_threads() -> None:
    func = staged(indexing.gather_at((50, 40), (6,), 0))
    kinds = {loop.var.name: loop.kind for loop in tir.loops_of(func.body)}
    assert kinds["k0"] is tir.LoopKind.PARALLEL and kinds["row"] is tir.LoopKind.SERIAL
    assert [kinds[n] for n in ("z0v", "b0v")] == [tir.LoopKind.VECTORIZED] * 2
    assert {var.name for var in tir.matched_variables(func.body)} == {"row"}


@pytest.mark.parametrize(
    "func",
    [
        indexing.gather_elements((9, 40), (9, 40), 0),
        indexing.gather_elements((40,), (17,), 0),
        indexing.gather_nd((9, 8, 7), (2, 5, 2)),
        indexing.scatter_elements((40,), (17,), 0),
        indexing.scatter_elements((9, 40), (9, 40), 0, "add"),
        indexing.scatter_nd((40,), (17, 1), "max"),
        indexing.scatter_nd((9, 8, 17), (3, 2)),
        indexing.gather_at((40,), (), 0),
        indexing.scatter_nd((40,), (1,)),
    ],
    ids=lambda func: func.name,
)
def test_schedules_leave_matched_loops_as_they_are(func: tir.PrimFunc) -> None:
    made = staged(func)
    assert tir.matched_variables(made.body) == tir.matched_variables(func.body)


def test_no_tile_is_made_of_a_reduction_over_a_matched_loop() -> None:
    func = kernel("""
        def k(x: f32[7, 32], ids: i64[6], y: out[f32[6, 32]]):
            with block("sum"):
                for i in serial(0, 6):
                    for j in serial(0, 32):
                        y[i, j] = f32(0.0)
                        for row in serial(0, 7):
                            if data(index(row, i64) == ids[i]):
                                y[i, j] += x[row, j]
    """)
    variants = kernel_variants(func, frozenset(), host_target())
    assert [type(variant.recipe) for variant in variants] == [Staged]
    assert variants[0].work.cycles < operation_cycles(7 * 6 * 32)


def test_what_a_matched_loop_takes_is_counted_once() -> None:
    small, large = (
        kernel_variants(indexing.gather_at((n, 64), (8,), 0), frozenset(), host_target())[
            0
        ].work.cycles
        for n in (10, 10_000)
    )
    assert small == large


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_tables_and_indices_in_padded_layouts(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(2, 9)), data.draw(st.integers(4, 20))
    count, index_dtype = (
        data.draw(st.integers(4, 9)),
        data.draw(st.sampled_from(["int32", "int64"])),
    )
    func = indexing.gather_at((rows, columns), (count,), 0, "float32", index_dtype)
    block = lambda n: lambda *i: (*i[:-1], i[-1] // n, i[-1] % n)  # noqa: E731
    s = Schedule.of(func)
    for name in data.draw(st.sets(st.sampled_from(["x", "indices", "y"]))):
        s = s.apply(transform_layout, name, block(4), "undef")
    require_in_bounds(s.func)
    assert tir.matched_variables(s.func.body)
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)
    ids = data.draw(st.lists(st.integers(-rows - 1, rows), min_size=count, max_size=count))
    indices = np.array(ids, index_dtype)

    def placed(name: str, array: Any, hole: Any) -> Any:
        shape = s.func.param(name).shape
        if shape == array.shape:
            return array
        box = np.full((*array.shape[:-1], shape[-2] * 4), hole, array.dtype)
        box[..., : array.shape[-1]] = array
        return box.reshape(shape)

    made = tir.interpret(
        s.func, {"x": placed("x", x, np.nan), "indices": placed("indices", indices, 0)}
    )
    found = made["y"].reshape(count, -1)[:, :columns]
    wanted = [x[n] if -rows <= n < rows else np.zeros(columns) for n in ids]
    np.testing.assert_array_equal(found, np.float32(wanted))


def test_a_scatter_of_bare_elements_is_no_movement() -> None:
    assert not tir.only_moves(indexing.scatter_nd((8, 4), (3, 1)))
    assert tir.only_moves(movement.transpose((8, 4), (1, 0)))


def test_gathers_start_no_group() -> None:
    graph = OperatorGraph()
    graph.add_input("x", "float32", (50, 40))
    graph.add_input("ids", "int64", (6,))
    graph.add(Node("g", "Gather", indexing.gather_at((50, 40), (6,), 0), ("x", "ids"), ("y",)))
    graph.add(Node("r", "Relu", elementwise.unary("relu", (6, 40)), ("y",), ("z",)))
    graph.set_outputs(("z",))
    assert len(fuse_groups(graph)) == 2


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
@pytest.mark.parametrize(("step", "rest"), [(1, 0), (3, 0), (3, 5)])
def test_loops_between_counts_run_there_alone(step: int, rest: int, target: Any) -> None:
    """Native code begins and ends with the counts, whatever these are."""
    func = kernel(
        f"""
        def k(begin: i64[()], limit: i64[()], y: inout[f32[7]], n: inout[i64[()]]):
            for i in serial(1, 7):
                if data(index({step}*i + {rest}, i64) < limit[()]):
                    if data(begin[()] < index({step}*i + {rest + step}, i64)):
                        y[i] += f32(1.0)
                        n[()] += i64(1)
        """
    )
    (loop,) = tir.loops_of(func.body)
    (inner,) = loop.body
    assert isinstance(inner, tir.If)
    assert tir.counted_index(loop) is not None
    assert tir.counted_begin(loop.around(inner.then)) is not None
    native = Native(func, target)
    for begin in EXTREMES:
        for limit in EXTREMES:
            arrays = {
                "begin": np.int64(begin), "limit": np.int64(limit),
                "y": np.zeros(7, np.float32), "n": np.int64(0),
            }  # fmt: skip
            want, got = tir.interpret(func, arrays), native(arrays)
            np.testing.assert_array_equal(got["y"], want["y"])
            assert got["n"] == want["n"]


@pytest.mark.parametrize(
    "test",
    [
        "count[()] < index(7 - row, i64)",
        "count[()] < index(row % 3, i64)",
        "index(row, i64) < count[()]",
        "count[()] <= index(row, i64)",
    ],
)
def test_other_conditions_begin_no_loop(test: str) -> None:
    text = f"""
        def k(count: i64[()], y: inout[f32[7]]):
            for row in serial(0, 7):
                if data({test}):
                    y[row] += f32(1.0)
        """
    (loop,) = tir.loops_of(kernel(text).body)
    assert tir.counted_begin(loop) is None


def test_a_loop_that_writes_its_count_begins_at_none() -> None:
    text = """
        def k(count: inout[i64[()]]):
            for row in serial(0, 7):
                if data(count[()] < index(row, i64)):
                    count[()] += i64(1)
        """
    (loop,) = tir.loops_of(kernel(text).body)
    assert tir.counted_begin(loop) is None


HALVES = """
    def k(n: i64[()], most: i64[()], y: inout[f32[7]], turns: inout[i64[()]]):
        for i in serial(0, 7):
            if data((turns[()] < most[()]) & (y[0] >= f32(1.0))):
                y[0] = y[0] / f32(2.0)
                y[i] += f32(1.0)
                turns[()] += i64(1)
    """


@in_turn("most", [-1, 0, 3, 9])
def test_a_loop_ends_where_its_condition_fails(most: int, target: Any) -> None:
    func = kernel(HALVES)
    (loop,) = tir.loops_of(func.body)
    assert tir.lasting_condition(loop) is not None
    for first in (0.0, 3.0, 300.0, np.nan):
        y = np.array([first, *range(6)], np.float32)
        arrays = {"n": np.int64(0), "most": np.int64(most), "y": y, "turns": np.int64(0)}
        want, got = tir.interpret(func, arrays), Native(func, target)(arrays)
        np.testing.assert_array_equal(got["y"], want["y"])
        assert got["turns"] == want["turns"] <= max(most, 0)


@pytest.mark.parametrize(
    "body",
    [
        "if data(y[i] < f32(1.0)):\n                        y[0] = x[0]",
        "if i < 3:\n                        y[0] = x[0]",
        "if data(undef(f32) < y[0]):\n                        y[0] = x[0]",
        "if data(y[0] < f32(1.0)):\n                        y[0] = x[0]\n"
        "                    else:\n                        y[1] = x[1]",
    ],
)
def test_a_condition_that_may_hold_again_ends_no_loop(body: str) -> None:
    loop = row_loop(body.replace("y[i]", "y[row]").replace("if i", "if row"))
    assert tir.lasting_condition(loop) is None


def test_a_loop_that_data_ends_counts_as_its_root() -> None:
    given = """
        def k(x: f32[100], n: i64[()], y: inout[f32[100]]):
            for i in serial(0, 100):
                if data(index(i, i64) < n[()]):
                    y[i] += x[i] * x[i]
        """
    assert tir.multiply_add_count(kernel(given)) == 100
    computed = """
        def k(x: f32[100], y: inout[f32[100]]):
            n = alloc(i64[()])
            n[()] = cast(i64, x[0])
            for i in serial(0, 100):
                if data(index(i, i64) < n[()]):
                    y[i] += x[i] * x[i]
        """
    assert tir.multiply_add_count(kernel(computed)) == 10
