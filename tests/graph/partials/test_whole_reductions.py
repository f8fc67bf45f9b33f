"""Reductions of rows and of their results at once: what has such an expansion, and when prices take
it."""

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.options import Options
from graphflow.base.processors import PROCESSORS
from graphflow.cost import CostModel
from graphflow.flow import find_plan
from graphflow.frontends import import_model
from graphflow.graph import Expansions, canonicalize, fuse_groups, interpret_graph, reducing_at_once
from graphflow.models.builder import ModelBuilder
from graphflow.tir import loads_in, loops_of

IMAGE = (1, 16, 20, 24)


def largest(
    shape: tuple[int, ...] = IMAGE, *, then: bool = False, keepdims: int = 0
) -> onnx.ModelProto:
    """The greatest element of a tensor, or what is computed of it."""
    b = ModelBuilder(0, 17)
    y = b.node("ReduceMax", [b.input("x", shape)], keepdims=keepdims)
    b.output(b.node("Exp", [y]) if then else y)
    return b.model()


def expansions(model: onnx.ModelProto) -> Expansions:
    return reducing_at_once(Expansions(fuse_groups(canonicalize(import_model(model, {})))))


@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("then", [False, True])
def test_one_kernel_reads_the_tensor(then: bool, keepdims: int) -> None:
    """Its result has axes of one element, or none."""
    found = expansions(largest(then=then, keepdims=keepdims))
    ((one,),) = found.of_node.values()
    assert one.node.inputs == ("x",) and len(one.absorbed) == 1
    graph = found.take([one], {*one.absorbed})
    assert len(graph) == 1
    x = np.random.default_rng(0).standard_normal(IMAGE).astype(np.float32)
    (want,), (got,) = (interpret_graph(g, {"x": x}).values() for g in (found.graph, graph))
    assert want.tobytes() == got.tobytes()


def test_the_axes_of_the_result_are_kept() -> None:
    exe = gf.compile(largest((1, 1, 100, 60), keepdims=1), options=Options(threads=1))
    x = np.random.default_rng(0).standard_normal((1, 1, 100, 60)).astype(np.float32)
    (found,) = exe.run({"x": x}).values()
    np.testing.assert_array_equal(found, x.max(keepdims=True))


def test_its_loops_follow_memory() -> None:
    """As those of the reduction that was split do."""
    ((one,),) = expansions(largest()).of_node.values()
    (load,) = loads_in(one.node.func.body)
    assert load.indices == tuple(loop.var for loop in loops_of(one.node.func.body))


def test_other_reductions_of_reductions_have_none() -> None:
    b = ModelBuilder(0, 17)
    least = b.node("ReduceMin", [b.input("x", (96, 64))], axes=[1], keepdims=0)
    b.output(b.node("ReduceMax", [least], keepdims=0))
    assert not expansions(b.model()).of_node


def test_rows_that_are_read_twice_are_computed() -> None:
    b = ModelBuilder(0, 17)
    rows = b.node("ReduceMax", [b.input("x", (96, 64))], axes=[1], keepdims=0)
    b.output(b.node("ReduceMax", [rows], keepdims=0))
    b.output(rows)
    assert not expansions(b.model()).of_node


def test_prices_share_large_tensors_among_threads_and_no_others() -> None:
    def kernels(shape: tuple[int, ...], threads: int) -> int:
        graph = fuse_groups(canonicalize(import_model(largest(shape), {})))
        return len(find_plan(graph, CostModel(PROCESSORS["zen4"], threads)).plan().choices)

    assert kernels((512, 1024), 1) == 1
    assert kernels((512, 1024), 2) == 2
    assert kernels((64, 65), 2) == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_a_run_finds_the_extreme(threads: int) -> None:
    exe = gf.compile(largest((512, 1024)), options=Options(threads=threads))
    x = np.random.default_rng(1).standard_normal((512, 1024)).astype(np.float32)
    assert exe(x) == x.max()
    x[500, 3] = np.nan
    assert np.isnan(exe(x))
