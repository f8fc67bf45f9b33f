"""Tests of products that read bfloat16 numbers as they are stored, for dot products of two."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.dtypes import DTYPES
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS, restricted_to_avx2
from graphflow.base.target import Target
from graphflow.codegen import host_target
from graphflow.frontends import import_model
from graphflow.graph import (
    OperatorGraph,
    canonicalize,
    interpret_graph,
    with_brain_products,
    with_excess_precision,
)
from support.kernels.integer_products import without_matrices
from support.targets import by_turns

BRAIN = DTYPES["bfloat16"]


def flushing(target: Target) -> Target:
    return replace(target, name=f"{target.name}-flushing", flushes_denormals=True)


ZEN4 = flushing(PROCESSORS["zen4"])


def weights(*shape: int) -> Any:
    return (np.random.default_rng(len(shape)).standard_normal(shape) / 4).astype(BRAIN)


def network(shape: tuple[int, ...], *nodes: tuple[str, list[str], str, dict[str, Any]]) -> Any:
    """A model of bfloat16 that maps x to y: operators with inputs, an output and attributes;
    constants have names that begin with `w`, and are made of the shape behind it."""
    made, constants = [], {}
    for op, inputs, output, attributes in nodes:
        for name in inputs:
            if name.startswith("w"):
                extents = tuple(map(int, name[1:].split("x")))
                constants[name] = numpy_helper.from_array(weights(*extents), name)
        made.append(helper.make_node(op, inputs, [output], name=output, **attributes))
    x = helper.make_tensor_value_info("x", TensorProto.BFLOAT16, shape)
    y = helper.make_tensor_value_info("y", TensorProto.BFLOAT16, None)
    graph = helper.make_graph(made, "g", [x], [y], [*constants.values()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


GEMMS = network(
    (12, 64),
    ("MatMul", ["x", "w64x128"], "a", {}),
    ("Relu", ["a"], "b", {}),
    ("MatMul", ["b", "w128x64"], "c", {}),
    ("Add", ["c", "x"], "d", {}),
    ("MatMul", ["d", "w64x96"], "y", {}),
)
POINTWISE = network(
    (1, 16, 5, 5),
    ("Conv", ["x", "w32x16x1x1"], "a", {}),
    ("Clip", ["a", "", ""], "b", {}),
    ("Conv", ["b", "w32x1x3x3"], "c", {"group": 32, "pads": [1, 1, 1, 1]}),
    ("Relu", ["c"], "d", {}),
    ("Conv", ["d", "w16x32x1x1"], "e", {}),
    ("Add", ["e", "x"], "f", {}),
    ("Conv", ["f", "w48x16x1x1"], "y", {}),
)
JOINED = network(
    (1, 16, 5, 5),
    ("Conv", ["x", "w16x16x1x1"], "a", {}),
    ("Relu", ["a"], "b", {}),
    ("Conv", ["x", "w32x16x1x1"], "c", {}),
    ("Relu", ["c"], "d", {}),
    ("Concat", ["b", "d"], "e", {"axis": 1}),
    ("Conv", ["e", "w32x48x1x1"], "f", {}),
    ("Add", ["f", "d"], "y", {}),
)
TRANSPOSED = network(
    (4, 32, 16),
    ("Exp", ["x"], "a", {}),
    ("Transpose", ["a"], "b", {"perm": [1, 0, 2]}),
    ("Reshape", ["b", "shape"], "c", {}),
    ("MatMul", ["c", "w64x96"], "y", {}),
)
TRANSPOSED.graph.initializer.append(numpy_helper.from_array(np.array([32, 64]), "shape"))
NETWORKS = {"products": (GEMMS, 3), "convolutions": (POINTWISE, 3), "joined": (JOINED, 3)}
NETWORKS["moved"] = (TRANSPOSED, 1)


def feeds(model: onnx.ModelProto, special: bool = False) -> dict[str, Any]:
    shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(1).standard_normal(shape)
    if special:
        x.reshape(-1)[[1, 40, 77]] = np.nan, np.inf, -0.0
    return {"x": x.astype(BRAIN)}


def brain_products(graph: OperatorGraph) -> list[str]:
    """The products whose factors are both of bfloat16."""
    return [
        node.name
        for node in graph.nodes
        if node.op in ("MatMul", "Conv")
        and [b.dtype for b in node.func.inputs].count("bfloat16") >= 2
    ]


@pytest.mark.parametrize("name", NETWORKS)
def test_products_read_brain_floats_and_give_the_same_bits(name: str) -> None:
    model, count = NETWORKS[name]
    plain = canonicalize(import_model(model))
    changed = with_brain_products(plain, ZEN4, 1)
    changed.validate()
    assert len(brain_products(changed)) == count and not brain_products(plain)
    given = feeds(model, special=True)
    expected, got = (interpret_graph(g, given)["y"].astype(np.float32) for g in (plain, changed))
    np.testing.assert_array_equal(got, expected)
    zero = expected == 0
    assert (np.signbit(got[zero]) == np.signbit(expected[zero])).all()
    assert not np.isnan(expected).all()


def test_what_is_joined_is_joined_in_16_bits() -> None:
    """Rounded before the Concat, so that its parts are written in place."""
    changed = with_brain_products(canonicalize(import_model(JOINED)), ZEN4, 1)
    (joined,) = (node for node in changed.nodes if node.op == "Concat")
    assert {b.dtype for b in joined.func.inputs} == {"bfloat16"}


def test_a_depthwise_convolution_reads_floats() -> None:
    changed = with_brain_products(canonicalize(import_model(POINTWISE)), ZEN4, 1)
    read = [b.dtype for b in changed.node("c").func.inputs]
    assert read == ["float32", "float32"]


@pytest.mark.parametrize(
    "target",
    [
        PROCESSORS["zen4"],
        flushing(without_matrices(PROCESSORS["graniterapids"])),
        flushing(PROCESSORS["icelake-server"]),
        flushing(restricted_to_avx2(PROCESSORS["zen4"])),
    ],
    ids=lambda target: target.name,
)
def test_other_targets_change_nothing(target: Target) -> None:
    """Where denormals count, where the instruction is slow, and where there is none."""
    plain = canonicalize(import_model(GEMMS))
    changed = with_brain_products(plain, target, 1)
    assert [(n.name, n.func) for n in changed.nodes] == [(n.name, n.func) for n in plain.nodes]


def test_matrix_registers_multiply_what_slow_dot_products_do_not() -> None:
    plain = canonicalize(import_model(GEMMS))
    changed = with_brain_products(plain, flushing(PROCESSORS["graniterapids"]), 1)
    assert brain_products(changed) == brain_products(with_brain_products(plain, ZEN4, 1)) != []


def test_transformed_tiles_of_floats_are_compared() -> None:
    """3×3 convolutions of stride 1: transformed tiles do a quarter of the multiply-adds."""
    model = network(
        (1, 64, 56, 56),
        ("Conv", ["x", "w64x64x3x3"], "a", {"pads": [1, 1, 1, 1]}),
        ("Conv", ["a", "w64x64x3x3"], "y", {"pads": [1, 1, 1, 1]}),
    )
    plain = canonicalize(import_model(model))
    with_tiles = brain_products(with_brain_products(plain, ZEN4, 1))
    without = brain_products(with_brain_products(plain, ZEN4, 1, winograd=False))
    assert (with_tiles, without) == ([], ["a", "y"])


def test_what_products_read_stays_rounded_with_excess_precision() -> None:
    changed = with_brain_products(canonicalize(import_model(GEMMS)), ZEN4, 1)
    relaxed = with_excess_precision(changed)
    assert brain_products(relaxed) == brain_products(changed)


def test_networks_of_other_types_are_left_as_they_are() -> None:
    graph = OperatorGraph()
    assert with_brain_products(graph, ZEN4, 1) is graph


@by_turns("name flush excess", NETWORKS, (False, True), (False, True))
def test_compiled_networks_are_within_the_error_of_their_roundings(
    name: str, flush: bool, excess: bool
) -> None:
    """Against the same network computed in float64 on the same numbers."""
    model, _ = NETWORKS[name]
    given = feeds(model)
    expected = interpret_graph(import_model(model), given)["y"].astype(np.float64)
    options = gf.Options(threads=1, flush_denormals=flush, excess_precision=excess, validate=flush)
    exe = gf.compile(model, options=options)
    got = exe.run(given)["y"].astype(np.float64)
    assert np.abs(got - expected).max() <= 2.0**-6 * np.abs(expected).max()
    assert not np.isnan(got).any()


def test_a_saved_program_demands_the_feature(tmp_path: Any) -> None:
    if "+avx512bf16" not in host_target().features.split(","):
        pytest.skip("this machine has no such instruction")
    exe = gf.compile(GEMMS, options=gf.Options(threads=1, flush_denormals=True))
    assert "+avx512bf16" in exe.compiled.target.features and exe.compiled.target.flushes_denormals
    exe.save(tmp_path / "p.gfp")
    loaded = gf.load(tmp_path / "p.gfp")
    np.testing.assert_array_equal(
        loaded.run(feeds(GEMMS))["y"].view(np.uint16), exe.run(feeds(GEMMS))["y"].view(np.uint16)
    )
