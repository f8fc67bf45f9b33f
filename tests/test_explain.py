"""What is said about decisions: prices of what was not chosen, of pins, and pins that clash."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from math import inf

import numpy as np
import pytest
from test_flow import (
    SHORT,
    TARGET,
    Net,
    chain,
    in_two_concats,
    middle,
    random_graph,
    residual,
    some,
)
from test_flow_growth import random_factors, total

from graphflow.errors import LayoutConflict
from graphflow.flow import plan_layouts
from graphflow.flow.candidates import Candidates, Unsatisfiable, enumerate_candidates
from graphflow.flow.conflict import minimal
from graphflow.flow.elimination import eliminate
from graphflow.flow.labels import label_key
from graphflow.flow.marginals import extras
from graphflow.flow.pins import MOST_PRICED
from graphflow.flow.prices import NEVER
from graphflow.flow.solve import Problem, solve
from graphflow.graph import OperatorGraph
from graphflow.layout import Layout

# Prices of what was not chosen --------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(150))
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
def test_what_the_integer_program_decides_has_no_price(limit: int) -> None:
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


@pytest.mark.parametrize("seed", range(25))
def test_what_each_candidate_costs_by_solving_with_it_alone(seed: int) -> None:
    """Terms split into states and windows included."""
    rng = np.random.default_rng(4000 + seed)
    graph = random_graph(rng)
    candidates = some(enumerate_candidates(graph, SHORT, 1, {}), rng, 5)
    problem = Problem(graph, candidates, SHORT, 1, table_limit=int(rng.choice([60, 1 << 15])))
    if problem.rests:
        return
    found = problem.extras()
    assert set(found) == set(candidates.of_node)
    for node, options in candidates.of_node.items():
        for option, extra in zip(options, found[node], strict=True):
            only = Candidates({**candidates.of_node, node: (option,)}, candidates.labels)
            try:
                forced = solve(graph, only, SHORT, 1)
            except Unsatisfiable:
                assert extra == inf
                continue
            assert forced is not None
            assert extra == pytest.approx(forced.seconds - problem.best.seconds, abs=1e-13)
        assert min(found[node]) == 0.0


def test_a_plan_says_what_other_labels_of_an_edge_would_cost() -> None:
    graph = residual()
    plan = plan_layouts(graph, TARGET, 2)
    candidates = enumerate_candidates(graph, TARGET, 2, {})
    for node, choice in plan.choices.items():
        (value,) = graph.node(node).outputs
        edge = plan.edges[value]
        labels = {label_key(label) for label in candidates.labels[value]}
        assert {label_key(o.label) for o in edge.others} == labels - {label_key(edge.label)}
        for other in edge.others:
            fitting = tuple(
                c
                for c in candidates.of_node[node]
                if label_key(c.gives[0][1]) == label_key(other.label)
            )
            only = Candidates({**candidates.of_node, node: fitting}, candidates.labels)
            forced = solve(graph, only, TARGET, 2)
            assert forced is not None
            assert other.extra == pytest.approx(forced.seconds - plan.seconds, rel=1e-6, abs=1e-12)
        prices = [other.extra for other in edge.others]
        assert prices == sorted(prices)  # type: ignore[type-var]
        assert choice.form not in {other.form for other in choice.others}


def test_the_next_best_plan_says_what_differs() -> None:
    plan = plan_layouts(residual(), TARGET, 2)
    assert plan.next_best is not None and plan.differences
    for other in plan.differences:
        assert other.form != other.instead
        assert other.form.startswith(plan.choices[other.node].form)


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
            f"without it {pin.value} is {without.edges[pin.value].label.describe()}" in pin.because
        )
    assert plan.unpinned == plan_layouts(graph, TARGET, 2).seconds


def test_a_pin_that_changes_nothing_costs_nothing() -> None:
    graph = residual()
    value = middle(graph)
    free = plan_layouts(graph, TARGET, 2)
    plan = plan_layouts(graph, TARGET, 2, {value: free.edges[value].label.layout})
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
        Problem(graph, enumerate_candidates(graph, SHORT, 1, pins), SHORT, 1)
    except Unsatisfiable:
        return False
    return True


@pytest.mark.parametrize("seed", range(60))
def test_clashing_pins_are_named_and_no_others(seed: int) -> None:
    rng = np.random.default_rng(seed)
    graph = random_graph(rng)
    labels = enumerate_candidates(graph, SHORT, 1, {}).labels
    pins = {
        name: found[int(rng.integers(len(found)))].layout
        for name, found in labels.items()
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


def test_nodes_that_agree_to_a_pin_only_one_by_one_are_both_named() -> None:
    """Each concat could hold the pinned tensor, which lies in one place only."""
    with pytest.raises(LayoutConflict) as error:
        plan_layouts(in_two_concats(), SHORT, 1, {"a": "NCHW", "b": "NHWC"})
    text = str(error.value)
    assert error.value.clashes == (("b",),)
    assert text.startswith("no plan has n_left (concat) with b pinned to NHWC (input x1) and ")
    assert "n_right (concat) with b pinned to NHWC (input x0)" in text


@pytest.mark.parametrize("seed", range(40))
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
