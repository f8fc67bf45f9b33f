"""Tests of errors that padded layouts invite: each is a small network with padded layouts pinned on
its edges.

Each network runs natively with ordinary and with special numbers, with and without poison mode, and
is compared with onnxruntime.  A family of layouts that the pinned edges cannot have must be refused
with the reason; `REFUSED` lists those, so that none is left out unnoticed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from graphflow.base.errors import LayoutConflict, VerifyError
from graphflow.base.fields import replace
from graphflow.baselines import PlannedGroups
from graphflow.codegen import host_target
from graphflow.cost import CostModel
from graphflow.flow.candidates import candidates
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse_groups, interpret_graph
from graphflow.layout import fact_of, families
from graphflow.pipeline import compiler_stages
from graphflow.plan import edge_type_of
from support.padded import (
    FAMILIES,
    POISONS,
    Net,
    assert_all_same,
    assert_same,
    check,
    compile_pinned,
    family_outcomes,
    no_masks,
    normal_inputs,
    reference,
    with_specials,
)

SPECIALS = (np.inf, np.nan, 1e38, -np.inf, -0.0)
NO_NAN = (np.inf, 1e38, -0.0)
"""Where onnxruntime's treatment of NaN depends on its position; so no ∞ − ∞ either."""

ADDED_UP = (np.inf, np.nan, 1e36, -np.inf, -0.0)
"""For sums of finite numbers of both signs, whose order is free: whether a sum in between overflows
depends on it."""

CHANNELS = 18

Trap = tuple[Callable[[Net], Sequence[str]], Sequence[float]]
TRAPS: dict[str, Trap] = {}
"""By name: what builds the net and gives the edges to pin, and special values for the inputs."""


def trap(
    name: str, specials: Sequence[float] = SPECIALS
) -> Callable[[Callable[[Net], Sequence[str]]], Callable[[Net], Sequence[str]]]:
    def register(build: Callable[[Net], Sequence[str]]) -> Callable[[Net], Sequence[str]]:
        assert name not in TRAPS
        TRAPS[name] = build, specials
        return build

    return register


def start(net: Net, channels: int = CHANNELS, spatial: tuple[int, ...] = (2, 3)) -> str:
    """A convolution of the input, also a graph output: what follows it is a kernel of its own."""
    x = net.input("x", (1, channels, *spatial))
    ones = [1] * len(spatial)
    weight = net.weight(channels, channels, *ones, scale=0.3)
    net.output(net.node("Conv", [x, weight], ["c"]))
    return "c"


def finish(net: Net, e: str, channels: int = CHANNELS) -> Sequence[str]:
    """A sum and a convolution over all channels of `e`: padding that they read would show."""
    net.output(net.sum_channels(e), net.point(e, 5, in_channels=channels))
    return ["c", e]


# Special numbers in logical data -----------------------------------------------------------------


def _sigmoid_between(channels: int) -> Callable[[Net], Sequence[str]]:
    def build(net: Net) -> Sequence[str]:
        x = net.input("x", (1, channels, 4, 6))
        s = net.node("Sigmoid", [net.conv(x, channels, 3, pads=[1] * 4)], ["s"])
        net.output(net.point(s, channels), net.conv("s", 5, 3, in_channels=channels, pads=[1] * 4))
        return ["s"]

    return build


for _channels in (17, 58):
    trap(f"conv, sigmoid, conv of {_channels}")(_sigmoid_between(_channels))

# Elementwise kernels over padding ----------------------------------------------------------------


def _unary(op: str, **attributes: Any) -> Callable[[Net], Sequence[str]]:
    return lambda net: finish(net, net.node(op, [start(net)], ["e"], **attributes))


for _op in ("Exp", "Sigmoid", "Relu", "Log", "Sqrt", "Neg", "Abs", "Erf", "Tanh", "Floor", "Ceil"):
    trap(f"{_op} over padding")(_unary(_op))
trap("LeakyRelu over padding")(_unary("LeakyRelu", alpha=0.1))


@trap("Clip with a minimum above 0")
def _(net: Net) -> Sequence[str]:
    bounds = [net.constant(np.float32(0.5)), net.constant(np.float32(2))]
    return finish(net, net.node("Clip", [start(net), *bounds], ["e"]))


@trap("0/0 in the padding")
def _(net: Net) -> Sequence[str]:
    c = start(net)
    d = net.node("Relu", [c], ["d"])
    net.output(d)
    return [*finish(net, net.node("Div", [c, d], ["e"])), "d"]


def _binary(op: str, shape: tuple[int, ...], constant: bool) -> Callable[[Net], Sequence[str]]:
    def build(net: Net) -> Sequence[str]:
        c = start(net)
        if constant:
            values = 1 + np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
            operand = net.constant(values)
        else:
            operand = net.input("o", shape)
        return finish(net, net.node(op, [c, operand], ["e"]))

    return build


SHAPES = {"()": (), "(1,)": (1,), "(C,1,1)": (CHANNELS, 1, 1), "(H,W)": (2, 3)}
for _text, _shape in SHAPES.items():
    for _constant in (True, False):
        _kind = "a constant" if _constant else "an input"
        trap(f"Add of {_kind} {_text}")(_binary("Add", _shape, _constant))
for _op in ("Sub", "Mul", "Div", "Max", "Min"):
    trap(f"{_op} of a constant (C,1,1)")(_binary(_op, (CHANNELS, 1, 1), True))
trap("Mul of an input (1,C,1,1)")(_binary("Mul", (1, CHANNELS, 1, 1), False))
trap("Add of an input (1,C,H,W)")(_binary("Add", (1, CHANNELS, 2, 3), False))


# Reductions along and across the padded axis -----------------------------------------------------


def _reduction(op: str, axes: tuple[int, ...], keep: int = 1) -> Callable[[Net], Sequence[str]]:
    def build(net: Net) -> Sequence[str]:
        net.output(net.node(op, [start(net), net.integers(*axes)], keepdims=keep))
        return ["c"]

    return build


for _op in ("ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"):
    trap(f"{_op} over channels")(_reduction(_op, (1,)))
    trap(f"{_op} over images", NO_NAN)(_reduction(_op, (2, 3)))
trap("ReduceSum over batch and channels")(_reduction("ReduceSum", (0, 1)))
trap("ReduceSum over everything")(_reduction("ReduceSum", (1, 2, 3)))
trap("ReduceSum that drops the axis")(_reduction("ReduceSum", (1,), 0))


@trap("Softmax over channels")
def _(net: Net) -> Sequence[str]:
    net.output(net.node("Softmax", [start(net)], axis=1))
    return ["c"]


# Pools -------------------------------------------------------------------------------------------


def _pool(op: str, spatial: tuple[int, int], **options: Any) -> Callable[[Net], Sequence[str]]:
    """Of negative numbers, so that a zero from anywhere would show in a maximum."""

    def build(net: Net) -> Sequence[str]:
        e = net.node("Neg", [net.node("Exp", [start(net, spatial=spatial)])], ["e"])
        p = net.node(op, [e], ["p"], **options)
        net.output(net.point(p, 5, in_channels=CHANNELS))
        return ["c", "e", "p"]

    return build


_window = {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}
trap("MaxPool with pads", NO_NAN)(_pool("MaxPool", (5, 4), **_window))
trap("MaxPool that rounds up", NO_NAN)(
    _pool("MaxPool", (5, 4), kernel_shape=[2, 3], strides=[2, 2], ceil_mode=1)
)
for _flag in (0, 1):
    trap(f"AveragePool, count_include_pad={_flag}")(
        _pool("AveragePool", (5, 4), count_include_pad=_flag, **_window)
    )
trap("GlobalAveragePool divides by the logical extent")(_pool("GlobalAveragePool", (2, 3)))
trap("GlobalMaxPool", NO_NAN)(_pool("GlobalMaxPool", (2, 3)))


# Concat ------------------------------------------------------------------------------------------


def _concat(first: int, second: int, pins: Sequence[str]) -> Callable[[Net], Sequence[str]]:
    def build(net: Net) -> Sequence[str]:
        x = net.input("x", (1, 4, 2, 3))
        for name, channels in (("a", first), ("b", second)):
            net.node("Conv", [x, net.weight(channels, 4, 1, 1)], [name])
        y = net.node("Concat", ["a", "b"], ["y"], axis=1)
        net.output(net.point(y, 5, in_channels=first + second), net.sum_channels(y))
        return pins

    return build


trap("Concat off block boundaries", ADDED_UP)(_concat(17, 20, ["y"]))
trap("Concat of padded inputs", ADDED_UP)(_concat(17, 20, ["a", "b"]))
trap("Concat that ends in padding", ADDED_UP)(_concat(32, 10, ["a", "b", "y"]))
trap("Concat on block boundaries", ADDED_UP)(_concat(32, 16, ["a", "b", "y"]))


@trap("Concat of padded producers beside each other")
def _(net: Net) -> Sequence[str]:
    """What is concatenated is not pinned, what it is computed from is."""
    c = start(net)
    y = net.node("Concat", [net.node("Exp", [c]), net.node("Relu", [c])], axis=1)
    net.output(net.point(y, 5, in_channels=2 * CHANNELS))
    return ["c"]


@trap("Concat of one tensor with itself")
def _(net: Net) -> Sequence[str]:
    e = net.node("Exp", [start(net)])
    y = net.node("Concat", [e, e], axis=1)
    net.output(y, net.sum_channels(y))
    return ["c"]


# Groups ------------------------------------------------------------------------------------------


def _grouped(inputs: int, outputs: int, groups: int) -> Callable[[Net], Sequence[str]]:
    def build(net: Net) -> Sequence[str]:
        x = net.input("x", (1, 3, 4, 5))
        net.node("Conv", [x, net.weight(inputs, 3, 1, 1)], ["a"])
        weight = net.weight(outputs, inputs // groups, 3, 3)
        net.node("Conv", ["a", weight], ["b"], group=groups, pads=[1] * 4)
        net.output(net.point("b", 5, in_channels=outputs), net.sum_channels("b"))
        return ["a", "b"]

    return build


for _sizes, _text in {
    (18, 24, 3): "that straddle blocks",
    (40, 40, 4): "of ten in blocks",
    (6, 10, 2): "smaller than a block",
    (18, 18, 18): "of one channel each",
    (9, 18, 9): "with two outputs each",
}.items():
    trap(f"groups {_text}", ADDED_UP)(_grouped(*_sizes))


# Movement across the padded axis -----------------------------------------------------------------


def _moved(
    op: str, direct: bool, *constants: Sequence[int], **attributes: Any
) -> Callable[[Net], Sequence[str]]:
    """`direct`: the pinned edge itself is moved; else what was computed from it."""

    def build(net: Net) -> Sequence[str]:
        data = start(net) if direct else net.node("Exp", [start(net)])
        moved = net.node(op, [data, *(net.integers(*c) for c in constants)], **attributes)
        net.output(net.node("Neg", [moved]))
        return ["c"]

    return build


for _direct, _text in ((True, ""), (False, " after Exp")):
    trap(f"Reshape across channels{_text}")(_moved("Reshape", _direct, (1, 3, 6, 6)))
    trap(f"Flatten{_text}")(_moved("Flatten", _direct))
    trap(f"Transpose of channels{_text}")(_moved("Transpose", _direct, perm=[0, 2, 3, 1]))
trap("Transpose of the image")(_moved("Transpose", True, perm=[0, 1, 3, 2]))
trap("Squeeze")(_moved("Squeeze", True, (0,)))


def _product(op: str) -> Callable[[Net], Sequence[str]]:
    def build(net: Net) -> Sequence[str]:
        flat = net.node("Flatten", [net.node("Exp", [start(net)])])
        net.output(net.node(op, [flat, net.weight(6 * CHANNELS, 7)]))
        return ["c"]

    return build


trap("Flatten and Gemm", (np.inf, np.nan, -0.0))(_product("Gemm"))
trap("Flatten and MatMul", (np.inf, np.nan, -0.0))(_product("MatMul"))


@trap("MatMul of images")
def _(net: Net) -> Sequence[str]:
    net.output(net.node("MatMul", [start(net), net.weight(3, 7)]))
    return ["c"]


# Several readers, several facts ------------------------------------------------------------------


@trap("x + x")
def _(net: Net) -> Sequence[str]:
    c = start(net)
    return finish(net, net.add(c, c))


@trap("residual add of two facts")
def _(net: Net) -> Sequence[str]:
    c = start(net)
    d = net.node("Conv", [c, net.weight(CHANNELS, CHANNELS, 3, 3)], ["d"], pads=[1] * 4)
    s = net.node("Exp", [c], ["s"])
    return [*finish(net, net.node("Add", [d, s], ["e"])), "s"]


@trap("scale per channel out of the data itself")
def _(net: Net) -> Sequence[str]:
    c = start(net)
    g = net.node("GlobalAveragePool", [c], ["g"])
    s = net.node("Sigmoid", [net.point(g, CHANNELS, in_channels=CHANNELS)], ["s"])
    return [*finish(net, net.node("Mul", [c, s], ["e"])), "g", "s"]


@trap("many readers of one edge")
def _(net: Net) -> Sequence[str]:
    c = start(net)
    net.output(net.node("ReduceMean", [c, net.integers(1)]))
    net.output(net.node("AveragePool", [c], kernel_shape=[2, 2]))
    net.output(net.node("Flatten", [net.node("Exp", [c], ["e"])]))
    return finish(net, net.node("Log", [c], ["l"]))


# Shapes ------------------------------------------------------------------------------------------


def _shaped(channels: int, spatial: tuple[int, ...]) -> Callable[[Net], Sequence[str]]:
    return lambda net: finish(
        net, net.node("Exp", [start(net, channels, spatial)], ["e"]), channels
    )


def _shaped_sum(channels: int, spatial: tuple[int, ...]) -> Callable[[Net], Sequence[str]]:
    """As `_shaped` for images of one or three dimensions."""

    def build(net: Net) -> Sequence[str]:
        e = net.node("Exp", [start(net, channels, spatial)], ["e"])
        net.output(net.sum_channels(e))
        return ["c", e]

    return build


for _channels in (3, 5, 33):
    trap(f"{_channels} channels")(_shaped(_channels, (2, 3)))
trap("images of one row and column")(_shaped(CHANNELS, (1, 2)))
trap("one pixel")(_shaped_sum(CHANNELS, (1, 1)))
trap("one channel")(_shaped(1, (2, 3)))
trap("one element")(_shaped_sum(1, (1, 1)))
trap("images of one dimension")(_shaped_sum(CHANNELS, (5,)))
trap("images of three dimensions")(_shaped_sum(CHANNELS, (2, 1, 2)))

UNPADDED = {"Concat on block boundaries", "groups of ten in blocks"}
"""The pinned layouts may fill whole blocks; whether others are padded is the plan's choice."""


def built(name: str) -> tuple[onnx.ModelProto, Sequence[str], list[dict[str, Any]]]:
    build, specials = TRAPS[name]
    net = Net()
    edges = build(net)
    model = net.model()
    return model, edges, [with_specials(normal_inputs(model), *specials)]


@pytest.mark.parametrize("name", TRAPS)
def test_trap(name: str) -> None:
    model, edges, more = built(name)
    outcomes = family_outcomes(model, edges, *more, stakes=None if name in UNPADDED else True)
    assert outcomes == dict.fromkeys(FAMILIES, "right")


# One by one --------------------------------------------------------------------------------------


def pinned_to(*edges: str, family: str = "blocked") -> dict[str, str]:
    return dict.fromkeys(edges, family)


def test_every_exception_is_a_known_trap() -> None:
    assert set(TRAPS) >= UNPADDED


def test_a_window_wholly_in_the_border_gives_minus_infinity() -> None:
    """As the operator is defined; onnxruntime gives the lowest finite number there."""
    net = Net()
    x = net.input("x", (1, CHANNELS, 1, 3))
    net.node("Conv", [x, net.weight(CHANNELS, CHANNELS, 1, 1)], ["c"])
    net.output(
        net.node("MaxPool", ["c"], ["p"], kernel_shape=[2, 1], dilations=[2, 1], pads=[1, 0, 1, 0])
    )
    for family in FAMILIES:
        executable = compile_pinned(net.model(), pinned_to("c", family=family), poison=True)
        assert executable.poisoned > 0
        for value in POISONS:
            output = executable.run(normal_inputs(net.model()), poison=value)["p"]
            assert output.shape == (1, CHANNELS, 1, 3) and np.isneginf(output).all()


def test_a_residual_add_of_two_layouts_is_refused_or_converted() -> None:
    """Pinned apart, the sum has no variant; with one side free, that side is converted."""
    net = Net()
    c = start(net)
    d = net.node("Conv", [c, net.weight(CHANNELS, CHANNELS, 1, 1)], ["d"])
    net.output(d, net.add(c, d))
    with pytest.raises(LayoutConflict, match=r"Add.*c pinned to .*d pinned to NHWC padded"):
        compile_pinned(net.model(), {"c": "blocked", "d": "channels_last_padded"})
    net = Net()
    c = start(net)
    net.output(net.add("x", c))
    executable = check(net.model(), pinned_to("c"))
    converted = {made.value for made in executable.compiled.plan.conversions}
    assert "x" in converted


def test_an_input_may_be_an_output_and_an_output_an_inner_edge() -> None:
    net = Net()
    x = net.input("x", (1, CHANNELS, 2, 3))
    net.output(net.node("Identity", [x], ["same"]))
    net.node("Conv", [x, net.weight(CHANNELS, CHANNELS, 1, 1)], ["c"])
    e = net.node("Exp", ["c"], ["e"])
    net.output("c", e, net.sum_channels(e))
    for family in FAMILIES:
        executable = check(net.model(), pinned_to("c", "e", family=family))
        inputs = with_specials(normal_inputs(net.model()), *SPECIALS)
        assert executable.run(inputs)["same"].tobytes() == inputs["x"].tobytes()
        for tensor in (*executable.inputs, *executable.outputs):
            assert 16 not in tensor.shape and 32 not in tensor.shape


@pytest.mark.parametrize("place", ["weight", "bias", "summand"])
def test_an_initializer_that_is_an_input_is_not_constant(place: str) -> None:
    """Its value is a default, and another one given must count."""
    shape = {"weight": (CHANNELS, CHANNELS, 1, 1), "bias": (CHANNELS,),
             "summand": (CHANNELS, 1, 1)}[place]  # fmt: skip
    rng = np.random.default_rng(7)
    net = Net()
    x, w = net.input("x", (1, CHANNELS, 2, 3)), net.input("w", shape)
    net.constant(rng.standard_normal(shape).astype(np.float32), "w")
    weight = w if place == "weight" else net.weight(CHANNELS, CHANNELS, 1, 1)
    net.node("Conv", [x, weight, w] if place == "bias" else [x, weight], ["c"])
    net.output("c")
    e = net.node("Exp", [net.add("c", w) if place == "summand" else "c"], ["e"])
    net.output(net.sum_channels(e))
    model = net.model()
    other = {**normal_inputs(model), "w": rng.standard_normal(shape).astype(np.float32)}
    executable = check(model, pinned_to("c", "e"), other)
    assert not executable.compiled.graph.is_constant("w")
    default, changed = executable.run(normal_inputs(model)), executable.run(other)
    different = [name for name in default if (default[name] != changed[name]).any()]
    assert len(different) == (1 if place == "summand" else 2)


def test_shared_weights_in_two_layouts() -> None:
    """One initializer, packed for blocks, for rows, and read as it is."""
    net = Net()
    x = net.input("x", (1, CHANNELS, 2, 3))
    w = net.weight(CHANNELS, CHANNELS, 1, 1, scale=0.3)
    net.node("Conv", [x, w], ["a"])
    net.node("Conv", ["a", w], ["b"])
    net.node("Conv", [x, w], ["d"])
    net.node("Conv", ["d", w], ["f"])
    net.output("b", "f", net.node("Add", [w, net.input("o", (CHANNELS, CHANNELS, 1, 1))]))
    pins = {"a": "blocked", "b": "channels_last", "d": "channels_last_padded", "f": "blocked"}
    executable = check(net.model(), pins)
    packed = [c for c in executable.compiled.physical.calls if c.name == f"pack {w}"]
    assert len(packed) >= 2


def test_weights_with_infinities_meet_no_border() -> None:
    """`0 · ∞` of a border that is not there must not make NaN, whatever holds the zeros."""
    net = Net()
    x = net.input("x", (1, CHANNELS, 3, 3))
    weight = np.random.default_rng(0).standard_normal((5, CHANNELS, 3, 3)).astype(np.float32)
    weight[1, 4, 0, 0], weight[2, 17, 2, 2], weight[3, 0, 0, 1] = np.inf, np.nan, 1e38
    net.node("Conv", [x, net.weight(CHANNELS, CHANNELS, 1, 1, scale=0.3)], ["c"])
    net.node("Conv", ["c", net.constant(weight)], ["d"], pads=[1] * 4)
    net.output("d")
    model = net.model()
    inputs = normal_inputs(model)
    expected = interpret_graph(import_model(model), inputs)
    assert not np.isnan(expected["d"][0, 1]).any()
    for family in FAMILIES:
        for poison in (False, True):
            executable = compile_pinned(model, pinned_to("c", family=family), poison)
            assert_all_same(executable.run(inputs), expected)


def test_square_tensors_under_different_maps() -> None:
    """Equal shapes are no equal layouts: each transpose of an 8x8x8 tensor moves elements."""
    for family in ("row_major", "channels_last", *FAMILIES):
        net = Net()
        last = net.input("x", (1, 8, 8, 8))
        for k in range(2):
            a = net.node("Conv", [last, net.weight(8, 8, 1, 1, scale=0.3)], [f"a{k}"])
            last = net.node("Transpose", [a], perm=[0, 2, 3, 1] if k == 0 else [0, 3, 2, 1])
        net.output(net.node("Conv", [last, net.weight(8, 8, 1, 1, scale=0.3)]))
        model = net.model()
        pins = pinned_to("a0", "a1", family=family)
        check(model, pins, with_specials(normal_inputs(model), *SPECIALS), stakes=None)
    net = Net()
    x = net.input("x", (16, 16))
    net.output(net.node("MatMul", [net.node("Transpose", [x], perm=[1, 0]), x]))
    check(net.model(), {}, stakes=False)


def test_a_part_of_one_channel_is_transposed_where_it_output_aliasing() -> None:
    """One channel is the same memory as NCHW and as NHWC, until it lies beside eight others: then
    what reads it as NCHW finds it in a box of other axes."""
    net = Net()
    x = net.input("x", (1, 19, 1, 6))
    net.output(net.node("Conv", [x, net.weight(9, 19, 1, 1)], ["c"]))
    net.node("Split", ["c", net.integers(8, 1)], ["rest", "part"], axis=1)
    moved = net.node("Transpose", ["part"], perm=[2, 1, 0, 3])
    net.output(net.node("MaxPool", [moved], kernel_shape=[1, 2]))
    executable = check(net.model(), {"part": "channels_last", "c": "channels_last"}, stakes=False)
    assert executable.compiled.physical.values[moved].storage == "c"


def test_scalars() -> None:
    net = Net()
    x = net.input("x", ())
    net.output(net.node("Exp", [net.add(x, net.constant(np.float32(2)))]))
    check(net.model(), {}, {"x": np.array(np.nan, np.float32)}, stakes=False)


@pytest.mark.parametrize("shape", [(0, 3), (2, 0), (0,), (0, 3, 4, 4), (1, 18, 0, 2)])
def test_tensors_without_elements(shape: tuple[int, ...]) -> None:
    net = Net()
    x = net.input("x", shape)
    net.output(net.node("Exp", [x]), net.node("Concat", [x, x], axis=0))
    net.output(net.node("ReduceSum", [x, net.integers(len(shape) - 1)], keepdims=0))
    if len(shape) == 4 and shape[0] == 0:
        net.output(net.conv(x, 4, 1))
    check(net.model(), {}, stakes=False)


def test_negative_zero_stays_negative_through_padded_layouts() -> None:
    """Comparing numbers does not see it, so bits are compared."""
    net = Net()
    x = net.input("x", (1, CHANNELS, 2, 3))
    for name, op in (("a", "Neg"), ("b", "Relu"), ("d", "Ceil"), ("e", "Sqrt")):
        net.output(net.node(op, [x], [name]))
    net.output(net.node("Neg", [net.node("Abs", ["a"], ["f"])], ["g"]))
    model = net.model()
    inputs = {"x": np.where(np.arange(108) % 3 == 0, -0.0, 0.0).astype(np.float32)
              .reshape(1, CHANNELS, 2, 3)}  # fmt: skip
    expected = reference(model, inputs)
    for family in FAMILIES:
        found = compile_pinned(model, pinned_to("a", "b", "d", family=family)).run(inputs)
        for name in ("a", "d", "e", "g"):
            assert np.array_equal(np.signbit(found[name]), np.signbit(expected[name])), name
        assert_same(found["b"], expected["b"])


@pytest.mark.parametrize(
    ("op", "left"),
    [("Exp", 1.0), ("Sigmoid", 0.5), ("Relu", 0.0), ("Log", -np.inf), ("Sqrt", 0.0),
     ("Neg", -0.0), ("Tanh", 0.0), ("Abs", 0.0)],
)  # fmt: skip
def test_what_is_known_of_padding_that_was_zero(op: str, left: float) -> None:
    """A sum wants zeros; where they are written before `op`, its own padding holds `op(0)`.

    What is not known to the bit is not known at all.
    """
    net = Net()
    e = net.node(op, [start(net)], ["e"])
    net.output(net.sum_channels(e), net.sum_channels("c"))
    graph = fuse_groups(canonicalize(import_model(net.model())))
    target = host_target()
    block = families(4, target.lanes("float32"))[-1].instantiate((1, CHANNELS, 2, 3))
    assert block is not None
    found = candidates.enumerate_candidates(graph, CostModel(target, 2), {"c": block, "e": block})
    assert fact_of(0.0, "float32") in {
        f for edge_type in found.edge_types["c"] for _, f in edge_type.facts
    }
    (node,) = [n.name for n in graph.nodes if n.outputs == ("e",)]
    known = {
        (needed, fact)
        for candidate in found.of_node[node]
        if candidate.pad_value is None
        for requirement in candidate.requirements
        for _, needed in requirement.facts
        for _, fact in candidate.gives[0][1].facts
    }
    assert known == {(fact_of(0.0, "float32"), fact_of(left, "float32"))}


# Repairs other than a mask ----------------------------------------------------------------------


@pytest.fixture
def without_masks() -> Iterator[None]:
    with no_masks():
        yield


NEUTRAL = {"ReduceSum": 0.0, "ReduceMean": 0.0, "ReduceProd": 1.0, "ReduceMax": -np.inf,
           "ReduceMin": np.inf}  # fmt: skip


@pytest.mark.parametrize("op", NEUTRAL)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_producer_writes_what_a_reduction_requirements(
    without_masks: None, op: str, family: str
) -> None:
    net = Net()
    net.output(net.sum_channels(net.node("Exp", [start(net)], ["e"]), op))
    model = net.model()
    special = with_specials(normal_inputs(model), *SPECIALS)
    executable = check(model, pinned_to("c", "e", family=family), special)
    plan = executable.compiled.plan
    (written,) = [c.pad_value for c in plan.choices.values() if c.pad_value is not None]
    assert written == NEUTRAL[op]
    (refused,) = [r for r in plan.refused if r.value == "e"]
    assert f"writes {NEUTRAL[op]}" in refused.repair and op in refused.reason


@pytest.mark.parametrize("producer", ["Conv", "Exp"])
def test_readers_that_requirement_different_padding(without_masks: None, producer: str) -> None:
    """One padding holds one constant: the others get copies, and none disturbs another."""
    net = Net()
    data = start(net, spatial=(4, 4))
    if producer == "Exp":
        data = net.node("Exp", [data], ["e"])
    for op in NEUTRAL:
        net.output(net.sum_channels(data, op))
    model = net.model()
    special = with_specials(normal_inputs(model), *SPECIALS)
    executable = check(model, pinned_to("c", data), special)
    copies = [m for m in executable.compiled.plan.conversions if m.value == data and m.target.facts]
    assert len(copies) >= 2


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax"])
def test_without_its_select_the_padding_shows(
    without_masks: None, monkeypatch: pytest.MonkeyPatch, op: str
) -> None:
    """The plan is refused; and were it not, the comparison under poison would fail."""
    net = Net()
    net.output(net.sum_channels(net.node("Exp", [start(net)], ["e"]), op))
    model = net.model()

    flow = compiler_stages.FLOW

    def mutant(*arguments: Any) -> PlannedGroups:
        found = flow.run(*arguments)
        plan = found.plan
        choices = {k: replace(c, pad_value=None) for k, c in plan.choices.items()}
        edge = plan.edges["e"]
        edges = {**plan.edges, "e": replace(edge, edge_type=edge_type_of(edge.edge_type.layout))}
        made = replace(plan, choices=choices, edges=edges)
        return PlannedGroups(found.graph, made, found.pin_trials)

    monkeypatch.setattr(compiler_stages, "FLOW", replace(flow, run=mutant))
    with pytest.raises(VerifyError, match=rf"{op}\) needs pad\(1\) of e equal to"):
        check(model, pinned_to("c", "e"))
    monkeypatch.setattr("graphflow.convert.apply.verify_plan", lambda *_: None)
    with pytest.raises(AssertionError, match="NaN in 6 places, expected in 0"):
        check(model, pinned_to("c", "e"), plain=False)
