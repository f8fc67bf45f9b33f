"""Reductions of whole tensors in the kernels that write these: where, and that nothing changes."""

from collections.abc import Callable

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS, restricted_to_avx2
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, executed_as, host_target
from graphflow.models.builder import ModelBuilder
from graphflow.tir import interpret
from support.placing import place, unplace
from support.targets import in_turn

TARGETS = (host_target(), avx2_target())
SPECIAL = (0.0, -0.0, 1e-45, 3e38, np.inf, -np.inf, np.nan)
ENDS = ("ReduceMax", "ReduceMin")


def reduced_product(shape: tuple[int, ...], channels: int, op: str = "ReduceMax") -> ModelBuilder:
    """A 1×1 convolution, its elements with channels last, and the greatest or least of them."""
    b = ModelBuilder()
    y = b.conv(b.input("x", shape), channels, 1, in_channels=shape[1])
    b.output(b.node("Transpose", [y], perm=[0, 2, 3, 1]))
    b.output(b.node(op, [y], keepdims=0))
    return b


def makers(exe: gf.Executable) -> list[tuple[int, ...]]:
    """The shapes of the partial results that kernels write beside their outputs."""
    calls = [call for call, _ in exe.compiled.lowered.calls if not call.prepare]
    assert not any(kernel.instead_of for kernel in exe.compiled.lowered.kernels.values())
    return [b.shape for call in calls for b in call.definition.outputs[1:]]


def compiled(b: ModelBuilder, target: Target, threads: int = 2) -> gf.Executable:
    return gf.compile(b.model(), target=target, options=gf.Options(threads=threads, validate=True))


@in_turn("op threads", ENDS, (1, 2))
def test_the_tensor_is_not_read_once_more(target: Target, threads: int, op: str) -> None:
    """58 channels end within a vector."""
    exe = compiled(reduced_product((1, 16, 30, 30), 58, op), target, threads)
    assert makers(exe)
    rng, extreme = np.random.default_rng(0), np.max if op == "ReduceMax" else np.min
    for special in SPECIAL:
        x = rng.standard_normal((1, 16, 30, 30)).astype(np.float32)
        x[0, 3, 17, 4] = special
        y, found = exe.run({"x": x}).values()
        np.testing.assert_array_equal(found, extreme(y))


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_panels_and_rows_are_parts_where_threads_share_both(target: Target) -> None:
    exe = compiled(reduced_product((1, 512, 14, 14), 512), target)
    ((panels, rows),) = makers(exe)
    assert panels > 1 and rows == 14
    x = np.random.default_rng(0).standard_normal((1, 512, 14, 14)).astype(np.float32)
    y, found = exe.run({"x": x}).values()
    np.testing.assert_array_equal(found, y.max())


def test_panels_and_images_are_parts_where_rows_are_joined() -> None:
    """7 × 7 positions are the rows of one axis in memory, and each panel reads all of them."""
    exe = compiled(reduced_product((2, 512, 7, 7), 1024), avx2_target())
    ((panels, images),) = makers(exe)
    assert panels > 1 and images == 2
    x = np.random.default_rng(0).standard_normal((2, 512, 7, 7)).astype(np.float32)
    y, found = exe.run({"x": x}).values()
    np.testing.assert_array_equal(found, y.max())


SMALL = replace(PROCESSORS["graniterapids"], name="small cache", l2_bytes=256 * 1024)
"""A processor that awaits rows, and whose second-level cache holds few."""


@pytest.mark.parametrize(
    ("processor", "shape", "columns", "parts"),
    [
        pytest.param(PROCESSORS["zen4"], (197, 512), 256, (4, 3), id="blocks alone"),
        pytest.param(SMALL, (509, 128), 500, (3, 8), id="panels inside of them"),
        pytest.param(restricted_to_avx2(SMALL), (509, 128), 500, (3, 21), id="the same, AVX2"),
    ],
)
def test_blocks_are_parts_where_the_last_one_lacks_rows(
    processor: Target, shape: tuple[int, int], columns: int, parts: tuple[int, ...]
) -> None:
    b = ModelBuilder()
    y = b.node("MatMul", [b.input("x", shape), b.weight(shape[1], columns)])
    b.output(y)
    b.output(b.node("ReduceMin", [y], keepdims=0))
    exe = compiled(b, executed_as(processor))
    assert makers(exe) == [parts]
    for last in (1.0, 100.0):
        x = np.random.default_rng(0).uniform(1.0, 2.0, shape).astype(np.float32)
        x[-1] *= last
        y, found = exe.run({"x": x}).values()
        np.testing.assert_array_equal(found, y.min())


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_a_kernel_has_both_ends_of_a_range(target: Target) -> None:
    b = ModelBuilder()
    y = b.conv(b.input("x", (2, 8, 20, 20)), 24, 3, in_channels=8, pads=[1, 1, 1, 1])
    names = ["q", "scale", "zero"]
    b.node("DynamicQuantizeLinear", [y], names)
    for tensor, last in ((y, "last"), ("q", "q_last")):
        b.output(b.node("Transpose", [tensor], [last], perm=[0, 2, 3, 1]))
    b.output("scale", "zero")
    exe = gf.compile(b.model(), target=target, options=gf.Options(threads=2, winograd=False))
    assert len(makers(exe)) == 2
    assert not [call.name for call, _ in exe.compiled.lowered.calls if call.name.endswith("rows")]
    x = np.random.default_rng(0).standard_normal((2, 8, 20, 20)).astype(np.float32)
    found = exe.run({"x": x})
    high, low = max(found["last"].max(), 0), min(found["last"].min(), 0)
    np.testing.assert_array_equal(found["scale"], np.float32((high - low) / np.float32(255)))


def test_the_explanation_says_so() -> None:
    exe = compiled(reduced_product((1, 16, 30, 30), 58), host_target())
    text = str(exe.explain("conv_1"))
    assert "reduced   where it is stored, to 30 results of its parts" in text


@pytest.mark.parametrize("target", TARGETS, ids=["host", "avx2"])
def test_the_kernel_computes_its_definition(target: Target) -> None:
    """The interpreter, on the kernel that is compiled and on its definition."""
    exe = compiled(reduced_product((1, 5, 20, 30), 20), target)
    kernels = exe.compiled.lowered.kernels.values()
    (kernel,) = [k for k in kernels if len(k.task.definition.outputs) == 2]
    definition, rng = kernel.task.definition, np.random.default_rng(0)
    arrays = {b.name: rng.standard_normal(b.shape).astype(np.float32) for b in definition.inputs}
    layouts = {name: layout for name, layout, _ in kernel.task.placements}
    boxes = {name: place(layouts[name], array, 0.0) for name, array in arrays.items()}
    want, found = interpret(definition, arrays), interpret(kernel.func, boxes)
    for name in (b.name for b in definition.outputs):
        np.testing.assert_allclose(unplace(layouts[name], found[name]), want[name], rtol=1e-5)


def few() -> ModelBuilder:
    return reduced_product((1, 16, 4, 3), 16)


def in_rows_of_memory() -> ModelBuilder:
    """An elementwise kernel, which is one run through memory."""
    b = ModelBuilder()
    x = b.input("x", (1, 16, 40, 40))
    y = b.node("Exp", [x])
    b.output(y)
    b.output(b.node("ReduceMax", [y], keepdims=0))
    return b


def sums() -> ModelBuilder:
    """Sums of floats depend on their order."""
    return reduced_product((1, 16, 40, 40), 32, "ReduceSum")


def of_channels() -> ModelBuilder:
    """No element is reduced alone: there is a result for each channel."""
    b = ModelBuilder()
    y = b.conv(b.input("x", (1, 16, 40, 40)), 32, 1, in_channels=16)
    b.output(b.node("ReduceMax", [y], axes=[2, 3]))
    return b


@pytest.mark.parametrize("model", [few, in_rows_of_memory, sums, of_channels])
def test_other_reductions_read_the_tensor(model: Callable[[], ModelBuilder]) -> None:
    exe = gf.compile(model().model(), options=gf.Options(threads=2))
    assert not makers(exe)
