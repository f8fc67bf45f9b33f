"""Tests of elementwise kernels that return an operand: which are left out, and which are not."""

import numpy as np
import onnx
import pytest

from graphflow.frontends import import_model
from graphflow.graph import canonicalize, interpret_graph
from graphflow.graph.neutral_operands import drop_neutral_operands

X = np.float32([[0.5, -0.0, np.nan], [np.inf, -3.0, 1e-42]])


def left_out(body: str, constants: str) -> int:
    """How many kernels are left out; results keep their bits."""
    model = onnx.parser.parse_model(f"""<ir_version: 9, opset_import: ["" : 21]>
    g (float[2,3] x, float[3,3] w) => (float[2,3] y) <{constants}>
    {{ {body} y = Relu (r) }}""")
    feeds = {"x": X, "w": np.eye(3, dtype=np.float32)}
    graph = import_model(model)
    with np.errstate(all="ignore"):
        want = interpret_graph(graph, feeds)["y"]
        count = drop_neutral_operands(graph)
        graph.validate()
        found = interpret_graph(graph, feeds)["y"]
    np.testing.assert_array_equal(found, want)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(want))
    return count


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        ("r = Mul (x, c)", "float c = {1}"),
        ("r = Mul (c, x)", "float[1,3] c = {1, 1, 1}"),
        ("r = Add (x, c)", "float c = {-0.0}"),
        ("m = MatMul (x, w) r = Add (m, c)", "float[3] c = {0, 0, 0}"),
        ("b = Cast <to = 9> (c) r = Where (b, x, w0)", "float[2,1] c = {1, 1}, float w0 = {7}"),
        ("b = Cast <to = 9> (c) r = Where (b, w0, x)", "float[1] c = {0}, float w0 = {7}"),
    ],
)
def test_an_operand_is_returned(body: str, constants: str) -> None:
    assert left_out(body, constants) == 1


@pytest.mark.parametrize(
    ("body", "constants"),
    [
        ("r = Mul (x, c)", "float[3] c = {1, 1, 2}"),
        ("r = Add (x, c)", "float c = {0}"),
        ("b = Cast <to = 9> (c) r = Where (b, x, w0)", "float[2,1] c = {1, 0}, float w0 = {7}"),
        ("n = Slice (x, o, t, o) r = Mul (n, c)",
         "float[2,3] c = {1,1,1,1,1,1}, int64[1] o = {0}, int64[1] t = {1}"),
    ],
)  # fmt: skip
def test_an_operand_that_is_changed_stays(body: str, constants: str) -> None:
    """x + 0 has another sign where x is −0; a broadcast operand is no copy."""
    assert left_out(body, constants) == 0


@pytest.mark.parametrize(
    "body",
    [
        "a = Mul (x, c) r = Mul (a, c)",
        "a = Mul (x, c) b = Mul (a, c) r = Add (b, z)",
        "m = MatMul (x, w) a = Mul (c, m) r = Add (a, o)",
    ],
)
def test_operands_are_returned_one_after_another(body: str) -> None:
    """As norms export that begin with a scale of 1 and a shift of 0."""
    constants = "float c = {1}, float z = {-0.0}, float[3] o = {0, 0, 0}"
    assert left_out(body, constants) == body.count("=") - body.count("MatMul")


def test_numbers_of_16_bits_are_not_even_widened() -> None:
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 21]>
    g (float16[2,3] x) => (float16[2,3] y) <float one = {1}>
    { c = Cast <to = 10> (one) a = Neg (x) r = Mul (a, c) y = Neg (r) }""")
    assert not any(node.op == "Mul" for node in canonicalize(import_model(model)).nodes)
