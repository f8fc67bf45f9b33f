"""Convolution kernels on one core, against the multiply-add peak and against onnxruntime.

    python benchmarks/conv_shapes.py [--avx2] [--all] [--rounds N]

Each shape is compiled from its compute definition in the cheapest variant, timed with warm caches
on physical buffers, and compared with a float64 reference.  The peak is measured in the same round,
right after each kernel, because the speed of a shared machine drifts: the table has the median of
the rounds' ratios.  GFLOP/s count logical work, including taps in the padding.  Times are in
milliseconds.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from graphflow.base.target import Target
from graphflow.bench.machine_limits import measure_machine
from graphflow.codegen import avx2_target, compile_object, host_target
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.lowering import LoweredKernel
from graphflow.kernels.recipes import KernelVariant, View, kernel_variants
from graphflow.layout import Layout, channels_last, families
from graphflow.lower import lower_call
from graphflow.models import ModelBuilder
from graphflow.physical import PhysicalCall, Placement
from graphflow.program import BufferRef, ProgramSpec, ProgramStep, TensorSpec
from graphflow.runtime import Program


@dataclass(frozen=True)
class Shape:
    """A square-kernel convolution of batch one."""

    channels: int
    outputs: int
    size: int
    kernel: int
    stride: int = 1

    @property
    def pad(self) -> int:
        """The padding that keeps the size at stride one."""
        return self.kernel // 2

    @property
    def out_size(self) -> int:
        """The number of rows, and of columns, of the output."""
        return (self.size + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def gflop(self) -> float:
        """The logical work in 10⁹ operations."""
        taps = self.channels * self.kernel**2
        return 2e-9 * self.outputs * taps * self.out_size**2

    def __str__(self) -> str:
        side, k = self.size, self.kernel
        stride = f"/{self.stride}" if self.stride > 1 else ""
        return f"{self.channels}→{self.outputs} {k}×{k}{stride} {side}×{side}"


JUDGED = (
    Shape(64, 64, 56, 3),
    Shape(256, 64, 56, 1),
    Shape(512, 512, 7, 3),
    Shape(58, 58, 40, 1),
    Shape(116, 116, 28, 1),
)
OTHERS = (
    Shape(3, 64, 224, 7, 2),
    Shape(64, 256, 56, 1),
    Shape(128, 128, 28, 3),
    Shape(256, 256, 14, 3),
    Shape(1024, 256, 14, 1),
    Shape(20, 20, 56, 3),
    Shape(58, 58, 28, 3),
    Shape(128, 128, 56, 3, 2),
)


@dataclass
class Kernel:
    """One variant of one shape, bound to physical buffers."""

    variant: KernelVariant
    lowered: LoweredKernel
    seconds: float
    run: object


def physical(layout: Layout, array: NDArray[np.float32]) -> NDArray[np.float32]:
    """`array` in a layout, with NaN in its padding."""
    out = np.full(layout.physical_shape, np.nan, np.float32)
    out[_places(layout)] = array.reshape(-1)
    return out


def cheapest(shape: Shape, target: Target, arrays: dict[str, NDArray[np.float32]]) -> Kernel:
    """The cheapest variant with input and output in one family of layouts, compiled and bound."""
    definition = convolution.convolution(
        arrays["x"].shape,
        arrays["w"].shape,
        Window.of(arrays["w"].shape[2:], strides=(shape.stride,) * 2, pads=(shape.pad,) * 4),
        bias=True,
    )
    variants = [
        variant
        for variant in kernel_variants(definition, frozenset(("w", "b")), target)
        if not isinstance(variant.recipe, View) and _one_family(variant, target)
    ]
    variant = min(variants, key=lambda f: f.work.cycles)
    start = time.perf_counter()
    placements = {n: Placement(n, x) for n, x in variant.layouts.items()}
    call = PhysicalCall("conv", definition, placements, variant.recipe, variant)
    lowered = lower_call(call, target, "conv")
    code = compile_object(lowered.func, "conv", target)
    seconds = time.perf_counter() - start
    placed = {n: physical(variant.layouts[n], a) for n, a in arrays.items()}
    inputs = tuple(TensorSpec(n, "float32", placed[n].shape) for n in ("x", "w", "b"))
    output = TensorSpec("y", "float32", variant.layouts["y"].physical_shape)
    buffers = (*(BufferRef("input", k) for k in range(3)), BufferRef("output", 0))
    steps = (ProgramStep("conv", buffers, lowered.extent),)
    spec = ProgramSpec((("conv", code),), (), steps, (), 0, 0, inputs, (output,))
    return Kernel(variant, lowered, seconds, Program(spec, 1).bind(placed))


def _one_family(variant: KernelVariant, target: Target) -> bool:
    """Whether input and output are in one family with channels in lanes, or row-major for few
    channels."""
    plain, *rest = families(4, target.lanes("float32"))
    x, y = variant.layouts["x"], variant.layouts["y"]
    if x.logical_shape[1] < target.lanes("float32") // 2:
        return x == plain.instantiate(x.logical_shape) and y == channels_last(y.logical_shape)
    return any(
        x == family.instantiate(x.logical_shape) and y == family.instantiate(y.logical_shape)
        for family in rest
    )


def reference(shape: Shape, arrays: dict[str, NDArray[np.float32]]) -> NDArray[np.float64]:
    """The convolution in float64."""
    p, k, s, n = shape.pad, shape.kernel, shape.stride, shape.out_size
    x = np.pad(arrays["x"][0].astype(np.float64), ((0, 0), (p, p), (p, p)))
    out = np.zeros((shape.outputs, n, n)) + arrays["b"][:, None, None]
    for i in range(k):
        for j in range(k):
            taps = x[:, i : i + s * n : s, j : j + s * n : s]
            out += np.tensordot(arrays["w"][:, :, i, j].astype(np.float64), taps, 1)
    return out


def peer(shape: Shape, arrays: dict[str, NDArray[np.float32]]) -> object:
    """An onnxruntime session for a model of this node alone, with one thread."""
    b = ModelBuilder()
    x = b.input("x", arrays["x"].shape)
    names = [b.constant(arrays["w"]), b.constant(arrays["b"])]
    attributes = {"strides": [shape.stride] * 2, "pads": [shape.pad] * 4}
    b.output(b.node("Conv", [x, *names], **attributes))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        b.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": arrays["x"]})


def median_seconds(run: object, least: float = 0.03) -> float:
    """The median of runs that last at least so many seconds, after one warm-up run."""
    assert callable(run)
    run()
    taken: list[float] = []
    while sum(taken) < least or len(taken) < 5:
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--avx2", action="store_true", help="force the AVX2 variant of the target")
    parser.add_argument("--all", action="store_true", help="more shapes than the judged ones")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    target = avx2_target() if given.avx2 else host_target()
    table = Table("shape", "variant", "tiling", title=f"{target.name}, one core")
    for name in ("GFLOP/s", "of peak", "ms", "ort ms", "error", "made s"):
        table.add_column(name, justify="right")
    for shape in JUDGED + (OTHERS if given.all else ()):
        table.add_row(*_row(shape, target, given.rounds))
    Console(width=140).print(table)


def _row(shape: Shape, target: Target, rounds: int) -> list[str]:
    random = np.random.default_rng(0)
    weights = (shape.outputs, shape.channels, shape.kernel, shape.kernel)
    arrays = {
        "x": random.standard_normal((1, shape.channels, shape.size, shape.size), np.float32),
        "w": random.standard_normal(weights, np.float32),
        "b": random.standard_normal(shape.outputs, np.float32),
    }
    kernel = cheapest(shape, target, {**arrays})
    other = peer(shape, arrays)
    times, ratios, theirs = [], [], []
    for _ in range(rounds):
        measure_machine.cache_clear()
        peak = measure_machine(target, 1).gflops
        times.append(median_seconds(kernel.run.run))  # type: ignore[attr-defined]
        ratios.append(shape.gflop / times[-1] / peak)
        theirs.append(median_seconds(other))
    out = next(iter(kernel.run.outputs.values()))  # type: ignore[attr-defined]
    layout = kernel.variant.layouts["y"]
    got = out[_places(layout)]
    wanted = reference(shape, arrays)
    error = float(np.abs(got.reshape(wanted.shape) - wanted).max() / np.abs(wanted).max())
    seconds = statistics.median(times)
    tiling = kernel.variant.recipe.tiling  # type: ignore[union-attr]
    panels = ", ".join(f"{p.count}·{p.mr}×{p.nr_vectors}×{p.lanes}" for p in tiling.panels)
    panels += " outermost" if tiling.panel_outermost else ""
    return [
        str(shape),
        kernel.variant.name,
        panels,
        f"{shape.gflop / seconds:.1f}",
        f"{statistics.median(ratios):.0%}",
        f"{1e3 * seconds:.3f}",
        f"{1e3 * statistics.median(theirs):.3f}",
        f"{error:.0e}",
        f"{kernel.seconds:.2f}",
    ]


def _places(layout: Layout) -> tuple[NDArray[np.int64], ...]:
    """The physical indices of all elements, in logical order."""
    grid = np.indices(layout.logical_shape).reshape(len(layout.logical_shape), -1)
    names = {str(v): grid[k] for k, v in enumerate(layout.index_map.inputs)}
    return tuple(eval(str(e), {}, names) + 0 * grid[0] for e in layout.index_map.outputs)


if __name__ == "__main__":
    main()
