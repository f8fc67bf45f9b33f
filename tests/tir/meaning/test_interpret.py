"""Tests of the reference interpreter: its results against numpy, and its refusals."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow import tir
from graphflow.arith import Var, const
from graphflow.base.errors import InvalidModel, VerifyError
from support.strategies import SPECIAL_FLOATS, KernelOptions, input_arrays, primfuncs


def random(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(1).normal(size=shape).astype(dtype)


# -- whole kernels against numpy

CONVOLUTION = """
@primfunc
def conv(x: f32[1, 3, 7, 6], w: f32[4, 3, 3, 3], y: out[f32[1, 4, 4, 3]]):
    for oc in serial(0, 4):
        for oh in serial(0, 4):
            for ow in serial(0, 3):
                y[0, oc, oh, ow] = f32(0.0)
                for ic in serial(0, 3):
                    for kh in serial(0, 3):
                        for kw in serial(0, 3):
                            if 0 <= 2*oh + kh - 1 < 7 and 0 <= 2*ow + kw - 1 < 6:
                                y[0, oc, oh, ow] += x[0, ic, 2*oh + kh - 1, 2*ow + kw - 1] * \
w[oc, ic, kh, kw]
"""


def test_convolution_with_padding_and_stride() -> None:
    x, w = random(1, 3, 7, 6), random(4, 3, 3, 3)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    expected = np.zeros((1, 4, 4, 3), "float32")
    for oh, ow in np.ndindex(4, 3):
        window = padded[0, :, 2 * oh : 2 * oh + 3, 2 * ow : 2 * ow + 3]
        expected[0, :, oh, ow] = (w * window).sum(axis=(1, 2, 3))
    got = tir.interpret(tir.parse(CONVOLUTION), {"x": x, "w": w})["y"]
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_integer_matmul_is_exact_and_any_strides_are_read() -> None:
    func = tir.parse(
        """
        @primfunc
        def matmul(a: i32[5, 6], b: i32[6, 4], c: out[i32[5, 4]]):
            for i in parallel(0, 5):
                for j in vectorized(0, 4):
                    c[i, j] = i32(0)
                    for k in serial(0, 6):
                        c[i, j] += a[i, k] * b[k, j]
        """
    )
    a = np.arange(30, dtype="int32").reshape(6, 5).T * 70_000_000
    b = np.arange(48, dtype="int32").reshape(6, 8)[:, ::2]
    for reverse in (False, True):
        got = tir.interpret(func, {"a": a, "b": b}, reverse=reverse)["c"]
        np.testing.assert_array_equal(got, a @ b)


def test_softmax_in_stages() -> None:
    func = tir.parse(
        """
        @primfunc
        def softmax(x: f64[3, 5], y: out[f64[3, 5]]):
            top = alloc(f64[3])
            with block("top"):
                for i in serial(0, 3):
                    top[i] = f64(-inf)
                    for k in serial(0, 5):
                        reduce_max(top[i], x[i, k])
            total = alloc(f64[3])
            with block("total"):
                for i2 in serial(0, 3):
                    total[i2] = f64(0.0)
                    for k2 in serial(0, 5):
                        total[i2] += exp(x[i2, k2] - top[i2])
            with block("divide"):
                for i3 in serial(0, 3):
                    for j3 in serial(0, 5):
                        y[i3, j3] = exp(x[i3, j3] - top[i3]) / total[i3]
        """
    )
    x = random(3, 5, dtype="float64")
    shifted = np.exp(x - x.max(axis=1, keepdims=True))
    expected = shifted / shifted.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(tir.interpret(func, {"x": x})["y"], expected, rtol=1e-14)


def test_several_outputs_rank_zero_and_size_zero() -> None:
    func = tir.parse(
        """
        @primfunc
        def f(s: i64[()], e: f32[0, 3], total: out[i64[()]], none: out[f32[0, 3]], b: out[bool[2]]):
            total[()] = s[()] + i64(2)
            for i in serial(0, 0):
                none[i, 0] = e[i, 0]
            for k in unrolled(0, 2):
                b[k] = index(k, i64) == s[()]
        """
    )
    got = tir.interpret(func, {"s": np.array(1), "e": np.zeros((0, 3), "float32")})
    assert got["total"].shape == ()
    assert got["total"] == 3
    assert got["none"].shape == (0, 3)
    assert got["b"].tolist() == [False, True]


# -- operators


def apply_unary(op: str, values: Any) -> Any:
    dtype = {"float32": "f32", "float64": "f64", "int8": "i8", "bool": "bool"}[str(values.dtype)]
    text = {"neg": "-x[i]", "not": "~x[i]"}.get(op, f"{op}(x[i])")
    func = tir.parse(
        f"@primfunc\ndef f(x: {dtype}[{len(values)}], y: out[{dtype}[{len(values)}]]):\n"
        f"    for i in serial(0, {len(values)}):\n        y[i] = {text}\n"
    )
    return tir.interpret(func, {"x": values})["y"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("op", "expected"),
    [
        ("neg", lambda x: -x),
        ("abs", np.abs),
        ("exp", np.exp),
        ("log", np.log),
        ("tanh", np.tanh),
        ("sqrt", np.sqrt),
        ("floor", np.floor),
        ("ceil", np.ceil),
        ("round", np.round),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x.astype("float64")))),
        ("erf", lambda x: np.vectorize(math.erf)(x.astype("float64"))),
    ],
)
def test_unary_operators_on_floats(op: str, expected: Any, dtype: str) -> None:
    values = np.array([*SPECIAL_FLOATS, 2.5, 3.5, -2.5, 88.0, -100.0], dtype)
    with np.errstate(all="ignore"):
        wanted = expected(values).astype(dtype)
    got = apply_unary(op, values)
    np.testing.assert_allclose(got, wanted, rtol=1e-6 if dtype == "float32" else 1e-14)
    # NaN has a sign too, but no meaning hangs on it.
    numbers = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(wanted)[numbers])


def test_integers_wrap() -> None:
    values = np.array([-128, 127, 5], "int8")
    assert apply_unary("neg", values).tolist() == [-128, -127, -5]
    assert apply_unary("abs", values).tolist() == [-128, 127, 5]
    assert apply_unary("not", np.array([True, False])).tolist() == [False, True]


@pytest.mark.parametrize("width", [32, 64])
def test_bits_of_floats(width: int) -> None:
    func = tir.parse(
        f"@primfunc\ndef f(x: f{width}[4], y: out[u{width}[4]]):\n"
        "    for i in serial(0, 4):\n        y[i] = bits(x[i])\n"
    )
    tir.verify(func, "definition")
    assert tir.parse(tir.to_text(func)) == func
    x = np.array([0.0, -0.0, 1e-45, -2.0], f"float{width}")
    np.testing.assert_array_equal(tir.interpret(func, {"x": x})["y"], x.view(f"uint{width}"))


def test_every_operator_has_a_meaning() -> None:
    assert set(tir.UNARY_FUNCTIONS) == set(tir.UNARY)
    assert set(tir.BINARY_FUNCTIONS) == set(tir.BINARY)


@given(st.floats(width=32), st.floats(width=32))
def test_extrema_propagate_nan_and_order_zeros(x: float, y: float) -> None:
    a, b = np.float32(x), np.float32(y)
    larger, smaller = tir.BINARY_FUNCTIONS["max"](a, b), tir.BINARY_FUNCTIONS["min"](a, b)
    if np.isnan(a) or np.isnan(b):
        assert np.isnan(larger)
        assert np.isnan(smaller)
    else:
        key = lambda v: (v, not np.signbit(v))  # noqa: E731
        assert key(larger) == max(key(a), key(b))
        assert key(smaller) == min(key(a), key(b))


@given(st.integers(-128, 127), st.integers(-128, 127))
def test_integer_division_truncates(x: int, y: int) -> None:
    got = tir.BINARY_FUNCTIONS["div"](np.int8(x), np.int8(y))
    assert got.dtype == np.int8
    if y == 0:
        assert got == 0
    else:
        assert int(got) == (math.trunc(x / y) + 128) % 256 - 128


@pytest.mark.parametrize(
    ("base", "exponent", "expected"),
    [(3, 4, 81), (2, 8, 0), (-1, -3, -1), (1, -3, 1), (2, -1, 0), (0, -1, 0), (-2, 3, -8)],
)
def test_integer_power(base: int, exponent: int, expected: int) -> None:
    assert tir.BINARY_FUNCTIONS["pow"](np.int8(base), np.int8(exponent)) == expected


def test_arithmetic_is_rounded_to_the_dtype_at_each_step() -> None:
    func = tir.parse(
        """
        @primfunc
        def f(x: f32[2], y: out[f32[1]]):
            y[0] = x[0] * x[1] - x[0] * x[1] / f32(3.0) + f32(1.0)
        """
    )
    x = random(2)
    expected = x[0] * x[1] - x[0] * x[1] / np.float32(3) + np.float32(1)
    assert tir.interpret(func, {"x": x})["y"].tobytes() == expected.tobytes()


def test_casts() -> None:
    func = tir.parse(
        """
        @primfunc
        def f(x: f32[4], n: i32[4], a: out[i32[4]], b: out[bool[4]], c: out[u8[4]], d: out[f32[4]]):
            for i in serial(0, 4):
                a[i] = cast(i32, x[i])
                b[i] = cast(bool, n[i])
                c[i] = cast(u8, n[i])
                d[i] = cast(f32, x[i] < f32(0.0)) + index(i - 2, f32)
        """
    )
    x = np.array([2.9, -2.9, 0.5, -0.0], "float32")
    got = tir.interpret(func, {"x": x, "n": np.array([0, 1, 256, -1], "int32")})
    assert got["a"].tolist() == [2, -2, 0, 0]
    assert got["b"].tolist() == [False, True, True, True]
    assert got["c"].tolist() == [0, 1, 0, 255]
    assert got["d"].tolist() == [-2.0, 0.0, 0.0, 1.0]


# -- laziness, undefined memory, assumptions


def test_select_reads_only_the_side_it_takes() -> None:
    func = tir.parse(
        """
        @primfunc
        def f(x: f32[4], y: out[f32[6]]):
            for i in serial(0, 6):
                y[i] = select(0 <= i - 1 < 4, x[i - 1], f32(-1.0))
        """
    )
    got = tir.interpret(func, {"x": np.arange(4, dtype="float32")})["y"]
    assert got.tolist() == [-1, 0, 1, 2, 3, -1]


UNDEFINED = """
@primfunc
def f(y: out[f32[3]], n: out[u8[2]], m: out[i32[1]], b: out[bool[1]]):
    t = alloc(f32[1])
    y[0] = t[0]
    y[1] = undef(f32)
"""


def test_what_was_never_written_is_nan_or_as_asked() -> None:
    func = tir.parse(UNDEFINED)
    got = tir.interpret(func, {})
    assert np.isnan(got["y"]).all()
    assert got["n"].tolist() == [255, 255]
    assert got["m"].tolist() == [-(2**31)]
    assert got["b"].tolist() == [True]
    got = tir.interpret(func, {}, undefined=-42.0)
    assert got["y"].tolist() == [-42, -42, -42]
    assert got["m"].tolist() == [-42]
    assert got["n"].tolist() == [255, 255]


def test_memory_is_undefined_again_at_each_allocation() -> None:
    func = tir.parse(
        """
        @primfunc
        def f(y: out[f32[2]]):
            for i in serial(0, 2):
                t = alloc(f32[1], register)
                y[i] = t[0]
                t[0] = f32(1.0)
        """
    )
    assert np.isnan(tir.interpret(func, {})["y"]).all()


def test_assumptions_are_checked() -> None:
    func = tir.parse(
        """
        @primfunc
        def f(x: f32[4], y: out[f32[4]]):
            for i in serial(0, 4):
                assume(unless(i < 2), x[i] == f32(0.0))
                assume(unless(i < 3), x[i + 3 - i] == undef(f32))
                y[i] = x[i]
        """
    )
    tir.interpret(func, {"x": np.array([5, 5, 0, 0], "float32")})
    with pytest.raises(VerifyError, match=r"x\[i\] == f32\(0.0\)\) is false at i=3"):
        tir.interpret(func, {"x": np.array([5, 5, 0, 1], "float32")})


# -- refusals


def test_an_access_out_of_bounds_names_buffer_index_and_loops() -> None:
    func = tir.parse(
        """
        @primfunc
        def f(x: f32[4, 5], y: out[f32[4]]):
            for i in serial(0, 4):
                for k in serial(0, 5):
                    y[i] = x[i, k - i + 1]
        """
    )
    with pytest.raises(VerifyError) as caught:
        tir.interpret(func, {"x": random(4, 5)})
    message = str(caught.value)
    assert "reaches index [0, 5], outside x's shape [4, 5] at i=0, k=4" in message
    assert "y[i] = x[i, -i + k + 1]" in message


@pytest.mark.parametrize("statement", ["y[i - 1] = x[0]", "y[i - 1] += x[0]", "y[0] = x[i - 1]"])
def test_negative_indices_do_not_wrap_around(statement: str) -> None:
    func = tir.parse(
        "@primfunc\ndef f(x: f32[4], y: out[f32[4]]):\n"
        f"    for i in serial(0, 4):\n        {statement}\n"
    )
    with pytest.raises(VerifyError, match=r"reaches index \[-1\]"):
        tir.interpret(func, {"x": random(4)})


def test_loop_bounds_that_leave_the_buffer_are_caught() -> None:
    for loop in ("serial(0, 5)", "serial(-1, 4)", "serial(0, 5 + k)"):
        func = tir.parse(
            "@primfunc\ndef f(x: f32[4], y: out[f32[4]]):\n    for k in serial(0, 1):\n"
            f"        for i in {loop}:\n            y[i] = x[0]\n"
        )
        with pytest.raises(VerifyError, match="outside y's shape"):
            tir.interpret(func, {"x": random(4)})


@pytest.mark.parametrize(
    ("arrays", "reason"),
    [
        ({}, "needs an array for its input x"),
        ({"x": np.zeros((3,), "float32")}, r"float32 of shape \(4,\), but got float32 of shape"),
        ({"x": np.zeros((4,), "float64")}, "but got float64"),
        ({"x": np.zeros((4,), "float32"), "y": np.zeros(1)}, "has no input called y"),
    ],
)
def test_arrays_must_fit(arrays: dict[str, Any], reason: str) -> None:
    func = tir.parse("@primfunc\ndef f(x: f32[4], y: out[f32[4]]):\n    y[0] = x[0]\n")
    with pytest.raises(InvalidModel, match=reason):
        tir.interpret(func, arrays)


# -- order, depth, names


def test_scalars_are_given_by_name() -> None:
    func = tir.parse("""
@primfunc
def shifted(x: i32[4], y: out[i32[8]], n: index, m: index):
    assume(unless(n >= 0 and n < 5), bool(False))
    for i in serial(0, 8):
        y[i] = index(m, i32)
    for i2 in serial(0, 4):
        y[i2 + n] = x[i2]
""")
    tir.verify(func, "scheduled")
    assert tir.parse(tir.to_text(func)) == func
    x = np.arange(4, dtype="int32")
    got = tir.interpret(func, {"x": x}, scalars={"n": 3, "m": 9})["y"]
    assert got.tolist() == [9, 9, 9, 0, 1, 2, 3, 9]
    with pytest.raises(VerifyError, match="is false"):
        tir.interpret(func, {"x": x}, scalars={"n": 5, "m": 9})
    with pytest.raises(InvalidModel, match="has the scalars n, m, but got n"):
        tir.interpret(func, {"x": x}, scalars={"n": 3})
    with pytest.raises(VerifyError, match="it has scalars, which programs give it in memory"):
        tir.verify(func, "lowered")


def test_reversal_shows_a_dependence_between_parallel_iterations() -> None:
    template = """
@primfunc
def f(y: out[f32[4]]):
    y[0] = f32(1.0)
    for i in KIND(1, 4):
        y[i] = y[i - 1] + f32(1.0)
"""
    for kind in ("parallel", "vectorized"):
        func = tir.parse(template.replace("KIND", kind))
        assert tir.interpret(func, {})["y"].tolist() == [1, 2, 3, 4]
        assert tir.interpret(func, {}, reverse=True)["y"].tolist() != [1, 2, 3, 4]
    serial = tir.parse(template.replace("KIND", "serial"))
    assert tir.interpret(serial, {}, reverse=True)["y"].tolist() == [1, 2, 3, 4]


def test_more_loops_than_python_nests() -> None:
    depth = 40
    x, y = tir.Buffer("x", (2,) * 2), tir.Buffer("y", (2,) * 2)
    outer, inner = Var("v0"), Var(f"v{depth - 1}")
    body: tuple[tir.For | tir.Store, ...] = (
        tir.Store(y, (outer, inner), tir.Load(x, (outer, inner))),
    )
    for n in reversed(range(depth)):
        stop = const(2 if n in (0, depth - 1) else 1)
        body = (tir.For(Var(f"v{n}"), const(0), stop, tir.LoopKind.SERIAL, body),)
    func = tir.PrimFunc("deep", (tir.Param(x, tir.Role.INPUT), tir.Param(y, tir.Role.OUTPUT)), body)
    values = random(2, 2)
    np.testing.assert_array_equal(tir.interpret(func, {"x": values})["y"], values)


@pytest.mark.parametrize("reverse", [False, True])
def test_positions_are_those_of_loops_and_matches_around(reverse: bool) -> None:
    """Sums of indices that outer loops decide are computed ahead of the loops inside them, also
    below a condition, below a matched loop, and ahead of a loop without iterations."""
    func = tir.parse("""
    @primfunc
    def k(x: f32[3, 4, 8], at: i64[3], y: out[f32[3, 4, 8]]):
        for i in parallel(0, 3):
            for j in serial(0, 4):
                for k in serial(0, 8):
                    y[i, j, k] = x[i, j, k] + x[2 - i, 3 - j, 7 - k]
                if i >= 1:
                    for k in serial(0, i - 1):
                        y[i, j, 2 * k + 1] += x[i - 1, j, k]
                for m in serial(0, 4):
                    if data(index(m, i64) == at[i]):
                        for n in serial(0, 8):
                            y[i, m, n] += x[i, j, 7 - n] * x[m - m, m, 0]
    """)
    x, at = random(3, 4, 8), np.array([2, 5, 0])
    wanted = np.empty_like(x)
    for i in range(3):
        for j in range(4):
            wanted[i, j] = x[i, j] + x[2 - i, 3 - j, ::-1]
            for k in range(i - 1):
                wanted[i, j, 2 * k + 1] += x[i - 1, j, k]
            if at[i] < 4:
                wanted[i, at[i]] += x[i, j, ::-1] * x[0, at[i], 0]
    np.testing.assert_array_equal(
        tir.interpret(func, {"x": x, "at": at}, reverse=reverse)["y"], wanted
    )


def test_names_of_a_kernel_cannot_clash_with_python() -> None:
    func = tir.parse(
        "@primfunc\ndef range(min: f32[4], kernel: out[f32[4]]):\n"
        "    for max.c0 in serial(0, 4):\n        kernel[max.c0] = min[max.c0]\n"
    )
    values = random(4)
    np.testing.assert_array_equal(tir.interpret(func, {"min": values})["kernel"], values)


@given(primfuncs(KernelOptions(assumptions=True)), st.booleans())
def test_random_kernels_do_not_depend_on_order_or_undefined_memory(
    func: tir.PrimFunc, special: bool
) -> None:
    arrays = input_arrays(func, special=special)
    plain = tir.interpret(func, arrays, undefined=7.0)
    other = tir.interpret(func, arrays, undefined=-3.0, reverse=True)
    for name, array in plain.items():
        np.testing.assert_array_equal(array, other[name])
