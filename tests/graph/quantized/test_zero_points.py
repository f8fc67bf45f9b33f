"""Zero points taken out of products of bytes: the same results, and operands of one type."""

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, interpret_graph, with_plain_products_of

BYTES = replace(PROCESSORS["zen4"])
WORDS = PROCESSORS["haswell"]
RNG = np.random.default_rng(0)


def full(dtype: str, *shape: int) -> np.ndarray:
    """Numbers of a whole type, both ends among them."""
    limits = np.iinfo(dtype)
    array = RNG.integers(limits.min, limits.max + 1, shape).astype(dtype)
    array.reshape(-1)[:2] = limits.min, limits.max
    return array


def graph_of(
    op: str, x: np.ndarray, w: np.ndarray, zx: object, zw: object, **attributes: object
) -> OperatorGraph:
    """A product of integers with its zero points; a `w` that is given has no initializer."""
    kind = helper.np_dtype_to_tensor_dtype
    zeros = {"zx": np.array(zx, x.dtype), "zw": np.array(zw, w.dtype)}
    initializers = {**zeros, "w": w}
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node(op, ["x", "w", "zx", "zw"], ["y"], **attributes)],
            "g",
            [helper.make_tensor_value_info("x", kind(x.dtype), x.shape)],
            [helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)],
            [numpy_helper.from_array(array, name) for name, array in initializers.items()],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    return canonicalize(import_model(model, {}))


def factor_types(graph: OperatorGraph) -> list[tuple[str, ...]]:
    """The types of the operands of each product that a run computes."""
    found = []
    for node in graph.nodes:
        for stmt in tir.walk(node.func.body):
            match stmt:
                case tir.Reduce(
                    value=tir.Binary("mul", tir.Cast(tir.Load() as a), tir.Cast(tir.Load() as b))
                ):
                    if not graph.is_constant(node.outputs[0]):
                        found.append((a.dtype, b.dtype))
                case _:
                    pass
    return found


def check(graph: OperatorGraph, x: np.ndarray, types: tuple[str, str]) -> OperatorGraph:
    """The rewritten graph, after it computed the same as the graph."""
    new = with_plain_products_of(graph, BYTES if types[0] == "uint8" else WORDS)
    new.validate()
    assert factor_types(new) == [types]
    np.testing.assert_array_equal(
        interpret_graph(new, {"x": x})["y"], interpret_graph(graph, {"x": x})["y"]
    )
    return new


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int16", "int16")])
@pytest.mark.parametrize("zx", [0, 1, 127, 128, 255])
@pytest.mark.parametrize(("dtype", "zw"), [("int8", 0), ("int8", -5), ("uint8", 128), ("uint8", 0)])
def test_zero_points_of_matrix_products(
    zx: int, dtype: str, zw: int, types: tuple[str, str]
) -> None:
    x, w = full("uint8", 3, 7), full(dtype, 7, 5)
    check(graph_of("MatMulInteger", x, w, zx, zw), x, types)


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int16", "int16")])
@pytest.mark.parametrize("zx", [-128, -1, 0, 127])
def test_signed_data(zx: int, types: tuple[str, str]) -> None:
    x, w = full("int8", 3, 7), full("int8", 7, 5)
    check(graph_of("MatMulInteger", x, w, zx, 0), x, types)


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int16", "int16")])
def test_a_zero_point_for_each_row_and_column(types: tuple[str, str]) -> None:
    x, w = full("uint8", 3, 7), full("uint8", 7, 5)
    zx, zw = full("uint8", 3), full("uint8", 5)
    check(graph_of("MatMulInteger", x, w, zx.reshape(3), zw), x, types)


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int16", "int16")])
@pytest.mark.parametrize(
    "attributes",
    [
        {"pads": [1, 1, 1, 1]},
        {"pads": [0, 1, 2, 0], "strides": [2, 2]},
        {"pads": [2, 2, 2, 2], "dilations": [2, 2]},
    ],
)
def test_borders_of_convolutions(attributes: dict[str, object], types: tuple[str, str]) -> None:
    """A tap outside of the image counts as the zero point: it adds nothing."""
    x = full("uint8", 1, 3, 6, 7)
    for w, zw in ((full("int8", 4, 3, 3, 3), 0), (full("uint8", 4, 3, 3, 3), 7)):
        check(graph_of("ConvInteger", x, w, 200, zw, **attributes), x, types)


@pytest.mark.parametrize("types", [("uint8", "int8"), ("int16", "int16")])
def test_groups(types: tuple[str, str]) -> None:
    x, w = full("int8", 1, 4, 5, 5), full("int8", 6, 2, 3, 3)
    check(graph_of("ConvInteger", x, w, 3, 0, group=2, pads=[1, 1, 1, 1]), x, types)


def test_depthwise_weights_that_do_not_fit_stay() -> None:
    x, w = full("uint8", 1, 4, 5, 5), full("uint8", 4, 1, 3, 3)
    graph = graph_of("ConvInteger", x, w, 3, 7, group=4)
    new = with_plain_products_of(graph, BYTES)
    assert factor_types(new) == [] and len(new) == len(graph)


@pytest.mark.parametrize(("dtype", "zero"), [("uint8", 0), ("int8", -128)])
def test_lanes_read_unsigned_differences_as_bytes(dtype: str, zero: int) -> None:
    """Only where each element meets weights of its own, and only with this zero point."""
    x, w = full(dtype, 1, 4, 5, 5), full("int8", 4, 1, 3, 3)

    def types(zero: int, weights: np.ndarray, **attributes: object) -> list[tuple[str, ...]]:
        graph = graph_of("ConvInteger", x, weights, zero, 0, **attributes)
        new = with_plain_products_of(graph, WORDS)
        np.testing.assert_array_equal(
            interpret_graph(new, {"x": x})["y"], interpret_graph(graph, {"x": x})["y"]
        )
        return factor_types(new)

    assert types(zero, w, group=4, pads=[1, 1, 1, 1]) == [("uint8", "int16")]
    assert types(zero + 1, w, group=4) == [("int16", "int16")]
    assert types(zero, full("int8", 8, 1, 3, 3), group=4) == [("int16", "int16")]


def test_sums_of_constant_weights_are_constants() -> None:
    x, w = full("uint8", 3, 7), full("int8", 7, 5)
    new = check(graph_of("MatMulInteger", x, w, 9, 0), x, ("uint8", "int8"))
    assert [new.is_constant(node.outputs[0]) for node in new.nodes] == [True, False]


def test_weights_that_fit_are_stored_less_their_zero_point() -> None:
    x, w = full("uint8", 3, 7), RNG.integers(60, 180, (7, 5)).astype("uint8")
    new = check(graph_of("MatMulInteger", x, w, 0, 128), x, ("uint8", "int8"))
    (node,) = new.nodes
    np.testing.assert_array_equal(new.initializers[node.inputs[1]], w.astype(int) - 128)
    assert "w" not in new.values, "nothing reads it any more"


def test_targets_without_an_instruction_keep_the_graph() -> None:
    x, w = full("uint8", 3, 7), full("int8", 7, 5)
    graph = graph_of("MatMulInteger", x, w, 9, 0)
    assert with_plain_products_of(graph, replace(WORDS, name="none", features="")) is graph


def test_what_is_made_of_counted_rows_is_counted() -> None:
    """Of signed data, of bytes less their zero points, and of the sums of a row of data."""
    w = full("uint8", 7, 5)
    graph = graph_of("MatMulInteger", full("int8", 3, 7), w, 5, 200)
    x, y = graph.values["x"], graph.values["y"]
    graph.add_input("n", "int64", ())
    graph.counted = {x: {0: "n"}, y: {0: "n"}}
    for target in (BYTES, WORDS):
        new = with_plain_products_of(graph, target)
        made = [v for n in new.nodes for v in n.outputs if not new.is_constant(v) and v not in "xy"]
        assert made
        assert all(new.counted[new.values[value]] == {0: "n"} for value in made)


def test_sums_of_windows_over_a_counted_image_are_counted_like_the_result() -> None:
    w = full("uint8", 4, 3, 3, 3)
    graph = graph_of("ConvInteger", full("uint8", 2, 3, 6, 7), w, 5, 200, pads=[1, 1, 1, 1])
    for name in ("n", "h"):
        graph.add_input(name, "int64", ())
    graph.counted = {graph.values["y"]: {0: "n", 2: "h"}}
    new = with_plain_products_of(graph, BYTES)
    (sums,) = [
        n.outputs[0] for n in new.nodes if n.op == "Sums" and not new.is_constant(n.outputs[0])
    ]
    assert new.values[sums].shape == (2, 6, 7)
    assert new.counted[new.values[sums]] == {0: "n", 1: "h"}
