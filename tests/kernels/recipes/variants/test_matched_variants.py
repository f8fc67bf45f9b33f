"""Tests of kernels that find elements by values: channels that are found together are together."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.kernels.definitions.data_dependent.indexing import gather_at
from graphflow.kernels.definitions.interpolation.sampling import (
    deformed_columns,
    grid_sample,
    roi_align,
)
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.recipes import kernel_variants
from graphflow.tir import PrimFunc
from support.models.peer_sessions import peer_session
from support.targets import in_turn

both = pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])

SAMPLED = grid_sample((1, 32, 9, 7), (2, 1, 5, 6), "linear", "zeros", False)
ALIGNED = roi_align((2, 32, 9, 7), 3, (2, 2), (2, 2), 1.0, True, False)
COLUMNS = deformed_columns((1, 32, 9, 7), (9, 7), Window.of((3, 3), pads=(1,) * 4), 1, False)
ROWS = gather_at((50, 32), (3, 4), 0)


def cycles(func: PrimFunc) -> dict[str, float]:
    """The price of each variant, by the layout of what it finds elements in."""
    found = kernel_variants(func, frozenset(), avx2_target())
    return {made.layouts["x"].describe(): made.work.cycles for made in found}


@pytest.mark.parametrize("func", [SAMPLED, ALIGNED, COLUMNS], ids=lambda func: func.name)
def test_channels_that_are_next_to_each_other_are_found_in_vectors(func: PrimFunc) -> None:
    found = cycles(func)
    assert found["NHWC"] < found["NCHW8c"] * 1.1 < found["NCHW"] / 2


def test_rows_that_are_contiguous_keep_their_layout() -> None:
    assert len(cycles(ROWS)) == 1


def test_a_position_keeps_its_layout() -> None:
    for made in kernel_variants(SAMPLED, frozenset(), avx2_target()):
        assert not made.layouts["places"].is_padded
        assert made.layouts["places"].describe() == "NCHW"


@in_turn("channels mode", [32, 20], ["nearest", "linear", "cubic"])
def test_an_image_between_convolutions_is_sampled_in_their_layout(
    target: Target, channels: int, mode: str
) -> None:
    rng = np.random.default_rng(channels)
    w = rng.standard_normal((channels, channels, 3, 3)).astype(np.float32) / 8
    grid = rng.uniform(-1.1, 1.1, (1, 20, 18, 2)).astype(np.float32)
    image = (1, channels, 24, 22)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        helper.make_node("GridSample", ["a", "g"], ["b"], mode=mode),
        helper.make_node("Conv", ["b", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "sampled",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, image),
         helper.make_tensor_value_info("g", TensorProto.FLOAT, grid.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, "w")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    exe = gf.compile(model, target=target, options=gf.Options(threads=2, poison=True))
    inputs = {"x": rng.standard_normal(image).astype(np.float32), "g": grid}
    session = peer_session(model)
    (expected,) = session.run(None, inputs)
    np.testing.assert_allclose(exe.run(inputs)["y"], expected, rtol=2e-4, atol=2e-5)
    assert exe.layouts["a"].layout.describe() != "NCHW"
    if channels == 32:
        assert not {"a", "b"} & {made.value for made in exe.compiled.plan.conversions}
