"""Tests of what is recognized as dequantized and as quantized."""

import numpy as np
import pytest

from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph
from graphflow.graph.quantized.dequantized import (
    dequantized,
    equal_parameters,
    is_finite_dequantized,
    quantization,
    uniform_integer,
)
from support.models.quantized_layers import QuantizedLayers


def imported(b: QuantizedLayers, *names: str) -> OperatorGraph:
    for name in names:
        b.output(name)
    return import_model(b.model(), {})


def test_a_dequantized_value_and_its_parameters() -> None:
    b = QuantizedLayers()
    x = b.dequantized(b.stored((2, 3)), [0.1, 0.2, 0.3], axis=1)  # type: ignore[arg-type]
    y = b.dequantized("q")
    graph = imported(b, x, y)
    one, other = dequantized(graph, x), dequantized(graph, y)
    assert one is not None and other is not None
    assert one.source == other.source == "q"
    assert not one.per_tensor and other.per_tensor
    assert uniform_integer(graph, other.zero_value) == 3
    assert not equal_parameters(graph, one, other)
    assert equal_parameters(graph, other, other)


@pytest.mark.parametrize("op", ["Relu", "Cast"])
def test_other_kernels_are_none(op: str) -> None:
    b = QuantizedLayers()
    x = b.node(op, [b.input("x", (2, 3))], **({"to": 1} if op == "Cast" else {}))
    assert dequantized(imported(b, x), x) is None


def test_one_scale_for_the_tensor_quantizes() -> None:
    b = QuantizedLayers()
    x = b.input("x", (2, 3))
    whole = b.quantized(x)
    parameters = b.parameters([0.1, 0.2, 0.3], [0, 0, 0])
    by_column = b.node("QuantizeLinear", [x, *parameters], axis=1)
    graph = imported(b, whole, by_column)
    made = graph.producer(whole), graph.producer(by_column)
    assert made[0] is not None and made[1] is not None
    found = quantization(made[0])
    assert found is not None and found.target == "uint8"
    assert quantization(made[1]) is None


def test_a_zero_point_of_several_numbers_is_no_integer() -> None:
    graph = OperatorGraph()
    graph.add_initializer("same", np.full(3, 5, np.uint8))
    graph.add_initializer("others", np.arange(3, dtype=np.uint8))
    graph.add_initializer("yes", np.array(True))
    assert uniform_integer(graph, "same") == 5
    assert uniform_integer(graph, "yes") is None
    assert uniform_integer(graph, "others") is None
    assert uniform_integer(graph, None) == 0


def test_what_constant_scales_give_is_finite_unless_they_are_huge() -> None:
    b = QuantizedLayers()
    b.stored((2, 3))
    values = [b.dequantized("q", scale) for scale in (0.1, 1.3e36, 1.4e36, np.inf)]
    b.stored((2, 3), "float32", name="x")
    other = b.relu("x")
    graph = imported(b, *values, other)
    assert [is_finite_dequantized(graph, v) for v in (*values, other)] == [
        True, True, False, False, False,
    ]  # fmt: skip
