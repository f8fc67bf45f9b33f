"""The commands that compile and run a model: demo, compile, run."""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import GraphflowError
from graphflow.bench import random_inputs
from graphflow.cli.command_arguments import (
    MODEL_HELP,
    add_command,
    add_model_arguments,
    named_array,
)
from graphflow.cli.command_models import (
    compile_bar,
    compiled,
    executable,
    options,
    stdout_console,
    tell_foreign_nodes,
)
from graphflow.cli.demo import demo


def add_run_commands(commands: Any) -> None:
    """Add the parsers of this module's commands."""
    command = add_command(commands, "demo", run_demo, "build, compile, show and time a small model")
    command.add_argument("--threads", type=int, help="threads of a run")
    command.add_argument("--dump", metavar="DIR", help="write the result of each stage to DIR")

    command = add_command(commands, "compile", run_compile, "compile a model")
    add_model_arguments(command, MODEL_HELP)
    command.add_argument("-o", "--output", metavar="FILE", help="save the compiled model")
    command.add_argument(
        "--validate",
        action="store_true",
        help="compare each distinct native kernel with the interpreter of its definition, and fail "
        "if one differs",
    )

    command = add_command(commands, "run", run_model, "run a model, by default on random inputs")
    add_model_arguments(command)
    command.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="the array of an input; may be repeated",
    )
    command.add_argument("--seed", type=int, default=0, help="seed of the random inputs")
    command.add_argument("--save", metavar="PREFIX", help="write outputs to PREFIXname.npy")


def run_demo(wanted: argparse.Namespace) -> int:
    """`graphflow demo`."""
    return 0 if demo(stdout_console(), options(wanted)) else 1


def run_compile(wanted: argparse.Namespace) -> int:
    """`graphflow compile MODEL`."""
    with compile_bar(wanted) as bar:
        exe = compiled(wanted, bar, wanted.shape)
    tell_foreign_nodes(exe)
    print(exe.decisions().summary)
    for stage, seconds in exe.compiled.timings["stages"].items():
        print(f"  {stage:13} {seconds:8.3f} s")
    kernels = len(exe.compiled.lowered.kernels)
    print(f"  {exe.compiled.cached} of {kernels} kernels came from the cache")
    if exe.compiled.validation is not None:
        print(exe.compiled.validation.summary())
    if wanted.output is not None:
        exe.save(wanted.output)
        print(f"saved to {wanted.output}, {os.path.getsize(wanted.output)} bytes")
    return 0


def run_model(wanted: argparse.Namespace) -> int:
    """`graphflow run MODEL`."""
    given = dict(named_array(text) for text in wanted.input)
    with compile_bar(wanted) as bar:
        exe = executable(wanted, bar, [(name, array.shape) for name, array in given.items()])
        if not given.keys() >= set(exe.deciding):
            exe.decisions()  # raises, and names the inputs whose shapes or values are missing
        arrays = {**random_inputs(exe.inputs, wanted.seed), **exe.values, **given}
        results = exe.run(arrays)
    tell_foreign_nodes(exe)
    for name, array in results.items():
        print(f"{name}: {array.dtype}{list(array.shape)}{_statistics(array)}")
        if wanted.save is not None:
            _save_array(f"{wanted.save}{name.replace('/', '_')}.npy", array)
    return 0


def _save_array(path: str, array: NDArray[Any]) -> None:
    try:
        np.save(path, array)
    except (OSError, ValueError) as error:
        raise GraphflowError(f"cannot write {path}: {error}; give another --save") from None


def _statistics(array: NDArray[Any]) -> str:
    if not array.size:
        return ""
    return f", from {array.min():.6g} to {array.max():.6g}, mean {array.mean():.6g}"
