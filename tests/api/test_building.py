"""Tests of `gf.kernel` and `gf.build`: kernels as text, as functions, as schedules and in
graphs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import InvalidModel, ParseError, ScheduleError, VerifyError
from graphflow.codegen import avx2_target, host_target
from graphflow.graph import graph_of
from graphflow.language import f32, i32, index, inout, out, window
from graphflow.schedule import (
    absorb_padding,
    assume_finite,
    cache_read,
    cache_write,
    parallelize_loop,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    transform_layout,
    vectorize_loop,
)
from graphflow.tir import (
    Cast,
    IndexValue,
    LoopKind,
    interpret,
    loops_of,
    parse,
    to_text,
    with_serial_loops,
)

ADD = """
    def add(x: f32[6, 10], y: f32[6, 10], z: out[f32[6, 10]]):
        for i in serial(0, 6):
            for j in serial(0, 10):
                z[i, j] = x[i, j] + y[i, j]
"""
X = np.arange(60, dtype="float32").reshape(6, 10)


def packed(i: Any) -> Any:
    return i // 4, i % 4


# Texts and functions ------------------------------------------------------------------------------


@pytest.mark.parametrize("decorator", ["", "    @primfunc\n"])
def test_a_text_is_a_kernel_with_or_without_its_decorator(decorator: str) -> None:
    func = gf.kernel(decorator + ADD.strip("\n"))
    assert func == parse("@primfunc\n" + "\n".join(s[4:] for s in ADD.splitlines()[1:]))


WIDTH = 10


def test_a_function_is_a_kernel_by_its_source() -> None:
    height, offset = 6, -1

    @gf.kernel
    def shifted(x: f32[height, WIDTH], y: out[f32[height, WIDTH]]):
        # Comments and docstrings are no statements.
        for i in serial(0, height):  # noqa: F821
            for j in serial(0, WIDTH):  # noqa: F821
                y[i, j] = x[i, (j + offset) % WIDTH]

    assert [b.shape for b in shifted.inputs] == [(6, 10)]
    assert (gf.build(shifted).run({"x": X})["y"] == np.roll(X, 1, axis=1)).all()


def test_a_function_may_have_a_scalar_an_inout_array_and_a_window() -> None:
    n = 1  # the parameter's name is not this integer

    @gf.kernel
    def scale(a: inout[f32[4]], w: window[f32[4]], n: index):
        assume(unless(n >= 0 and n <= 4), bool(False))  # noqa: F821, UP018
        for i in serial(0, n):  # noqa: F821
            a[i] *= w[i]

    a, w = np.full(4, 3, "float32"), np.arange(8, dtype="float32")
    found = gf.build(scale).run({"a": a, "w": w[::2], "n": n + 2})["a"]
    assert found.tolist() == [0, 6, 12, 3]


def test_names_that_a_kernel_binds_are_its_own() -> None:
    i, x = 3, 4

    @gf.kernel
    def own(x: i32[4], y: out[i32[4]]):
        for i in serial(0, 4):  # noqa: F821
            y[i] = x[i]

    assert (i, x) == (3, 4)
    assert [str(loop.var) for loop in loops_of(own.body)] == ["i"]


def test_a_variable_that_has_no_value_yet_is_no_number() -> None:
    @gf.kernel
    def copied(x: f32[4], y: out[f32[4]]):
        for later in serial(0, 4):  # noqa: F821
            y[later] = x[later]

    assert [str(loop.var) for loop in loops_of(copied.body)] == ["later"]
    later = 3
    assert later == 3


def test_errors_count_the_lines_of_the_text_that_was_given() -> None:
    body = "def k(x: f32[4], y: out[f32[4]]):\n    y[0] = x[0]\n    y[1] = gamma(x[1])\n"
    for before in ("", "\n\n", "@primfunc\n"):
        line = 3 + before.count("\n")
        with pytest.raises(ParseError, match=rf"^line {line}, column 12: gamma with"):
            gf.kernel(before + body)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("def k(x: f32[4]):\n    return x", ParseError, "line 2, column 5: not a statement"),
        ("def k(x: f33[4]):\n    pass", ParseError, "expected an element type"),
        ("x = 3", ParseError, "expected one function"),
        ("", ParseError, "expected one function"),
        (
            "def k(x: f32[4], y: out[f32[4]]):\n    y[0] = x[4]",
            VerifyError,
            r"x\[4\] is not proven",
        ),
        ("def k(x: f32[4], y: out[f32[4]]):\n    x[0] = y[0]", VerifyError, "input x is written"),
        ("def k(x: f32[4], y: out[i32[4]]):\n    y[0] = x[0]", VerifyError, "y holds int32"),
        (
            "def k(x: f32[4], y: out[f32[4]]):\n    for i in parallel(0, 4):\n        y[0] = x[i]",
            VerifyError,
            "the loop i is marked parallel",
        ),
    ],
)
def test_what_is_wrong_is_said_at_the_door(text: str, error: Any, message: str) -> None:
    for door in (gf.kernel, gf.build):
        with pytest.raises(error, match=message):
            door(text)


def test_other_things_are_refused_by_their_type() -> None:
    with pytest.raises(VerifyError, match=r"not bytes; graphflow\.compile takes ONNX models"):
        gf.build(b"onnx")  # type: ignore[arg-type]
    with pytest.raises(ParseError, match="not int"):
        gf.kernel(3)  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match="not str"):
        gf.call(gf.OperatorGraph(), "def k(): pass")  # type: ignore[arg-type]


# Programs -----------------------------------------------------------------------------------------


def test_a_built_kernel_answers_as_a_model_does(tmp_path: Path) -> None:
    exe = gf.build(ADD, threads=1)
    assert exe.threads == 1
    assert [t.name for t in exe.inputs] == ["x", "y"]
    assert (exe.run({"x": X, "y": X})["z"] == 2 * X).all()
    assert exe.report()["model"] == "add"
    assert set(exe.layouts) == {"x", "y", "z"}
    assert "made by" in exe.explain("z")
    exe.save(tmp_path / "add.gfx")
    loaded = gf.load(tmp_path / "add.gfx")
    assert (loaded.run({"x": X, "y": X})["z"] == 2 * X).all()
    with pytest.raises(InvalidModel, match="y"):
        exe.run({"x": X})


def test_a_kernel_may_be_pinned_to_layouts() -> None:
    exe = gf.build(ADD, layouts={"x": "row-major"})
    assert exe.report()["pinned"]


def test_loop_kinds_that_hold_are_kept() -> None:
    func = gf.kernel(ADD.replace("in serial(0, 6)", "in parallel(0, 6)"))
    exe = gf.build(func)
    (kernel,) = exe.compiled.lowered.kernels.values()
    kinds = [loop.kind for loop in loops_of(kernel.func.body)]
    assert kinds == [LoopKind.PARALLEL, LoopKind.SERIAL]
    assert (exe.run({"x": X, "y": X})["z"] == 2 * X).all()
    serial = with_serial_loops(func)
    assert all(loop.kind is LoopKind.SERIAL for loop in loops_of(serial.body))


def test_a_schedule_is_taken_as_it_is() -> None:
    s = gf.Schedule.of(gf.kernel(ADD)).apply(vectorize_loop, "j").apply(parallelize_loop, "i")
    exe = gf.build(s)
    (kernel,) = exe.compiled.lowered.kernels.values()
    assert to_text(kernel.func).split("\n", 2)[2] == to_text(s.func).split("\n", 2)[2]
    assert (exe.run({"x": X, "y": X})["z"] == 2 * X).all()


def test_a_kernel_of_several_stages_without_blocks() -> None:
    exe = gf.build(
        """
        def softmax(x: f32[6, 10], y: out[f32[6, 10]]):
            m = alloc(f32[6])
            s = alloc(f32[6])
            for a in serial(0, 6):
                m[a] = f32(-inf)
                for b in serial(0, 10):
                    reduce_max(m[a], x[a, b])
            for c in serial(0, 6):
                s[c] = f32(0.0)
                for d in serial(0, 10):
                    s[c] += exp(x[c, d] - m[c])
            for i in serial(0, 6):
                for j in serial(0, 10):
                    y[i, j] = exp(x[i, j] - m[i]) / s[i]
        """
    )
    e = np.exp(X - X.max(axis=1, keepdims=True))
    y = exe.run({"x": X})["y"]
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize("padding", [0, "undef", None, lambda at, io, ii: at(0, ii)])
def test_padding_of_a_cache_runs_natively_whatever_it_holds(padding: Any) -> None:
    func = gf.kernel(
        """
        def double(x: i32[14], y: out[i32[14]]):
            for i in serial(0, 14):
                y[i] = x[i] + x[i]
        """
    )
    s = gf.Schedule.of(func).apply(cache_read, "x", "xc").apply(cache_write, "y", "yc")
    s = s.apply(transform_layout, "xc", packed, padding)
    s = s.apply(transform_layout, "yc", packed, padding if padding != 0 else 7)
    x = np.arange(14, dtype="int32")
    assert (gf.build(s).run({"x": x})["y"] == 2 * x).all()


@pytest.mark.parametrize("padding", [3.0, "undef"])
def test_a_store_that_absorbed_its_padding_runs(padding: Any) -> None:
    func = gf.kernel(
        """
        def double(x: f32[14], y: out[f32[14]]):
            for i in serial(0, 14):
                y[i] = x[i] + x[i]
        """
    )
    s = gf.Schedule.of(func).apply(transform_layout, "y", packed, padding)
    s = s.apply(sequential_buffer_access, "i", "y", ("io", "ii"))
    s = s.apply(absorb_padding, "io", "y")
    x = np.arange(14, dtype="float32")
    found = gf.build(s).run({"x": x})["y"].reshape(-1)
    assert (found[:14] == 2 * x).all()
    assert padding == "undef" or (found[14:] == padding).all()


def test_a_parallel_loop_beside_a_padding_stage_runs() -> None:
    func = gf.kernel(
        """
        def double(x: f32[14], y: out[f32[14]]):
            for i in serial(0, 14):
                y[i] = x[i] + x[i]
        """
    )
    s = gf.Schedule.of(func).apply(cache_write, "y", "yc")
    s = s.apply(transform_layout, "yc", packed, 1.0).apply(parallelize_loop, "i")
    x = np.arange(14, dtype="float32")
    assert (gf.build(s).run({"x": x})["y"] == 2 * x).all()


def test_registers_that_a_running_loop_indexes_become_memory() -> None:
    exe = gf.build(
        """
        def k(x: f32[8], y: out[f32[8]]):
            t = alloc(f32[8], register)
            for i in serial(0, 8):
                t[7 - i] = x[i]
            for v in vectorized(0, 8):
                y[v] = t[v]
        """
    )
    x = np.arange(8, dtype="float32")
    assert (exe.run({"x": x})["y"] == x[::-1]).all()


@pytest.mark.parametrize("kind", ["serial", "unrolled"])
@pytest.mark.parametrize("outer", ["vectorized", "parallel"])
def test_iterations_that_run_at_once_have_memory_of_their_own(outer: str, kind: str) -> None:
    exe = gf.build(
        f"""
        def k(x: f32[8, 3], y: out[f32[8]]):
            for v in {outer}(0, 8):
                t = alloc(f32[3])
                for i in {kind}(0, 3):
                    t[i] = x[v, i]
                for j in {kind}(0, 3):
                    t[j] += f32(1)
                y[v] = f32(0)
                for l in {kind}(0, 3):
                    y[v] += t[l]
        """
    )
    x = np.arange(24, dtype="float32").reshape(8, 3)
    assert (exe.run({"x": x})["y"] == x.sum(1) + 3).all()


# Graphs -------------------------------------------------------------------------------------------


def test_a_graph_of_calls() -> None:
    graph = gf.OperatorGraph()
    x, y = (graph.add_input(name, "float32", (6, 10)) for name in "xy")
    add = gf.kernel(ADD)
    (once,) = gf.call(graph, add, x, y)
    (twice,) = gf.call(graph, gf.Schedule.of(add), once, y)
    assert (once, twice) == ("add_z", "add2_z")
    graph.set_outputs([twice])
    assert (gf.build(graph).run({"x": X, "y": X})["add2_z"] == 3 * X).all()


def test_a_graph_whose_kernel_leaves_its_buffer_is_refused() -> None:
    graph = graph_of(parse("@primfunc\ndef k(y: out[f32[4]]):\n    y[4] = f32(0.0)"))
    with pytest.raises(VerifyError, match=r"y\[4\] is not proven to stay in \[4\]"):
        gf.build(graph)


# Assumptions --------------------------------------------------------------------------------------

ASSUMING = """
    def k(x: f32[4, 6], w: f32[6], y: out[f32[4, 6]]):
        for a in serial(0, 4):
            for b in serial(0, 6):
                assume(unless({unless}), {claim})
        for i in serial(0, 4):
            for j in serial(0, 6):
                y[i, j] = x[i, j] * w[j]
"""


@pytest.mark.parametrize(
    ("unless", "claim", "said"),
    [
        ("a < 3", "x[a, b] == f32(2.0)", "equal to 2.0 in 6 elements"),
        ("a + b < 7", "abs(x[a, b]) <= f32(2.0)", "finite and in [-2.0, 2.0] in 3 elements"),
        ("a >= 4", "(x[a, b] >= f32(0.0)) & (x[a, b] <= f32(9.0))", "finite and in [0.0, 9.0]"),
    ],
)
def test_what_a_kernel_assumes_is_reported_and_checked(
    unless: str, claim: str, said: str, tmp_path: Path
) -> None:
    exe = gf.build(
        ASSUMING.format(unless=unless, claim=claim), options=gf.Options(check_assumes=True)
    )
    (assumed,) = exe.report()["assumed"]
    assert (assumed["tensor"], assumed["assumption"], assumed["checked"]) == ("x", said, True)
    good, bad = (np.full((4, 6), value, "float32") for value in (2, -3))
    exe.save(tmp_path / "k.gfx")
    w = np.ones(6, "float32")
    for program in (exe, gf.load(tmp_path / "k.gfx")):
        assert (program.run({"x": good, "w": w})["y"] == 2).all()
        with pytest.raises(InvalidModel, match=r"x was assumed to be .* and x\[\d, \d\] is -3"):
            program.run({"x": bad, "w": w})
    elsewhere = np.where(np.add.outer(np.arange(4), np.arange(6)) < 3, -3, 2).astype("float32")
    if "elements" in said:
        exe.run({"x": elsewhere, "w": w})


def of_another_element(at: Any, io: Any, ii: Any) -> Any:
    return at(0, ii)


def of_the_index(io: Any, ii: Any) -> Any:
    return Cast(IndexValue(4 * io + ii, "int32"), "float32")


@pytest.mark.parametrize(
    ("padding", "wanted", "said"),
    [
        (of_another_element, [2, 3], "a copy of another element in 2 elements"),
        (of_the_index, [14, 15], "equal to a value of its own in 2 elements"),
    ],
)
@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_padding_of_parameters_is_a_function_of_the_place(
    padding: Any, wanted: list[int], said: str, target: gf.Target, tmp_path: Path
) -> None:
    func = gf.kernel("""
        def ring(x: f32[14], y: out[f32[14]]):
            with block("compute"):
                for i in serial(0, 14):
                    y[i] = x[i]
    """)
    s = gf.Schedule.of(func).apply(transform_layout, "x", packed, padding)
    s = s.apply(transform_layout, "y", packed, padding)
    exe = gf.build(s, target=target, options=gf.Options(check_assumes=True))
    (assumed,) = exe.report()["assumed"]
    assert (assumed["tensor"], assumed["assumption"]) == ("x", said)
    box = np.array([*range(14), *wanted], "float32").reshape(4, 4)
    bad = box.copy()
    bad[3, 3] = 7
    exe.save(tmp_path / "ring.gfx")
    for program in (exe, gf.load(tmp_path / "ring.gfx")):
        y = program.run({"x": box})["y"]
        assert (y == box).all()
        assert (y == interpret(s.func, {"x": box})["y"]).all()
        with pytest.raises(InvalidModel, match=r"x was assumed to be .* and x\[3, 3\] is 7"):
            program.run({"x": bad})


def test_a_transposed_square_is_not_the_parameter_that_it_was() -> None:
    """Its definition and its schedule read other elements of an array of one shape."""
    func = gf.kernel("""
        def lower(x: f32[4, 4], y: out[f32[4]]):
            for a in serial(0, 4):
                for b in serial(0, 4):
                    assume(unless(4*a + b < 7), x[a, b] == f32(0.0))
            for i in serial(0, 4):
                y[i] = x[1, i]
    """)
    s = gf.Schedule.of(func).apply(transform_layout, "x", lambda i, j: (j, i))
    exe = gf.build(s, options=gf.Options(check_assumes=True, validate=True))
    x = np.zeros(16, "float32")
    x[:7] = range(1, 8)
    x = x.reshape(4, 4)
    assert (exe.run({"x": x.T})["y"] == x[1]).all()
    with pytest.raises(InvalidModel, match=r"x was assumed to be"):
        exe.run({"x": x})


def test_what_cannot_be_checked_is_refused() -> None:
    with pytest.raises(VerifyError, match="cannot be checked when the model runs"):
        gf.build(ASSUMING.format(unless="a < 0", claim="x[a, b] <= w[b]"))


def test_only_inputs_of_the_graph_can_be_assumed_anything_about() -> None:
    graph = gf.OperatorGraph()
    x, w = graph.add_input("x", "float32", (4, 6)), graph.add_input("w", "float32", (6,))
    func = gf.kernel(ASSUMING.format(unless="a < 3", claim="x[a, b] == f32(2.0)"))
    (first,) = gf.call(graph, func, x, w)
    graph.set_outputs(gf.call(graph, func, first, w))
    with pytest.raises(VerifyError, match="is about k_y, which is computed in the graph"):
        gf.build(graph)


def test_a_promise_that_all_is_finite_reaches_the_plan() -> None:
    func = gf.kernel(
        """
        def dot(x: f32[14], w: f32[14], y: out[f32[1]]):
            with block("init"):
                y[0] = f32(0.0)
            with block("compute"):
                for i in serial(0, 14):
                    y[0] += x[i] * w[i]
        """
    )
    s = gf.Schedule.of(func).apply(assume_finite, "w", "the caller says so")
    s = s.apply(cache_read, "x", "xc").apply(transform_layout, "xc", packed, 0.0)
    s = s.apply(sequential_buffer_access, "compute", "xc", ("io", "ii"))
    with pytest.raises(ScheduleError):  # w[14] is nowhere
        s.apply(remove_branching_through_overcompute, "compute")
    exe = gf.build(s)
    assert [a["assumption"] for a in exe.report()["assumed"]] == ["finite"]
    x = np.arange(14, dtype="float32")
    assert exe.run({"x": x, "w": x})["y"] == (x * x).sum()


def test_undefined_values_run() -> None:
    exe = gf.build(
        """
        def k(x: f32[8], y: out[f32[8]]):
            for i in serial(0, 8):
                y[i] = f32(0.0) * undef(f32)
            for j in serial(0, 8):
                y[j] = select(j < 4, x[j], undef(f32))
        """
    )
    x = np.arange(8, dtype="float32")
    assert (exe.run({"x": x})["y"][:4] == x[:4]).all()
