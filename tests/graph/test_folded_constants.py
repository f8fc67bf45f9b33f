"""Tests of constants folded into the operands of a sum: conditions, error bound, what runs."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.baselines import plan_groups
from graphflow.frontends import import_model
from graphflow.graph import (
    Expansions,
    Node,
    OperatorGraph,
    canonicalize,
    fuse_groups,
    interpret_graph,
)
from graphflow.graph.folded_constants import NotFoldable, folding_constants, folding_of
from graphflow.graph.fusion import BoundKernel, fuse_kernels
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.linear_algebra import linear, scaled_sum
from graphflow.kernels.definitions.windows import convolution, pooling
from graphflow.kernels.definitions.windows.window import Window
from graphflow.models import ModelBuilder
from graphflow.tir import PrimFunc, interpret, to_text
from graphflow.validation.error_bounds import MARGIN, with_errors
from support.models.peer_sessions import peer_session
from support.planning.nets import Net
from support.targets import processors

Floats = NDArray[np.float32]
X = (1, 3, 5, 4)


def random(shape: Sequence[int], seed: int) -> Floats:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


class Scaled(Net):
    """A sum of products, and steps that follow it, fused to one group."""

    def constant(self, array: Floats) -> str:
        name = f"c{len(self.graph.values)}"
        self.graph.add_initializer(name, array)
        return name

    def summed(self, w: Floats, b: Floats | None = None) -> str:
        names = ["x", self.constant(w), *([] if b is None else [self.constant(b)])]
        pads = (w.shape[2] // 2,) * 4
        groups = self.shape("x")[1] // w.shape[1]
        return self.add(
            "t0",
            convolution.convolution(
                self.shape("x"),
                w.shape,
                Window.of(w.shape[2:], pads=pads),
                groups=groups,
                bias=b is not None,
            ),
            *names,
        )

    def step(self, op: str, before: str, operand: str, after: str, swapped: bool = False) -> str:
        names = (operand, before) if swapped else (before, operand)
        return self.add(after, elementwise.binary(op, *(self.shape(n) for n in names)), *names)  # type: ignore[arg-type]

    def fused(self, *outputs: str) -> OperatorGraph:
        return fuse_groups(self.done(*outputs))


def column(n: int, seed: int) -> Floats:
    return random((n, 1, 1), seed)


def group(
    *steps: tuple[str, Floats],
    w: Floats | None = None,
    b: Floats | None = None,
    x: tuple[int, ...] = X,
    swapped: bool = False,
) -> OperatorGraph:
    """conv(x, w, b), then each step with its constant, then relu."""
    net = Scaled(x=x)
    value = net.summed(random((6, 3, 3, 3), 0) if w is None else w, b)
    for k, (op, array) in enumerate(steps, 1):
        value = net.step(op, value, net.constant(array), f"t{k}", swapped)
    return net.fused(net.unary("y", "relu", value))


def taken(graph: OperatorGraph) -> OperatorGraph:
    found = folding_constants(graph)
    return found.take([e for (e,) in found.of_node.values()], frozenset())


def refusal(graph: OperatorGraph) -> str:
    with pytest.raises(NotFoldable) as error:
        folding_of(graph, graph.nodes[0])
    assert not folding_constants(graph).of_node
    return str(error.value)


def same(graph: OperatorGraph, folded: OperatorGraph, inputs: dict[str, Floats]) -> None:
    want, got = interpret_graph(graph, inputs), interpret_graph(folded, inputs)
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=2e-5, atol=2e-5)


def test_factors_and_summands_become_operands_of_the_sum() -> None:
    graph = group(("mul", column(6, 1)), ("add", column(6, 2)))
    folded = taken(graph)
    assert len(folded.nodes) == 2
    text = to_text(folded.node("n_t0").func)
    assert "x: f32[1, 3, 5, 4], w_scaled: f32[6, 3, 3, 3], shift: f32[6], y: out" in text
    assert "y_3[n, oc, oh, ow] = shift[oc]" in text
    assert text.count("block(") == 2 and "* w_scaled[oc, ic, kh, kw]" in text
    same(graph, folded, {"x": random(X, 9)})


@settings(max_examples=25, deadline=None)
@given(
    ops=st.lists(st.sampled_from(["mul", "add", "sub"]), min_size=1, max_size=5),
    channels=st.sampled_from([1, 2, 5, 8]),
    kernel=st.sampled_from([1, 3]),
    depthwise=st.booleans(),
    bias=st.booleans(),
    vector=st.lists(st.booleans(), min_size=5, max_size=5),
    seed=st.integers(0, 99),
)
def test_any_chain_means_the_same(
    ops: list[str],
    channels: int,
    kernel: int,
    depthwise: bool,
    bias: bool,
    vector: list[bool],
    seed: int,
) -> None:
    w = random((channels, 1 if depthwise else 3, kernel, kernel), seed)
    x = (1, channels if depthwise else 3, 4, 3)
    steps = [
        (op, column(channels if many else 1, seed + k))
        for k, (op, many) in enumerate(zip(ops, vector, strict=False))
    ]
    graph = group(*steps, w=w, b=random((channels,), seed + 9) if bias else None, x=x)
    folded = taken(graph)
    assert ("mul" in ops) == ("w_scaled" in to_text(folded.node("n_t0").func))
    same(graph, folded, {"x": random(x, seed + 7)})


def test_steps_behind_data_remain() -> None:
    net = Scaled(x=X)
    t = net.summed(random((3, 3, 1, 1), 0))
    t = net.step("mul", t, net.constant(column(3, 1)), "t1")
    t = net.step("add", t, "x", "t2")
    t = net.step("mul", t, net.constant(column(3, 2)), "t3")
    graph = net.fused(t)
    folded = taken(graph)
    text = to_text(folded.node("n_t0").func)
    assert "w_scaled" in text and "t3" not in text
    assert len(folded.node("n_t0").inner) == len(graph.nodes[0].inner) - 1
    same(graph, folded, {"x": random(X, 3)})


def test_the_columns_of_a_square_product_are_scaled_and_its_rows_are_not() -> None:
    def product(scale: Floats) -> OperatorGraph:
        net = Scaled(x=(4, 4))
        w = net.constant(random((4, 4), 0))
        t = net.add("t0", linear.matmul((4, 4), (4, 4)), "x", w)
        return net.fused(net.step("mul", t, net.constant(scale), "t1"))

    columns = product(random((4,), 1))
    same(columns, taken(columns), {"x": random((4, 4), 2)})
    assert "varies along axis 0" in refusal(product(random((4, 1), 1)))


def with_data_factor() -> OperatorGraph:
    net = Scaled(x=X)
    return net.fused(net.step("mul", net.summed(random((3, 3, 1, 1), 0)), "x", "t1"))


def with_data_weights() -> OperatorGraph:
    net = Scaled(x=X, w=(3, 3, 1, 1))
    t = net.add("t0", convolution.convolution(X, (3, 3, 1, 1)), "x", "w")
    return net.fused(net.step("mul", t, net.constant(column(3, 1)), "t1"))


def with_data_bias() -> OperatorGraph:
    net = Scaled(x=X, b=(3,))
    w = net.constant(random((3, 3, 1, 1), 0))
    t = net.add("t0", convolution.convolution(X, (3, 3, 1, 1), bias=True), "x", w, "b")
    return net.fused(net.step("mul", t, net.constant(column(3, 1)), "t1"))


def with_two_readers() -> OperatorGraph:
    """x · sigmoid(x) of the sum, whose factor is no constant, and the sum is read twice."""
    net = Scaled(x=X)
    t = net.summed(random((3, 3, 1, 1), 0))
    scaled = net.step("mul", t, net.constant(column(3, 1)), "t1")
    gate = net.unary("gate", "sigmoid", t)
    return net.fused(net.step("mul", scaled, gate, "t2"))


def with_a_maximum() -> OperatorGraph:
    net = Scaled(x=X)
    t = net.add("t0", pooling.max_pool(X, Window.of((2, 2))), "x")
    return net.fused(net.step("mul", t, net.constant(column(3, 1)), "t1"))


def with_a_default() -> OperatorGraph:
    """The factor is a graph input that has a default."""
    net = Scaled(x=X, a=(3, 1, 1))
    net.graph.add_initializer("a", column(3, 1))
    return net.fused(net.step("mul", net.summed(random((3, 3, 1, 1), 0)), "a", "t1"))


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (with_data_factor, "nothing multiplies the sum y_1 by constants alone"),
        (with_data_weights, "no constant is a factor of what is added"),
        (with_data_bias, "the first values of y_1 are no constants"),
        (with_two_readers, "nothing multiplies the sum"),
        (with_a_maximum, "is no sum of floats"),
        (with_a_default, "nothing multiplies the sum"),
        (lambda: group(("add", column(6, 1))), "nothing multiplies the sum"),
        (lambda: group(("mul", random((5, 1), 1))), "the factor varies along axis 2 of y_1"),
        (lambda: group(("sub", column(6, 1)), swapped=True), "nothing multiplies the sum"),
    ],
)
def test_kernels_that_are_refused(graph: Callable[[], OperatorGraph], reason: str) -> None:
    assert reason in refusal(graph())


TINY = float(np.finfo(np.float32).tiny)


def altered(array: Floats, value: float) -> Floats:
    changed = array.copy()
    changed.flat[-1] = value
    return changed


@pytest.mark.parametrize("value", [0.0, -0.0, np.inf, -np.inf, np.nan, TINY / 2])
def test_factors_that_are_refused(value: float) -> None:
    assert "factor" in refusal(group(("mul", altered(column(6, 1), value))))


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_summands_that_are_refused(value: float) -> None:
    reason = refusal(group(("mul", column(6, 1)), ("add", altered(column(6, 1), value))))
    assert "a summand of n_t0 is not finite" in reason


@pytest.mark.parametrize(
    ("weight", "factor", "reason"),
    [
        (3e38, 2.0, "is not finite"),
        (np.nan, 1.0, "is not finite"),
        (-np.inf, 1.0, "is not finite"),
        (TINY, 0.5, "is zero or subnormal"),
        (1e-30, 1e-30, "is zero or subnormal"),
    ],
)
def test_weights_that_are_refused(weight: float, factor: float, reason: str) -> None:
    """One element of one channel decides, and its own factor."""
    w = random((6, 3, 3, 3), 0)
    others = np.ones((6, 1, 1), np.float32)
    assert reason in refusal(group(("mul", altered(others, factor)), w=altered(w, weight)))
    elsewhere = others.copy()
    elsewhere[0] = factor
    if np.isfinite(weight):
        assert folding_constants(group(("mul", elsewhere), w=altered(w, weight))).of_node


def test_weights_of_zero_stay_zero() -> None:
    w = random((6, 3, 3, 3), 0)
    w[::2], w[1, 0] = 0.0, -0.0
    graph = group(("mul", column(6, 1)), w=w)
    same(graph, taken(graph), {"x": random(X, 9)})


def test_infinite_data_gives_the_same() -> None:
    graph = group(("mul", column(6, 1)), ("add", column(6, 2)))
    x = random(X, 3)
    x[0, 0, 2, 2], x[0, 1, 0, 0] = np.inf, np.nan
    (want,) = interpret_graph(graph, {"x": x}).values()
    (got,) = interpret_graph(taken(graph), {"x": x}).values()
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


def chain(graph: OperatorGraph, node: Node) -> PrimFunc:
    """The kernels that compute the constants of a node, and its own, as one kernel."""
    nodes = [n for n in graph.nodes if n.outputs[0] in node.inputs] + [node]
    calls = [BoundKernel(n.func, n.inputs, n.outputs) for n in nodes]
    return fuse_kernels("chain", calls, node.outputs).func


def bounded(func: PrimFunc, arrays: dict[str, Floats]) -> tuple[Floats, Floats]:
    """A kernel's result, and the bound of its error that validation computes."""
    made, bounds = with_errors(func)
    results = interpret(made, arrays)
    (y,) = func.outputs
    return results[y.name].astype(np.float64), results[bounds[y].name]


@pytest.mark.parametrize("size", [1.0, 1e6, 1e-6])
@pytest.mark.parametrize("seed", range(3))
def test_both_kernels_keep_the_stated_error_bound(seed: int, size: float) -> None:
    """|e| ≤ γ (Σ |w x a| + |b a| + Σ |c a|) with m = n + 1 + f + g, against float64; and validation
    computes bounds, of the kernels with the nodes that scale, that both results are within.
    """
    w, b, x = random((4, 3, 3, 3), seed), random((4,), seed + 1), random((1, 3, 3, 3), seed + 2)
    a, c, e = (column(4, seed + k) * np.float32(size if k == 4 else 1) for k in (3, 4, 5))
    net = Scaled(x=(1, 3, 3, 3))
    t = net.step("mul", net.summed(w, b), net.constant(a), "t1")
    t = net.step("add", t, net.constant(c), "t2")
    t = net.step("mul", t, net.constant(e), "t3")
    graph = net.fused(t)
    wide = [array.astype(np.float64) for array in (w, b, x, a, c, e)]
    w8, b8, x8, a8, c8, e8 = wide
    exact = (_conv(x8, w8) + b8[:, None, None]) * a8 * e8 + c8 * e8
    size_of = (_conv(np.abs(x8), np.abs(w8)) + np.abs(b8)[:, None, None]) * np.abs(a8 * e8)
    size_of += np.abs(c8 * e8)
    m = w[0].size + 1 + 2 + 1
    gamma = m * 2.0**-24 / (1 - m * 2.0**-24)
    folded = taken(graph)
    for made in (graph, folded):
        func = chain(made, made.node("n_t0"))
        values = {**made.initializers, "x": x}
        node_inputs = _inputs(made, func)
        got, bound = bounded(func, {name: values[v] for name, v in node_inputs.items()})
        assert (np.abs(got - exact) <= gamma * size_of).all()
        assert (np.abs(got - exact) <= MARGIN * bound).all()


def _inputs(graph: OperatorGraph, func: PrimFunc) -> dict[str, str]:
    nodes = [n for n in graph.nodes if n.outputs[0] in graph.node("n_t0").inputs]
    nodes.append(graph.node("n_t0"))
    made = {n.outputs[0] for n in nodes}
    values = dict.fromkeys(v for n in nodes for v in n.inputs if v not in made)
    return dict(zip((b.name for b in func.inputs), values, strict=True))


def _conv(x: NDArray[np.float64], w: NDArray[np.float64]) -> NDArray[np.float64]:
    """The 3×3 convolution with padding 1."""
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    return np.einsum("ncijkl,ockl->noij", windows, w)


def normalized(depth: int) -> ModelBuilder:
    """Convolutions and BatchNormalization, as exported without folding; each is scaled again."""
    b = ModelBuilder(1, name="normalized")
    x = b.input("input", (1, 8, 10, 9))
    for _ in range(depth):
        x = b.conv(x, 24, 3, pads=[1, 1, 1, 1])
        x = b.batch_norm(x)
        x = b.relu(x)
    b.output(x)
    return b


@pytest.mark.decisions
@pytest.mark.parametrize("threads", [1, 2])
def test_networks_agree_with_onnxruntime(threads: int) -> None:
    model = normalized(3).model()
    exe = gf.compile(model, options=gf.Options(threads=threads, poison=True, validate=True))
    kernels = exe.compiled.graph
    assert sum(n.name.endswith(".scaled") for n in kernels.nodes) == 3
    x = random((1, 8, 10, 9), 5)
    session = peer_session(model)
    (want,) = session.run(None, {"input": x})
    (got,) = exe.run({"input": x}).values()
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert "scaled operands" in "".join(r.reason for r in kernels.removed.values())


@pytest.mark.decisions
def test_the_unscaled_weights_are_freed_with_the_constants_that_only_prepare_reads() -> None:
    compiled = gf.compile(normalized(2).model()).compiled
    lowered = compiled.lowered
    scaled = [n for n in compiled.graph.nodes if "scaled" in n.name]
    places = [lowered.places[n.inputs[0]].position for n in scaled]
    assert places and min(places) >= lowered.kept_bytes
    packed = [name for name in lowered.places if ".scaled@" in name]
    assert packed and all(lowered.places[n].position < lowered.kept_bytes for n in packed)
    assert not {n.outputs[0] for n in scaled} & set(lowered.places)  # computed as they are packed


@processors()
def test_a_plan_folds_where_it_pays(target: Target) -> None:
    """After sums of thousands of terms one multiplication is less than prices are precise."""
    large = group(("mul", column(64, 1)), ("add", column(64, 2)), w=random((64, 64, 3, 3), 0),
                  x=(1, 64, 14, 14))  # fmt: skip
    graph, plan, _ = plan_groups(large, target, 1)
    assert "w_scaled" in to_text(graph.node("n_t0").func)
    _, other, _ = plan_groups(taken(large), target, 1)
    assert plan.seconds == pytest.approx(other.seconds)
    long = group(("mul", column(16, 1)), w=random((16, 600, 3, 3), 0), x=(1, 600, 7, 7))
    assert folding_constants(long).of_node
    graph, _, _ = plan_groups(long, target, 1)
    assert "w_scaled" not in to_text(graph.node("n_t0").func)


def test_empty_operands_and_diagonals_are_refused() -> None:
    empty = group(("mul", column(0, 1)), w=np.zeros((0, 3, 1, 1), np.float32))
    assert "empty operand" in refusal(empty)
    diagonal = gf.kernel("""
@primfunc
def diagonal(x: f32[4, 5], w: f32[4, 5], a: f32[4, 4], y: out[f32[4, 4]]):
    t = alloc(f32[4, 4])
    with block("sum"):
        for i in serial(0, 4):
            t[i, i] = f32(0.0)
            for k in serial(0, 5):
                t[i, i] += x[i, k] * w[i, k]
    with block("scale"):
        for p in serial(0, 4):
            for q in serial(0, 4):
                y[p, q] = t[p, q] * a[p, q]
""")
    with pytest.raises(scaled_sum.NotScalable, match=r"^two axes of t are one axis of w$"):
        scaled_sum.scaled_sum(diagonal, frozenset("wa"))


def test_a_group_of_a_user_keeps_its_kernel() -> None:
    graph = group(("mul", column(6, 1)))
    (node,) = graph.nodes
    graph.replace(node.name, replace(node, offered=(node.func,)))
    assert "is not computed by a definition of one output" in refusal(graph)


def test_graphs_without_a_scaled_sum_stay_as_they_are() -> None:
    net = Scaled(x=X)
    graph = net.fused(net.unary("y", "relu", "x"))
    assert folding_constants(graph) == Expansions(graph)


NAMES = ("conv_1_node.shift", "conv_1_node.weight_1.scaled")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["input", "inner", "output"])
def test_what_is_added_has_names_that_the_model_has_not(name: str, where: str) -> None:
    b = ModelBuilder(1)
    x = b.input(name if where == "input" else "x", (1, 4, 3, 3))
    inner = b.relu(b.batch_norm(b.conv(x, 6, 1)))
    middle = b.node("Softmax", [inner], [name if where == "inner" else "middle"], axis=1)
    last = b.node("Neg", [middle], [name if where == "output" else "out"])
    b.output(middle, last)
    model = b.model()
    graph = fuse_groups(canonicalize(import_model(model, {})))
    expansions = folding_constants(graph)
    assert set(expansions.constants) == {*NAMES, f"{name}_2"} - {name}
    assert not set(expansions.constants) & graph.values.keys()
    arrays = {x: np.ones((1, 4, 3, 3), np.float32)}
    found = gf.compile(model).run(arrays)
    for value, want in interpret_graph(graph, arrays).items():
        np.testing.assert_allclose(found[value], want, rtol=1e-5, atol=1e-5)
