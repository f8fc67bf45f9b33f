"""Tests that plans are optimal: against exhaustive search, a minimum cut, and greedy motion."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import count, product
from typing import TypeAlias

import networkx as nx
import numpy as np
import pytest

from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.baselines import PLANNERS, greedy_pins, plan_seconds
from graphflow.cost import CostModel, Timings
from graphflow.flow import plan_layouts
from graphflow.flow.candidates.candidates import Candidate, Candidates, enumerate_candidates
from graphflow.flow.candidates.requirements import InputAliasing, OutputAliasing
from graphflow.flow.solve import TABLE_LIMIT, Problem, Solution
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, fuse_groups
from graphflow.kernels.recipes import conversion_work
from graphflow.layout import Constant, Layout, blocked, channels_last, row_major
from graphflow.models.zoo.frames import frames_head
from support.planning.exhaustive import Exhaustive
from support.planning.nets import SHORT, Net
from support.planning.random_nets import PLANNED, random_graph, some
from support.seeds import seeds

# Exhaustive search --------------------------------------------------------------------------------

SIZES = ((3, 8), (5, 5), (7, 4), (8, 3), (10, 2))
"""Nodes of a graph, and candidates of each at most."""


def drawn(seed: int, nodes: int, variants: int) -> tuple[OperatorGraph, Candidates]:
    """A random graph with a few candidates for each node, at random prices."""
    rng = np.random.default_rng(seed)
    graph = random_graph(rng, nodes, PLANNED)
    return graph, some(enumerate_candidates(graph, CostModel(SHORT, 1), {}), rng, variants)


@pytest.mark.parametrize("seed", seeds(12, 40))
@pytest.mark.parametrize(("nodes", "variants"), SIZES)
def test_no_plan_is_cheaper(nodes: int, variants: int, seed: int) -> None:
    """Neither than the best nor, of the others, than the next best."""
    graph, candidates = drawn(seed, nodes, variants)
    problem = Problem(graph, candidates, CostModel(SHORT, 1))
    search = Exhaustive(graph, candidates, CostModel(SHORT, 1))
    prices = search.prices()
    best = problem.best
    assert best.seconds == pytest.approx(prices.min(), rel=1e-9)
    chosen = [best.candidates[node] for node in search.nodes]
    assert search.price(chosen) == pytest.approx(best.seconds, rel=1e-9)
    place = [candidates.of_node[c.node].index(c) for c in chosen]
    prices[tuple(place)] = np.inf
    other = problem.differing(best.candidates.values())
    if other is None:
        assert np.isinf(prices.min())
    else:
        assert other.seconds == pytest.approx(prices.min(), rel=1e-9)
        assert any(other.candidates[n] is not c for n, c in best.candidates.items())


class AnyTimings(dict[str, float]):
    """A time for whatever is asked for, the same whenever it is asked for."""

    def __missing__(self, key: str) -> float:
        return float(np.random.default_rng(int(key, 16)).uniform(0.1e-6, 1.5e-6))

    def get(self, key: str, default: object = None) -> float:  # type: ignore[override]
        return self[key]

    def __bool__(self) -> bool:
        return True


@pytest.mark.parametrize("seed", seeds(12, 40))
@pytest.mark.parametrize("limit", [TABLE_LIMIT, 0], ids=["elimination", "integers"])
def test_no_plan_is_cheaper_where_copies_cost_by_their_source(seed: int, limit: int) -> None:
    rng = np.random.default_rng(3000 + seed)
    graph, timings = random_graph(rng), Timings(AnyTimings())
    candidates = some(enumerate_candidates(graph, CostModel(SHORT, 1, timings), {}), rng, 4)
    best = Problem(graph, candidates, CostModel(SHORT, 1, timings), limit).best
    prices = Exhaustive(graph, candidates, CostModel(SHORT, 1, timings)).prices()
    assert best.seconds == pytest.approx(prices.min(), rel=1e-5)


def features(solution: Solution) -> Iterator[str]:
    """What a plan makes use of, of the rules that its price goes by."""
    for copy in solution.copies:
        yield copy.kind
        if copy.window:
            yield "copy into a window"
    for value in {copy.value for copy in solution.copies}:
        requirements = [
            n for c in solution.candidates.values() for n in c.requirements if n.value == value
        ]
        converted = [c for c in solution.copies if c.value == value]
        if len(converted) == 1 and sum(converted[0].serves(n) for n in requirements) > 1:
            yield "shared copy"
    for candidate in solution.candidates.values():
        yield from (requirement.input_aliasing.value for requirement in candidate.requirements)
        yield from (
            f"demand {type(requirement.demand).__name__}" for requirement in candidate.requirements
        )
        if candidate.pad_value is not None:
            yield "written padding"
        elif any(isinstance(fact, Constant) for _, edge_type in candidate.gives
                 for _, fact in edge_type.facts):  # fmt: skip
            yield "padding known by evaluation"
        if candidate.output_aliasing is OutputAliasing.INSIDE_INPUT:
            yield "lies inside"


def test_the_random_plans_use_every_rule() -> None:
    found: set[str] = set()
    for seed, size in product(range(60), SIZES[1:3]):
        graph, candidates = drawn(seed, *size)
        found |= set(features(Problem(graph, candidates, CostModel(SHORT, 1)).best))
    # The caller requires the first of outputs; test_expansion_variants.py has the second.
    others = {InputAliasing.OWN_STORAGE, InputAliasing.UNMOVED}
    assert found >= {place.value for place in InputAliasing if place not in others}
    assert found >= {"convert", "fill", "shared copy", "copy into a window", "demand Equal"}
    assert found >= {"written padding", "padding known by evaluation", "lies inside"}


# Minimum cut --------------------------------------------------------------------------------------

UNIT = 1e-18
"""Seconds of one unit of a cut's capacity."""

NOT_CUT = 10**15
"""A capacity greater than what any plan here costs."""


def network(rng: np.random.Generator, size: int) -> OperatorGraph:
    """Elementwise kernels, sums and convolutions; most read what was written not long before."""
    net = Net(x=(1, 8, 3, 4))
    values, read = ["x"], set()
    for k in range(size):
        kind, name = str(rng.choice(["unary", "sum", "conv", "conv"])), f"v{k}"
        x = values[-min(int(rng.geometric(0.35)), len(values))]
        same = [v for v in values[-12:] if net.shape(v) == net.shape(x)]
        if kind == "unary":
            net.unary(name, "tanh", x)
        elif kind == "sum":
            other = str(rng.choice(same))
            net.sum(name, x, other)
            read.add(other)
        else:
            net.conv(name, x, int(rng.choice([8, 12])))
        read.add(x)
        values.append(name)
    return net.done(*(v for v in values[1:] if v not in read))


Ends: TypeAlias = tuple[bool, bool]

PAIRS = {
    "row-major, channels-last": (row_major, channels_last),
    "channels-last, blocked": (channels_last, lambda shape: blocked(shape, 1, 4)),
}
"""Two layouts that a plan may use; inputs and outputs of the graph are row-major all the same."""


@dataclass(frozen=True)
class Pair:
    """Two layouts, by shape."""

    first: Callable[[tuple[int, ...]], Layout]
    second: Callable[[tuple[int, ...]], Layout]

    def is_second(self, layout: Layout) -> bool | None:
        """Which of the two a layout is; None for neither."""
        if layout == _made(self.second, layout.logical_shape):
            return True
        return False if layout == _made(self.first, layout.logical_shape) else None

    def ends(self, candidate: Candidate) -> Ends | None:
        """Whether a candidate reads, and whether it writes, the second layout; None if neither."""
        plain = all(
            requirement.input_aliasing is InputAliasing.ANYWHERE and not requirement.facts
            for requirement in candidate.requirements
        )
        reads = {self.is_second(requirement.layout) for requirement in candidate.requirements}
        (writes,) = {self.is_second(edge_type.layout) for _, edge_type in candidate.gives}
        (one,) = reads if len(reads) == 1 else (None,)
        return None if one is None or writes is None or not plain else (one, writes)

    def candidates(self, found: Candidates, rng: np.random.Generator) -> Candidates:
        """The variants in these layouts, at random prices.

        To read one layout and write another is at no discount: a cut can only say that nodes which
        disagree cost more.
        """
        kept: dict[str, tuple[Candidate, ...]] = {}
        for node, options in found.of_node.items():
            variants = {key: c for c in options if (key := self.ends(c)) is not None}
            price = {key: float(rng.uniform(0.1e-6, 1.5e-6)) for key in variants}
            for one, other in ((True, False), (False, True)):
                if (one, other) in price:
                    least = price[True, True] + price[False, False] - price.get((other, one), 0.0)
                    price[one, other] = max(price[one, other], least)
            kept[node] = tuple(replace(c, seconds=price[key]) for key, c in variants.items())
        return Candidates(kept, found.edge_types)


@cache
def _made(make: Callable[[tuple[int, ...]], Layout], shape: tuple[int, ...]) -> Layout:
    return make(shape)


class Cut:
    """The cheapest plan as a minimum cut: what is on the side of the source is in the first layout.

    Each node has a vertex for what it reads and one for what it writes.  The copy of a value is a
    vertex in each direction, tied to all readers, so that it is cut once however many want it.
    """

    def __init__(self, graph: OperatorGraph, candidates: Candidates, pair: Pair) -> None:
        self.flow, self.fixed, self.fresh = nx.DiGraph(), 0, count()
        self.pair, self.plain_first = pair, pair.first is row_major
        for node, options in candidates.of_node.items():
            self._node(node, {pair.ends(c): round(c.seconds / UNIT) for c in options})
        for value in graph.values:
            if not graph.is_constant(value):
                self._value(graph, value)

    def seconds(self) -> float:
        """What the cheapest plan takes."""
        return (self.fixed + int(nx.minimum_cut_value(self.flow, "s", "t"))) * UNIT

    def _node(self, node: str, price: dict[Ends | None, int]) -> None:
        first, second = price[False, False], price[True, True]
        there, back = price.get((False, True), NOT_CUT), price.get((True, False), NOT_CUT)
        reads, writes = (node, "reads"), (node, "writes")
        self.fixed += first
        self._if_second(reads, back - first)
        self._if_second(writes, second - back)
        self._arc(reads, writes, there + back - first - second)

    def _if_second(self, vertex: object, price: int) -> None:
        """A price, maybe a negative one, of being in the second layout."""
        if price < 0:
            self.fixed += price
            self._arc(vertex, "t", -price)
        else:
            self._arc("s", vertex, price)

    def _value(self, graph: OperatorGraph, value: str) -> None:
        maker, tensor = graph.producer(value), graph.values[value]
        readers: list[object] = [(user.name, "reads") for user, _ in graph.consumers(value)]
        plain, first, second = (
            make(tensor.shape) for make in (row_major, self.pair.first, self.pair.second)
        )

        def price(source: Layout, target: Layout) -> int:
            rewriting = conversion_work(source, target, tensor.dtype)
            return round(CostModel(SHORT, 1).conversion_seconds(rewriting) / UNIT)

        if value in graph.outputs and self.plain_first:
            readers.append("s")
        elif value in graph.outputs:
            assert maker is not None
            self.fixed += price(first, plain)
            self._if_second((maker.name, "writes"), price(second, plain) - price(first, plain))
        to_second, to_first = next(self.fresh), next(self.fresh)
        if maker is not None:
            self._arc((maker.name, "writes"), to_second, price(first, second))
            self._arc(to_first, (maker.name, "writes"), price(second, first))
        else:
            self._arc("s", to_second, price(plain, second))
            self._arc(to_first, "s" if self.plain_first else "t", price(plain, first))
        for reader in dict.fromkeys(readers):
            self._arc(to_second, reader, NOT_CUT)
            self._arc(reader, to_first, NOT_CUT)

    def _arc(self, source: object, sink: object, capacity: int) -> None:
        known = self.flow.get_edge_data(source, sink, {"capacity": 0})["capacity"]
        self.flow.add_edge(source, sink, capacity=known + capacity)


@pytest.mark.parametrize("seed", seeds(2, 6))
@pytest.mark.parametrize("layouts", PAIRS)
def test_with_two_layouts_a_plan_costs_what_a_minimum_cut_does(layouts: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    pair = Pair(*PAIRS[layouts])
    graph = network(rng, int(rng.integers(50, 201)))
    candidates = pair.candidates(enumerate_candidates(graph, CostModel(SHORT, 1), {}), rng)
    plan = Problem(graph, candidates, CostModel(SHORT, 1)).best
    assert plan.seconds == pytest.approx(Cut(graph, candidates, pair).seconds(), rel=1e-9)
    assert "shared copy" in set(features(plan))
    taken = {pair.ends(c) for c in plan.candidates.values()}
    assert taken >= {(False, False), (True, True)}
    assert len(taken) == 4 or pair.first is row_major


# Greedy motion ------------------------------------------------------------------------------------


# By processor, one of each width: conversions of the best plan, and of the greedy ones in the order
# of their planners.  Targets at which plans without blocked layouts are about the best show
# nothing.
CONVERSIONS = {"zen3": (2, (5, 6, 5)), "icelake-server": (1, (4, 5, 5))}


@pytest.mark.parametrize("processor", CONVERSIONS)
@pytest.mark.parametrize("name", PLANNERS)
def test_greedy_motion_is_worse_where_many_inputs_meet_and_many_outputs_part(
    name: str, processor: str
) -> None:
    """By a tenth at least, also where the solver may repair what no pin can hold."""
    graph, target = fuse_groups(canonicalize(import_model(frames_head(0)))), PROCESSORS[processor]
    candidates = enumerate_candidates(graph, CostModel(target, 2), {})
    best = plan_layouts(graph, target, 2)
    taken = PLANNERS[name](graph, candidates, CostModel(target, 2))
    seconds = plan_seconds(graph, candidates, taken, CostModel(target, 2))
    search = Exhaustive(graph, candidates, CostModel(target, 2))
    assert seconds == pytest.approx(search.price([taken[n] for n in search.nodes]), rel=1e-9)
    pinned = plan_layouts(graph, target, 2, greedy_pins(graph, taken))
    assert pinned.seconds <= seconds * (1 + 1e-9)
    assert pinned.seconds > 1.1 * best.seconds
    fewest, greedy = CONVERSIONS[processor]
    assert len(best.conversions) == fewest
    assert len(pinned.conversions) == greedy[[*PLANNERS].index(name)]


@pytest.mark.parametrize("processor", CONVERSIONS)
def test_where_greedy_plans_convert(processor: str) -> None:
    """Hoisting converts each input, sinking each output, and the best plan what lies between."""
    graph, target = fuse_groups(canonicalize(import_model(frames_head(0)))), PROCESSORS[processor]
    candidates = enumerate_candidates(graph, CostModel(target, 2), {})
    converted = {}
    for name, planner in PLANNERS.items():
        pins = greedy_pins(graph, planner(graph, candidates, CostModel(target, 2)))
        plan = plan_layouts(graph, target, 2, pins)
        converted[name] = {c.value for c in plan.conversions}
    assert set(graph.inputs) < converted["hoisting"]
    assert set(graph.outputs) < converted["sinking"]
    assert set(graph.outputs) <= converted["forward"]
    best = {c.value for c in plan_layouts(graph, target, 2).conversions}
    assert best.isdisjoint((*graph.inputs, *graph.outputs))


@pytest.mark.parametrize("seed", seeds(6, 12))
def test_no_greedy_plan_is_cheaper(seed: int) -> None:
    graph = random_graph(np.random.default_rng(seed), 8, PLANNED)
    candidates = enumerate_candidates(graph, CostModel(SHORT, 1), {})
    best = Problem(graph, candidates, CostModel(SHORT, 1)).best.seconds
    for planner in PLANNERS.values():
        taken = planner(graph, candidates, CostModel(SHORT, 1))
        seconds = plan_seconds(graph, candidates, taken, CostModel(SHORT, 1))
        pins = greedy_pins(graph, taken)
        pinned = Problem(
            graph, enumerate_candidates(graph, CostModel(SHORT, 1), pins), CostModel(SHORT, 1)
        ).best
        # A pin to a layout of no family adds variants that no plan without it can take.
        added = any(
            c.variant not in [free.variant for free in candidates.of_node[n]]
            for n, c in pinned.candidates.items()
        )
        assert added or best <= pinned.seconds * (1 + 1e-9)
        assert pinned.seconds <= seconds * (1 + 1e-9)
