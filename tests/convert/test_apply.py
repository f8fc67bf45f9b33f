"""`apply_plan`: the physical graph runs what the plan says, whatever plan that is."""

from typing import Any

import numpy as np
import pytest

import graphflow.flow.planner as planner
from graphflow.base.fields import replace
from graphflow.convert import apply_plan
from graphflow.flow import Candidates, enumerate_candidates, plan_layouts
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import BlockTranspose, Staged, View
from graphflow.lower import lower
from graphflow.physical import PhysicalGraph
from graphflow.plan import CopyKind, LayoutPlan
from support.planning.nets import SHORT, check_meaning
from support.planning.random_nets import random_graph, some
from support.planning.shared_memory_nets import concat_with_a_constant


def _check_follows(graph: OperatorGraph, plan: LayoutPlan, physical: PhysicalGraph) -> None:
    """Every call is a choice or a conversion of the plan, with its recipe; the rest runs once."""
    made = {f"{conversion.kind} {conversion.value}": conversion for conversion in plan.conversions}
    run = {name for name, c in plan.choices.items() if not isinstance(c.variant.recipe, View)}
    seen = set()
    for call in physical.calls:
        if call.prepare:
            assert call.recipe == Staged()
        elif call.name in plan.choices:
            assert call.variant is plan.choices[call.name].variant
            assert call.recipe is call.variant.recipe
            seen.add(call.name)
        elif call.name in made:
            assert call.because
            seen.add(call.name)
        else:
            assert call.name.startswith("copy ") and graph.is_constant(call.name[5:])
            assert call.recipe == Staged()
    assert seen == run | set(made)


@pytest.mark.parametrize("seed", range(12))
def test_any_plan_gives_exactly_its_program(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A solver replaced by one that takes what random prices favour."""
    graph = random_graph(np.random.default_rng(3000 + seed))

    def enumerated(*arguments: Any, **named: Any) -> Candidates:
        return some(enumerate_candidates(*arguments, **named), np.random.default_rng(seed), 3)

    monkeypatch.setattr(planner, "enumerate_candidates", enumerated)
    plan = plan_layouts(graph, SHORT, 1)
    physical = apply_plan(graph, plan)
    _check_follows(graph, plan, physical)
    lowered = lower(physical, SHORT)
    assert [call for call, _ in lowered.calls] == list(physical.calls)


@pytest.mark.parametrize("seed", range(10))
def test_a_conversion_is_made_by_the_recipe_in_the_plan(seed: int) -> None:
    """Blocks in registers where the plan says so, and stage by stage where it says that."""
    graph = random_graph(np.random.default_rng(seed))
    plan = plan_layouts(graph, SHORT, 1)
    converted = [c for c in plan.conversions if c.kind != CopyKind.FILL]
    for recipe in (Staged(), BlockTranspose()):
        forced = replace(
            plan,
            conversions=tuple(
                replace(c, recipe=recipe) if c.kind != CopyKind.FILL else c
                for c in plan.conversions
            ),
        )
        calls = [c for c in apply_plan(graph, forced).calls if not c.prepare and c.moves]
        names = {f"{c.kind} {c.value}" for c in converted}
        assert all(call.recipe == recipe for call in calls if call.name in names)
    if converted:
        check_meaning(graph, plan)


def test_a_constant_in_a_view_is_packed_once() -> None:
    graph = concat_with_a_constant()
    plan = plan_layouts(graph, SHORT, 1)
    _check_follows(graph, plan, apply_plan(graph, plan))
    check_meaning(graph, plan)
