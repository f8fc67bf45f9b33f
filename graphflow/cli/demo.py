"""`graphflow demo`: a small network is compiled, explained, checked and timed.

In: nothing.  Out: text on a console.  The network has 58 channels, which no vector length divides,
so that the plan has to decide about padding.
"""

from __future__ import annotations

import onnx
from rich.console import Console

from graphflow.api.compilation import compile
from graphflow.api.executable import Executable
from graphflow.base.options import Options
from graphflow.bench import bench_table
from graphflow.cli.comparison import compare
from graphflow.cli.drawing import draw_table
from graphflow.models import ModelBuilder

CHANNELS = 58
TOLERANCE = 1e-5
"""The relative error that float32 sums in another order may have."""


def demo_model() -> onnx.ModelProto:
    """A convolution, a residual block of `CHANNELS` channels, and a classifier, with seeded
    weights."""
    build = ModelBuilder(seed=7, name="demo")
    image = build.input("image", (1, 3, 64, 64))
    stem = build.relu(build.conv(image, CHANNELS, 3, strides=[2, 2], pads=[1, 1, 1, 1]))
    inner = build.relu(build.conv(stem, CHANNELS, 3, pads=[1, 1, 1, 1]))
    block = build.relu(build.add(build.conv(inner, CHANNELS, 1), stem))
    pooled = build.node("MaxPool", [block], kernel_shape=[2, 2], strides=[2, 2])
    head = build.relu(build.conv(pooled, 116, 1))
    flat = build.node("Flatten", [build.node("GlobalAveragePool", [head])])
    scores = build.node("Gemm", [flat, build.weight(116, 10, scale=0.1), build.weight(10)])
    build.output(build.node("Softmax", [scores], axis=1))
    return build.model()


def demo(console: Console, options: Options | None = None) -> bool:
    """Compile, explain, check and time the demo model; returns whether the check passed."""
    model = demo_model()
    exe = compile(model, options=options)
    decisions = exe.decisions()
    console.print(draw_table(decisions))
    console.print(decisions.summary, highlight=False)
    _show_one(console, exe)
    found = compare(exe, model)
    console.print(bench_table([found]))
    error = found["max_rel_error"]
    if error is None:  # the table says why
        return False
    agrees = bool(error < TOLERANCE and not found["check_is_weak"])
    verdict = "agree" if agrees else "DO NOT agree"
    console.print(f"the outputs {verdict} with onnxruntime's: relative error {error:.1e}")
    return agrees


def _show_one(console: Console, exe: Executable) -> None:
    """Print the explanation of the first padded tensor, else that of the output."""
    padded = [edge.name for edge in exe.layouts.values() if edge.regions and edge.variant]
    name = padded[0] if padded else exe.outputs[0].name
    console.print(f"\nthe decision about {name}:")
    console.print(exe.explain(name), markup=False, highlight=False)
