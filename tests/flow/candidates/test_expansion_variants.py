"""Tests of expansions in the search: values that stay unmoved, and what reads in their place."""

import numpy as np
import pytest

from graphflow.base.errors import LayoutConflict
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.convert import apply_plan
from graphflow.cost import CostModel
from graphflow.flow import Problem, enumerate_candidates, expansions_of, find_plan
from graphflow.flow.candidates.candidates import Candidates
from graphflow.flow.solve import TABLE_LIMIT
from graphflow.graph import OperatorGraph, interpret_graph
from graphflow.kernels.definitions.movements import movement
from support.placing import interpret_physical
from support.planning.exhaustive import Exhaustive
from support.planning.nets import SHORT, TARGET, Net
from support.planning.random_nets import some
from support.seeds import seeds


def joined_twice(channels: int = 5, reader: str = "conv") -> OperatorGraph:
    """A tensor that is joined with each of two others, all read by reductions over channels.

    Of the two joined tensors only one can have the shared one inside.
    """
    net = Net(x=(1, channels, 3, 4))
    for name, kind in (("a", "relu"), ("b", "tanh"), ("c", "exp")):
        net.unary(name, kind, "x")
    net.concat("ab", "a", "b")
    net.concat("left", "ab", "c")
    net.concat("right", "c", "ab")
    for name in ("left", "right"):
        if reader == "conv":
            net.conv(f"{name}_y", name, 4, 3)
        else:
            net.unary(f"{name}_y", "relu", name)
    return net.done("left_y", "right_y")


def drawn(seed: int) -> tuple[OperatorGraph, Candidates]:
    """The graph, and a few candidates of each node at random prices.

    Expansions and values that stay unmoved are in layouts of one family and often cheap, or hardly
    any plan would have them.
    """
    rng = np.random.default_rng(seed)
    graph = joined_twice(int(rng.choice([4, 5])))
    expansions = expansions_of(graph, SHORT)
    found = enumerate_candidates(graph, CostModel(SHORT, 1), {}, expansions=expansions)
    drawn = some(found, rng, 3)
    family = rng.choice([f for c in found.of_node["n_ab"] for f in [c.family] if f])
    of_node = {}
    for name, options in found.of_node.items():
        new = [c for c in options if c.unmoved or c.expansion]
        new = [c for c in new if {r.family for r in c.requirements} | {c.family} <= {family, None}]
        taken = [new[k] for k in rng.permutation(len(new))[:2]]
        priced = (replace(c, seconds=float(rng.uniform(0, 1e-6))) for c in taken)
        of_node[name] = (*(c for c in drawn.of_node[name] if c not in new), *priced)
    return graph, Candidates(of_node, drawn.edge_types)


@pytest.mark.parametrize("seed", seeds(12, 24))
@pytest.mark.parametrize("limit", [TABLE_LIMIT, 0], ids=["elimination", "integers"])
def test_no_plan_with_expansions_is_cheaper(seed: int, limit: int) -> None:
    graph, candidates = drawn(seed)
    best = Problem(graph, candidates, CostModel(SHORT, 1), limit).best
    prices = Exhaustive(graph, candidates, CostModel(SHORT, 1)).prices()
    assert best.seconds == pytest.approx(prices.min(), rel=1e-5)


def test_the_drawn_plans_leave_values_unmoved_and_move_others() -> None:
    taken = {
        (candidate.unmoved, candidate.expansion is not None)
        for seed in range(24)
        for graph, candidates in [drawn(seed)]
        for candidate in Problem(graph, candidates, CostModel(SHORT, 1)).best.candidates.values()
    }
    assert taken == {(True, False), (False, True), (False, False)}


@pytest.mark.parametrize("target", [TARGET, SHORT], ids=["eight", "four"])
@pytest.mark.parametrize("channels", [4, 5, 8])
def test_whatever_is_taken_means_the_same(channels: int, target: Target) -> None:
    """Every mixture of expansions is a plan of an equivalent graph."""
    graph = joined_twice(channels)
    x = np.random.default_rng(0).standard_normal((1, channels, 3, 4), np.float32)
    want = interpret_graph(graph, {"x": x})
    found = find_plan(graph, CostModel(target, 1))
    assert found.expansions.of_node.keys() >= {"n_left_y", "n_right_y"}
    physical = apply_plan(found.graph, found.plan())
    got = interpret_physical(found.graph, physical, target, {"x": x})
    for name, value in want.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-4, atol=1e-5)


def test_the_reason_says_what_is_read_instead() -> None:
    """Whoever asks for the choice of a reader learns why the joined tensor is not there."""
    plan = find_plan(joined_twice(), CostModel(TARGET, 1)).plan()
    reasons = [choice.because for choice in plan.choices.values()]
    assert any("; it reads a, b, c in place of left" in reason for reason in reasons)


def test_nothing_reads_a_value_between_two_steps() -> None:
    """A channel shuffle of three nodes has its first two results in no family of layouts."""
    net = Net(x=(1, 6, 3, 4))
    net.unary("a", "relu", "x")
    net.add("split", movement.reshape((1, 6, 3, 4), (1, 2, 3, 3, 4)), "a")
    net.add("turned", movement.transpose((1, 2, 3, 3, 4), (0, 2, 1, 3, 4)), "split")
    net.add("shuffled", movement.reshape((1, 3, 2, 3, 4), (1, 6, 3, 4)), "turned")
    net.conv("y", "shuffled", 4)
    graph = net.done("y")
    expansions = expansions_of(graph, TARGET)
    assert expansions.origins == {"split": (), "turned": (), "shuffled": ("a",)}
    found = enumerate_candidates(graph, CostModel(TARGET, 1), {}, expansions=expansions)
    unmoved = {
        name: [c.family for c in options if c.unmoved] for name, options in found.of_node.items()
    }
    assert unmoved["n_split"] == unmoved["n_turned"] == [None]
    assert None not in unmoved["n_shuffled"] and len(unmoved["n_shuffled"]) > 1


def test_a_pinned_value_is_computed() -> None:
    graph = joined_twice()
    free = find_plan(graph, CostModel(TARGET, 1))
    unmoved = [c.gives[0][0] for c in free.problem.best.candidates.values() if c.unmoved]
    assert unmoved
    pinned = find_plan(graph, CostModel(TARGET, 1), {unmoved[0]: "NHWC"})
    assert unmoved[0] in pinned.graph.values
    assert pinned.plan().pinned[0].cost > 0


def test_movement_stays_where_nothing_reads_in_its_place() -> None:
    graph = joined_twice(reader="unary")
    assert not expansions_of(graph, SHORT).of_node
    assert find_plan(graph, CostModel(TARGET, 1)).graph is graph


def test_pins_that_clash_are_named_with_expansions_too() -> None:
    with pytest.raises(LayoutConflict):
        find_plan(joined_twice(), CostModel(TARGET, 1), {"left": "no such layout"})
