"""Tests of nodes with hundreds of operands: results are correct, and compile time grows
linearly."""

from collections.abc import Callable
from cProfile import Profile
from functools import partial
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx import helper as make

import graphflow as gf
from graphflow.base.options import Options
from graphflow.codegen import emit_ir, host_target
from graphflow.codegen.emit import MOST_STAGES
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse_groups
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.recipes.variants.view_variants import in_a_row
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.tir import Block, Expr, Store, children, kept_by_node, walk

HERE = Options(workers=0)


def model(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any]) -> onnx.ModelProto:
    def infos(given: dict[str, Any]) -> list[Any]:
        return [make.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in given.items()]

    graph = make.make_graph(nodes, "wide", infos(inputs), infos(outputs))
    return make.make_model(graph, opset_imports=[make.make_opsetid("", 18)], ir_version=9)


def names(count: int) -> list[str]:
    return [f"x{k}" for k in range(count)]


def concatenated(count: int) -> onnx.ModelProto:
    node = make.make_node("Concat", names(count), ["y"], axis=1)
    return model([node], dict.fromkeys(names(count), (2, 3)), {"y": (2, 3 * count)})


def split_and_back(count: int) -> onnx.ModelProto:
    nodes = [
        make.make_node("Split", ["x"], names(count), axis=1, num_outputs=count),
        make.make_node("Concat", names(count)[::-1], ["y"], axis=1),
    ]
    return model(nodes, {"x": (2, 3 * count)}, {"y": (2, 3 * count)})


def summed(count: int) -> onnx.ModelProto:
    node = make.make_node("Sum", names(count), ["y"])
    return model([node], dict.fromkeys(names(count), (2, 3)), {"y": (2, 3)})


def arrays(given: onnx.ModelProto) -> dict[str, Any]:
    shapes = {
        i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in given.graph.input
    }
    random = np.random.default_rng(0)
    return {n: random.standard_normal(s).astype(np.float32) for n, s in shapes.items()}


# Right -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [MOST_STAGES, MOST_STAGES + 1, 3 * MOST_STAGES - 1])
def test_a_wide_concatenation(count: int) -> None:
    given = arrays(proto := concatenated(count))
    found = gf.compile(proto, options=HERE).run(given)["y"]
    assert np.array_equal(found, np.concatenate([given[name] for name in names(count)], axis=1))


def test_many_parts_in_another_order() -> None:
    count = MOST_STAGES + 9
    given = arrays(proto := split_and_back(count))
    found = gf.compile(proto, options=HERE).run(given)["y"]
    parts = np.split(given["x"], count, axis=1)
    assert np.array_equal(found, np.concatenate(parts[::-1], axis=1))


def test_a_sum_of_more_operands_than_python_allows_calls() -> None:
    given = arrays(proto := summed(500))
    found = gf.compile(proto, options=HERE).run(given)["y"]
    exact = sum(array.astype(np.float64) for array in given.values())
    assert np.allclose(found, exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("count", "depth"),
    [
        (2, 1),
        (elementwise.LONGEST_CHAIN, elementwise.LONGEST_CHAIN - 1),
        (elementwise.LONGEST_CHAIN + 1, elementwise.LONGEST_CHAIN),
        (4096, 126),
    ],
)
def test_sums_are_no_deeper_than_their_chains(count: int, depth: int) -> None:
    func = elementwise.variadic("add", [(2,)] * count)
    (store,) = (stmt for stmt in walk(func.body) if isinstance(stmt, Store))

    def deep(expr: Expr) -> int:
        return max((1 + deep(below) for below in children(expr)), default=0)

    assert deep(store.value) == depth


@pytest.mark.decisions
def test_few_stages_are_one_function_and_many_are_several() -> None:
    for count, functions in ((MOST_STAGES, 1), (2 * MOST_STAGES, 2)):
        lowered = compile_graph(CompileRequest(concatenated(count), options=HERE)).lowered
        (kernel,) = lowered.kernels.values()
        text = emit_ir(kernel.func, "k", host_target())
        assert text.count("define internal") == functions
        assert ('@"k.body"' in text) == (functions == 1)


# In time -----------------------------------------------------------------------------------------


def calls(work: Callable[[], object]) -> int:
    """How many functions of Python are called."""
    profile = Profile(subcalls=False, builtins=False)
    profile.runcall(work)
    return sum(entry.callcount for entry in profile.getstats())


@pytest.mark.parametrize("build", [concatenated, split_and_back, summed])
def test_twice_as_many_operands_take_little_more_than_twice_the_work(
    build: Callable[[int], onnx.ModelProto],
) -> None:
    compile_graph(CompileRequest(build(3), options=HERE))  # what is made once
    few, many = (
        calls(lambda n=n: compile_graph(CompileRequest(build(n), options=HERE)))  # type: ignore[misc]
        for n in (80, 160)
    )
    assert many < 2.7 * few


def test_a_group_that_cannot_close_is_given_up_at_once() -> None:
    """Each step's result is read by the next step and by a row: no two steps may be fused."""

    def steps(count: int) -> onnx.ModelProto:
        nodes, x = [], "x"
        for k in range(count):
            nodes += [
                make.make_node("Tanh", [x], [f"s{k}"]),
                make.make_node("Transpose", [f"s{k}"], [f"r{k}"]),
            ]
            x = f"s{k}"
        nodes.sort(key=lambda node: node.op_type)  # all steps come before the rows
        outputs = {f"r{k}": (3, 2) for k in range(count)}
        return model(nodes, {"x": (2, 3)}, outputs)

    graphs = [canonicalize(import_model(steps(n))) for n in (20, 40)]
    few, many = (calls(partial(fuse_groups, graph)) for graph in graphs)
    assert many < 2.5 * few


# Findings ----------------------------------------------------------------------------------------


def test_a_finding_is_made_once_for_each_object_and_not_for_equal_ones() -> None:
    asked: list[Block] = []

    @kept_by_node
    def found(block: Block) -> int:
        asked.append(block)
        return len(asked)

    @kept_by_node
    def other(block: Block) -> str:
        return block.name

    one, equal = Block("a", ()), Block("a", ())
    assert one == equal
    assert [found(one), found(one), found(equal), found(one)] == [1, 1, 2, 1]
    assert other(one) == "a" and found(one) == 1


@pytest.mark.parametrize(
    ("sides", "apart"),
    [
        ([(0, 1), (2, 3), (4, 9)], True),
        ([(0, 2), (2, 3)], False),
        ([(2, 3), (0, 1)], False),
        ([(0, 5), (6, 3), (4, 7)], False),  # one is empty, so order says nothing
        ([(0, None), (2, 3)], False),
        ([(0, 1), (None, 3)], False),
    ],
)
def test_intervals_in_a_row(sides: list[Any], apart: bool) -> None:
    assert in_a_row(sides) is apart
