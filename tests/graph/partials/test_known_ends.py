"""Ends of ranges that are known: where zeros take the place of a reduction, and where not."""

import numpy as np
import pytest

from graphflow.graph import Node, OperatorGraph, interpret_graph
from graphflow.graph.partials import know_ends
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.reductions.reduction import reach, reduce
from graphflow.tir import PrimFunc, to_text

SHAPE = (2, 5, 3)
SPECIAL = (0.0, -0.0, 7.5, -7.5, np.inf, -np.inf, np.nan, 1e-42, -1e-42)


def graph_of(lowest: float, func: PrimFunc) -> OperatorGraph:
    """A graph that clips its input from below, and reduces that."""
    graph = OperatorGraph()
    graph.add_input("x", "float32", SHAPE)
    clip = elementwise.clip(SHAPE, lowest, None, "float32")
    graph.add(Node("clip", "Clip", clip, ("x",), ("v",)))
    graph.add(Node("least", "Reduce", func, ("v",), ("y",)))
    graph.set_outputs(["v", "y"])
    return graph


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("at", [0, 13, 29])
def test_no_element_is_below_zero_whatever_a_run_is_given(special: float, at: int) -> None:
    graph = graph_of(0.0, reach(SHAPE, below=True))
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    x.flat[at] = special
    want = interpret_graph(graph, {"x": x})["y"]
    assert know_ends(graph) == 1
    graph.validate()
    assert graph.initializers["y"].tobytes() == want.tobytes()


@pytest.mark.parametrize("special", SPECIAL)
def test_the_upper_end_of_what_is_never_below_zero_takes_no_comparison(special: float) -> None:
    graph = graph_of(0.0, reach(SHAPE, below=False))
    x = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    x.flat[7] = special
    want = interpret_graph(graph, {"x": x})["y"]
    assert know_ends(graph) == 1
    graph.validate()
    assert "select" not in to_text(graph.node("least").func)
    assert interpret_graph(graph, {"x": x})["y"].tobytes() == want.tobytes()
    assert know_ends(graph) == 0


@pytest.mark.parametrize("below", [True, False])
def test_where_elements_may_be_below_zero_they_are_reduced(below: bool) -> None:
    assert know_ends(graph_of(-1.0, reach(SHAPE, below))) == 0


@pytest.mark.parametrize("kind", ["min", "max"])
def test_the_least_element_itself_is_not_known(kind: str) -> None:
    assert know_ends(graph_of(0.0, reduce(kind, SHAPE, range(3), False))) == 0


def test_the_least_of_no_elements_is_reduced() -> None:
    graph = OperatorGraph()
    graph.add_input("x", "float32", (2, 0))
    clip = elementwise.clip((2, 0), 0.0, None, "float32")
    graph.add(Node("clip", "Clip", clip, ("x",), ("v",)))
    graph.add(Node("least", "Reduce", reach((2, 0), below=True), ("v",), ("y",)))
    graph.set_outputs(["y"])
    assert know_ends(graph) == 0
