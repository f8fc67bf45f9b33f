"""Random nodes of elementwise operators, reductions and normalizations, for test_every_operator.

A strategy is a function of `Choices` that gives a `Case`: one node, its inputs, and how closely its
results have to be those of the oracle.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from hypothesis import strategies as st
from onnx import TensorProto, helper

Shape: TypeAlias = tuple[int, ...]

FLOATS = ("float32", "float64", "float16")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
WORDS = ("int32", "int64")
MOVED = ("float32", "float64", "float16", "bool", *INTEGERS)
"""Element types of operators that only move elements."""

DENORMALS = {"float16": 6e-8, "float32": 1e-45, "float64": 5e-324}
EPSILONS = {"float16": 2e-3, "float32": 2e-5, "float64": 1e-9}
"""How far results of inexact operators may be off, relatively and absolutely."""


@dataclass(frozen=True)
class Constant:
    """An input that is an initializer."""

    array: Any


@dataclass(frozen=True)
class Case:
    """A model of one node.  With `exact`, results have the oracle's bits, but for NaNs."""

    op: str
    opset: int
    inputs: Sequence[Any]
    attributes: dict[str, Any] = field(default_factory=dict)
    exact: bool = False
    tolerance: float = 0.0
    result: Sequence[int | str] = ("a", "b")
    outputs: int = 1
    """Outputs that the node has; the first is compared."""
    want: Any = None
    """The result, where neither oracle is right or has it."""


Strategy: TypeAlias = "Callable[[Choices], Case]"


class Choices:
    """What a strategy chooses: hypothesis decides on structure and seeds, numpy fills arrays."""

    def __init__(self, data: st.DataObject) -> None:
        self._draw = data.draw

    def one(self, *options: Any) -> Any:
        return self._draw(st.sampled_from(options))

    def whole(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def shape(self, least: int = 0, most: int = 4, empty: bool = True) -> Shape:
        """Extents of 1, of less and of more than a vector, and sometimes 0."""
        rank = self.whole(least, most)
        extents = [self.one(1, 2, 3, 5, 8, 17) if k >= rank - 2 else self.one(1, 2, 3)
                   for k in range(rank)]  # fmt: skip
        if empty and rank and self.whole(0, 11) == 0:
            extents[self.whole(0, rank - 1)] = 0
        return tuple(extents)

    def axis(self, rank: int) -> int:
        return self.whole(-rank, rank - 1)

    def axes(self, rank: int, least: int = 0) -> list[int]:
        """Different axes, some of them counted from the last."""
        found = self._draw(st.lists(st.integers(0, rank - 1), min_size=least, unique=True))
        return [axis - rank * self.whole(0, 1) for axis in found]

    def array(self, shape: Shape, dtype: str = "float32", special: bool = True) -> Any:
        """Small numbers; with `special` a third are NaN, infinite, zeros, denormal or extreme."""
        rng = np.random.default_rng(self.whole(0, 2**32 - 1))
        kind = np.dtype(dtype)
        if kind.kind == "b":
            return rng.integers(0, 2, shape).astype(bool)
        if kind.kind == "f":
            tiny = DENORMALS[dtype]
            odd = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, tiny, -tiny, 1, -1, 0.5], kind)
            numbers = 2 * rng.standard_normal(shape)
        else:
            info = np.iinfo(kind)
            odd = np.array([info.min, info.max, info.min + 1, info.max - 1, 0, 1], kind)
            numbers = rng.integers(0 if kind.kind == "u" else -9, 10, shape)
        chosen = rng.random(shape) < (0.3 if special and self.whole(0, 2) else 0.0)
        if kind.kind != "f":
            numbers = np.asarray(numbers).astype(kind)
        return np.asarray(np.where(chosen, rng.choice(odd, shape), numbers)).astype(kind)

    def positive(self, shape: Shape, dtype: str = "float32") -> Any:
        return (np.abs(self.array(shape, dtype, special=False)) + 0.25).astype(dtype)

    def broadcast(self, count: int, most: int = 4) -> list[Shape]:
        """Shapes that broadcast with one another."""
        whole = self.shape(0, most)
        found = []
        for _ in range(count):
            part = whole[self.whole(0, len(whole)) :]
            found.append(tuple(self.one(n, n, 1) for n in part))
        found[self.whole(0, count - 1)] = whole
        return found

    def given(self, array: Any) -> Any:
        """An input as a constant or not; constants alone would leave nothing to run."""
        return self.one(array, Constant(array))


# Elementwise operators --------------------------------------------------------------------------


SINGLE = frozenset({"Erf", "Gelu", "HardSwish", "Shrink", "Selu", "HardSigmoid"})
"""Operators whose oracle computes float64 with constants or functions of float32."""


def unary(
    op: str,
    opset: int,
    dtypes: Sequence[str],
    exact: bool = False,
    least: int = 0,
    **ranges: Sequence[Any],
) -> Strategy:
    """On tensors of `least` axes or more; `ranges` are the values that attributes may have."""

    def case(c: Choices) -> Case:
        dtype = c.one(*dtypes)
        given = {name: c.one(*values) for name, values in ranges.items() if c.whole(0, 1)}
        tolerance = EPSILONS.get(dtype, 0.0)
        if op in SINGLE:
            tolerance = max(tolerance, 1e-6)
        return Case(op, opset, [c.array(c.shape(least), dtype)], given, exact, tolerance)

    return case


def binary(op: str, opset: int, dtypes: Sequence[str], exact: bool = False) -> Strategy:
    def case(c: Choices) -> Case:
        dtype = c.one(*dtypes)
        a, b = (c.array(shape, dtype) for shape in c.broadcast(2))
        return Case(op, opset, [a, b], {}, exact, EPSILONS.get(dtype, 0.0))

    return case


def divided(op: str) -> Strategy:
    """Integers are not divided by zero, nor the smallest one by −1, which C leaves undefined."""

    def case(c: Choices) -> Case:
        dtype = c.one(*FLOATS, *INTEGERS)
        a, b = (c.array(shape, dtype) for shape in c.broadcast(2))
        given = {"fmod": c.whole(0, 1)} if op == "Mod" else {}
        want = None
        if dtype in ("float32", "float64") and op == "Mod":
            with np.errstate(all="ignore"):
                want = np.fmod(a, b) if given["fmod"] else np.mod(a, b)
        elif dtype == "float16":
            given = {"fmod": 1} if op == "Mod" else {}
        if np.dtype(dtype).kind != "f":
            b = np.where((b == 0) | (b == np.asarray(-1).astype(dtype)), 3, b).astype(dtype)
            if op == "Div":
                # numpy rounds down; C and the standard truncate.
                quotient = np.floor_divide(a, b)
                inexact = (quotient * b != a) & ((a < 0) != (b < 0))
                want = (quotient + inexact).astype(dtype)
        return Case(op, 14, [a, b], given, want is not None, EPSILONS.get(dtype, 0.0), want=want)

    return case


def variadic(op: str, dtypes: Sequence[str], exact: bool) -> Strategy:
    def case(c: Choices) -> Case:
        dtype = c.one(*dtypes)
        arrays = [c.array(shape, dtype) for shape in c.broadcast(c.whole(1, 4))]
        want = None
        if op in ("Mean", "Sum"):
            # The evaluator adds in place, which broadcasts nothing, and rounds at each step.
            with np.errstate(all="ignore"):
                total = sum((x.astype("float64") for x in arrays), np.float64(0))
                want = np.asarray(total / (len(arrays) if op == "Mean" else 1)).astype(dtype)
        return Case(op, 13, arrays, {}, exact, EPSILONS.get(dtype, 0.0), want=want)

    return case


def power(c: Choices) -> Case:
    dtype, other = c.one("float32", "float64"), c.one("float32", "int32", "int64")
    base, exponent = c.broadcast(2)
    x = c.positive(base, dtype)
    y = np.clip(c.array(exponent, other, special=False), -4, 4)
    if c.whole(0, 1):
        y = np.asarray(c.one(2, 3, 0.5, -1, 0, 1)).astype(other)
    want = np.power(x, y.astype(dtype))
    return Case("Pow", 15, [x, c.given(y)], {}, False, EPSILONS[dtype], want=want)


def shift(c: Choices) -> Case:
    dtype = c.one(*UNSIGNED)
    a, b = (c.array(shape, dtype) for shape in c.broadcast(2))
    b %= np.asarray(8 * np.dtype(dtype).itemsize, dtype)
    return Case("BitShift", 11, [a, b], {"direction": c.one("LEFT", "RIGHT")}, True)


def prelu(c: Choices) -> Case:
    dtype = c.one("float32", "float64")
    shape = c.shape(1)
    slope = tuple(c.one(n, 1) for n in shape[c.whole(0, len(shape)) :])
    x, factor = c.array(shape, dtype), c.array(slope, dtype)
    with np.errstate(all="ignore"):
        want = np.where(x < 0, x * factor, x)  # a zero stays one, also where the slope is infinite
    return Case("PRelu", 16, [x, c.given(factor)], {}, False, EPSILONS[dtype], want=want)


def where(c: Choices) -> Case:
    dtype = c.one(*MOVED)
    condition, a, b = c.broadcast(3)
    return Case(
        "Where", 16, [c.array(condition, "bool"), c.array(a, dtype), c.array(b, dtype)], {}, True
    )


def clip(c: Choices) -> Case:
    dtype = c.one(*FLOATS, *INTEGERS)
    low, high = sorted(c.array((2,), dtype, special=False))
    bounds = [c.given(np.asarray(low)), c.given(np.asarray(high))][: c.whole(0, 2)]
    return Case("Clip", 13, [c.array(c.shape(), dtype), *bounds])


def _cast_pair(c: Choices) -> tuple[Any, str]:
    """A float that does not fit an integer type may become any integer, so none is given."""
    source, target = c.one(*MOVED), c.one(*MOVED)
    special = np.dtype(source).kind != "f" or np.dtype(target).kind == "f"
    x = c.array(c.shape(), source, special)
    return (np.abs(x) if not special and np.dtype(target).kind == "u" else x), target


def cast(c: Choices) -> Case:
    x, target = _cast_pair(c)
    to = helper.np_dtype_to_tensor_dtype(np.dtype(target))
    with np.errstate(all="ignore"):
        return Case("Cast", 19, [x], {"to": to}, True, want=x.astype(target))


def cast_like(c: Choices) -> Case:
    x, target = _cast_pair(c)
    with np.errstate(all="ignore"):
        want = x.astype(target)
    return Case("CastLike", 19, [x, c.array((1,), target)], {}, True, want=want)


def dropout(c: Choices) -> Case:
    dtype = c.one(*FLOATS)
    return Case("Dropout", 13, [c.array(c.shape(), dtype)], {}, True)


# Reductions -------------------------------------------------------------------------------------


def reduction(op: str, opset: int, dtypes: Sequence[str], exact: bool = False) -> Strategy:
    """Axes as an input since `opset`, before as an attribute; sometimes none, which means all."""

    def case(c: Choices) -> Case:
        dtype = c.one(*dtypes)
        shape = c.shape(1, empty=False)
        x = c.array(shape, dtype, special=op not in ("ReduceLogSum", "ReduceProd"))
        if op == "ReduceLogSum":
            x = np.abs(x) + np.asarray(0.5, dtype)
        if np.dtype(dtype).kind != "f" and op not in ("ReduceMax", "ReduceMin"):
            most = 1 if op == "ReduceProd" else 9  # numpy's overflows are not onnxruntime's
            x = np.clip(x, -most, most)
        given: dict[str, Any] = {"keepdims": c.whole(0, 1)}
        axes = c.axes(len(shape))
        old = c.whole(0, 2) == 0 and dtype != "bool"
        inputs = [x]
        if axes and old:
            given["axes"] = axes
        elif axes:
            inputs.append(Constant(np.array(axes, np.int64)))
        return Case(op, 12 if old else opset, inputs, given, exact, 4 * EPSILONS.get(dtype, 0.0))

    return case


def arg_reduction(op: str) -> Strategy:
    def case(c: Choices) -> Case:
        dtype = c.one("float32", "float64", "int32", "int8", "uint8")
        shape = c.shape(1, empty=False)
        x = np.round(c.array(shape, dtype, special=np.dtype(dtype).kind != "f"))
        given = {
            "axis": c.axis(len(shape)),
            "keepdims": c.whole(0, 1),
            "select_last_index": c.whole(0, 1),
        }
        return Case(op, 13, [x.astype(dtype)], given, True)

    return case


def soft(op: str) -> Strategy:
    def case(c: Choices) -> Case:
        dtype = c.one(*FLOATS)
        shape = c.shape(1)
        x = c.array(shape, dtype, special=op != "Hardmax")
        return Case(op, 13, [x], {"axis": c.axis(len(shape))}, False, EPSILONS[dtype])

    return case


def cumulative(op: str, opset: int) -> Strategy:
    def case(c: Choices) -> Case:
        dtype = c.one("float32", "float64", *WORDS)
        shape = c.shape(1)
        x = c.array(shape, dtype, special=op == "CumSum")
        axis = Constant(np.asarray(c.axis(len(shape)), c.one(*WORDS)))
        given = {"exclusive": c.whole(0, 1), "reverse": c.whole(0, 1)}
        return Case(op, opset, [x, axis], given, False, 4 * EPSILONS.get(dtype, 0.0))

    return case


def lp_normalization(c: Choices) -> Case:
    dtype = c.one("float32", "float64")
    shape = c.shape(1, empty=False)
    x = c.positive(shape, dtype)
    given = {"axis": c.axis(len(shape)), "p": c.one(1, 2)}
    return Case("LpNormalization", 22, [x], given, False, EPSILONS[dtype])


# Normalizations ---------------------------------------------------------------------------------


def _images(c: Choices) -> Shape:
    return (c.whole(1, 2), c.one(1, 2, 3, 6, 17), *(c.one(1, 2, 5) for _ in range(c.whole(1, 3))))


def batch_normalization(c: Choices) -> Case:
    shape = _images(c)[: c.whole(2, 5)]
    row = (shape[1],)
    x = c.array(shape, special=c.whole(0, 1) == 0)
    rows = [c.array(row, special=False) for _ in range(3)]
    inputs = [x, *(Constant(array) for array in rows), Constant(c.positive(row))]
    return Case("BatchNormalization", 15, inputs, {"epsilon": c.one(1e-5, 0.1)}, False, 1e-4)


def instance_normalization(c: Choices) -> Case:
    shape = _images(c)
    inputs = [c.array(s, special=False) for s in (shape, shape[1:2], shape[1:2])]
    return Case("InstanceNormalization", 21, inputs, {"epsilon": c.one(1e-2, 0.1)}, False, 1e-3)


def group_normalization(c: Choices) -> Case:
    shape = _images(c)
    groups = c.one(*(n for n in range(1, shape[1] + 1) if shape[1] % n == 0))
    inputs = [c.array(s, special=False) for s in (shape, shape[1:2], shape[1:2])]
    given = {"num_groups": groups, "epsilon": c.one(1e-2, 0.1)}
    return Case("GroupNormalization", 21, inputs, given, False, 1e-3, result=shape)


def layer_normalization(c: Choices) -> Case:
    shape = c.shape(1, empty=False)
    axis = c.axis(len(shape))
    inner = shape[axis % len(shape) :]
    inputs = [c.array(s, special=False) for s in (shape, inner, inner)]
    given = {"axis": axis, "epsilon": c.one(1e-2, 0.1)}
    return Case("LayerNormalization", 17, inputs[: c.whole(2, 3)], given, False, 1e-3)


def lrn(c: Choices) -> Case:
    x = c.array((c.whole(1, 2), c.one(1, 3, 7), c.one(1, 4), c.one(1, 3)), special=False)
    given = {"size": c.one(1, 3, 5, 9), "alpha": c.one(1e-4, 0.7), "beta": c.one(0.75, 0.5)}
    return Case("LRN", 13, [x], {**given, "bias": c.one(1.0, 2.0)}, False, 1e-4)


_ALPHA = (0.3, 1.5)

STRATEGIES: dict[str, Strategy] = {
    **{
        op: unary(op, opset, FLOATS)
        for op, opset in (
            ("Acos", 7), ("Acosh", 9), ("Asin", 7), ("Asinh", 9), ("Atan", 7), ("Atanh", 9),
            ("Cos", 7), ("Cosh", 9), ("Erf", 13), ("Exp", 13), ("HardSwish", 22), ("Log", 13),
            ("Mish", 22), ("Reciprocal", 13), ("Sigmoid", 13), ("Sin", 7), ("Sinh", 9),
            ("Softplus", 22), ("Sqrt", 13), ("Tan", 7), ("Tanh", 13),
        )
    },
    **{op: unary(op, 13, FLOATS, True) for op in ("Ceil", "Floor")},
    **{op: unary(op, 13, (*FLOATS, *SIGNED), True) for op in ("Abs", "Neg")},
    **{op: binary(op, 14, (*FLOATS, *INTEGERS), True) for op in ("Add", "Sub", "Mul")},
    **{op: binary(op, 16, (*FLOATS, *INTEGERS)) for op in (
        "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual",
    )},
    **{op: binary(op, 7, ("bool",)) for op in ("And", "Or", "Xor")},
    **{op: binary(op, 18, INTEGERS) for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor")},
    **{op: divided(op) for op in ("Div", "Mod")},
    **{op: variadic(op, (*FLOATS, *INTEGERS), False) for op in ("Max", "Min")},
    **{op: variadic(op, FLOATS, False) for op in ("Mean", "Sum")},
    **{op: reduction(op, 18, ("float32", "float64", *WORDS)) for op in (
        "ReduceL1", "ReduceMean", "ReduceProd", "ReduceSumSquare",
    )},
    **{op: reduction(op, 18, ("float32", "float64")) for op in (
        "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
    )},
    **{op: reduction(op, 20, ("float32", "float64", *WORDS, "int8", "uint8")) for op in (
        "ReduceMax", "ReduceMin",
    )},
    **{op: arg_reduction(op) for op in ("ArgMax", "ArgMin")},
    **{op: soft(op) for op in ("Softmax", "LogSoftmax", "Hardmax")},
    "BatchNormalization": batch_normalization,
    "BitShift": shift,
    "BitwiseNot": unary("BitwiseNot", 18, INTEGERS, True),
    "Cast": cast,
    "CastLike": cast_like,
    "Celu": unary("Celu", 12, ("float32",), alpha=_ALPHA),
    "Clip": clip,
    "CumProd": cumulative("CumProd", 26),
    "CumSum": cumulative("CumSum", 14),
    "Dropout": dropout,
    "Elu": unary("Elu", 22, FLOATS, alpha=_ALPHA),
    "Gelu": unary("Gelu", 20, FLOATS, approximate=("none", "tanh")),
    "GroupNormalization": group_normalization,
    "HardSigmoid": unary("HardSigmoid", 22, FLOATS, alpha=_ALPHA, beta=(0.1, 0.9)),
    "Identity": unary("Identity", 19, MOVED, True),
    "InstanceNormalization": instance_normalization,
    "IsInf": unary("IsInf", 20, FLOATS, True, detect_negative=(0, 1), detect_positive=(0, 1)),
    "IsNaN": unary("IsNaN", 20, FLOATS, True),
    "LRN": lrn,
    "LayerNormalization": layer_normalization,
    "LeakyRelu": unary("LeakyRelu", 16, FLOATS, alpha=_ALPHA),
    "LpNormalization": lp_normalization,
    "Not": unary("Not", 1 + 6, ("bool",), True),
    "PRelu": prelu,
    "Pow": power,
    "ReduceSum": reduction("ReduceSum", 13, ("float32", "float64", *WORDS)),
    "Relu": unary("Relu", 14, (*FLOATS, *SIGNED)),
    "Round": unary("Round", 22, FLOATS, True),
    "Selu": unary("Selu", 22, FLOATS, alpha=_ALPHA, gamma=_ALPHA),
    "Shrink": unary("Shrink", 9, ("float32", "float64", "float16"), lambd=_ALPHA, bias=(0.0, 1.5)),
    "Sign": unary("Sign", 13, (*FLOATS, *INTEGERS)),
    "Softsign": unary("Softsign", 22, FLOATS, least=1),  # the evaluator fails for scalars
    "Swish": unary("Swish", 24, FLOATS, alpha=_ALPHA),
    "ThresholdedRelu": unary("ThresholdedRelu", 22, FLOATS, alpha=_ALPHA),
    "Where": where,
}  # fmt: skip

FLOAT = int(TensorProto.FLOAT)
