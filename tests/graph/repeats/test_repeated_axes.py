"""Tests of products that read keys and values unrepeated: the same bits from smaller tensors."""

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, interpret_graph
from graphflow.graph.repeats import read_unrepeated

HEADS, SIZE = 6, 4


def attention(groups: int, rows: int, keys: int, batch: int = 1, mask: str = "1,1") -> str:
    """Heads of queries over repeated heads of keys and values, as exporters write it; `mask` are
    the axes of the mask in front of rows and keys."""
    times = HEADS // groups
    before = f"float[{batch},{HEADS},{rows},{SIZE}] q, float[{mask},{rows},{keys}] m"
    shape = f"float[{batch},{groups},{keys},{SIZE}]"
    return f"""<ir_version: 9, opset_import: ["" : 21]>
    g ({before}, {shape} k, {shape} v) => (float[{batch},{HEADS},{rows},{SIZE}] y)
    <int64[1] two = {{2}}, float scale = {{0.5}},
     int64[5] wide = {{{batch},{groups},{times},{keys},{SIZE}}},
     int64[4] flat = {{{batch},{HEADS},{keys},{SIZE}}}> {{
        k1 = Unsqueeze (k, two)  k2 = Expand (k1, wide)  k3 = Reshape (k2, flat)
        v1 = Unsqueeze (v, two)  v2 = Expand (v1, wide)  v3 = Reshape (v2, flat)
        kt = Transpose <perm = [0, 1, 3, 2]> (k3)
        a = MatMul (q, kt)  b = Mul (a, scale)  c = Add (b, m)
        p = Softmax <axis = -1> (c)  y = MatMul (p, v3)
    }}"""


def model(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(text)


def feeds_of(proto: onnx.ModelProto) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    shapes = {
        i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in proto.graph.input
    }
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def changed(graph: OperatorGraph, feeds: dict[str, np.ndarray]) -> int:
    """How many kernels read unrepeated tensors; results keep their bits."""
    want = interpret_graph(graph, feeds)
    count = read_unrepeated(graph)
    graph.validate()
    for name, array in interpret_graph(graph, feeds).items():
        np.testing.assert_array_equal(array, want[name])
    return count


@pytest.mark.parametrize(
    ("groups", "rows", "batch", "mask"),
    [(2, 1, 1, "1,1"), (3, 5, 2, "1,1"), (1, 4, 1, "1,1"), (2, 3, 1, "1,6"), (2, 3, 2, "2,1")],
)
def test_products_and_all_between_them_are_split(
    groups: int, rows: int, batch: int, mask: str
) -> None:
    proto = model(attention(groups, rows, 7, batch, mask))
    graph = import_model(proto)
    assert changed(graph, feeds_of(proto)) == 5
    canonical = canonicalize(import_model(proto))
    assert not any(node.op == "Expand" for node in canonical.nodes)
    repeated = batch * HEADS * 7 * SIZE
    assert all(v.size < repeated for v in canonical.values.values() if v.shape[-1:] == (SIZE,))


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_native_programs_match_the_definitions(target: Target) -> None:
    proto = model(attention(2, 20, 33))
    feeds = feeds_of(proto)
    exe = gf.compile(proto, target=target, threads=1)
    want = interpret_graph(import_model(proto), feeds)
    np.testing.assert_allclose(exe.run(feeds)["y"], want["y"], rtol=2e-5, atol=2e-6)


def test_repeated_heads_without_a_second_product_are_split_alone() -> None:
    text = attention(2, 3, 7).replace("p, v3", "p, w").replace("k, float[1,2,7,4] v",
        "k, float[1,6,7,4] w, float[1,2,7,4] v")  # fmt: skip
    proto = model(text)
    assert changed(import_model(proto), feeds_of(proto)) == 1


def test_a_tensor_that_both_operands_do_not_index_alike_stays() -> None:
    """The rows of a product are no batch: a weight for all of them serves each repetition."""
    proto = model("""<ir_version: 9, opset_import: ["" : 21]>
    g (float[3,1,4] x, float[4,5] w) => (float[6,5] y)
    <int64[3] wide = {3,2,4}, int64[2] flat = {6,4}>
    { e = Expand (x, wide) r = Reshape (e, flat) y = MatMul (r, w) }""")
    assert changed(import_model(proto), feeds_of(proto)) == 0


def test_tiled_heads_are_not_neighbours() -> None:
    """Tile puts copies of all heads side by side: element h is source h % n, not h // n."""
    text = attention(2, 3, 7).replace("Reshape (k2, flat)", "Tile (k, often)").replace(
        "int64[1] two", "int64[4] often = {1,3,1,1}, int64[1] two")  # fmt: skip
    proto = model(text)
    graph = import_model(proto)
    assert changed(graph, feeds_of(proto)) == 1  # the product with the values
    assert any(node.op == "Tile" for node in canonicalize(import_model(proto)).nodes)


def test_elementwise_kernels_behind_the_repetition_are_computed_once() -> None:
    text = (
        attention(2, 3, 7).replace("kt)", "ks)").replace("a = Mat", "ks = Mul (kt, scale) a = Mat")
    )
    proto = model(text)
    assert changed(import_model(proto), feeds_of(proto)) == 5
    (scaled,) = (n for n in canonicalize(import_model(proto)).nodes if "ks.once" in n.outputs)
    assert scaled.func.outputs[0].shape == (1, 2, SIZE, 7)


def test_a_run_may_give_fewer_keys() -> None:
    text = attention(2, 3, 7).replace("3,7]", "3,n]").replace("[1,2,7,4]", "[1,2,n,4]")
    text = text.replace("{1,2,3,7,4}", "{1,1,3,1,1}").replace("{1,6,7,4}", "{1,6,-1,4}")
    exe = gf.compile(model(text), sizes={"n": (1, 9)}, threads=1)
    fixed = model(attention(2, 3, 5))
    feeds = feeds_of(fixed)
    want = interpret_graph(import_model(fixed), feeds)
    np.testing.assert_allclose(exe.run(feeds)["y"], want["y"], rtol=2e-5, atol=2e-6)
    assert not any(s.op == "Expand" for s in exe.compiled.graph.nodes)
