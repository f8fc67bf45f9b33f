"""Tests of quotients by constants that are computed as products."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import graphflow as gf
from graphflow.base.dtypes import DTYPES, HALVES
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, interpret_graph, with_multiplied_quotients
from graphflow.graph.rounded.multiplied_quotients import MOST_DIVISORS, is_factor
from graphflow.models.zoo.building.sixteen_bits import ELEMENTS

SHAPE = (16, 4096)


def quotient(dtype: str, divisors: Any, op: str = "Div", shape: tuple[int, ...] = SHAPE) -> Any:
    """A model that divides its input, of all numbers of a type, by constants."""
    element = ELEMENTS.get(dtype, TensorProto.FLOAT)
    numbers = np.asarray(divisors).astype(DTYPES[dtype])
    infos = [helper.make_tensor_value_info(name, element, shape) for name in ("x", "y")]
    node = helper.make_node(op, ["x", "c"], ["y"])
    tensors = [numpy_helper.from_array(numbers, "c")]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def every_number(dtype: str) -> Any:
    return np.arange(1 << 16, dtype=np.uint16).view(DTYPES[dtype]).reshape(SHAPE)


def is_divided(graph: OperatorGraph) -> bool:
    """Whether a kernel of the graph divides."""
    return any("/" in str(node.func) for node in graph.nodes)


def same_bits(got: Any, expected: Any) -> None:
    nan = np.isnan(expected.astype(np.float32))
    np.testing.assert_array_equal(np.isnan(got.astype(np.float32)), nan)
    np.testing.assert_array_equal(got.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=lambda t: t.name)
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("divisor", [np.sqrt(2), 8.0, -np.sqrt(48), 3.0, 14.0, 0.0, np.inf, np.nan])
def test_all_quotients_keep_their_bits(dtype: str, divisor: float, target: Any) -> None:
    x, c = every_number(dtype), np.asarray(divisor).astype(DTYPES[dtype])
    with np.errstate(all="ignore"):
        expected = (x.astype(np.float32) / c.astype(np.float32)).astype(DTYPES[dtype])
    exe = gf.compile(quotient(dtype, c), target=target, options=gf.Options(threads=1))
    same_bits(exe.run({"x": x})["y"], expected)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("divisors", [1.4142, 8.0, [[3.0], [5.0], [-6.0], [0.1]] * 4])
def test_a_quotient_by_constants_is_a_product(dtype: str, divisors: Any) -> None:
    before = canonicalize(import_model(quotient(dtype, divisors)))
    assert is_divided(before)
    after = with_multiplied_quotients(before)
    after.validate()
    assert not is_divided(after)
    assert is_divided(before)
    feeds = {"x": every_number(dtype)}
    same_bits(interpret_graph(after, feeds)["y"], interpret_graph(before, feeds)["y"])


@pytest.mark.parametrize("divisors", [8.0, -0.25, 2.0**120, np.exp2(np.arange(4096) % 9 - 4)])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_quotient_by_powers_of_two_is_a_product(divisors: Any, flushed: bool) -> None:
    model = quotient("float32", divisors)
    assert not is_divided(with_multiplied_quotients(canonicalize(import_model(model))))
    codes = np.random.default_rng(0).integers(0, 1 << 32, SHAPE, dtype=np.uint32)
    codes[0, :256] &= 0x807FFFFF  # denormals
    x = codes.view(np.float32)
    exe = gf.compile(model, options=gf.Options(threads=1, flush_denormals=flushed))
    assert not is_divided(exe.compiled.graph)
    with np.errstate(all="ignore"):
        expected = x / np.asarray(divisors, np.float32)
    smallest = np.finfo(np.float32).smallest_normal
    kept = np.ones(SHAPE, bool)
    if flushed:
        kept = (np.abs(x) >= smallest) & (np.abs(expected) >= smallest)
    got, nan = exe.run({"x": x})["y"], np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    same = kept & ~nan
    np.testing.assert_array_equal(got.view(np.uint32)[same], expected.view(np.uint32)[same])


def test_what_is_not_proven_is_divided() -> None:
    def divided(dtype: str, divisors: Any, **options: Any) -> bool:
        graph = canonicalize(import_model(quotient(dtype, divisors, **options)))
        return is_divided(with_multiplied_quotients(graph))

    assert divided("float16", 14.0)  # 78 denormal quotients differ
    assert divided("float16", [1.4142] * 4095 + [14.0])
    assert divided("float16", 0.0)
    assert divided("bfloat16", 3e38)  # its reciprocal is a denormal
    assert divided("float32", 3.0)
    assert divided("float32", [2.0] * 4095 + [3.0])
    assert divided("float32", 2.0**-121)
    assert divided("float32", 0.0)
    assert divided("float32", np.inf)
    assert divided("float16", np.arange(4096) % (MOST_DIVISORS + 1) + 1.0)


def test_divisors_that_a_run_gives_divide() -> None:
    model = quotient("float16", 3.0)
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.FLOAT16, ()))
    graph = canonicalize(import_model(model, overridable=["c"]))
    assert is_divided(with_multiplied_quotients(graph))


@pytest.mark.parametrize("excess", [False, True])
def test_a_quotient_that_is_read_unrounded_is_divided(excess: bool) -> None:
    model = quotient("float16", 3.0)
    model.graph.node[0].output[0] = "q"
    model.graph.node.append(helper.make_node("Sigmoid", ["q"], ["y"]))
    exe = gf.compile(model, options=gf.Options(threads=1, excess_precision=excess))
    assert is_divided(exe.compiled.graph) == excess


@settings(max_examples=60, deadline=None)
@given(st.integers(0, (1 << 16) - 1), st.sampled_from(HALVES))
def test_the_proof_is_that_of_numpy(code: int, dtype: str) -> None:
    divisor = np.uint16(code).view(DTYPES[dtype]).astype(np.float32)
    x = every_number(dtype).astype(np.float32)
    with np.errstate(all="ignore"):
        if is_factor(float(divisor), dtype):
            product = (x * (np.float32(1) / divisor)).astype(DTYPES[dtype])
            same_bits(product, (x / divisor).astype(DTYPES[dtype]))


def test_the_reference_evaluator_agrees() -> None:
    model = quotient("float16", np.sqrt(2), shape=(16, 4096))
    x = every_number("float16")
    with np.errstate(all="ignore"):
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    same_bits(gf.compile(model).run({"x": x})["y"], expected)
