"""Tests of products with weights of a few bits, against onnxruntime."""

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphflow as gf
from graphflow.base.dtypes import DTYPES
from graphflow.base.errors import GraphflowError, InvalidModel, UnsupportedOp
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, interpret_graph
from support.single import contrib, noise, peer
from support.targets import in_turn
from support.texts import assert_agrees

OPTIONS = gf.Options(workers=0, fallback=None)

ZEROS = ["none", "packed", "floats"]


def product(
    rows: tuple[int, ...] = (3,),
    depth: int = 70,
    columns: int = 33,
    *,
    bits: int = 4,
    block: int = 32,
    zeros: str = "none",
    bias: bool = False,
    flat: bool = False,
    constant: bool = True,
    **attributes: Any,
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A MatMulNBits with random bytes; all its weights are `constant`, or none is."""
    rng = np.random.default_rng(depth)
    blocks = -(-depth // block)
    floats = rng.uniform(0.005, 0.02, (columns, blocks)).astype(np.float32)
    points = {
        "none": None,
        "packed": rng.integers(0, 256, (columns, -(-blocks * bits // 8)), np.uint8),
        "floats": rng.uniform(0, 2**bits - 1, (columns, blocks)).astype(np.float32),
    }[zeros]
    arrays = [
        noise(*rows, depth),
        rng.integers(0, 256, (columns, blocks, block * bits // 8), np.uint8),
        floats.ravel() if flat else floats,
        points if points is None or not flat else points.ravel(),
        None,
        noise(columns, seed=5) if bias else None,
    ]
    given = [k for k in range(1, 6) if arrays[k] is not None]
    attributes = {"K": depth, "N": columns, "bits": bits, "block_size": block, **attributes}
    return contrib("MatMulNBits", arrays, given if constant else (), **attributes)


@pytest.mark.parametrize(
    ("bits", "zeros"),
    [(bits, zeros) for bits in (2, 4, 8) for zeros in ZEROS if (bits, zeros) != (8, "floats")],
)
def test_each_number_of_bits_and_kind_of_zero_points(bits: int, zeros: str) -> None:
    """With a depth that ends inside a block, and inside a byte of zero points."""
    assert_agrees(*product(bits=bits, zeros=zeros))


@pytest.mark.parametrize(
    "case",
    [
        {"rows": (2, 5), "bias": True},
        {"block": 16, "depth": 33, "zeros": "packed", "flat": True},
        {"block": 128, "depth": 256, "columns": 5, "accuracy_level": 1},
        {"rows": (1,), "depth": 31, "columns": 1, "zeros": "packed"},
        {"constant": False, "zeros": "packed", "bias": True},
    ],
    ids=str,
)
def test_shapes_attributes_and_weights_of_a_run(case: dict[str, Any]) -> None:
    assert_agrees(*product(**case))


@in_turn("case zeros", [(2, 32), (2, 128), (4, 16), (4, 256), (8, 16), (8, 64)], ["none", "packed"])
def test_rows_are_rounded_to_bytes_as_onnxruntime_rounds_them(
    case: tuple[int, int], zeros: str, target: Target
) -> None:
    """A depth that ends inside a block; both runtimes are as far from the product of floats."""
    bits, block = case
    given = {"depth": 2 * block + 19, "bits": bits, "block": block, "zeros": zeros, "bias": True}
    model, feeds = product(accuracy_level=4, **given)
    assert import_model(model).rounded_products == {"o0": ""}
    floats, _ = product(accuracy_level=1, **given)
    plain = peer(floats, feeds)["o0"]
    exe = gf.compile(model, threads=1, target=target, options=OPTIONS)
    found, limit = exe.run(feeds)["o0"], 1e-5 * 2**bits
    np.testing.assert_allclose(found, peer(model, feeds)["o0"], limit, limit)
    assert np.abs(found - plain).max() > 10 * limit
    assert "rounded to bytes" in exe.explain("o0")
    assert exe.report()["rounded_products"] == [{"edge": "o0", "integers": True, "why_not": ""}]


@settings(max_examples=15, deadline=None)
@given(
    rows=st.lists(st.integers(1, 9), max_size=3),
    depth=st.integers(1, 150),
    columns=st.integers(1, 70),
    bits=st.sampled_from([4, 8]),
    block=st.sampled_from([16, 32, 64]),
    zeros=st.sampled_from(["none", "packed"]),
    bias=st.booleans(),
)
def test_any_product_of_rounded_rows_is_that_of_its_graph(
    rows: list[int], depth: int, **case: Any
) -> None:
    model, feeds = product((*rows,), depth, accuracy_level=4, **case)
    exe = gf.compile(model, threads=1, options=replace(OPTIONS, poison=True))
    (expected,) = interpret_graph(canonicalize(import_model(model)), feeds).values()
    np.testing.assert_allclose(exe.run(feeds)["o0"], expected, 3e-4, 3e-4)


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        ({"zeros": "floats"}, "its zero points are floats"),
        ({"block": 512, "depth": 600}, "512 elements, more than 256"),
        ({"depth": 20}, "in one block"),
        ({"constant": False}, "its input i1 is no constant"),
    ],
    ids=str,
)
def test_other_products_of_rows_that_may_be_rounded_are_of_floats(
    case: dict[str, Any], reason: str
) -> None:
    model, feeds = product(accuracy_level=4, **case)
    exe = gf.compile(model, threads=1, options=OPTIONS)
    floats, _ = product(accuracy_level=1, **case)
    np.testing.assert_allclose(exe.run(feeds)["o0"], peer(floats, feeds)["o0"], 3e-5, 3e-5)
    assert f"of rows that are not rounded: {reason}" in exe.explain("o0") or reason in str(
        exe.report()["rounded_products"]
    )


@pytest.mark.parametrize("rows", [1, 5, 12])
def test_one_program_rounds_any_number_of_rows(rows: int) -> None:
    """Rows behind those of a run hold anything, and are neither rounded nor multiplied."""
    model, _ = product((12,), 70, 50, accuracy_level=4, zeros="packed", bias=True)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    model.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    exe = gf.compile(model, sizes={"rows": (1, 12)}, threads=1, options=OPTIONS)
    feeds = {"i0": noise(rows, 70, seed=rows)}
    alone, _ = product((rows,), 70, 50, accuracy_level=4, zeros="packed", bias=True)
    np.testing.assert_allclose(exe.run(feeds)["o0"], peer(alone, feeds)["o0"], 3e-4, 3e-4)
    assert exe.report()["programs"]["compiled"] == 1


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("level", [1, 4])
def test_weights_stay_packed_in_memory(bits: int, rows: int, level: int) -> None:
    """The program's constants are the bytes of the weights, once in the order of the kernel."""
    case = {"bits": bits, "zeros": "packed", "bias": True, "accuracy_level": level}
    model, feeds = product((rows,), 256, 96, **case)
    exe = gf.compile(model, threads=1, options=OPTIONS)
    np.testing.assert_allclose(exe.run(feeds)["o0"], peer(model, feeds)["o0"], 3e-5, 3e-5)
    scales, zeros, start = 4 * 96 * 8, 96 * bits, 4 * 96
    constants = 256 * 96 * bits // 8 + scales + zeros + start
    assert exe.program.spec.run_constant_bytes <= 1.1 * constants


@pytest.mark.parametrize(
    ("case", "error", "text"),
    [
        ({"bits": 3}, UnsupportedOp, "weights of 3 bits"),
        ({"block": 24}, InvalidModel, "a power of two from 16 on"),
        ({"N": 0}, InvalidModel, "must be positive"),
        ({"K": 71}, InvalidModel, "do not fit weights of K = 71"),
        ({"N": 34}, InvalidModel, "elements are needed"),
        ({"weight_prepacked": 1}, UnsupportedOp, "packed for a GPU"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(
    case: dict[str, Any], error: type[GraphflowError], text: str
) -> None:
    names = {"bits": "bits", "block": "block_size"}
    model, _ = product()
    for name, value in case.items():
        attribute = onnx.helper.make_attribute(names.get(name, name), value)
        kept = [a for a in model.graph.node[0].attribute if a.name != attribute.name]
        del model.graph.node[0].attribute[:]
        model.graph.node[0].attribute.extend([*kept, attribute])
    with pytest.raises(error, match=text):
        import_model(model)


def test_blocks_of_single_rows_run_in_onnxruntime() -> None:
    """The input g_idx gives each row of the weights its block."""
    model, feeds = product(depth=64)
    groups = np.repeat(np.arange(2), 32).astype(np.int32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(groups, "g"))
    model.graph.node[0].input[4] = "g"
    with pytest.raises(UnsupportedOp, match="reorder the rows of the weights"):
        import_model(model)
    got = gf.compile(model, threads=1, options=gf.Options(workers=0)).run(feeds)
    np.testing.assert_allclose(got["o0"], peer(model, feeds)["o0"], 3e-5, 3e-5)


def test_products_of_the_same_rows_round_them_once() -> None:
    model, feeds = product(accuracy_level=4)
    node = onnx.NodeProto()
    node.CopyFrom(model.graph.node[0])
    node.name, node.output[0] = "second", "o1"
    model.graph.node.append(node)
    other = onnx.ValueInfoProto()
    other.CopyFrom(model.graph.output[0])
    other.name = "o1"
    model.graph.output.append(other)
    graph = assert_agrees(model, feeds)
    rounding = [x for x in graph.topological() if x.func.name == "rounded_blocks"]
    assert len(rounding) == 1


@in_turn("bits", [2, 4, 8])
def test_native_kernels_of_rounded_rows_are_their_definitions(bits: int, target: Target) -> None:
    """On special numbers too; a row with NaN or an infinity becomes NaN, and no other one."""
    case = {"bits": bits, "zeros": "packed", "bias": True, "accuracy_level": 4}
    model, feeds = product((5,), 150, 70, **case)
    options = replace(OPTIONS, validate=True)
    exe = gf.compile(model, threads=1, target=target, options=options)
    assert exe.report()["summary"]["replaced_kernels"] == 0
    feeds["i0"][1, 3], feeds["i0"][3, 149] = np.nan, -np.inf
    rows = np.isnan(exe.run(feeds)["o0"])
    assert rows[[1, 3]].all()
    assert not rows[[0, 2, 4]].any()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_rows_of_halves_are_rounded_to_bytes(dtype: str) -> None:
    model, feeds = product((3,), 128, 48, accuracy_level=4)
    halves = getattr(onnx.TensorProto, dtype.upper())
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.elem_type = halves
    scales = next(x for x in model.graph.initializer if x.name == "i2")
    rounded = onnx.numpy_helper.to_array(scales).astype(DTYPES[dtype])
    scales.CopyFrom(onnx.numpy_helper.from_array(rounded, "i2"))
    x = feeds["i0"].astype(DTYPES[dtype])
    exe = gf.compile(model, threads=1, options=OPTIONS)
    assert exe.report()["rounded_products"][0]["integers"]
    wide, _ = product((3,), 128, 48, accuracy_level=4)
    wide.graph.initializer[1].CopyFrom(
        onnx.numpy_helper.from_array(rounded.astype(np.float32), "i2")
    )
    want = gf.compile(wide, threads=1, options=OPTIONS).run({"i0": x.astype(np.float32)})["o0"]
    np.testing.assert_array_equal(exe.run({"i0": x})["o0"], want.astype(DTYPES[dtype]))
