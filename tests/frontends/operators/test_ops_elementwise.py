"""Tests of scalar functions and element types, run natively on both targets, against ONNX's
reference evaluator or numpy."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.codegen import avx2_target, host_target
from support.models.sized_runs import beside_peer, parsed_model
from support.single import noise, single

TARGETS = (host_target(), avx2_target())
OPTIONS = gf.Options(workers=0, threads=1, fallback=None)
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = ("int8", "int16", "int32", "int64", *UNSIGNED)


def run(model: onnx.ModelProto, feeds: dict[str, Any], target: Any = None) -> Any:
    exe = gf.compile(model, target=target, options=OPTIONS)
    (result,) = exe.run(feeds).values()
    return result


def check(
    op: str,
    arrays: list[Any],
    opset: int = 24,
    constants: dict[int, Any] | None = None,
    want: Any = None,
    rtol: float = 1e-6,
    **attributes: Any,
) -> None:
    """What both targets give is what the reference evaluator gives, or `want`."""
    model = single(op, arrays, opset, constants or {}, **attributes)
    feeds = {info.name: array for info, array in zip(model.graph.input, arrays, strict=True)}
    if want is None:
        with np.errstate(all="ignore"):
            (want,) = ReferenceEvaluator(model).run(None, feeds)
    for target in TARGETS:
        got = run(model, feeds, target)
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, rtol=rtol, atol=rtol)


def around_extremes(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    """Integers, a third of them at either end of their type."""
    rng, info = np.random.default_rng(seed), np.iinfo(dtype)
    values = rng.integers(max(info.min, -9), 9, shape).astype(dtype)
    ends = np.array([info.min, info.max, info.max // 2 + 1], dtype)
    return np.where(rng.random(shape) < 0.3, rng.choice(ends, shape), values).astype(dtype)


TRIGONOMETRIC = (
    "Sin", "Cos", "Tan", "Asin", "Acos", "Atan",
    "Sinh", "Cosh", "Asinh", "Acosh", "Atanh",
)  # fmt: skip


@pytest.mark.parametrize("op", TRIGONOMETRIC)
def test_trigonometric_functions(op: str) -> None:
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e9, -3e38, 1e-45]
    name = op.lower().replace("a", "arc", 1) if op.startswith("A") else op.lower()
    for dtype in ("float32", "float64"):
        x = np.concatenate([2 * noise(25), special]).astype(dtype)
        with np.errstate(all="ignore"):
            want = getattr(np, name)(x.astype("float64")).astype(dtype)
        check(op, [x], 22, want=want)


def test_other_functions_of_one_operand() -> None:
    x = np.concatenate([3 * noise(20), [0.5, -0.5, 1.5, -1.5]]).astype("float32")
    for op, opset, attributes in (
        ("Celu", 12, {"alpha": 0.7}),
        ("Swish", 24, {"alpha": 1.5}),
        ("Shrink", 9, {"lambd": 1.5, "bias": 1.5}),
    ):
        check(op, [x], opset, **attributes)
    check("Shrink", [np.arange(-4, 5)], 9, lambd=2.0, bias=1.0)


def test_nan_and_infinities_are_told_apart() -> None:
    x = np.array([0, 1, -1, np.inf, -np.inf, np.nan, 3e38], "float32")
    check("IsNaN", [x], 20)
    for negative in (0, 1):
        for positive in (0, 1):
            given = {"detect_negative": negative, "detect_positive": positive}
            check("IsInf", [x], 20, **given)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_remainders(dtype: str) -> None:
    a, b = around_extremes(dtype, (4, 16)), around_extremes(dtype, (16,), 1)
    b[b == 0] = 3
    with np.errstate(all="ignore"):
        check("Mod", [a, b], 13, want=np.mod(a, b))
        check("Mod", [a, b], 13, want=np.fmod(a, b), fmod=1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_remainders(dtype: str) -> None:
    a, b = (5 * noise(6, 16)).astype(dtype), noise(16, seed=1).astype(dtype)
    check("Mod", [a, b], 13, fmod=1, want=np.fmod(a, b))


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_bits(dtype: str) -> None:
    a, b = around_extremes(dtype, (3, 17)), around_extremes(dtype, (17,), 1)
    for op, function in (
        ("BitwiseAnd", np.bitwise_and), ("BitwiseOr", np.bitwise_or), ("BitwiseXor", np.bitwise_xor)
    ):  # fmt: skip
        check(op, [a, b], 18, want=function(a, b))
    check("BitwiseNot", [a], 18, want=~a)
    few = (b % 9).astype(dtype)
    check("BitShift", [a, few], 11, direction="LEFT", want=np.left_shift(a, few))
    check("BitShift", [a, few], 11, direction="RIGHT", want=np.right_shift(a, few))
    with pytest.raises(InvalidModel, match="direction UP"):
        gf.compile(single("BitShift", [a, few], 11, {}, direction="UP"), options=OPTIONS)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_arithmetic_on_integers(dtype: str) -> None:
    a, b = around_extremes(dtype, (3, 18)), around_extremes(dtype, (18,), 1)
    with np.errstate(all="ignore"):
        for op, function in (
            ("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply),
            ("Max", np.maximum), ("Min", np.minimum),
            ("Greater", np.greater), ("LessOrEqual", np.less_equal), ("Equal", np.equal),
        ):  # fmt: skip
            check(op, [a, b], 16, want=function(a, b))
        if dtype not in UNSIGNED:
            for op, function in (("Abs", np.abs), ("Neg", np.negative), ("Sign", np.sign)):
                check(op, [a], 13, want=function(a))
        low, high = np.array(1, dtype), np.array(5, dtype)
        check("Clip", [a], 13, {1: low, 2: high}, want=np.clip(a, low, high))
        check("Clip", [a, low, high], 13, want=np.clip(a, low, high))


def test_integers_to_powers_of_floats() -> None:
    a, b = np.array([1, 2, 3, 9, 100], "int64"), np.array([4.0, 0.5, 3.0, 0.5, 1.5], "float32")
    check("Pow", [a, b], 15, want=np.array([1, 1, 27, 3, 1000], "int64"))
    check("Pow", [a.astype("int32"), b], 15, want=np.array([1, 1, 27, 3, 1000], "int32"))
    check("Pow", [b, a.astype("uint32")], 15, want=np.power(b, a.astype("float32")))


def test_logic_broadcasts() -> None:
    a, b = noise(3, 1, 5) > 0, noise(4, 5, seed=1) > 0
    for op, function in (("And", np.logical_and), ("Or", np.logical_or), ("Xor", np.logical_xor)):
        check(op, [a, b], 7, want=function(a, b))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_cumulative_sums_and_products(axis: int, exclusive: int, reverse: int) -> None:
    given = {"exclusive": exclusive, "reverse": reverse}
    x = noise(3, 5, 18)
    check("CumSum", [x], 14, {1: np.array(axis)}, rtol=1e-5, **given)
    check("CumProd", [x], 26, {1: np.array(axis)}, rtol=1e-5, **given)
    check("CumSum", [(8 * x).astype("int64")], 14, {1: np.array(axis)}, **given)


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("k", [None, -7, -1, 0, 2, 5, 9])
def test_triangles(upper: int, k: int | None) -> None:
    x = noise(2, 4, 5)
    check("Trilu", [x], 14, {} if k is None else {1: np.array(k)}, upper=upper)
    if k is not None:
        check("Trilu", [x, np.array(k)], 14, upper=upper)
        check("Trilu", [x, np.array([k])], 14, upper=upper)


def test_identities() -> None:
    x = noise(3, 5)
    for attributes in ({}, {"k": 1}, {"k": -2, "dtype": int(onnx.TensorProto.INT32)}):
        check("EyeLike", [x], 9, **attributes)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_hardmax_takes_the_first_largest(axis: int) -> None:
    x = np.round(2 * noise(3, 7, 5)).astype("float32")
    check("Hardmax", [x], 13, axis=axis)


def test_hardmax_before_opset_13_flattens() -> None:
    x = np.round(2 * noise(3, 4, 5)).astype("float32")
    flat = x.reshape(3, 20)
    want = (np.arange(20) == flat.argmax(1)[:, None]).astype("float32").reshape(x.shape)
    check("Hardmax", [x], 11, want=want, axis=1)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_norms_of_windows(p: int) -> None:
    x = noise(1, 3, 8, 9)
    check("LpPool", [x], 18, kernel_shape=[3, 2], strides=[2, 1], p=p, rtol=1e-5)
    check("LpPool", [x], 18, kernel_shape=[3, 3], pads=[1, 1, 1, 1], p=p, rtol=1e-5)
    want = (np.abs(x) ** p).sum((2, 3), keepdims=True) ** np.float32(1 / p)
    check("GlobalLpPool", [x], 2 + 5, want=want, rtol=1e-5, p=p)


def test_an_operand_that_gives_a_type_has_any_extent() -> None:
    """As the mask in the body of ONNX's Attention, whose lengths are sizes."""
    model = parsed_model(
        """g (float[n, 3] x) => (float[n, 3] y) {
          low = Constant <value = double[1] {-0.5}> ()
          cast = CastLike (low, x)
          y = Max (x, cast) }""",
        opset=19,
    )
    wrong, why_not = beside_peer(model, {"n": (1, 5)}, [{"n": 5}, {"n": 2}])
    assert (wrong, why_not) == ([], "")


def test_one_program_serves_attention_of_all_lengths() -> None:
    model = parsed_model(
        """g (float[1, 2, n, 8] q, float[1, 1, n, 8] k, float[1, 1, n, 8] v)
        => (float[1, 2, n, 8] y) { y = Attention <is_causal = 1> (q, k, v) }""",
        opset=23,
    )
    wrong, why_not = beside_peer(model, {"n": (1, 20)}, [{"n": 7}, {"n": 20}, {"n": 1}])
    assert (wrong, why_not) == ([], "")
