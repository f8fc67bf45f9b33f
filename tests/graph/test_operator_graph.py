"""Tests of the operator graph, its canonical form and its fusion groups."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow.base.errors import InvalidModel, VerifyError
from graphflow.base.fields import replace
from graphflow.frontends import import_model
from graphflow.graph import (
    CONSTANT_LIMIT,
    Node,
    OperatorGraph,
    Value,
    canonicalize,
    elementwise_store,
    fuse_groups,
    interpret_graph,
    is_identity,
    reads_in_place,
)
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.models import ModelBuilder
from graphflow.tir import Allocate, Block, buffers_of, loops_of, only_moves, verify, walk


def graph_of(*inputs: tuple[str, tuple[int, ...]]) -> OperatorGraph:
    graph = OperatorGraph()
    for name, shape in inputs:
        graph.add_value(Value(name, "float32", shape))
    graph.set_inputs(name for name, _ in inputs)
    return graph


def relu(graph: OperatorGraph, x: str, y: str, name: str = "") -> str:
    func = elementwise.unary("relu", graph.values[x].shape)
    graph.add(Node(name or f"make_{y}", "Relu", func, (x,), (y,), (f"make_{y}",)))
    return y


def call(graph: OperatorGraph, op: str, func, inputs, y: str) -> str:
    graph.add(Node(f"make_{y}", op, func, tuple(inputs), (y,), (f"make_{y}",)))
    return y


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ops(graph: OperatorGraph) -> list[str]:
    return [node.op for node in graph.nodes]


# The graph itself


def test_producer_consumers_and_order():
    graph = graph_of(("x", (2, 3)))
    relu(graph, "x", "a")
    add = elementwise.binary("add", (2, 3), (2, 3))
    call(graph, "Add", add, ("a", "a"), "b")
    relu(graph, "a", "c")
    graph.set_outputs(("b", "c"))
    graph.validate()
    assert graph.producer("x") is None
    assert graph.producer("a").name == "make_a"
    uses = [(node.name, position) for node, position in graph.consumers("a")]
    assert uses == [("make_b", 0), ("make_b", 1), ("make_c", 0)]
    assert [n.name for n in graph.nodes] == ["make_a", "make_b", "make_c"]


def test_replacing_keeps_the_place_and_removing_frees_the_value():
    graph = graph_of(("x", (2,)))
    relu(graph, "x", "a")
    relu(graph, "x", "b")
    graph.replace("make_a", Node("other", "Abs", elementwise.unary("abs", (2,)), ("x",), ("a",)))
    assert [n.name for n in graph.nodes] == ["other", "make_b"]
    graph.remove("make_b")
    assert graph.consumers("x") == ((graph.node("other"), 0),)
    with pytest.raises(VerifyError, match="no producer"):
        graph.validate()
    graph.remove_value("b")
    graph.validate()
    with pytest.raises(VerifyError, match="still used"):
        graph.remove_value("a")


def test_a_copy_is_independent():
    graph = graph_of(("x", (2,)))
    relu(graph, "x", "a")
    other = graph.copy()
    other.remove("make_a")
    assert "make_a" in graph
    assert "make_a" not in other


def test_wrong_edits_and_shapes_are_refused():
    graph = graph_of(("x", (2,)))
    with pytest.raises(VerifyError, match="reads y, which is not a value"):
        graph.add(Node("n", "Relu", elementwise.unary("relu", (2,)), ("y",), ("z",)))
    with pytest.raises(VerifyError, match="has 1 inputs and 1 outputs, the node binds 2 and 1"):
        graph.add(Node("n", "Relu", elementwise.unary("relu", (2,)), ("x", "x"), ("z",)))
    relu(graph, "x", "a")
    with pytest.raises(VerifyError, match="has a producer already"):
        graph.add(Node("n", "Relu", elementwise.unary("relu", (2,)), ("x",), ("a",)))
    graph.add(Node("wide", "Relu", elementwise.unary("relu", (3,)), ("x",), ("w",)))
    with pytest.raises(VerifyError, match=r"node wide.*float32\(3,\).*value x is float32\(2,\)"):
        graph.validate()


def test_a_cycle_is_named():
    graph = graph_of(("x", (2,)))
    graph.add_value(Value("b", "float32", (2,)))
    call(graph, "Add", elementwise.binary("add", (2,), (2,)), ("x", "b"), "a")
    relu(graph, "a", "b")
    relu(graph, "b", "behind")
    with pytest.raises(InvalidModel, match=r"cycle through nodes (make_a, make_b|make_b, make_a);"):
        graph.topological()


def test_constants_depend_on_initializers_that_cannot_be_overridden():
    graph = graph_of(("x", (2,)), ("w", (2,)))
    graph.add_initializer("w", np.ones(2, np.float32))
    graph.add_initializer("c", np.ones(2, np.float32))
    relu(graph, "c", "rc")
    relu(graph, "w", "rw")
    call(graph, "Fill", movement.fill((2,), 1.0), (), "f")
    call(graph, "Add", elementwise.binary("add", (2,), (2,)), ("rc", "x"), "s")
    constant = {name: graph.is_constant(name) for name in graph.values}
    assert [name for name, known in constant.items() if known] == ["c", "rc", "f"]
    relu(graph, "f", "rf")
    assert graph.is_constant("rf")


def test_constants_stay_known_through_edits():
    graph = graph_of(("x", (2,)), ("y", (2,)))
    graph.add_initializer("c", np.ones(2, np.float32))

    def check(*constants: str) -> None:
        again = graph.copy()
        again.set_inputs(again.inputs)  # forgets what is known
        for known in (graph, again):
            assert {name for name in known.values if known.is_constant(name)} == set(constants)

    check("c")
    relu(graph, "c", "a")
    relu(graph, "x", "b")
    check("c", "a")
    call(graph, "Add", elementwise.binary("add", (2,), (2,)), ("a", "b"), "s")
    check("c", "a")
    graph.replace("make_b", replace(graph.node("make_b"), inputs=("a",)))
    check("c", "a", "b", "s")  # who reads what became constant is constant too
    graph.replace("make_a", replace(graph.node("make_a"), inputs=("y",)))
    check("c")
    graph.remove("make_s")
    graph.remove_value("s")
    check("c")


NODES = 4000


def test_thousands_of_nodes():
    graph = graph_of(("x", (2,)))
    func = elementwise.unary("relu", (2,))
    last = "x"
    for k in range(NODES):
        graph.add(Node(f"n{k}", "Relu", func, (last,), (f"v{k}",)))
        last = f"v{k}"
    # Every hundredth value is an output, so that groups stay of a size a kernel can have.
    graph.set_outputs(f"v{k}" for k in range(99, NODES, 100))
    start = time.process_time()
    fused = fuse_groups(canonicalize(graph))
    assert len(fused) == NODES // 100
    assert time.process_time() - start < 12  # a quadratic search takes longer


# What a kernel does


def test_structure_is_read_from_bodies():
    assert elementwise_store(elementwise.unary("relu", (2, 3))) is not None
    assert elementwise_store(elementwise.unary("relu", ())) is not None
    for func in (
        reduction.softmax((2, 3), (1,)),
        linear.matmul((2, 3), (3, 2)),
        movement.concat([(2,), (2,)], 0),
    ):
        assert elementwise_store(func) is None
    add = elementwise.binary("add", (2, 3), (3,))
    assert reads_in_place(add, 0)
    assert not reads_in_place(add, 1)
    assert not reads_in_place(movement.transpose((2, 2), (1, 0)), 0)
    assert not reads_in_place(movement.reshape((4,), (2, 2)), 0)
    moves = [movement.concat([(2,), (2,)], 0), movement.reshape((4,), (2, 2)), movement.copy((2,))]
    assert all(only_moves(func) for func in moves)
    assert not only_moves(elementwise.unary("relu", (2,)))


def test_identities_are_found_whatever_their_name():
    assert is_identity(movement.copy((2, 3)))
    assert is_identity(movement.reshape((2, 3), (2, 3)))
    assert is_identity(movement.transpose((2, 2), (0, 1)))
    assert is_identity(elementwise.cast((2,), "float32", "float32"))
    assert not is_identity(movement.transpose((2, 2), (1, 0)))
    assert not is_identity(elementwise.cast((2,), "float32", "int32"))
    assert not is_identity(movement.reshape((2, 3), (6,)))


# Canonical variant


def test_identities_disappear_and_their_tensors_are_remembered():
    graph = graph_of(("x", (2,)))
    relu(graph, "x", "a")
    call(graph, "Identity", movement.copy((2,)), ("a",), "b")
    call(graph, "Dropout", movement.copy((2,)), ("b",), "c")
    relu(graph, "c", "y")
    graph.set_outputs(("y",))
    out = canonicalize(graph)
    assert ops(out) == ["Relu", "Relu"]
    assert out.resolved("c") == out.resolved("b") == "a"
    assert out.removed["b"].alias_of == "a"
    assert "Identity make_b only copies" in out.removed["b"].reason
    assert ops(graph) == ["Relu", "Identity", "Dropout", "Relu"]


def test_an_identity_before_an_output_gives_its_name_to_the_producer():
    graph = graph_of(("x", (2,)))
    relu(graph, "x", "a")
    call(graph, "Identity", movement.copy((2,)), ("a",), "y")
    relu(graph, "a", "z")
    graph.set_outputs(("y", "z"))
    out = canonicalize(graph)
    assert [(n.inputs, n.outputs) for n in out.nodes] == [(("x",), ("y",)), (("y",), ("z",))]
    assert out.resolved("a") == "y"


def test_an_identity_stays_where_both_names_are_needed():
    graph = graph_of(("x", (2,)))
    call(graph, "Identity", movement.copy((2,)), ("x",), "y")
    relu(graph, "x", "a")
    call(graph, "Identity", movement.copy((2,)), ("a",), "b")
    graph.set_outputs(("y", "a", "b"))
    out = canonicalize(graph)
    assert ops(out) == ["Identity", "Relu", "Identity"]
    x = noise(2)
    assert set(interpret_graph(out, {"x": x})) == {"y", "a", "b"}


def test_small_constants_are_evaluated_and_large_ones_kept():
    graph = graph_of(("x", (2,)))
    call(graph, "Fill", movement.fill((2,), 2.0), (), "two")
    graph.add_initializer("w", np.array([1, -1], np.float32))
    call(graph, "Mul", elementwise.binary("mul", (2,), (2,)), ("two", "w"), "scaled")
    call(graph, "Add", elementwise.binary("add", (2,), (2,)), ("x", "scaled"), "y")
    call(graph, "Fill", movement.fill((CONSTANT_LIMIT,), 1.0), (), "edge")
    call(graph, "Fill", movement.fill((CONSTANT_LIMIT + 1,), 1.0), (), "big")
    graph.set_outputs(("y", "edge", "big"))
    out = canonicalize(graph)
    assert [n.name for n in out.nodes] == ["make_y", "make_big"]
    np.testing.assert_array_equal(out.initializers["scaled"], [2, -2])
    assert out.initializers["edge"].shape == (CONSTANT_LIMIT,)
    # What only evaluated nodes read is gone, with its reason.
    assert "two" not in out.values
    assert out.removed["w"].reason == "no output depends on it"


def test_an_overridable_initializer_is_not_folded():
    graph = graph_of(("x", (2,)), ("w", (2,)))
    graph.add_initializer("w", np.ones(2, np.float32))
    relu(graph, "w", "rw")
    call(graph, "Add", elementwise.binary("add", (2,), (2,)), ("x", "rw"), "y")
    graph.set_outputs(("y",))
    out = canonicalize(graph)
    assert ops(out) == ["Relu", "Add"]
    x = np.zeros(2, np.float32)
    np.testing.assert_array_equal(interpret_graph(out, {"x": x})["y"], [1, 1])
    given = {"x": x, "w": np.array([5, -5], np.float32)}
    np.testing.assert_array_equal(interpret_graph(out, given)["y"], [5, 0])


def test_dead_nodes_go_and_inputs_stay():
    graph = graph_of(("x", (2,)), ("unused", (2,)))
    relu(graph, "x", "y")
    relu(graph, "unused", "a")
    relu(graph, "a", "b")
    graph.set_outputs(("y",))
    out = canonicalize(graph)
    assert ops(out) == ["Relu"]
    assert out.inputs == ("x", "unused")
    assert set(out.removed) == {"a", "b"}
    assert out.resolved("a") is None


def test_equal_initializers_become_one_by_bits():
    graph = graph_of(("x", (2,)))
    arrays = {
        "zero": [0.0, 1.0], "same": [0.0, 1.0], "minus": [-0.0, 1.0], "nan": [np.nan, 1.0],
        "nan2": [np.nan, 1.0],
    }  # fmt: skip
    last = "x"
    for name, values in arrays.items():
        graph.add_initializer(name, np.array(values, np.float32))
        last = call(
            graph, "Add", elementwise.binary("add", (2,), (2,)), (last, name), f"with_{name}"
        )
    graph.set_outputs((last,))
    out = canonicalize(graph)
    assert list(out.initializers) == ["zero", "minus", "nan"]
    assert out.removed["same"].alias_of == "zero"
    assert out.node("make_with_nan2").inputs[1] == "nan"


# Fusion groups


def conv(graph: OperatorGraph, x: str, y: str, channels: int = 2) -> str:
    depth = graph.values[x].shape[1]
    weight = f"{y}_w"
    graph.add_initializer(weight, noise(channels, depth, 3, 3, seed=len(graph)))
    func = convolution.convolution(
        graph.values[x].shape, (channels, depth, 3, 3), Window.of((3, 3), pads=(1, 1, 1, 1))
    )
    return call(graph, "Conv", func, (x, weight), y)


def assert_same_meaning(before: OperatorGraph, after: OperatorGraph) -> None:
    arrays = {
        name: noise(*before.values[name].shape, seed=k) for k, name in enumerate(before.inputs)
    }
    expected, actual = interpret_graph(before, arrays), interpret_graph(after, arrays)
    assert list(expected) == list(actual)
    for name, array in expected.items():
        np.testing.assert_array_equal(actual[name], array)
    for node in after.nodes:
        verify(node.func, "definition")


X = ("x", (1, 2, 4, 4))


def test_an_anchor_takes_unary_broadcast_and_residual_tails():
    graph = graph_of(X)
    conv(graph, "x", "c")
    graph.add_initializer("s", noise(2, 1, 1))
    call(graph, "Mul", elementwise.binary("mul", (1, 2, 4, 4), (2, 1, 1)), ("c", "s"), "m")
    call(graph, "Add", elementwise.binary("add", (1, 2, 4, 4), (1, 2, 4, 4)), ("x", "m"), "a")
    relu(graph, "a", "y")
    graph.set_outputs(("y",))
    fused = fuse_groups(graph)
    (group,) = fused.nodes
    assert group.op == "Conv+Mul+Add+Relu"
    assert group.origins == ("make_c", "make_m", "make_a", "make_y")
    # The input and the residual are one tensor, so they are one parameter.
    assert group.inputs == ("x", "c_w", "s")
    assert group.outputs == ("y",)
    assert group.inner == (("c", "y_1"), ("m", "y_2"), ("a", "y_3"))
    kinds = [type(stmt) for stmt in group.func.body]
    assert kinds == [Allocate, Block, Allocate, Block, Allocate, Block, Block]
    assert [b.name for b in group.func.outputs] == ["y"]
    assert set(fused.values) == {"x", "c_w", "s", "y"}
    assert_same_meaning(graph, fused)


def test_names_in_a_fused_kernel_are_unique():
    graph = graph_of(X)
    conv(graph, "x", "c")
    for k in range(3):
        relu(graph, "c" if k == 0 else f"r{k - 1}", f"r{k}")
    graph.set_outputs(("r2",))
    (group,) = fuse_groups(graph).nodes
    loops = [loop.var.name for loop in loops_of(group.func.body)]
    assert len(loops) == len(set(loops)) == 7 + 3 * 4
    blocks = [s.name for s in walk(group.func.body) if isinstance(s, Block)]
    assert blocks == ["conv", "relu", "relu_1", "relu_2"]
    names = [b.name for b in buffers_of(group.func)]
    assert len(names) == len(set(names))
    assert_same_meaning(graph, fuse_groups(graph))


def test_the_same_kernels_fuse_to_the_same_kernel_whatever_the_tensors_are_called():
    def fused(prefix: str):
        graph = graph_of((f"{prefix}x", X[1]))
        conv(graph, f"{prefix}x", f"{prefix}c")
        relu(graph, f"{prefix}c", f"{prefix}y")
        graph.set_outputs((f"{prefix}y",))
        return fuse_groups(graph).nodes[0].func

    assert fused("a_") == fused("zz/")


def test_a_value_with_two_uses_or_a_graph_output_stays_outside():
    graph = graph_of(X)
    conv(graph, "x", "c")
    relu(graph, "c", "r")
    conv(graph, "r", "c2")
    call(graph, "Add", elementwise.binary("add", (1, 2, 4, 4), (1, 2, 4, 4)), ("c2", "r"), "y")
    relu(graph, "y", "z")
    graph.set_outputs(("y", "z"))
    fused = fuse_groups(graph)
    assert ops(fused) == ["Conv+Relu", "Conv+Add", "Relu"]
    assert_same_meaning(graph, fused)


def gate(graph: OperatorGraph, x: str, y: str, shape=(1, 2, 4, 4)) -> str:
    """y = x * sigmoid(x)."""
    call(graph, "Sigmoid", elementwise.unary("sigmoid", graph.values[x].shape), (x,), f"s_{y}")
    return call(graph, "Mul", elementwise.binary("mul", shape, shape), (f"s_{y}", x), y)


def test_results_that_meet_again_join_the_group():
    graph = graph_of(X)
    conv(graph, "x", "c")
    gate(graph, "c", "g")
    gate(graph, "g", "h")
    conv(graph, "h", "y")
    graph.set_outputs(("y",))
    fused = fuse_groups(graph)
    assert ops(fused) == ["Conv+Sigmoid+Mul+Sigmoid+Mul", "Conv"]
    assert [name for name, _ in fused.nodes[0].inner] == ["c", "s_g", "g", "s_h"]
    assert_same_meaning(graph, fused)


def test_operands_from_elsewhere_may_come_in_between():
    """The sum reads a product that is computed after the convolution."""
    graph = graph_of(X)
    conv(graph, "x", "c")
    call(graph, "Sigmoid", elementwise.unary("sigmoid", (1, 2, 4, 4)), ("c",), "s")
    conv(graph, "x", "d")
    call(graph, "Add", elementwise.binary("add", (1, 2, 4, 4), (1, 2, 4, 4)), ("s", "d"), "a")
    call(graph, "Mul", elementwise.binary("mul", (1, 2, 4, 4), (1, 2, 4, 4)), ("a", "c"), "y")
    graph.set_outputs(("y",))
    fused = fuse_groups(graph)
    assert sorted(ops(fused)) == ["Conv", "Conv+Sigmoid+Add+Mul"]
    assert_same_meaning(graph, fused)


@pytest.mark.parametrize("inner", ["c", "s_g"])
def test_a_graph_output_among_results_that_meet_again_stays_outside(inner):
    graph = graph_of(X)
    conv(graph, "x", "c")
    gate(graph, "c", "g")
    graph.set_outputs((inner, "g"))
    assert "Conv+Sigmoid+Mul" not in ops(fuse_groups(graph))
    assert_same_meaning(graph, fuse_groups(graph))


def test_results_that_meet_behind_another_reduction_stay_outside():
    """A trap: with the sum in the first group, that group and the second would need each other."""
    graph = graph_of(X)
    conv(graph, "x", "c")
    relu(graph, "c", "r")
    conv(graph, "r", "e")
    call(graph, "Add", elementwise.binary("add", (1, 2, 4, 4), (1, 2, 4, 4)), ("e", "c"), "y")
    graph.set_outputs(("y",))
    fused = fuse_groups(graph)
    assert ops(fused) == ["Conv", "Relu", "Conv+Add"]
    assert_same_meaning(graph, fused)


def test_results_that_meet_in_other_places_stay_outside():
    """A trap: all rows of the product read the one row of the sigmoid."""
    graph = graph_of(("x", (1, 4)), ("m", (3, 4)))
    relu(graph, "x", "r")
    call(graph, "Sigmoid", elementwise.unary("sigmoid", (1, 4)), ("r",), "s")
    call(graph, "Mul", elementwise.binary("mul", (1, 4), (3, 4)), ("s", "m"), "p")
    call(graph, "Add", elementwise.binary("add", (3, 4), (1, 4)), ("p", "r"), "y")
    graph.set_outputs(("y",))
    fused = fuse_groups(graph)
    assert not any(op.startswith("Relu+") for op in ops(fused))
    assert_same_meaning(graph, fused)


def test_of_two_chains_that_meet_only_one_takes_the_addition():
    graph = graph_of(X)
    conv(graph, "x", "a")
    conv(graph, "x", "b")
    call(graph, "Add", elementwise.binary("add", (1, 2, 4, 4), (1, 2, 4, 4)), ("a", "b"), "s")
    relu(graph, "s", "y")
    graph.set_outputs(("y",))
    fused = fuse_groups(graph)
    assert ops(fused) == ["Conv", "Conv+Add+Relu"]
    assert fused.nodes[1].origins == ("make_a", "make_s", "make_y")
    assert_same_meaning(graph, fused)


def test_the_same_value_on_both_sides_of_a_tail():
    graph = graph_of(X)
    conv(graph, "x", "c")
    call(graph, "Mul", elementwise.binary("mul", (1, 2, 4, 4), (1, 2, 4, 4)), ("c", "c"), "y")
    graph.set_outputs(("y",))
    fused = fuse_groups(graph)
    assert ops(fused) == ["Conv+Mul"]
    assert_same_meaning(graph, fused)


def test_chains_without_an_anchor_fuse():
    graph = graph_of(X)
    relu(graph, "x", "a")
    call(graph, "Exp", elementwise.unary("exp", X[1]), ("a",), "y")
    graph.set_outputs(("y",))
    assert ops(fuse_groups(graph)) == ["Relu+Exp"]
    assert_same_meaning(graph, fuse_groups(graph))


def test_a_tail_that_does_not_read_in_place_stays_outside():
    graph = graph_of(X)
    conv(graph, "x", "c")
    graph.add_initializer("big", noise(3, 2, 4, 4))
    # Broadcasting repeats the result of the convolution, so an element is used several times.
    call(graph, "Add", elementwise.binary("add", (1, 2, 4, 4), (3, 2, 4, 4)), ("c", "big"), "y")
    graph.set_outputs(("y",))
    assert ops(fuse_groups(graph)) == ["Conv", "Add"]


def test_moving_kernels_neither_absorb_nor_are_absorbed():
    graph = graph_of(X)
    conv(graph, "x", "c")
    call(graph, "Reshape", movement.reshape(X[1], (1, 32)), ("c",), "flat")
    relu(graph, "flat", "r")
    call(graph, "Concat", movement.concat([(1, 32), (1, 32)], 1), ("r", "r"), "j")
    call(graph, "Exp", elementwise.unary("exp", (1, 64)), ("j",), "y")
    graph.set_outputs(("y",))
    fused = fuse_groups(graph)
    assert ops(fused) == ["Conv", "Reshape", "Relu", "Concat", "Exp"]
    assert_same_meaning(graph, fused)


def test_constant_nodes_stay_alone():
    graph = graph_of(("x", (8192,)))
    call(graph, "Fill", movement.fill((8192,), 2.0), (), "f")
    graph.add_initializer("w", np.ones(8192, np.float32))
    call(graph, "Sqrt", elementwise.unary("sqrt", (8192,)), ("w",), "r")
    call(graph, "Mul", elementwise.binary("mul", (8192,), (8192,)), ("f", "r"), "k")
    call(graph, "Add", elementwise.binary("add", (8192,), (8192,)), ("x", "k"), "y")
    graph.set_outputs(("y",))
    fused = fuse_groups(canonicalize(graph))
    (live,) = (node for node in fused.nodes if not fused.is_constant(node.outputs[0]))
    assert live.op == "Add"


def test_a_multi_stage_anchor_keeps_its_intermediates():
    graph = graph_of(("x", (3, 4)))
    call(graph, "Softmax", reduction.softmax((3, 4), (1,)), ("x",), "s")
    call(graph, "Softmax", reduction.softmax((3, 4), (0,)), ("s",), "t")
    relu(graph, "t", "y")
    graph.set_outputs(("y",))
    fused = fuse_groups(graph)
    assert ops(fused) == ["Softmax", "Softmax+Relu"]
    assert_same_meaning(graph, fused)


@settings(derandomize=True, max_examples=25, deadline=None)
@given(st.data())
def test_random_graphs_mean_the_same_after_both(data):
    b = ModelBuilder(opset=17)
    names = [b.input("x", (1, 2, 3, 3))]
    for k in range(data.draw(st.integers(1, 9))):
        pick = data.draw(st.sampled_from(["relu", "add", "conv", "identity", "scale", "sigmoid"]))
        x = data.draw(st.sampled_from(names))
        match pick:
            case "relu":
                names.append(b.relu(x))
            case "add":
                names.append(b.add(x, data.draw(st.sampled_from(names))))
            case "conv":
                names.append(b.conv(x, 2, 3, in_channels=2, pads=[1, 1, 1, 1]))
            case "identity":
                names.append(b.node("Identity", [x]))
            case "scale":
                names.append(b.node("Mul", [x, b.constant(np.float32(k + 1).reshape(1, 1, 1))]))
            case "sigmoid":
                names.append(b.node("Sigmoid", [x]))
    outputs = data.draw(st.lists(st.sampled_from(names[1:]), min_size=1, max_size=3, unique=True))
    b.output(*outputs)
    graph = import_model(b.model())
    canonical = canonicalize(graph)
    fused = fuse_groups(canonical)
    assert_same_meaning(graph, canonical)
    assert_same_meaning(canonical, fused)
    again = fuse_groups(canonicalize(graph))
    assert again.nodes == fused.nodes
    inner = {name for node in fused.nodes for name, _ in node.inner}
    for name in graph.values:
        assert (name in fused.values) + (name in inner) + (name in canonical.removed) == 1


# What counts elements


def counted_graph() -> OperatorGraph:
    """`y` has as many rows as `n`, which follows from `m`, and nothing reads `n`; `z` is read by
    nobody and counted by `k`."""
    graph = OperatorGraph()
    for name, shape in (("x", (4, 3)), ("mask", (4,))):
        graph.add_value(Value(name, "int64", shape))
    graph.set_inputs(("x", "mask"))
    count = reduction.reduce("sum", (4,), (0,), False, "int64")
    for name in ("m", "k"):
        call(graph, "Count", count, ("mask",), name)
    double = elementwise.binary("add", (), (), "int64")
    call(graph, "Add", double, ("m", "m"), "n")
    rows = elementwise.binary("add", (4, 3), (4, 3), "int64")
    for name in ("y", "z"):
        call(graph, "Add", rows, ("x", "x"), name)
    call(graph, "Mul", elementwise.binary("mul", (4, 3), (4, 3), "int64"), ("y", "y"), "out")
    graph.set_outputs(("out",))
    counts = {"y": "n", "out": "n", "z": "k"}
    graph.counted = {graph.values[name]: {0: of} for name, of in counts.items()}
    return graph


def test_what_counts_elements_stays_as_long_as_these():
    graph = canonicalize(counted_graph())
    assert {"m", "n", "y", "out"} <= {*graph.values}
    assert not {"k", "z"} & {*graph.values}
    with pytest.raises(VerifyError, match="value n counts elements of"):
        graph.remove(graph.producer("n").name)
        graph.remove_value("n")


def test_equal_counts_become_one():
    graph = counted_graph()
    graph.set_outputs(("out", "z"))
    made = canonicalize(graph)
    graph.redirect("k", "m")
    assert graph.counted[graph.values["z"]] == {0: "m"}
    assert {one for counts in made.counted.values() for one in counts.values()} <= {*made.values}


def test_counts_are_stored_and_not_inside_of_groups():
    graph = counted_graph()
    relu = elementwise.unary("neg", (), "int64")
    call(graph, "Neg", relu, ("n",), "less")
    graph.set_outputs(("out", "less"))
    fused = fuse_groups(canonicalize(graph))
    assert fused.producer("n") is not None
    assert "y" not in fused.values
