"""Tests of kernels whose stages meet at shared loops: each layout and target beside the
interpreter, special values in each place, and padding that holds anything."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from graphflow.base.errors import ScheduleError
from graphflow.codegen import avx2_target, host_target
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.reductions import normalization, reduction
from graphflow.kernels.definitions.windows import convolution, pooling
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.lowering import LoweredKernel
from graphflow.kernels.lowering.task import instead_of_tile
from graphflow.kernels.recipes import KernelVariant, SharedLoops, kernel_schedule, kernel_variants
from graphflow.lower.called_kernels import lower_call
from graphflow.tir import Block, LoopKind, PrimFunc, interpret, loops_of
from support.kernels.covering_variants import covering
from support.placing import SENTINEL, Native, call_of, outside, place, unplace
from support.targets import in_turn

KINDS = ("usual", "inf", "nan", "large", "negative zero", "rows of -inf", "all large")

TARGETS = {"host": host_target(), "avx2": avx2_target()}

DEFINITIONS: dict[str, Callable[[], PrimFunc]] = {
    "softmax of long rows": lambda: reduction.softmax((3, 70), (1,)),
    "softmax of many rows": lambda: reduction.softmax((11, 37), (1,)),
    "softmax of short rows": lambda: reduction.softmax((9, 5), (1,)),
    "softmax of one element": lambda: reduction.softmax((20, 1), (1,)),
    "softmax of one row": lambda: reduction.softmax((1, 70), (1,)),
    "softmax of everything": lambda: reduction.softmax((3, 4, 9), (0, 1, 2)),
    "softmax over channels": lambda: reduction.softmax((1, 21, 5, 7), (1,)),
    "log softmax": lambda: reduction.log_softmax((9, 70), (1,)),
    "layer norm": lambda: normalization.layer_normalization((13, 58), 1, (58,), (58,)),
    "layer norm over two axes": lambda: normalization.layer_normalization((5, 6, 11), 1, (6, 11)),
    "instance norm": lambda: normalization.group_normalization((1, 20, 7, 7), 20, 20),
    "group norm": lambda: normalization.group_normalization((2, 6, 5, 7), 3, 6),
    "mean of images": lambda: reduction.reduce("mean", (2, 3, 5, 15), (2, 3)),
    "mean of small images": lambda: reduction.reduce("mean", (1, 9, 3, 3), (2, 3)),
    "maximum of rows": lambda: reduction.reduce("max", (9, 133), (1,)),
    "minimum of short rows": lambda: reduction.reduce("min", (9, 3), (1,), keepdims=False),
    "norm of rows": lambda: reduction.reduce("l2", (9, 58), (1,)),
    "lp norm": lambda: normalization.lp_normalization((9, 41), 1),
    "layer norm of many rows": lambda: normalization.layer_normalization(
        (2, 48, 20), 2, (20,), (20,)
    ),
    "layer norm of 3 in a row": lambda: normalization.layer_normalization((64, 3), 1, (3,), (3,)),
    "softmax of many short rows": lambda: reduction.softmax((96, 7), (1,)),
    "matrix times vector": lambda: linear.matmul((9, 133), (133, 1)),
    "vector times matrices": lambda: linear.matmul((3, 1, 37), (3, 37, 5)),
    "convolution to one channel": lambda: convolution.convolution(
        (1, 58, 3, 5), (1, 58, 1, 1), bias=True
    ),
    "window to one channel": lambda: convolution.convolution(
        (1, 20, 5, 6), (1, 20, 3, 3), Window.of((3, 3), pads=(1, 1, 1, 1))
    ),
}


def variants(definition: PrimFunc, target: str) -> list[KernelVariant]:
    found = kernel_variants(definition, frozenset(), TARGETS[target])
    return [v for v in found if isinstance(v.recipe, SharedLoops)]


def numbers(definition: PrimFunc, kind: str) -> dict[str, np.ndarray]:
    dice = np.random.default_rng(7)
    arrays = {b.name: dice.standard_normal(b.shape).astype(np.float32) for b in definition.inputs}
    x = next(iter(arrays.values())).reshape(-1)
    special = {"inf": np.inf, "nan": np.nan, "large": 1e38, "negative zero": -0.0}
    if kind in special:
        x[:: max(x.size // 3, 1)] = special[kind]
    if kind == "rows of -inf":
        x[: x.size // 2] = -np.inf
    if kind == "all large":
        x[:] = 1e38
    return arrays


def native(variant: KernelVariant, definition: PrimFunc, target: str) -> LoweredKernel:
    return lower_call(call_of(definition, variant, None), TARGETS[target], "kernel")


def agrees(variant: KernelVariant, definition: PrimFunc, target: str, kinds: Sequence[str]) -> None:
    """Padding of inputs is NaN here, and that of the output is checked to be left alone."""
    lowered = native(variant, definition, target)
    assert lowered.schedule.steps[0].primitive is not instead_of_tile
    run = Native(lowered, TARGETS[target])
    layout = variant.layouts["y"]
    for kind in kinds:
        arrays = numbers(definition, kind)
        with np.errstate(all="ignore"):
            want = interpret(definition, arrays)["y"]
        placed = {name: place(variant.layouts[name], x, np.nan) for name, x in arrays.items()}
        box = run(placed, SENTINEL)["y"]
        what = f"{variant.name}, {kind}"
        np.testing.assert_allclose(unplace(layout, box), want, rtol=2e-5, atol=2e-6, err_msg=what)
        assert (outside(layout, box) == SENTINEL).all(), what


@in_turn("name", DEFINITIONS, targets=(*TARGETS,))
def test_each_layout_agrees_with_the_definition(name: str, target: str) -> None:
    definition = DEFINITIONS[name]()
    found = variants(definition, target)
    assert found
    # Terms of both signs overflow or not, depending on the order in which they are added.
    kinds = KINDS[:-1] if definition.name in ("matmul", "conv") else KINDS
    for variant in covering(found, turn=len(name)):
        agrees(variant, definition, target, kinds)


@pytest.mark.decisions
def test_tiles_keep_windows_products_and_lanes_along_other_axes() -> None:
    """A reduction alone has lanes along the axes that it reduces over, where these are last."""
    (along,) = variants(reduction.reduce("max", (9, 133), (1,)), "avx2")
    assert isinstance(along.recipe, SharedLoops) and along.recipe.lane_loop is None
    others = (
        pooling.max_pool((1, 3, 9, 40), Window.of((1, 3))),
        linear.matmul((9, 133), (133, 20)),
        reduction.reduce("max", (9, 133), (0,)),
    )
    for definition in others:
        assert not variants(definition, "avx2"), definition.name


@pytest.mark.decisions
def test_what_is_read_once_and_given_at_run_time_is_reduced_along_lanes() -> None:
    definition = linear.matmul((9, 133), (133, 1))
    assert variants(definition, "avx2")
    constants = frozenset({definition.inputs[0].name})
    given = kernel_variants(definition, constants, TARGETS["avx2"])
    assert not any(isinstance(v.recipe, SharedLoops) for v in given)
    others = (
        linear.matmul((9, 133), (133, 2)),  # a tile shares each load of a between two columns
        linear.matmul((9, 5), (5, 1)),  # less than a vector
        convolution.convolution((1, 20, 9, 9), (20, 1, 5, 5), groups=20),
    )
    for definition in others:
        assert not variants(definition, "avx2"), definition.name


@pytest.mark.decisions
def test_threads_share_the_rows() -> None:
    for name in ("softmax of many rows", "softmax over channels", "instance norm"):
        definition = DEFINITIONS[name]()
        for variant in variants(definition, "avx2"):
            assert native(variant, definition, "avx2").extent > 1, variant.name


@pytest.mark.decisions
def test_lanes_run_where_memory_is_contiguous() -> None:
    definition = DEFINITIONS["softmax over channels"]()
    across = {v.name.split(",")[0]: v.recipe.lane_loop for v in variants(definition, "avx2")}
    assert across["NCHW"] is not None
    assert across["NHWC"] is None
    definition = DEFINITIONS["instance norm"]()
    across = {v.name.split(",")[0]: v.recipe.lane_loop for v in variants(definition, "avx2")}
    assert across["NCHW"] is None
    assert across["NHWC"] is not None


def test_rows_beyond_the_stack_are_refused() -> None:
    definition = reduction.softmax((2, 400_000), (1,))
    (variant,) = variants(definition, "avx2")
    placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
    with pytest.raises(ScheduleError, match="bytes of stack"):
        kernel_schedule(definition, placements, variant.recipe, TARGETS["avx2"])
    assert native(variant, definition, "avx2").schedule.refusals


@pytest.mark.parametrize("rows", [2, 20])
def test_a_column_of_a_larger_tensor_has_no_lanes(rows: int) -> None:
    """Between its elements are gaps, of which the variant did not know."""
    definition = reduction.reduce("max", (rows, 1), (0, 1), False)
    variant = variants(definition, "avx2")[0]
    column = variant.layouts["x"].windowed((0, 4), (rows, 5))
    placements = (("x", column, None), ("y", variant.layouts["y"], None))
    func = kernel_schedule(definition, placements, variant.recipe, TARGETS["avx2"]).func
    (nest,) = [s for s in func.body if isinstance(s, Block) and s.name == "reduce_max"]
    assert {loop.kind for loop in loops_of(nest.body)} == {LoopKind.SERIAL}
    x = np.full((rows, 5), np.inf, np.float32)
    x[:, 4] = np.arange(rows) % 17
    assert interpret(func, {"x": x})["y"] == x[:, 4].max()
