"""Reductions of whole tensors that are split: which ones, by which loop, and the same results."""

from collections.abc import Sequence

import numpy as np
import pytest

from graphflow.graph import Node, OperatorGraph, interpret_graph
from graphflow.graph.partials import split_reductions
from graphflow.kernels.definitions.reductions.reduction import reduce
from graphflow.tir import PrimFunc, parse

IMAGE = (1, 16, 20, 24)


def graph_of(func: PrimFunc) -> OperatorGraph:
    """A graph of one kernel of one input."""
    graph, (x,) = OperatorGraph(), func.inputs
    graph.add_input("x", x.dtype, x.shape)
    graph.add(Node("node", "Reduce", func, ("x",), ("y",)))
    graph.set_outputs(["y"])
    return graph


def split(func: PrimFunc) -> OperatorGraph:
    graph = graph_of(func)
    split_reductions(graph)
    graph.validate()
    return graph


@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("max", "float32"), ("min", "float32"), ("max", "int8"), ("sum", "int32"), ("prod", "int64")],
)
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axes", [range(4), (1, 2, 3)], ids=["all", "all of several elements"])
def test_rows_are_those_of_the_last_axis_but_one(
    kind: str, dtype: str, keepdims: bool, axes: Sequence[int]
) -> None:
    func = reduce(kind, IMAGE, axes, keepdims, dtype)
    graph = split(func)
    rows, last = graph.topological()
    assert graph.values[rows.outputs[0]].shape == (20,)
    assert last.outputs == ("y",) and graph.values["y"].shape == func.outputs[0].shape
    x = (10 * np.random.default_rng(0).standard_normal(IMAGE)).astype(dtype)
    want, got = (interpret_graph(g, {"x": x})["y"] for g in (graph_of(func), graph))
    assert want.tobytes() == got.tobytes()


def test_nan_is_the_extreme_of_its_row_and_of_the_tensor() -> None:
    x = np.zeros(IMAGE, np.float32)
    x[0, 3, 4, 5] = np.nan
    assert np.isnan(interpret_graph(split(reduce("max", IMAGE, range(4))), {"x": x})["y"]).all()


@pytest.mark.parametrize("shape", [(4096, 1), (1, 8192, 1), (64, 63)])
def test_without_rows_and_of_few_elements_nothing_is_split(shape: tuple[int, ...]) -> None:
    assert len(split(reduce("max", shape, range(len(shape))))) == 1


def test_where_the_order_changes_results_nothing_is_split() -> None:
    assert len(split(reduce("sum", IMAGE, range(4)))) == 1


def test_what_leaves_several_elements_is_not_split() -> None:
    assert len(split(reduce("max", IMAGE, (0, 2, 3)))) == 1


@pytest.mark.parametrize(
    ("start", "condition"), [("i32(3)", "0 <= i"), ("i32(-2147483648)", "i + j < 100")]
)
def test_other_kernels_stay(start: str, condition: str) -> None:
    """One that begins with another number, and one that leaves out elements."""
    func = parse(f"""
    @primfunc
    def largest(x: i32[64, 80], y: out[i32[()]]):
        with block("largest"):
            y[()] = {start}
            for i in serial(0, 64):
                for j in serial(0, 80):
                    if {condition}:
                        reduce_max(y[()], x[i, j])
    """)
    assert len(split(func)) == 1
