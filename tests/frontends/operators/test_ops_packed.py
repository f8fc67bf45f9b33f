"""Tests of products with weights of a few bits, against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.errors import GraphflowError, InvalidModel, UnsupportedOp
from graphflow.frontends import import_model
from support.single import contrib, noise, peer
from support.texts import assert_agrees

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


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_stay_packed_in_memory(bits: int, rows: int) -> None:
    """The program's constants are the bytes of the weights, once in the order of the kernel."""
    model, feeds = product((rows,), 256, 96, bits=bits, zeros="packed", bias=True)
    exe = gf.compile(model, threads=1, options=gf.Options(workers=0, fallback=None))
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
