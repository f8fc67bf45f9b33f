"""The commands that measure: bench times models beside onnxruntime, tune fills the timing table."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from rich.console import Console

from graphflow.api.compilation import executable_of
from graphflow.api.progress_bar import ProgressBar
from graphflow.bench import bench_table
from graphflow.cli.comparison import compare
from graphflow.cli.compiling import onnx_model, options, values
from graphflow.cli.drawing import stdout_console
from graphflow.codegen import named_target
from graphflow.pipeline.request import CompileRequest
from graphflow.tuning import tune


def run_bench(wanted: argparse.Namespace) -> int:
    """`graphflow bench MODEL...`."""
    results = []
    for name in wanted.models:
        with Console(stderr=True).status(f"measuring {name}"):
            results.append(_measured(name, wanted))
        if wanted.json:
            print(json.dumps(results[-1]), flush=True)
    if not wanted.json:
        stdout_console().print(bench_table(results))
    return 0


def run_tune(wanted: argparse.Namespace) -> int:
    """`graphflow tune MODEL...`."""
    for name in wanted.models:
        with ProgressBar(f"tuning {os.path.basename(name)}") as bar:
            found = tune(
                onnx_model(name, wanted.reseed),
                input_shapes=dict(wanted.shape),
                input_values=values(wanted),
                target=named_target(wanted.target),
                options=options(wanted),
                search=wanted.search,
                progress=bar.stage,
                counting=bar.count,
            )
        print(f"{name}: {found}")
    return 0


COMMANDS = {"bench": run_bench, "tune": run_tune}
"""The commands of this module, by name."""


def _measured(name: str, wanted: argparse.Namespace) -> dict[str, Any]:
    model = onnx_model(name, wanted.reseed)
    request = CompileRequest(
        model,
        name=name,
        input_shapes=dict(wanted.shape),
        input_values=values(wanted),
        options=options(wanted),
    )
    return compare(executable_of(request), model, against=wanted.against)
