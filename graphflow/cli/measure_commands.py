"""The commands that measure: bench times models beside onnxruntime, tune fills the timing table."""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

from rich.console import Console

from graphflow.bench import bench_table
from graphflow.cli.command_arguments import (
    MODEL_HELP,
    TARGETS,
    add_command,
    add_common_arguments,
    add_target_argument,
    peers,
)
from graphflow.cli.command_models import onnx_model, options, stdout_console
from graphflow.cli.comparison import bench
from graphflow.cli.progress_bar import ProgressBar
from graphflow.tuning import tune


def add_measure_commands(commands: Any) -> None:
    """Add the parsers of this module's commands."""
    command = add_command(commands, "bench", run_bench, "time models beside onnxruntime")
    command.add_argument("models", nargs="+", metavar="MODEL", help=MODEL_HELP)
    add_common_arguments(command)
    command.add_argument("--json", action="store_true", help="one JSON object on a line per model")
    command.add_argument(
        "--against",
        type=peers,
        default=["onnxruntime"],
        metavar="PEER,…",
        help="the programs to compare with",
    )

    command = add_command(
        commands, "tune", run_tune, "measure kernels and copies, for plans by measured prices"
    )
    command.add_argument("models", nargs="+", metavar="MODEL", help=MODEL_HELP)
    add_common_arguments(command)
    add_target_argument(command)
    command.add_argument(
        "--search",
        type=int,
        default=0,
        metavar="N",
        help="also search schedules: time N points of each sketch for each kernel",
    )


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
                input_values=dict(wanted.value),
                target=TARGETS[wanted.target](),
                options=options(wanted),
                search=wanted.search,
                progress=bar.stage,
                counting=bar.count,
            )
        print(f"{name}: {found}")
    return 0


def _measured(name: str, wanted: argparse.Namespace) -> dict[str, Any]:
    return bench(
        onnx_model(name, wanted.reseed),
        name=name,
        threads=wanted.threads,
        against=wanted.against,
        input_shapes=dict(wanted.shape),
        input_values=dict(wanted.value),
        options=options(wanted),
    )
