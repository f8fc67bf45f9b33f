"""Tests of offers of schedules that earlier searches found."""

import numpy as np

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.codegen import host_target
from graphflow.cost import NO_TIMINGS, CostModel, Timings
from graphflow.flow import find_plan
from graphflow.frontends import import_model
from graphflow.graph import (
    OperatorGraph,
    canonicalize,
    fuse_groups,
    graph_of,
    offer_found,
    searchable_nodes,
)
from graphflow.graph.folded_constants import folding_of
from graphflow.kernels.recipes import REDUCTION, point_key, search_key
from graphflow.models import ModelBuilder
from graphflow.schedule import Schedule, divide_loop

TARGET = host_target()
COMPILER = "a digest"

KERNEL = gf.kernel(
    """
    def mean(x: f32[40, 64], y: out[f32[40]]):
        with block("sums"):
            for i in serial(0, 40):
                y[i] = f32(0.0)
                for j in serial(0, 64):
                    y[i] += x[i, j]
    """
)


@gf.sketch(tile=(8, 4))
def tiles(s: Schedule, tile: int) -> Schedule:
    return s.apply(divide_loop, "i", tile, ("io", "ii"), "perfect")


def graph() -> OperatorGraph:
    return graph_of(KERNEL)


def timings(**seconds: float) -> Timings:
    """The timings of points of `tiles`, `t4` being that of tile 4."""
    search = search_key(tiles, graph().node("mean").func, COMPILER)
    points = {name: (("tile", int(name[1:])),) for name in seconds}
    return Timings({point_key(search, points[name]): s for name, s in seconds.items()})


def test_the_fastest_known_schedule_is_offered_beside_recipes() -> None:
    before = graph()
    found = offer_found(before, [tiles], timings(t8=2e-6, t4=1e-6), TARGET, COMPILER)
    node = found.node("mean")
    (known,) = node.found
    assert node.offered == (known.kernel,) and not node.only_offered
    assert known.point == (("tile", 4),) and known.default_seconds == 2e-6
    assert not node.by_user  # flow may still change the node
    assert before.node("mean").offered == ()


def test_nothing_is_offered_without_results_for_this_compiler_and_sketch() -> None:
    before, known = graph(), timings(t8=2e-6)
    assert offer_found(before, [tiles], NO_TIMINGS, TARGET, COMPILER) is before
    for sketches, compiler in (
        ([tiles], "another digest"),
        ([REDUCTION], COMPILER),
        ([], COMPILER),
    ):
        found = offer_found(before, sketches, known, TARGET, compiler)
        assert found.node("mean") == before.node("mean")


def test_a_schedule_that_a_recipe_makes_is_no_offer() -> None:
    func = graph().node("mean").func
    space = REDUCTION.space(func, TARGET)
    assert space is not None
    search = search_key(REDUCTION, func, COMPILER)
    for point in space.sample(3):
        known = Timings({point_key(search, point): 1e-6})
        node = offer_found(graph(), [REDUCTION], known, TARGET, COMPILER).node("mean")
        assert len(node.offered) == (point != space.default())


def test_nodes_whose_author_scheduled_them_are_not_searched() -> None:
    assert [node.name for node in searchable_nodes(graph())] == ["mean"]
    s = Schedule.of(KERNEL).apply(divide_loop, "i", 8, ("io", "ii"), "perfect")
    assert [*searchable_nodes(graph_of(s))] == []
    constant = graph()
    node = constant.node("mean")
    constant.replace("mean", replace(node, only_offered=True))
    assert [*searchable_nodes(constant)] == []


def test_a_node_with_an_offer_of_a_user_and_a_found_one_is_by_user() -> None:
    found = offer_found(graph(), [tiles], timings(t8=1e-6), TARGET, COMPILER)
    func = found.node("mean").func
    s = Schedule.of(func).apply(divide_loop, "i", 5, ("io", "ii"), "perfect")
    found.offer("mean", s)
    assert found.node("mean").by_user and len(found.node("mean").offered) == 2


@gf.sketch(only=("definition",))
def as_defined(s: Schedule, only: str) -> Schedule:
    return s


def test_what_replaces_a_node_has_no_offers_of_the_kernel_that_is_gone() -> None:
    b = ModelBuilder(opset=17)
    y = b.conv(b.input("x", (1, 4, 6, 6)), 4, 3, pads=[1, 1, 1, 1])
    factor, shift = (b.constant(np.full((1, 4, 1, 1), v, np.float32)) for v in (2.0, 0.5))
    b.output(b.node("Add", [b.node("Mul", [y, factor]), shift]))
    before = fuse_groups(canonicalize(import_model(b.model())))
    (node,) = before.nodes
    key = point_key(search_key(as_defined, node.func, COMPILER), (("only", "definition"),))
    found = offer_found(before, [as_defined], Timings({key: 1e-6}), TARGET, COMPILER)
    assert len(found.node(node.name).offered) == 1
    with_offer, without = (folding_of(g, g.node(node.name)).expansion for g in (found, before))
    assert with_offer.node == without.node and with_offer.node.offered == ()
    plan = find_plan(found, CostModel(TARGET)).plan()
    assert plan.seconds <= find_plan(before, CostModel(TARGET)).plan().seconds
