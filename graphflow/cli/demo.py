"""`graphflow demo`: a small network is compiled, explained, checked and timed.

In: nothing.  Out: text on a console.  The network has 58 channels, which no vector length divides,
so that the plan has to decide about padding.  One tensor is pinned to a padded layout, so that on
every processor a tensor keeps its padding, a pair of crop and pad is cancelled, and one is refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import onnx
from rich.console import Console

from graphflow.api.compilation import compile
from graphflow.api.executable import Executable
from graphflow.base.decisions import STORED
from graphflow.base.options import Options
from graphflow.bench import bench_table
from graphflow.cli.comparison import compare
from graphflow.cli.compiling import options as stated_options
from graphflow.cli.decision_table import show_table
from graphflow.cli.drawing import stdout_console
from graphflow.models import ModelBuilder

CHANNELS = 58
PINNED = "powers"
"""The tensor that is pinned to a layout in blocks, as --layout does it."""

TOLERANCE = 1e-5
"""The relative error that float32 sums in another order may have."""


def demo_model() -> onnx.ModelProto:
    """A residual block of `CHANNELS` channels, which a sum over the channels of each pixel divides,
    and a classifier, with seeded weights.

    The sum over the channels must not contain padding, and the exponential of zero is not zero.
    """
    build = ModelBuilder(seed=7, name="demo")
    image = build.input("image", (1, 3, 64, 64))
    stem = build.relu(build.conv(image, CHANNELS, 3, strides=[2, 2], pads=[1, 1, 1, 1]))
    inner = build.relu(build.conv(stem, CHANNELS, 3, pads=[1, 1, 1, 1]))
    block = build.relu(build.add(build.conv(inner, CHANNELS, 1), stem))
    powers = build.node("Exp", [build.conv(block, CHANNELS, 1)], [PINNED])
    total = build.node("ReduceSum", [powers, build.constant(np.array([1]))], ["total"], keepdims=1)
    weighted = build.node("Div", [block, total])
    pooled = build.node("MaxPool", [weighted], kernel_shape=[2, 2], strides=[2, 2])
    head = build.relu(build.conv(pooled, 116, 1))
    flat = build.node("Flatten", [build.node("GlobalAveragePool", [head])])
    scores = build.node("Gemm", [flat, build.weight(116, 10, scale=0.1), build.weight(10)])
    build.output(build.node("Softmax", [scores], axis=1))
    return build.model()


def demo(console: Console, options: Options | None = None) -> bool:
    """Compile, explain, check and time the demo model; returns whether the check passed."""
    model = demo_model()
    exe = compile(model, layouts={PINNED: "blocked"}, options=options)
    show_table(exe, console=console)
    for text in _stories(exe):
        console.print(text, markup=False, highlight=False)
    found = compare(exe, model)
    console.print(bench_table([found]))
    error = found["max_rel_error"]
    if error is None:  # the table says why
        return False
    agrees = bool(error < TOLERANCE and not found["check_is_weak"])
    verdict = "agree" if agrees else "DO NOT agree"
    console.print(f"the outputs {verdict} with onnxruntime's: relative error {error:.1e}")
    return agrees


def _stories(exe: Executable) -> Iterator[str]:
    """A tensor that keeps its padding, a cancelled and a refused pair, and all about the first."""
    report = exe.report()
    padded = [edge for edge in report["edges"] if edge["regions"] and edge["where"] == STORED]
    kept = [e["name"] for e in padded if not any(use["conversion"] for use in e["demands"])]
    for name in kept[:1]:
        yield f"\nA tensor that keeps its padding: {_sentence(exe, name)}"
    names = {edge["name"] for edge in padded}
    for pair in [one for one in report["cancelled"] if one["edge"] in names][:1]:
        yield f"\nA crop and a pad that are cancelled, of {pair['edge']}: {pair['proof']}."
    for pair in report["refused"][:1]:
        yield (
            f"\nA crop and a pad that are refused, of {pair['edge']}: {pair['reason']}; instead "
            f"{pair['repair']}."
        )
    for name in kept[:1]:
        yield f"\n`graphflow explain MODEL {name}` says:\n{exe.explain(name)}\n"


def _sentence(exe: Executable, name: str) -> str:
    """The plain sentence about a tensor."""
    return exe.explain(name).partition("\n")[0]


def run_demo(wanted: argparse.Namespace) -> int:
    """`graphflow demo`."""
    return 0 if demo(stdout_console(), stated_options(wanted)) else 1


COMMANDS = {"demo": run_demo}
"""The command of this module, by its name."""
