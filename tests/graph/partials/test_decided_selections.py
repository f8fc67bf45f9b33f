"""Selections that constants decide: the branch that is taken, and selections that stay."""

import numpy as np
import pytest

from graphflow.graph import Node, OperatorGraph, interpret_graph
from graphflow.graph.partials.decided_selections import decide_selections
from graphflow.kernels.definitions import quantized
from graphflow.tir import PrimFunc, parse, to_text

TEXT = """
@primfunc
def kernel(x: f32[4], c: f32[()], y: out[f32[4]]):
    for i in serial(0, 4):
        y[i] = select(data(c[()] > f32(0.0)), x[i] / c[()], f32(0.0))
"""


def graph_of(c: float, func: PrimFunc) -> OperatorGraph:
    graph = OperatorGraph()
    graph.add_input("x", "float32", (4,))
    graph.add_initializer("c", np.float32(c))
    graph.add(Node("select", "Select", func, ("x", "c"), ("y",)))
    graph.set_outputs(["y"])
    return graph


@pytest.mark.parametrize("op", ["<", "<=", ">", ">=", "==", "!="])
@pytest.mark.parametrize("c", [-1.0, -0.0, 0.0, 3.0, np.inf, np.nan])
def test_the_branch_that_is_taken(c: float, op: str) -> None:
    graph = graph_of(c, parse(TEXT.replace(">", op)))
    x = np.float32([0.5, -0.0, np.nan, np.inf])
    with np.errstate(all="ignore"):
        want = interpret_graph(graph, {"x": x})["y"]
        assert decide_selections(graph) == 1
        found = interpret_graph(graph, {"x": x})["y"]
    np.testing.assert_array_equal(found, want)
    assert "select(" not in to_text(graph.node("select").func)
    assert decide_selections(graph) == 0


def test_what_a_run_decides_stays() -> None:
    graph = graph_of(0.0, parse(TEXT.replace("c[()] >", "x[i] >")))
    assert decide_selections(graph) == 0
    given = graph_of(0.0, parse(TEXT))
    given.set_inputs(["x", "c"])
    assert decide_selections(given) == 0


def test_the_zero_point_of_what_is_never_below_zero_is_known() -> None:
    graph = OperatorGraph()
    graph.add_input("scale", "float32", ())
    graph.add_initializer("below", np.float32(0.0))
    func = quantized.dynamic_zero_point()
    graph.add(Node("zero", "Zero", func, ("below", "scale"), ("y",)))
    graph.set_outputs(["y"])
    assert decide_selections(graph) == 1
    assert not graph.node("zero").inputs
    assert interpret_graph(graph, {"scale": np.float32(0.3)})["y"] == 0
