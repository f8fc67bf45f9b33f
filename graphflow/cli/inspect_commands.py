"""The commands that show decisions: check, operators, inspect, explain, diff."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import Any

from graphflow.api.checking import check
from graphflow.base.errors import InvalidModel
from graphflow.cli.command_arguments import (
    MODEL_HELP,
    add_command,
    add_common_arguments,
    add_model_arguments,
)
from graphflow.cli.command_models import compile_bar, executable, onnx_model, stdout_console
from graphflow.cli.drawing import change_table, draw_table
from graphflow.frontends import operator_document
from graphflow.inspect import changes, read_report


def add_inspect_commands(commands: Any) -> None:
    """Add the parsers of this module's commands."""
    command = add_command(
        commands,
        "check",
        run_check,
        "list which nodes have kernels, and what happens to the others",
    )
    command.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    add_common_arguments(command)

    add_command(
        commands, "operators", run_operators, "print for each ONNX operator how it is compiled"
    )

    command = add_command(commands, "inspect", run_inspect, "show the decision about every tensor")
    add_model_arguments(command)
    command.add_argument("--json", action="store_true", help="the whole report as JSON")
    command.add_argument("--edge", metavar="NAME", help="only this tensor, in full")
    command.add_argument("--all", action="store_true", help="constants and removed tensors too")

    command = add_command(
        commands, "explain", run_explain, "explain the layout and padding of one tensor"
    )
    add_model_arguments(command)
    command.add_argument("tensor", metavar="TENSOR", help="a name in the model")
    command.add_argument(
        "--full", action="store_true", help="also the variants and steps that were refused, and why"
    )

    command = add_command(
        commands,
        "diff",
        run_diff,
        "compare two reports of `inspect --json`: layouts, padding, variants, conversions, "
        "cancelled pairs, pins, counts, prices; exits with 0 if they are equal, 1 if they differ, "
        "2 if a file is not a report",
    )
    command.add_argument("before", metavar="BEFORE.json")
    command.add_argument("after", metavar="AFTER.json")
    command.add_argument("--json", action="store_true", help="the changes as a list of objects")


def run_check(wanted: argparse.Namespace) -> int:
    """`graphflow check MODEL`."""
    model = onnx_model(wanted.model, wanted.reseed)
    found = check(model, input_shapes=dict(wanted.shape), input_values=dict(wanted.value))
    print("\n".join(found.lines()))
    return 0 if found.runs else 1


def run_operators(wanted: argparse.Namespace) -> int:
    """`graphflow operators`."""
    print(operator_document(), end="")
    return 0


def run_inspect(wanted: argparse.Namespace) -> int:
    """`graphflow inspect MODEL`."""
    with compile_bar(wanted) as bar:
        exe = executable(wanted, bar)
    if wanted.json:
        found = exe.report()
        if wanted.edge is not None:
            exe.explain(wanted.edge)  # raises for a name that the model does not have
            found = next(edge for edge in found["edges"] if edge["name"] == wanted.edge)
        print(json.dumps(found, indent=1))
    elif wanted.edge is not None:
        print(exe.explain(wanted.edge))
    else:
        console = stdout_console()
        console.print(draw_table(exe.decisions(), constants=wanted.all))
        console.print(exe.decisions().summary)
    return 0


def run_explain(wanted: argparse.Namespace) -> int:
    """`graphflow explain MODEL TENSOR`."""
    with compile_bar(wanted) as bar:
        exe = executable(wanted, bar)
    print(exe.explain(wanted.tensor, full=wanted.full))
    return 0


def run_diff(wanted: argparse.Namespace) -> int:
    """`graphflow diff BEFORE.json AFTER.json`."""
    try:
        found = changes(read_report(wanted.before), read_report(wanted.after))
    except InvalidModel as error:  # not 1, which means that the reports differ
        print(f"error: {error}", file=sys.stderr)
        return 2
    if wanted.json:
        print(json.dumps([asdict(change) for change in found], indent=1))
    elif found:
        stdout_console().print(change_table(found))
    else:
        print("no difference")
    return 1 if found else 0
