"""What is told of kernels before a plan is known."""

from graphflow.cost import CostModel
from graphflow.flow import find_plan
from graphflow.graph import OperatorGraph
from graphflow.kernels.recipes import FilteredTiles
from graphflow.tir import PrimFunc
from support.planning.nets import TARGET, Net


def alike() -> OperatorGraph:
    """Convolutions of one size, of which transformed tiles suit each."""
    net = Net(x=(1, 64, 28, 28))
    net.conv("y", "x", 64, 3)
    net.conv("z", "y", 64, 3)
    return net.done("z")


def test_the_kernels_that_a_plan_takes_are_told_before_it_is_known() -> None:
    told: list[tuple[PrimFunc, FilteredTiles]] = []
    graph = alike()
    planned = find_plan(graph, CostModel(TARGET, 1), foresee=lambda *kernel: told.append(kernel))
    plan = planned.plan()
    taken = [
        (planned.graph.node(name).func, choice.variant.recipe)
        for name, choice in plan.choices.items()
        if isinstance(choice.variant.recipe, FilteredTiles)
    ]
    assert len(taken) == 2 and all(kernel in told for kernel in taken)


def test_plans_do_not_depend_on_who_is_told() -> None:
    cost = CostModel(TARGET, 1)
    told = find_plan(alike(), cost, foresee=lambda *_: None)
    assert told.plan().seconds == find_plan(alike(), cost).plan().seconds


def test_nothing_is_told_of_other_definitions() -> None:
    net = Net(x=(1, 5, 3, 4))
    net.unary("y", "relu", "x")
    told: list[PrimFunc] = []
    find_plan(net.done("y"), CostModel(TARGET, 1), foresee=lambda func, _: told.append(func))
    find_plan(alike(), CostModel(TARGET, 1), winograd=False, foresee=lambda f, _: told.append(f))
    assert told == []
