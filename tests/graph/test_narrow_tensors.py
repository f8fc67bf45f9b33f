"""Tests of tensors of rounded numbers that are stored in 16 bits for readers that load them few
times."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import graphflow as gf
from graphflow.base.dtypes import DTYPES
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.codegen import host_target
from graphflow.frontends import import_model
from graphflow.graph import (
    OperatorGraph,
    canonicalize,
    interpret_graph,
    with_half_constants,
    with_narrow_tensors,
)
from graphflow.models.zoo.building.sixteen_bits import ELEMENTS

SMALL = replace(PROCESSORS["zen4"], name="small", l2_bytes=1024)
"""A processor whose second-level cache holds no tensor of these tests."""

CHANNELS, SIDE = 16, 12
POOL: dict[str, Any] = {"kernel_shape": [3, 3], "strides": [2, 2]}


def network(dtype: str, *nodes: tuple[str, list[Any], dict[str, Any]]) -> onnx.ModelProto:
    """Nodes that each read the one before, and constants; the first one reads an image."""
    element = ELEMENTS[dtype]
    made, tensors, last = [], [], "x"
    for k, (op, constants, attributes) in enumerate(nodes):
        names = [f"c{k}_{n}" for n in range(len(constants))]
        for name, array in zip(names, constants, strict=True):
            typed = np.asarray(array).astype(helper.tensor_dtype_to_np_dtype(element))
            tensors.append(numpy_helper.from_array(typed, name))
        made.append(helper.make_node(op, [last, *names], [f"t{k}"], name=op + str(k), **attributes))
        last = f"t{k}"
    made[-1].output[0] = "y"
    infos = [
        helper.make_tensor_value_info("x", element, (1, 3, SIDE, SIDE)),
        helper.make_tensor_value_info("y", element, (None,) * 4),
    ]
    graph = helper.make_graph(made, "g", infos[:1], infos[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def weights(*shape: int) -> Any:
    return np.random.default_rng(len(shape)).standard_normal(shape)


CONV = ("Conv", [weights(CHANNELS, 3, 1, 1)], {})
CLIP = ("Clip", [0.0, 6.0], {})
RELU = ("Relu", [], {})
MAXIMA = ("MaxPool", [], POOL)
DEPTHWISE = (
    "Conv",
    [weights(CHANNELS, 1, 3, 3)],
    {"group": CHANNELS, "strides": [2, 2], "pads": [1, 1, 1, 1]},
)
POINTWISE = ("Conv", [weights(40, CHANNELS, 1, 1)], {})

NARROW = {
    "a selection before a maximum": (CONV, RELU, MAXIMA),
    "a selection before few taps": (CONV, CLIP, DEPTHWISE),
    "a rounded sum before few taps": (CONV, DEPTHWISE),
}
WIDE = {
    "a product loads each element for each of its columns": (CONV, RELU, POINTWISE),
    "what is only fused": (CONV, RELU, ("Add", [0.5], {})),
}


def narrow_reads(graph: OperatorGraph, dtype: str) -> list[str]:
    """The nodes that load numbers of 16 bits in reductions."""
    return [
        node.name
        for node in graph.nodes
        if node.op in ("Conv", "MaxPool")
        and any(buffer.dtype == dtype for buffer in node.func.inputs)
    ]


def feeds(dtype: str) -> dict[str, Any]:
    x = np.random.default_rng(1).standard_normal((1, 3, SIDE, SIDE)) * 3
    x[0, :, 0, :4] = np.nan, np.inf, 1e-6, -0.0
    return {"x": x.astype(DTYPES[dtype])}


def bits(array: Any) -> Any:
    """The bits of 16-bit numbers, of NaN those of one NaN."""
    return np.where(np.isnan(array.astype(np.float32)), 0x7FC0, array.view(np.uint16))


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("name", NARROW)
def test_readers_of_few_elements_read_them_in_16_bits(name: str, dtype: str) -> None:
    plain = canonicalize(import_model(network(dtype, *NARROW[name])))
    narrow = with_narrow_tensors(plain, SMALL)
    assert len(narrow_reads(narrow, dtype)) == len(narrow_reads(plain, dtype)) + 1
    narrow.validate()
    given = feeds(dtype)
    expected, got = (interpret_graph(graph, given)["y"] for graph in (plain, narrow))
    np.testing.assert_array_equal(bits(got), bits(expected))


def test_what_is_no_longer_widened_is_known_by_what_its_readers_load() -> None:
    plain = canonicalize(import_model(network("float16", *NARROW["a rounded sum before few taps"])))
    narrow = with_narrow_tensors(plain, SMALL)
    (gone,) = (v for v in set(narrow.removed) - set(plain.removed) if v.startswith("t0"))
    assert narrow.removed[gone].alias_of == "t0"
    assert narrow.removed[gone].reason == "its readers widen what they load of t0"


@pytest.mark.parametrize("dtype", ELEMENTS)
@pytest.mark.parametrize("name", NARROW)
def test_compiled_networks_give_the_same_bits(name: str, dtype: str) -> None:
    """The same kernels sum the same terms, whichever type they load."""
    model, given = network(dtype, *NARROW[name]), feeds(dtype)
    results = [
        gf.compile(model, target=target).run(given)["y"]
        for target in (executable(1024), executable(1 << 30))
    ]
    np.testing.assert_array_equal(bits(results[0]), bits(results[1]))


def executable(l2_bytes: int) -> Any:
    """This machine with another second-level cache."""
    return replace(host_target(), name=f"l2-{l2_bytes}", l2_bytes=l2_bytes)


@pytest.mark.parametrize("name", WIDE)
def test_other_tensors_stay_float32(name: str) -> None:
    plain = canonicalize(import_model(network("float16", *WIDE[name])))
    narrow = with_narrow_tensors(plain, SMALL)
    assert narrow_reads(narrow, "float16") == narrow_reads(plain, "float16")


def test_what_the_cache_holds_stays_float32() -> None:
    plain = canonicalize(import_model(network("float16", *NARROW["a selection before a maximum"])))
    large = with_narrow_tensors(plain, PROCESSORS["zen4"])
    assert narrow_reads(large, "float16") == narrow_reads(plain, "float16")


def test_a_network_of_float32_is_left_as_it_is() -> None:
    graph = OperatorGraph()
    assert with_narrow_tensors(graph, SMALL) is graph


# constants of float16 -----------------------------------------------------------------------------

GRANITE = PROCESSORS["graniterapids"]


def halved(dtype: str, op: str, constant: Any, target: Any = GRANITE, **more: Any) -> OperatorGraph:
    nodes = (("Sigmoid", [], {}), (op, [constant], {}), ("Tanh", [], {}))
    graph = canonicalize(import_model(network(dtype, *nodes)), **more)
    return with_half_constants(graph, target)


def constant_types(graph: OperatorGraph) -> set[str]:
    made = (node for node in graph.nodes if any(graph.is_constant(v) for v in node.inputs))
    return {graph.values[v].dtype for n in made for v in n.inputs if graph.is_constant(v)}


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
@pytest.mark.parametrize("constant", [0.3, weights(3, 1, 1)])
def test_constants_of_float16_stay_narrow_where_a_target_computes_in_it(
    op: str, constant: Any
) -> None:
    graph = halved("float16", op, constant)
    graph.validate()
    assert constant_types(graph) == {"float16"}
    x = np.random.default_rng(0).standard_normal((1, 3, SIDE, SIDE)).astype("float16")
    nodes = (("Sigmoid", [], {}), (op, [constant], {}), ("Tanh", [], {}))
    model = network("float16", *nodes)
    (expected,) = interpret_graph(import_model(model), {"x": x}).values()
    (got,) = interpret_graph(graph, {"x": x}).values()
    np.testing.assert_array_equal(got.view(np.uint16), expected.view(np.uint16))


def test_constants_stay_wide_where_nothing_is_gained() -> None:
    assert constant_types(halved("float16", "Add", 0.3, PROCESSORS["zen4"])) == {"float32"}
    assert constant_types(halved("bfloat16", "Add", 0.3)) == {"float32"}
    assert constant_types(halved("float16", "Div", 0.3)) == {"float32"}
    assert constant_types(halved("float16", "Max", 0.3)) == {"float32"}


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul"])
def test_special_numbers_with_constants_of_float16(op: str) -> None:
    """All numbers, denormals, NaN and infinities too, with each of some constants."""
    codes = np.arange(1 << 16, dtype=np.uint16).view(np.float16).reshape(1, 1, 256, 256)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 6e-8, -3e-5, 65504, 0.3], np.float16)
    constants = np.resize(special, (1, 1, 256, 1))
    infos = [helper.make_tensor_value_info(n, ELEMENTS["float16"], codes.shape) for n in "xy"]
    nodes = [
        helper.make_node("Identity" if op == "Mul" else "Neg", ["x"], ["n"]),
        helper.make_node("Mul", ["n", "half"], ["t"]),
        helper.make_node(op, ["t", "c"], ["y"]),
    ]
    numbers = {"c": constants, "half": np.float16(0.5)}
    tensors = [numpy_helper.from_array(np.asarray(a), name) for name, a in numbers.items()]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    got = gf.compile(model, options=gf.Options(threads=1)).run({"x": codes})["y"]
    combine = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[op]
    with np.errstate(all="ignore"):
        expected = combine((codes if op == "Mul" else -codes) * np.float16(0.5), constants)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    np.testing.assert_array_equal(got.view(np.uint16)[~nan], expected.view(np.uint16)[~nan])
