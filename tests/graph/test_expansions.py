"""Tests of expansions of several kinds: which a node has, and what is left when they are taken."""

import numpy as np
import pytest

from graphflow.flow import expansions_of
from graphflow.graph import (
    Expansions,
    OperatorGraph,
    fuse_groups,
    interpret_graph,
    moved_channels,
    reading_through,
)
from graphflow.graph.folded_constants import folding_constants
from graphflow.kernels.definitions import elementwise
from support.planning.nets import SHORT, Net


def scaled_after_movement() -> OperatorGraph:
    """Two tensors that are joined, split and joined again; a sum over their channels is scaled."""
    net = Net(x=(1, 3, 4, 4))
    net.unary("a", "relu", "x")
    net.unary("b", "tanh", "x")
    net.concat("ab", "a", "b")
    net.concat("left", "ab", "a")
    net.concat("right", "b", "ab")
    for name in ("left", "right"):
        net.conv(f"t_{name}", name, 4, 3)
        net.graph.add_initializer(f"s_{name}", np.full((4, 1, 1), 1.5, np.float32))
        net.add(
            name + "_y",
            elementwise.binary("mul", (1, 4, 4, 4), (4, 1, 1)),
            f"t_{name}",
            f"s_{name}",
        )
    return fuse_groups(net.done("left_y", "right_y"))


def test_a_node_has_expansions_of_each_kind_and_of_both() -> None:
    graph = scaled_after_movement()
    found = expansions_of(graph, SHORT, winograd=False).of_node["n_t_left"]
    kinds = [(bool(e.through), any("scaled" in b.name for b in e.node.func.inputs)) for e in found]
    assert kinds == [(False, True), (True, False), (True, True)]


@pytest.mark.parametrize("which", range(3))
def test_each_means_the_same(which: int) -> None:
    graph = scaled_after_movement()
    expansions = expansions_of(graph, SHORT)
    taken = [found[which] for name, found in expansions.of_node.items() if "n_t" in name]
    made = expansions.take(taken, frozenset())
    made.validate()
    x = np.random.default_rng(0).standard_normal((1, 3, 4, 4), np.float32)
    want, got = interpret_graph(graph, {"x": x}), interpret_graph(made, {"x": x})
    for name in want:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-5)


def test_what_nothing_reads_is_removed() -> None:
    graph = scaled_after_movement()
    found = folding_constants(graph)
    none = found.take((), frozenset())
    assert {n.name for n in none.nodes} == {n.name for n in graph.nodes}
    assert set(none.values) == set(graph.values)
    one = found.take(found.of_node["n_t_left"], frozenset())
    made = set(one.values) - set(graph.values)
    assert made == {"n_t_left.t_left_w.scaled", "n_t_left.factor"} & set(found.constants) | {
        "n_t_left.t_left_w.scaled"
    }
    assert "t_left_w" in one.values and "t_right_w" in one.values


def test_one_kind_alone() -> None:
    graph = scaled_after_movement()
    moves = moved_channels(graph)
    alone = reading_through(Expansions(graph), moves, set(moves))
    assert all(e.through for found in alone.of_node.values() for e in found)
    assert not any(e.through for (e,) in folding_constants(graph).of_node.values())
