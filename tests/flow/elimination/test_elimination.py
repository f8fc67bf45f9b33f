"""Tests of elimination on large graphs: it finds the optimum of the unreduced problem, and its work
grows linearly with the graph.

Times are printed by benchmarks/flow_growth.py; here only what can be counted is asserted.
"""

import itertools
from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from graphflow.base.errors import LayoutConflict
from graphflow.convert import apply_plan
from graphflow.cost import CostModel
from graphflow.flow import planner
from graphflow.flow import solve as flow_solve
from graphflow.flow.candidates.candidates import Candidates, enumerate_candidates
from graphflow.flow.elimination.elimination import CORE_WORK, SMALL_TABLE, detours, eliminate
from graphflow.flow.elimination.prices import NEVER, Prices
from graphflow.flow.planner import plan_layouts
from graphflow.flow.solve import Problem, Solution
from graphflow.frontends import import_model
from graphflow.graph import Node, OperatorGraph, Value, canonicalize, fuse_groups
from graphflow.graph.fusion import GROUP_LIMIT, BoundKernel, KernelFuser, fuse_kernels
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.windows import pooling
from graphflow.kernels.definitions.windows.window import Window
from graphflow.models import ModelBuilder
from graphflow.models.zoo import zoo_model
from graphflow.tir import PrimFunc
from support.planning.factors import random_factors, total
from support.planning.nets import SHORT, TARGET, Net, check_meaning, describe, graph_of
from support.planning.random_nets import PLANNED, random_graph, some
from support.seeds import seeds

# Elimination --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(40, 200))
def test_elimination_finds_the_cheapest_assignment_and_the_cheapest_detour(seed: int) -> None:
    rng = np.random.default_rng(seed)
    own, factors = random_factors(rng)
    every = list(itertools.product(*(range(len(prices)) for prices in own)))
    reduced = eliminate(own, factors, 1 << 15)
    best = min(total(own, factors, chosen) for chosen in every)
    assert reduced.price() == best
    if best == NEVER:
        return
    found = [0] * len(own)
    reduced.complete(found)
    assert total(own, factors, tuple(found)) == best
    other = [np.where(np.arange(len(p)) == k, NEVER, p) for p, k in zip(own, found, strict=True)]
    found_detour = detours(reduced, other).cheapest()
    second = min((total(own, factors, c) for c in every if c != tuple(found)), default=NEVER)
    if second == NEVER:
        assert found_detour is None or best + found_detour.extra >= NEVER - best
        return
    assert found_detour is not None
    assert best + found_detour.extra == second
    assert found_detour.options != found
    assert total(own, factors, tuple(found_detour.options)) == second


@pytest.mark.parametrize("limit", [1, 4, 9, 30])
def test_what_is_left_has_the_same_prices(limit: int) -> None:
    for seed in range(40):
        own, factors = random_factors(np.random.default_rng(seed))
        every = itertools.product(*(range(len(prices)) for prices in own))
        best = min(total(own, factors, chosen) for chosen in every)
        reduced = eliminate(own, factors, limit)
        gone = {bucket.variable for bucket in reduced.buckets}
        kept = [p if v not in gone else np.zeros(1, np.int64) for v, p in enumerate(own)]
        every = itertools.product(*(range(len(prices)) for prices in kept))
        assert min(total(kept, reduced.remaining, chosen) for chosen in every) == best
        assert all(bucket.best.size * len(own[bucket.variable]) <= limit
                   for bucket in reduced.buckets)  # fmt: skip


def test_prices_are_exact_and_ranked() -> None:
    prices = Prices.upto(1e-3, 1000)
    many = [3.1e-7 + k * 1e-9 for k in range(1000)]
    assert sum(prices.of(s, 1) for s in many) < NEVER
    assert prices.seconds(prices.of(3.1e-7, 7)) == pytest.approx(3.1e-7, rel=1e-9)
    assert prices.of(3.1e-7, 1) < prices.of(3.1e-7, 2) < prices.of(3.1001e-7, 0)


# Reduced and whole programs -----------------------------------------------------------------------


def plan_of(solution: Solution) -> list[object]:
    made = [(c.value, c.kind, c.window, c.target) for c in solution.copies]
    return [*map(id, solution.candidates.values()), *made]


@pytest.mark.parametrize("seed", seeds(8, 60))
def test_the_reduced_program_gives_what_the_whole_one_gives(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From everything by elimination (a large limit) to everything by a search (0), which does not
    stop before the gap is closed."""
    monkeypatch.setattr("graphflow.flow.branch_and_bound.search.ENOUGH", 0.0)
    rng = np.random.default_rng(2000 + seed)
    graph = random_graph(rng)
    candidates = some(enumerate_candidates(graph, CostModel(SHORT, 1), {}), rng, 5)
    whole = Problem(graph, candidates, CostModel(SHORT, 1), table_limit=0)
    assert len(whole.reduced.buckets) == 0
    other = whole.differing(whole.best.candidates.values())
    for limit in (1 << 15, 40, 8):
        problem = Problem(graph, candidates, CostModel(SHORT, 1), table_limit=limit)
        assert problem.best.seconds == pytest.approx(whole.best.seconds, rel=1e-6)
        unique = other is None or other.seconds > whole.best.seconds * (1 + 1e-5)
        if unique:
            assert problem.best.candidates == whole.best.candidates
        second = problem.differing(problem.best.candidates.values())
        assert (second is None) == (other is None)
        if second is not None and other is not None:
            assert second.seconds == pytest.approx(other.seconds, rel=2e-6)
            assert any(second.candidates[n] is not c for n, c in problem.best.candidates.items())


@pytest.mark.parametrize("limit", [1 << 15, 20, 0])
def test_the_same_graph_has_the_same_plan(limit: int) -> None:
    for seed in range(10):
        graph = random_graph(np.random.default_rng(seed))
        candidates = enumerate_candidates(graph, CostModel(SHORT, 1), {})
        first, second = (
            Problem(graph, candidates, CostModel(SHORT, 1), limit).best for _ in range(2)
        )
        assert plan_of(first) == plan_of(second)
        assert first.seconds == second.seconds


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_every_plan_of_the_whole_program_computes_the_graph(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3000 + seed)
    graph = random_graph(rng)

    def enumerated(*arguments: object, **named: object) -> Candidates:
        found = enumerate_candidates(*arguments, **named)  # type: ignore[arg-type]
        return some(found, np.random.default_rng(seed), 6)

    monkeypatch.setattr(planner, "enumerate_candidates", enumerated)
    monkeypatch.setattr(planner, "Problem", partial(Problem, table_limit=0))
    check_meaning(graph, plan_layouts(graph, SHORT, 1))


# Limit of work ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", seeds(8, 20))
def test_with_little_work_there_is_a_plan_and_its_gap(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph(np.random.default_rng(seed))
    candidates = enumerate_candidates(graph, CostModel(SHORT, 1), {})
    best = Problem(graph, candidates, CostModel(SHORT, 1)).best
    monkeypatch.setattr(flow_solve, "SEARCH_WORK", 1)
    for limit in (0, 20):
        problem = Problem(graph, candidates, CostModel(SHORT, 1), table_limit=limit)
        assert problem.best.seconds >= best.seconds * (1 - 1e-9)
        assert problem.best.seconds * (1 - problem.best.gap) <= best.seconds * (1 + 1e-9)
    monkeypatch.setattr(flow_solve, "DETOUR_WORK", 0)
    monkeypatch.setattr(planner, "Problem", partial(Problem, table_limit=0))
    plan = plan_layouts(graph, SHORT, 1)
    assert plan.next_best is None
    check_meaning(graph, plan)


def test_no_plan_within_the_limit_is_not_called_a_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    net = Net(x=(1, 4, 3, 4))
    graph = net.done(net.unary("a", "relu", "x"))
    candidates = enumerate_candidates(graph, CostModel(SHORT, 1), {})
    monkeypatch.setattr(flow_solve, "SEARCH_WORK", 0)
    with pytest.raises(LayoutConflict, match=r"no plan was found in .* nor was it shown"):
        Problem(graph, candidates, CostModel(SHORT, 1), table_limit=0)


# Growth -------------------------------------------------------------------------------------------


def residual_blocks(count: int) -> OperatorGraph:
    b = ModelBuilder()
    x = b.input("x", (1, 16, 7, 7))
    for _ in range(count):
        y = b.relu(b.conv(x, 16, 3, pads=[1, 1, 1, 1]))
        x = b.relu(b.add(b.conv(y, 16, 3, pads=[1, 1, 1, 1]), x))
    b.output(x)
    return graph_of(b)


def problem_of(graph: OperatorGraph) -> Problem:
    return Problem(
        graph, enumerate_candidates(graph, CostModel(TARGET, 2), {}), CostModel(TARGET, 2)
    )


def test_work_grows_with_the_number_of_residual_blocks() -> None:
    """Elimination solves all of it, with tables that get no larger, from patterns seen before."""
    problems = [problem_of(residual_blocks(count)) for count in (6, 12, 24)]
    assert not any(problem.searched for problem in problems)
    tables = [[b.best.size * len(p.own[b.variable]) for b in p.reduced.buckets] for p in problems]
    assert max(tables[2]) <= max(tables[0])
    six, twelve, twenty_four = map(sum, tables)
    assert twenty_four - twelve == 2 * (twelve - six)
    patterns = [len({id(term.pattern) for term in p.terms}) for p in problems]
    assert patterns[2] == patterns[0]


def test_a_pyramid_up_and_down_is_solved_by_elimination(capfd: pytest.CaptureFixture[str]) -> None:
    """Its core needs tables larger than a narrow network does, and a good order."""
    problem = problem_of(fuse_groups(canonicalize(import_model(zoo_model("feature_pyramid")))))
    assert not problem.searched
    assert problem.best.gap == 0.0
    tables = [b.best.size * len(problem.reduced.own[b.variable]) for b in problem.reduced.buckets]
    assert max(tables) > SMALL_TABLE and sum(tables) < CORE_WORK
    assert problem.differing(problem.best.candidates.values()) is not None
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""


@pytest.mark.parametrize(("count", "seed"), [(100, 5), (120, 6)])
def test_random_graphs_of_a_hundred_kernels_have_proven_plans(count: int, seed: int) -> None:
    """Of one elimination leaves a part that needs a search; of the other messages over several
    nodes meet at values with many readers.
    """
    graph = random_graph(np.random.default_rng(seed), count, PLANNED)
    problem = problem_of(graph)
    assert problem.best.gap == 0.0


def test_equal_blocks_share_one_kernel() -> None:
    graph = residual_blocks(12)
    assert len(graph) == 24
    assert len({id(node.func) for node in graph.nodes}) == 2


def test_next_best_of_a_long_chain_costs_no_less_and_differs() -> None:
    problem = problem_of(residual_blocks(20))
    other = problem.differing(problem.best.candidates.values())
    assert other is not None
    assert other.seconds >= problem.best.seconds * (1 - 1e-12)
    assert any(other.candidates[n] is not c for n, c in problem.best.candidates.items())


def test_a_value_that_all_layers_read_becomes_a_variable() -> None:
    """Its term is too large for a table, and each reader depends on its state alone."""
    net = Net(x=(1, 8, 4, 4))
    shared = last = net.unary("shared", "tanh", "x")
    for k in range(12):
        last = net.sum(f"s{k}", net.conv(f"c{k}", last, 8), shared)
    graph = net.done(last)
    candidates = enumerate_candidates(graph, CostModel(SHORT, 1), {})
    problem = Problem(graph, candidates, CostModel(SHORT, 1))
    assert not problem.searched
    assert len(problem.reduced.own) > len(candidates.of_node)
    whole = Problem(graph, candidates, CostModel(SHORT, 1), table_limit=0)
    # The integer program alone may end before it has proven its best plan to be the cheapest.
    least = whole.best.seconds * (1 - whole.best.gap)
    assert problem.best.gap == 0
    assert least * (1 - 2e-6) <= problem.best.seconds <= whole.best.seconds * (1 + 2e-6)


def broom(rng: np.random.Generator) -> OperatorGraph:
    """A value with many readers of different kinds, some of which would hold it in a window."""
    count = int(rng.integers(5, 8))
    net = Net(x=(1, 8, 3, 4), **{f"x{k}": (1, 8, 3, 4) for k in range(count)})
    a = net.unary("a", "tanh", "x")
    ends = []
    for k in range(count):
        kind = str(rng.choice(["unary", "conv", "concat", "reshape", "reduce", "sum"]))
        if kind == "unary":
            ends.append(net.unary(f"v{k}", "exp", a))
        elif kind == "conv":
            ends.append(net.conv(f"v{k}", a, 5, 1))
        elif kind == "concat":
            ends.append(net.concat(f"v{k}", a, f"x{k}"))
        elif kind == "reshape":
            ends.append(net.add(f"v{k}", movement.reshape((1, 8, 3, 4), (1, 96)), a))
        elif kind == "reduce":
            ends.append(net.over_channels(f"v{k}", "sum", a))
        else:
            ends.append(net.sum(f"v{k}", a, f"x{k}"))
    return net.done(*ends, *([a] if rng.random() < 0.3 else []))


def test_states_of_a_value_give_what_its_table_gives() -> None:
    split = 0
    for seed in range(30):
        rng = np.random.default_rng(4000 + seed)
        graph = broom(rng)
        candidates = some(enumerate_candidates(graph, CostModel(SHORT, 1), {}), rng, 5)
        tabled = Problem(graph, candidates, CostModel(SHORT, 1), table_limit=1 << 20)
        other = tabled.differing(tabled.best.candidates.values())
        for limit in (800, 2500, 6000):
            states = Problem(graph, candidates, CostModel(SHORT, 1), table_limit=limit)
            if states.searched or len(states.reduced.own) == len(candidates.of_node):
                continue
            split += 1
            assert states.best.candidates == tabled.best.candidates
            assert states.best.copies == tabled.best.copies
            second = states.differing(states.best.candidates.values())
            assert (second is None) == (other is None)
            if second is not None and other is not None:
                assert second.seconds == pytest.approx(other.seconds, rel=1e-9)
    assert split > 20


# Depth --------------------------------------------------------------------------------------------


DEEP = 2500
"""Kernels in a chain: more than Python's recursion limit."""


def chain_of(funcs: list[PrimFunc], count: int) -> OperatorGraph:
    graph = OperatorGraph()
    shape = funcs[0].inputs[0].shape
    graph.add_value(Value("x", "float32", shape))
    graph.set_inputs(("x",))
    last = "x"
    for k in range(count):
        func = funcs[k % len(funcs)]
        graph.add(Node(f"n{k}", func.name, func, (last,), (f"v{k}",)))
        last = f"v{k}"
    graph.set_outputs((last,))
    return graph


def pooled() -> list[PrimFunc]:
    return [
        pooling.max_pool((1, 8, 4, 4), Window.of((3, 3), pads=(1, 1, 1, 1))),
        elementwise.unary("exp", (1, 8, 4, 4)),
    ]


def elementwise_kernels() -> list[PrimFunc]:
    return [elementwise.unary(op, (1, 8)) for op in ("relu", "exp")]


@pytest.mark.parametrize("make", [pooled, elementwise_kernels], ids=lambda f: f.__name__)
def test_deep_graphs_meet_no_recursion_limit(make: Callable[[], list[PrimFunc]]) -> None:
    graph = fuse_groups(canonicalize(chain_of(make(), DEEP)))
    plan = plan_layouts(graph, SHORT, 1)
    assert len(apply_plan(graph, plan).calls) >= len(graph)


def test_groups_have_a_limit() -> None:
    graph = fuse_groups(canonicalize(chain_of(elementwise_kernels(), DEEP)))
    members = [len(node.origins) or node.op.count("+") + 1 for node in graph.nodes]
    assert sum(members) == DEEP
    assert max(members) == GROUP_LIMIT
    assert len(graph) == -(-DEEP // GROUP_LIMIT)


def test_a_group_joined_before_has_the_names_of_this_one() -> None:
    relu, exp = elementwise_kernels()
    fuser = KernelFuser()
    for a, b, c in (("x", "y", "z"), ("p", "q", "r")):
        calls = [BoundKernel(relu, (a,), (b,)), BoundKernel(exp, (b,), (c,))]
        made = fuser.fuse("both", calls, (c,))
        assert made == fuse_kernels("both", calls, (c,))
        assert (made.inputs, made.outputs) == ((a,), (c,))
    first, add = BoundKernel(relu, ("x",), ("y",)), elementwise.binary("add", (1, 8), (1, 8))
    crossed = [first, BoundKernel(add, ("y", "x"), ("z",))]
    straight = [first, BoundKernel(add, ("y", "y"), ("z",))]
    assert fuser.fuse("both", crossed, ("z",)) == fuse_kernels("both", crossed, ("z",))
    assert fuser.fuse("both", straight, ("z",)) == fuse_kernels("both", straight, ("z",))


def test_plans_of_repeated_blocks_repeat() -> None:
    """Ties are broken alike everywhere, so equal blocks in the middle get equal variants."""
    graph = residual_blocks(10)
    plan = plan_layouts(graph, TARGET, 2)
    assert describe(plan) == describe(plan_layouts(residual_blocks(10), TARGET, 2))
    variants = [choice.variant.name for choice in plan.choices.values()][2:-2]
    assert len(set(variants)) == 1
