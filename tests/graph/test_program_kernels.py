"""Tests of kernels with scalars, and with inout and window parameters, as programs call them: the
native program is compared with the interpreter of the kernel that the user wrote."""

from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import InvalidModel, VerifyError
from graphflow.base.options import Options
from graphflow.codegen import avx2_target, host_target
from graphflow.graph import program_kernel, scalar_conditions
from graphflow.schedule import divide_loop, parallelize_loop, vectorize_loop
from graphflow.tir import LoopKind, PrimFunc, interpret, parse, to_text

TARGETS = (host_target(), avx2_target())

RNG = np.random.default_rng(7)


def scalars_of(given: dict[str, Any]) -> dict[str, int]:
    return {name: value for name, value in given.items() if isinstance(value, int)}


def agree(source: str | PrimFunc | gf.Schedule, *runs: dict[str, Any], **settings: Any) -> None:
    """Assert that native code for each target and the interpreter give the same, bit by bit."""
    kernel = gf.kernel(source) if isinstance(source, str) else source
    func = kernel.definition if isinstance(kernel, gf.Schedule) else kernel
    for target in TARGETS:
        exe = gf.build(kernel, target=target, **settings)
        for given in runs:
            arrays = {name: v for name, v in given.items() if isinstance(v, np.ndarray)}
            before = {name: array.copy() for name, array in arrays.items()}
            wanted = interpret(func, arrays, scalars=scalars_of(given))
            found = exe.run(given)
            assert found.keys() == wanted.keys()
            for name, array in wanted.items():
                np.testing.assert_array_equal(found[name], array, err_msg=f"{name} {target.name}")
            for name, array in arrays.items():
                assert (array == before[name]).all(), "the caller's array has changed"


def floats(*shape: int) -> np.ndarray[Any, Any]:
    return RNG.integers(-8, 9, shape).astype("float32")


# Scalars ------------------------------------------------------------------------------------------

FIRST = """
    def first(x: f32[70], y: out[f32[70]], n: index):
        assume(unless(n >= 0 and n <= 70), bool(False))
        for i in serial(0, 70):
            y[i] = f32(-1.0)
        for i2 in serial(0, n):
            y[i2] = f32(2.0) * x[i2]
"""


def test_a_scalar_is_the_bound_of_a_loop() -> None:
    x = floats(70)
    agree(FIRST, *({"x": x, "n": n} for n in (0, 1, 5, 16, 69, 70)))


def test_a_scalar_is_a_part_of_an_address() -> None:
    text = """
        def shifted(x: f32[9, 40], y: out[f32[4, 32]], n: index, m: index):
            assume(unless(n >= 0 and n <= 5 and m >= -3 and m <= 5), bool(False))
            for i in serial(0, 4):
                for j in serial(0, 32):
                    y[i, j] = x[i + n, j + m + 3] + index(n - 2*m, f32)
    """
    x = floats(9, 40)
    agree(text, *({"x": x, "n": n, "m": m} for n, m in ((0, -3), (5, 5), (2, 1))))


def test_divisions_and_remainders_of_scalars() -> None:
    text = """
        def folded(x: i32[8], y: out[i32[24]], n: index):
            assume(unless(n >= -20 and n <= 20), bool(False))
            for i in serial(0, 24):
                y[i] = x[(i + n) % 8] + index((n - i) // 3, i32) + index(max(n, i), i32)
    """
    x = np.arange(8, dtype="int32")
    agree(text, *({"x": x, "n": n} for n in (-20, -1, 0, 7, 20)))


def test_scalars_assumed_together() -> None:
    text = """
        def part(x: f32[16], y: out[f32[16]], start: index, count: index):
            assume(unless(start >= 0 and count >= 0 and start + count <= 16), bool(False))
            for i in serial(0, 16):
                y[i] = x[i]
            for k in serial(0, count):
                y[start + k] = f32(0.0)
    """
    x = floats(16)
    agree(text, *({"x": x, "start": s, "count": c} for s, c in ((0, 16), (16, 0), (3, 5))))
    with pytest.raises(
        InvalidModel, match=r"assumes count \+ start < 17, and start is 9, count is 8"
    ):
        gf.build(text).run({"x": x, "start": 9, "count": 8})


def test_a_schedule_of_a_kernel_with_a_scalar() -> None:
    func = gf.kernel("""
        def below(x: f32[12, 64], y: out[f32[12, 64]], n: index):
            assume(unless(n >= 0 and n <= 64), bool(False))
            for i in serial(0, 12):
                for j in serial(0, 64):
                    y[i, j] = x[i, j]
                    if j >= n:
                        y[i, j] = f32(0.0)
    """)
    s = gf.Schedule.of(func).apply(divide_loop, "j", 16, ("jo", "ji"), "perfect")
    s = s.apply(vectorize_loop, "ji").apply(parallelize_loop, "i")
    x = floats(12, 64)
    agree(s, *({"x": x, "n": n} for n in (0, 3, 16, 37, 64)), threads=2)


def test_a_parallel_loop_up_to_a_scalar() -> None:
    text = """
        def rows(x: f32[12, 8], y: inout[f32[12, 8]], n: index):
            assume(unless(n >= 0 and n <= 12), bool(False))
            for i in parallel(n // 2, n):
                for j in vectorized(0, 8):
                    y[i, j] = x[i, j]
    """
    x, y = floats(12, 8), floats(12, 8)
    agree(text, *({"x": x, "y": y, "n": n} for n in (0, 1, 7, 12)), threads=2)


def test_a_run_checks_what_a_kernel_assumes_of_a_scalar() -> None:
    exe = gf.build(FIRST)
    x = floats(70)
    with pytest.raises(InvalidModel, match="first assumes n < 71, and n is 71"):
        exe.run({"x": x, "n": 71})
    with pytest.raises(InvalidModel, match="first assumes n >= 0, and n is -1"):
        exe.run({"x": x, "n": np.int8(-1)})
    with pytest.raises(InvalidModel, match=r"'n' is float64\[\], the program expects an integer"):
        exe.run({"x": x, "n": 1.0})
    with pytest.raises(InvalidModel, match="input 'n' is missing"):
        exe.run({"x": x})
    (low, high) = exe.report()["assumed"]
    assert (low["tensor"], low["assumption"], low["checked"]) == ("n", "n >= 0", True)
    assert high["assumption"] == "n < 71"


def test_nothing_is_accessed_for_a_scalar_that_was_not_checked() -> None:
    text = """
        def even(y: inout[f32[16]], n: index):
            assume(unless(n >= 0 and n < 16 and n % 2 == 0), bool(False))
            y[n] = f32(1.0)
    """
    y = floats(16)
    program = gf.build(text).program  # which knows nothing of assumptions
    for n in (-1, 3, 16, 2**40, -(2**63)):
        assert (program.run({"y": y, "n": np.array(n, "int64")})["y"] == y).all()
    assert program.run({"y": y, "n": np.array(4, "int64")})["y"][4] == 1


def test_a_scalar_without_an_assumption_has_32_bits() -> None:
    text = """
        def cut(x: f32[16], y: out[f32[16]], n: index):
            for i in serial(0, 16):
                y[i] = select(i < n, x[i], index(3*n, f32))
    """
    x = floats(16)
    agree(text, *({"x": x, "n": n} for n in (-(2**31), -5, 3, 2**31 - 1)))
    with pytest.raises(InvalidModel, match="cut assumes n < 2147483648, and n is 2147483648"):
        gf.build(text).run({"x": x, "n": 2**31})


def test_an_index_that_the_assumptions_permit_outside_its_buffer_is_refused() -> None:
    with pytest.raises(VerifyError, match=r"x\[i \+ n\] is not proven to stay in \[16\]"):
        gf.build("""
            def shifted(x: f32[16], y: out[f32[8]], n: index):
                assume(unless(n >= 0 and n <= 9), bool(False))
                for i in serial(0, 8):
                    y[i] = x[i + n]
        """)


def test_an_assumption_about_elements_stands_in_front() -> None:
    text = """
        def root(x: f32[16], y: out[f32[16]], n: index):
            for k in serial(0, {}):
                assume(unless(False), x[k] == f32(2.0))
            for i in serial(0, 16):
                y[i] = x[i] + index(n, f32)
    """
    x = np.full(16, 2, "float32")
    agree(text.format(16), {"x": x, "n": 3}, options=Options(check_assumes=True))
    with pytest.raises(VerifyError, match="put it in front, without scalars"):
        gf.build(text.format("max(0, min(n, 16))"))


def test_a_saved_program_keeps_its_scalars(tmp_path: Any) -> None:
    path, x = tmp_path / "first.gfx", floats(70)
    exe = gf.build(FIRST)
    exe.save(path)
    loaded = gf.load(path)
    for n in (0, 33, 70):
        assert (loaded.run({"x": x, "n": n})["y"] == exe.run({"x": x, "n": n})["y"]).all()
    with pytest.raises(InvalidModel, match="first assumes n < 71, and n is 100"):
        loaded.run({"x": x, "n": 100})
    assert loaded.report() == exe.report()


def test_a_graph_gives_scalars_by_its_inputs() -> None:
    graph = gf.OperatorGraph()
    x = graph.add_input("x", "float32", (70,))
    count = graph.add_input("count", "int64", ())
    (once,) = gf.call(graph, gf.kernel(FIRST), x, count)
    graph.set_outputs(gf.call(graph, gf.kernel(FIRST), once, count, outputs=["y"]))
    exe, given = gf.build(graph), floats(70)
    wanted = np.where(np.arange(70) < 9, 4 * given, -1)
    assert (exe.run({"x": given, "count": 9})["y"] == wanted).all()
    with pytest.raises(InvalidModel, match=r"first assumes n < 71, and n is 71 \(input 'count'\)"):
        exe.run({"x": given, "count": 71})


def test_a_scalar_that_a_graph_computes_is_refused() -> None:
    graph = gf.OperatorGraph()
    x = graph.add_input("x", "float32", (70,))
    n = graph.add_input("n", "int64", ())
    twice = gf.kernel("""
        def twice(a: i64[()], b: out[i64[()]]):
            b[()] = i64(2) * a[()]
    """)
    (made,) = gf.call(graph, twice, n)
    with pytest.raises(VerifyError, match="gives first a scalar and is no graph input"):
        gf.call(graph, gf.kernel(FIRST), x, made)


def test_validation_compares_a_kernel_for_scalars_that_it_takes() -> None:
    text = """
        def every(x: f32[64], y: out[f32[64]], n: index):
            assume(unless(n >= 0 and n <= 64 and n % 16 == 0), bool(False))
            for i in serial(0, 64):
                y[i] = select(i < n, x[i], f32(0.0))
    """
    exe = gf.build(text, options=Options(validate=True))
    assert exe.compiled.validation is not None


# Parameters that are read and written -------------------------------------------------------------


def test_an_inout_parameter_is_an_input_and_an_output() -> None:
    text = """
        def sums(a: inout[f32[64]], x: f32[64], last: out[f32[1]]):
            for i in serial(1, 64):
                a[i] += a[i - 1]
            last[0] = a[63] + x[0]
    """
    agree(text, {"a": floats(64), "x": floats(64)})
    exe = gf.build(text)
    assert [t.name for t in exe.inputs] == ["a", "x"]
    assert [t.name for t in exe.outputs] == ["a", "last"]


def test_each_iteration_of_a_parallel_loop_copies_its_part() -> None:
    func = gf.kernel("""
        def product(a: f32[8, 6], b: f32[6, 16], c: inout[f32[8, 16]]):
            for i in serial(0, 8):
                for k in serial(0, 6):
                    for j in serial(0, 16):
                        c[i, j] += a[i, k] * b[k, j]
    """)
    given = {"a": floats(8, 6), "b": floats(6, 16), "c": floats(8, 16)}
    agree(func, given)
    s = gf.Schedule.of(func).apply(divide_loop, "i", 2, ("io", "ii"), "perfect")
    s = s.apply(vectorize_loop, "j").apply(parallelize_loop, "io")
    agree(s, given, threads=2)
    assert "for c_out_0 in serial(2*io, 2*io + 2)" in to_text(program_kernel(s.func))


@pytest.mark.parametrize(
    ("loops", "element"),
    [
        ("for i in parallel(0, 3): for j in serial(0, 4):", "i, j"),
        ("for j in parallel(0, 4): for i in serial(0, 3):", "i, j"),
        ("for i in parallel(0, 2): for j in serial(0, 4):", "i, j"),
        ("for i in parallel(0, 3): for j in serial(0, 2):", "2 - i, 2 * j"),
        ("for i in parallel(1, 3): for j in serial(i, 4):", "i, 4 - j"),
        ("for i in parallel(0, 5): for j in serial(0, 1):", "i // 4, i % 4"),
    ],
)
def test_iterations_copy_what_they_access_and_the_first_one_the_rest(
    loops: str, element: str
) -> None:
    """Threads share the copying with the work, also of parts that are no equal slices."""
    first, second = loops.split(": ")[0], loops.split(": ")[1]
    func = gf.kernel(f"""
        def add(x: f64[3, 4], y: inout[f64[3, 4]]):
            {first}:
                {second.rstrip(":")}:
                    y[{element}] += x[{element}]
    """)
    agree(func, {"x": floats(3, 4).astype("f8"), "y": floats(3, 4).astype("f8")}, threads=2)
    assert program_kernel(func).body[0].kind is LoopKind.PARALLEL  # type: ignore[union-attr]


# By its name: a body of a kernel with x, y: f64[3, 4], the latter inout, and z: inout[f64[4]].
SHARED_BY_NONE = {
    "in a serial loop": """
            for i in serial(0, 3):
                for j in parallel(0, 4):
                    y[i, j] = y[i, j] + x[i, j]""",
    "under two serial loops": """
            for o in serial(0, 2):
                for i in serial(0, 3):
                    for j in parallel(0, 4):
                        z[j] += x[i, j]""",
    "in an unrolled loop": """
            for i in unrolled(0, 3):
                for j in parallel(0, 4):
                    z[j] += x[i, j]""",
    "with lanes inside": """
            for o in serial(0, 3):
                for i in parallel(0, 3):
                    for j in vectorized(0, 4):
                        y[i, j] = y[i, j] * x[o, j]""",
    "under a condition": """
            for i in serial(0, 3):
                if i == 1:
                    for j in parallel(0, 4):
                        y[i, j] = y[i, j] + x[i, j]""",
    "under a condition on data": """
            if data(x[0, 0] > x[0, 1]):
                for i in parallel(0, 3):
                    for j in serial(0, 4):
                        y[i, j] = x[i, j]""",
    "behind a statement": """
            y[0, 0] = x[1, 1]
            for i in parallel(0, 3):
                for j in serial(0, 4):
                    y[i, j] += x[i, j]""",
    "two of them": """
            for i in parallel(0, 3):
                for j in serial(0, 4):
                    y[i, j] += x[i, j]
            for j2 in parallel(0, 4):
                for i2 in serial(0, 3):
                    y[i2, j2] *= x[i2, j2]""",
    "both read one element": """
            for i in parallel(1, 3):
                for j in serial(0, 4):
                    y[i, j] += y[0, j] + z[j]""",
    "writes another one": """
            for j in parallel(0, 4):
                z[j] += y[1, j]""",
    "no iterations": """
            for i in serial(0, 3):
                for j in parallel(2, 2):
                    y[i, j] = x[i, j]""",
    "no iterations, outermost": """
            for j in parallel(2, 2):
                y[0, j] = x[0, j]""",
}


@pytest.mark.parametrize("name", SHARED_BY_NONE)
def test_a_loop_that_threads_cannot_share_runs_behind_the_copy(name: str) -> None:
    """Each parameter is copied once, whatever is around the parallel loop or beside it."""
    func = gf.kernel(f"""
        def changed(x: f64[3, 4], y: inout[f64[3, 4]], z: inout[f64[4]]):{SHARED_BY_NONE[name]}
    """)
    given = {"x": floats(3, 4), "y": floats(3, 4), "z": floats(4)}
    options = Options(validate=True, cache="off")
    agree(func, {k: v.astype("f8") for k, v in given.items()}, threads=2, options=options)


def test_a_schedule_may_use_the_name_of_the_output() -> None:
    func = gf.kernel("""
        def total(x: f32[8, 4], y: inout[f32[4]]):
            for i in serial(0, 8):
                for j in serial(0, 4):
                    y[j] += x[i, j]
    """)
    s = gf.Schedule.of(func).divide_loop("i", 2, ("y_out", "ii"), "perfect")
    agree(s, {"x": floats(8, 4), "y": floats(4)})


@pytest.mark.parametrize("kind", ["serial", "unrolled"])
def test_bounds_around_a_parallel_loop_may_depend_on_a_scalar(kind: str) -> None:
    text = f"""
        def rows(x: f32[6, 8], y: inout[f32[6, 8]], n: index):
            assume(unless(n >= 0 and n <= 6), bool(False))
            for i in {kind}(0, {"n" if kind == "serial" else 3}):
                if i < n:
                    for j in parallel(0, 8):
                        y[i, j] += x[i, j]
    """
    agree(text, *({"x": floats(6, 8), "y": floats(6, 8), "n": n} for n in (0, 1, 6)), threads=2)


def test_an_assumption_about_an_inout_parameter_is_about_what_the_caller_gives() -> None:
    text = """
        def root(y: inout[f32[8]]):
            for k in serial(0, 8):
                assume(unless(False), y[k] == f32(2.0))
            for i in parallel(0, 8):
                y[i] = y[i] - f32(1.0)
    """
    exe = gf.build(text, options=Options(check_assumes=True))
    assert (exe.run({"y": np.full(8, 2, "f4")})["y"] == 1).all()
    with pytest.raises(InvalidModel, match="y"):
        exe.run({"y": np.full(8, -2, "f4")})


def test_an_inout_parameter_beside_a_scalar_and_a_name_in_use() -> None:
    text = """
        def add(a: inout[i32[10]], a_out: out[i32[10]], n: index):
            assume(unless(n >= 1 and n < 10), bool(False))
            for i in serial(0, 10):
                a_out[i] = a[i]
            for a_out_2 in serial(n, 10):
                a[a_out_2] = a[a_out_2 - n]
    """
    agree(text, *({"a": np.arange(10, dtype="int32"), "n": n} for n in (1, 4, 9)))


# Windows ------------------------------------------------------------------------------------------


def test_a_window_takes_any_strides() -> None:
    text = """
        def total(a: window[f32[8, 8]], y: out[f32[8]]):
            for i in serial(0, 8):
                y[i] = f32(0.0)
                for j in serial(0, 8):
                    y[i] += a[i, j]
    """
    whole = floats(24, 40)
    agree(text, {"a": whole[::3, ::5]}, {"a": whole[8:0:-1, 3:11]}, {"a": whole[:8, :8].T})


# The kernel that is made --------------------------------------------------------------------------


def test_the_kernel_of_the_docstring() -> None:
    func = gf.kernel("""
        def f(a: inout[f32[8]], n: index):
            assume(unless(n >= 0 and n <= 8), bool(False))
            for i in serial(0, n):
                a[i] = f32(0.0)
    """)
    made = program_kernel(func)
    assert made == parse("""
        @primfunc
        def f(a: f32[8], a_out: out[f32[8]], n: i64[()]):
            with block("a_copy"):
                for a_out_0 in serial(0, 8):
                    a_out[a_out_0] = a[a_out_0]
            for n in serial(0, 9):
                if data(index(n, i64) == n[()]):
                    for i in serial(0, n):
                        a_out[i] = f32(0.0)
    """)
    assert program_kernel(made) is made, "a kernel that needs no change is the same object"


def test_limits_follow_from_conditions_on_several_scalars() -> None:
    func = gf.kernel("""
        def f(y: out[f32[8]], n: index, m: index):
            assume(unless(2*n >= 3 and n + 3*m <= 20 and m >= n), bool(False))
            y[0] = f32(0.0)
    """)
    assert [str(c) for c in scalar_conditions(func)] == ["2*n >= 3", "3*m + n < 21", "n <= m"]
    assert "for n in serial(2, 7)" in to_text(program_kernel(func))
    assert "for m in serial(2, 7)" in to_text(program_kernel(func))
