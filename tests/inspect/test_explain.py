"""Tests of explanations: prices of what was not chosen, costs of pins, and pins that clash."""

import functools
import itertools
import json
from collections.abc import Mapping, Sequence, Set
from functools import partial
from math import inf
from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.decisions import microseconds
from graphflow.base.errors import LayoutConflict
from graphflow.codegen import avx2_target
from graphflow.cost import CostModel
from graphflow.flow import conflict, plan_layouts, planner
from graphflow.flow.candidates.candidates import Candidates, Unsatisfiable, enumerate_candidates
from graphflow.flow.conflict import minimal
from graphflow.flow.elimination.elimination import eliminate
from graphflow.flow.elimination.marginals import extras
from graphflow.flow.elimination.prices import NEVER
from graphflow.flow.pins import MOST_PRICED
from graphflow.flow.solve import Problem
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import View
from graphflow.layout import Layout
from graphflow.models import ModelBuilder
from graphflow.plan import edge_type_key
from support.planning.factors import random_factors, total
from support.planning.nets import SHORT, TARGET, Net, chain, middle, residual
from support.planning.random_nets import random_graph, some
from support.planning.shared_memory_nets import in_two_concats
from support.seeds import seeds

pytestmark = pytest.mark.usefixtures("code_is_left_out")

# Prices of what was not chosen --------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(40, 150))
def test_what_each_option_costs_by_exhaustive_search(seed: int) -> None:
    own, factors = random_factors(np.random.default_rng(seed))
    prices = {
        chosen: total(own, factors, chosen)
        for chosen in itertools.product(*(range(len(prices)) for prices in own))
    }
    if min(prices.values()) == NEVER:
        return
    reduced = eliminate(own, factors, 1 << 15)
    found = extras(reduced)
    assert set(found) == set(range(len(own)))
    for variable, options in enumerate(own):
        for option in range(len(options)):
            best = min(price for chosen, price in prices.items() if chosen[variable] == option)
            assert _settled(int(found[variable][option])) == _settled(best, min(prices.values()))


def _settled(price: int, less: int = 0) -> int | None:
    """A difference, or None where it is no price at all."""
    return None if price >= NEVER // 2 else price - less


@pytest.mark.parametrize("limit", [1, 4, 9, 30])
def test_what_elimination_left_has_no_price(limit: int) -> None:
    """Of trees that elimination solved itself there are prices, and they are right."""
    known = 0
    for seed in range(60):
        own, factors = random_factors(np.random.default_rng(seed))
        every = list(itertools.product(*(range(len(prices)) for prices in own)))
        best = min(total(own, factors, chosen) for chosen in every)
        found = extras(eliminate(own, factors, limit))
        known += len(found)
        if best < NEVER:
            for variable, prices in found.items():
                for option, extra in enumerate(prices):
                    with_it = [c for c in every if c[variable] == option]
                    least = min(total(own, factors, chosen) for chosen in with_it)
                    assert _settled(int(extra)) == _settled(least, best)
    assert known


@pytest.mark.parametrize("seed", seeds(10, 25))
def test_what_each_candidate_costs_by_solving_with_it_alone(seed: int) -> None:
    """Terms split into states and windows included."""
    rng = np.random.default_rng(4000 + seed)
    graph = random_graph(rng)
    candidates = some(enumerate_candidates(graph, CostModel(SHORT, 1), {}), rng, 5)
    problem = Problem(
        graph, candidates, CostModel(SHORT, 1), table_limit=int(rng.choice([60, 1 << 15]))
    )
    if problem.searched:
        return
    found = problem.extras()
    assert set(found) == set(candidates.of_node)
    for node, options in candidates.of_node.items():
        for option, extra in zip(options, found[node], strict=True):
            only = Candidates({**candidates.of_node, node: (option,)}, candidates.edge_types)
            try:
                forced = Problem(graph, only, CostModel(SHORT, 1)).best
            except Unsatisfiable:
                assert extra == inf
                continue
            assert extra == pytest.approx(forced.seconds - problem.best.seconds, abs=1e-13)
        assert min(found[node]) == 0.0


def test_a_plan_says_what_other_edge_types_of_an_edge_would_cost() -> None:
    graph = residual()
    plan = plan_layouts(graph, TARGET, 2)
    candidates = enumerate_candidates(graph, CostModel(TARGET, 2), {})
    for node, choice in plan.choices.items():
        (value,) = graph.node(node).outputs
        edge = plan.edges[value]
        edge_types = {edge_type_key(edge_type) for edge_type in candidates.edge_types[value]}
        assert {edge_type_key(o.edge_type) for o in edge.others} == edge_types - {
            edge_type_key(edge.edge_type)
        }
        for other in edge.others:
            fitting = tuple(
                c
                for c in candidates.of_node[node]
                if edge_type_key(c.gives[0][1]) == edge_type_key(other.edge_type)
            )
            only = Candidates({**candidates.of_node, node: fitting}, candidates.edge_types)
            forced = Problem(graph, only, CostModel(TARGET, 2)).best
            assert other.extra == pytest.approx(forced.seconds - plan.seconds, rel=1e-6, abs=1e-12)
        prices = [other.extra for other in edge.others]
        assert prices == sorted(prices)  # type: ignore[type-var]
        assert choice.variant_name not in {other.variant for other in choice.others}


def test_the_next_best_plan_says_what_differs() -> None:
    plan = plan_layouts(residual(), TARGET, 2)
    assert plan.next_best is not None and plan.differences
    for other in plan.differences:
        assert other.variant != other.instead
        assert other.variant.startswith(plan.choices[other.node].variant_name)


# Pins ---------------------------------------------------------------------------------------------


def test_each_pin_has_the_price_of_dropping_it() -> None:
    graph = chain()
    names = [node.outputs[0] for node in graph.nodes]
    pins = {names[0]: "NCHW", names[1]: "NCHW8c"}
    plan = plan_layouts(graph, TARGET, 2, pins)
    assert [pin.value for pin in plan.pinned] == list(pins)
    for pin in plan.pinned:
        left = {name: layout for name, layout in pins.items() if name != pin.value}
        without = plan_layouts(graph, TARGET, 2, left)
        assert pin.cost == pytest.approx(plan.seconds - without.seconds, abs=1e-12)
        assert pin.cost is not None and pin.cost > 0
        assert (
            f"without it {pin.value} is {without.edges[pin.value].edge_type.describe()}"
            in pin.because
        )
    assert plan.unpinned == plan_layouts(graph, TARGET, 2).seconds


def test_a_pin_that_changes_nothing_costs_nothing() -> None:
    graph = residual()
    value = middle(graph)
    free = plan_layouts(graph, TARGET, 2)
    plan = plan_layouts(graph, TARGET, 2, {value: free.edges[value].edge_type.layout})
    (pin,) = plan.pinned
    assert pin.cost == 0.0
    assert plan.seconds == plan.unpinned == free.seconds
    assert free.pinned == () and free.unpinned is None


def test_many_pins_have_one_price() -> None:
    net = Net(x=(1, 8, 4, 4))
    last = "x"
    for k in range(MOST_PRICED + 2):
        last = net.unary(f"v{k}", "relu" if k % 2 else "tanh", last)
    graph = net.done(last)
    pins = {f"v{k}": "NHWC" for k in range(MOST_PRICED + 1)}
    plan = plan_layouts(graph, TARGET, 2, pins)
    assert all(pin.cost is None and "all cost together" in pin.because for pin in plan.pinned)
    assert plan.unpinned == plan_layouts(graph, TARGET, 2).seconds < plan.seconds


# Pins that clash ----------------------------------------------------------------------------------


def meets(graph: OperatorGraph, pins: Mapping[str, Layout]) -> bool:
    try:
        Problem(graph, enumerate_candidates(graph, CostModel(SHORT, 1), pins), CostModel(SHORT, 1))
    except Unsatisfiable:
        return False
    return True


@pytest.mark.parametrize("seed", seeds(20, 60))
def test_clashing_pins_are_named_and_no_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    edge_types = enumerate_candidates(graph, CostModel(SHORT, 1), {}).edge_types
    pins = {
        name: found[int(rng.integers(len(found)))].layout
        for name, found in edge_types.items()
        if rng.random() < 0.8
    }
    if meets(graph, pins):
        assert plan_layouts(graph, SHORT, 1, pins).seconds > 0
        return
    with pytest.raises(LayoutConflict) as error:
        plan_layouts(graph, SHORT, 1, pins)
    named = [name for clash in error.value.clashes for name in clash]
    assert named and len(named) == len(set(named)) and set(named) <= set(pins)
    for clash in error.value.clashes:
        assert not meets(graph, {name: pins[name] for name in clash})
        for name in clash:
            assert meets(graph, {other: pins[other] for other in clash if other != name})
    assert meets(graph, {name: pins[name] for name in set(pins) - set(named)})
    for name in pins:
        stated = f"{name} pinned to {pins[name].describe()}"
        assert (stated in str(error.value)) == (name in named)


def test_nodes_that_agree_to_a_pin_only_one_by_one_are_both_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each concat could hold the pinned tensor, if it takes it as a view, and not both."""
    graph = in_two_concats()

    def views_of_pinned(
        graph: OperatorGraph, *arguments: Any, relaxed: Set[str] = frozenset(), **named: Any
    ) -> Candidates:
        found = enumerate_candidates(graph, *arguments, relaxed=relaxed, **named)
        pins = arguments[1]
        held = {
            n.name for n in graph.nodes if n.op == "concat" and not pins.keys().isdisjoint(n.inputs)
        }
        kept = {
            node: tuple(c for c in options if isinstance(c.variant.recipe, View))
            if node in held - relaxed
            else options
            for node, options in found.of_node.items()
        }
        return Candidates(kept, found.edge_types)

    for module in (planner, conflict):
        monkeypatch.setattr(module, "enumerate_candidates", views_of_pinned)
    with pytest.raises(LayoutConflict) as error:
        plan_layouts(graph, SHORT, 1, {"x": "NCHW", "b": "NHWC", "y": "NHWC"})
    text = str(error.value)
    assert error.value.clashes == (("b",),)
    assert text.startswith("no plan has n_left (concat) with b pinned to NHWC (input x1) and ")
    assert "n_right (concat) with b pinned to NHWC (input x0)" in text


@pytest.mark.parametrize("seed", seeds(20, 40))
def test_minimal_sets_of_what_clashes(seed: int) -> None:
    rng = np.random.default_rng(seed)
    items = list(range(int(rng.integers(1, 30))))
    cores = [
        {int(k) for k in rng.choice(items, int(rng.integers(0, min(4, len(items)) + 1)), False)}
        for _ in range(int(rng.integers(1, 4)))
    ]
    trials = 0

    def clash(some: Sequence[int]) -> bool:
        nonlocal trials
        trials += 1
        return any(core <= set(some) for core in cores)

    found = minimal(items, clash)
    assert set(found) in cores and not any(core < set(found) for core in cores)
    assert found == sorted(found)
    assert trials <= 2 + 2 * len(found) * (1 + int(np.log2(len(items)) + 1))


# Stories, tables and reports ----------------------------------------------------------------------


@functools.cache
def pinned() -> gf.Executable:
    """Padded channels between the nodes, and an output that has to be converted."""
    b = ModelBuilder(3)
    x = b.relu(b.conv(b.input("x", (1, 3, 8, 8)), 17, 3))
    x = b.relu(b.conv(x, 16, 1))
    b.output(b.relu(b.conv(x, 18, 3)))
    layouts = {"relu_1": "channels_last_padded", "relu_3": "NHWC"}
    return gf.compile(b.model(), threads=1, target=avx2_target(), layouts=layouts)


def test_a_story_has_regions_readers_and_the_proofs_between_them() -> None:
    text = pinned().explain("relu_1")
    assert "\n  region    logical: " in text
    assert "\n  region    pad(1): undef" in text
    assert "(a pin; conv_1_node (Conv+Relu), output y, variant NCHW → NHWC padded to 24)" in text
    assert "\n  pinned    to NHWC padded to 24; it costs " in text
    assert "\n  read by   conv_2_node as input 0 (x), in NHWC padded to 24; demand on the" in text
    assert "proof: NHWC padded to 24 and NHWC padded to 24 place every element alike [prov" in text
    assert "proof: pad(1) holds undef, needed none [proven by fact and demand]" in text
    assert "\n  cancelled crop and pad before conv_2_node" in text
    assert "alone; the best plan with it takes " in text
    free = pinned().layouts["relu_2"]
    assert free.others  # type: ignore[union-attr]
    for other in free.others:  # type: ignore[union-attr]
        line = (
            f"\n  instead   {other.edge_type.describe()}: {other.price()} (variant {other.variant})"
        )
        assert line in pinned().explain("relu_2")


def test_a_conversion_names_both_constraints_with_their_origins() -> None:
    text = pinned().explain("relu_3")
    (made,) = pinned().layouts["relu_3"].conversions  # type: ignore[misc]
    variant = pinned().compiled.plan.choices["conv_3_node"].variant_name
    assert made.because == (
        f"conv_3_node (Conv+Relu), output y, variant {variant} gives NHWC; "
        "the graph output wants NCHW"
    )
    assert f"because {made.because}" in text
    assert "read by   graph output, in NCHW, from the convert below" in text


def test_the_report_has_pins_prices_and_the_next_best_plan() -> None:
    report, plan = pinned().report(), pinned().compiled.plan
    assert json.loads(json.dumps(report, allow_nan=False)) == report
    assert [pin["edge"] for pin in report["pinned"]] == ["relu_1", "relu_3"]
    assert all(pin["cost"] >= 0 and pin["because"] for pin in report["pinned"])
    assert report["seconds"] == plan.seconds > report["unpinned_seconds"] > 0
    assert report["gap"] == 0.0
    assert report["next_best"]["seconds"] >= report["seconds"]
    assert set(report["next_best"]["differs"][0]) == {"node", "variant", "instead"}
    (edge,) = [edge for edge in report["edges"] if edge["name"] == "relu_2"]
    assert edge["others"] and all(other["extra_seconds"] >= 0 for other in edge["others"])
    assert edge["demands"][0]["proofs"]


def test_the_table_says_what_a_pin_costs() -> None:
    decisions = pinned().decisions()
    layouts = {row.tensor: row.layout for row in decisions.rows}
    assert layouts["relu_1"].startswith("NHWC padded to 24, pinned, costs ")
    assert "pinned" not in layouts["x"]
    assert "the pins cost " in decisions.summary and "the next best plan " in decisions.summary


def test_what_was_not_computed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planner, "Problem", partial(Problem, table_limit=0))
    plan = plan_layouts(residual(), SHORT, 1)
    prices = {other.price() for edge in plan.edges.values() for other in edge.others}
    assert prices == {"what a plan with it costs is not computed, as a search decided"}


def test_times_are_never_shown_as_nothing() -> None:
    assert [microseconds(s) for s in (0.0, 3e-9, 9.96e-8, 1.25e-4)] == [
        "0.0 µs", "0.003 µs", "0.1 µs", "125.0 µs"
    ]  # fmt: skip
