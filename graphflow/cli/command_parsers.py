"""The parser of every command, with the module that runs it.

In: nothing.  Out: an `argparse` parser whose result has `command`, the name of a command, and
`module`, the module of `graphflow.cli` with that name in its `COMMANDS`.  What always holds: no
module of a command is imported here; `commands.main` imports the one that was chosen.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from graphflow.base.offered_names import (
    BYTE_TYPE_NAMES,
    CALIBRATION_METHOD_NAMES,
    CALIBRATION_SAMPLES,
    PEER_NAMES,
    ROW_FILTER_NAMES,
    ROW_ORDER_NAMES,
)
from graphflow.base.version import VERSION
from graphflow.cli.command_arguments import (
    MODEL_HELP,
    add_cluster_argument,
    add_command,
    add_common_arguments,
    add_model_arguments,
    add_network_arguments,
    add_target_argument,
    named_file,
    peers,
)
from graphflow.cli.service_parsers import add_service_commands

REPORT_SCHEMA_FILE = Path(__file__).with_name("report.schema.json")

PROFILE_HELP = "measure the steps of a run, and show them in the page"


def command_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line."""
    parser = argparse.ArgumentParser(
        prog="graphflow", description="Compile ONNX models, and show why each layout was chosen."
    )
    parser.add_argument("--version", action="version", version=f"graphflow {VERSION}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", dest="command")
    for add in (
        _add_demo,
        _add_compile,
        _add_run,
        _add_check,
        _add_operators,
        _add_inspect,
        _add_view,
        _add_explain,
        _add_diff,
        _add_profile,
        _add_bench,
        _add_tune,
        _add_calibrate,
        _add_quantize,
    ):
        add(commands)
    add_service_commands(commands)
    return parser


class _PrintSchema(argparse.Action):
    """Print the JSON Schema of reports, and exit as --help does; no MODEL is needed."""

    def __init__(self, **named: Any) -> None:
        super().__init__(nargs=0, **named)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(REPORT_SCHEMA_FILE.read_text(encoding="utf-8"), end="")
        parser.exit()


def _add_demo(commands: Any) -> None:
    command = add_command(commands, "demo", "demo", "build, compile, show and time a small model")
    command.add_argument("--threads", type=int, help="threads of a run")
    command.add_argument("--dump", metavar="DIR", help="write the result of each stage to DIR")


def _add_compile(commands: Any) -> None:
    command = add_command(commands, "compile", "compile_commands", "compile a model")
    add_model_arguments(command, MODEL_HELP)
    command.add_argument("-o", "--output", metavar="FILE", help="save the compiled model")
    command.add_argument(
        "--validate",
        action="store_true",
        help="compare each distinct native kernel with the interpreter of its definition, and fail "
        "if one differs",
    )


def _add_run(commands: Any) -> None:
    command = add_command(
        commands, "run", "run_command", "run a model, by default on random inputs"
    )
    add_model_arguments(command)
    command.add_argument(
        "--input",
        type=named_file,
        action="append",
        default=[],
        metavar="NAME=FILE.npy",
        help="the array of an input; may be repeated",
    )
    command.add_argument("--seed", type=int, default=0, help="seed of the random inputs")
    command.add_argument("--save", metavar="PREFIX", help="write outputs to PREFIXname.npy")


def _add_check(commands: Any) -> None:
    command = add_command(
        commands,
        "check",
        "compile_commands",
        "list which nodes have kernels, and what happens to the others",
    )
    command.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    add_common_arguments(command)


def _add_operators(commands: Any) -> None:
    command = add_command(
        commands,
        "operators",
        "operators_command",
        "print for each ONNX operator how it is compiled",
    )
    command.add_argument(
        "--probe",
        action="store_true",
        help="import a model of each operator to find it out anew (10 s), instead of printing the "
        "page of this version of graphflow, which was made so",
    )


def _add_inspect(commands: Any) -> None:
    command = add_command(
        commands, "inspect", "inspect_commands", "show the decision about every tensor"
    )
    add_model_arguments(command)
    command.add_argument("--json", action="store_true", help="the whole report as JSON")
    command.add_argument(
        "--schema", action=_PrintSchema, help="print the JSON Schema of that report, and exit"
    )
    command.add_argument("--edge", metavar="NAME", help="only this tensor, in full")
    command.add_argument("--all", action="store_true", help="constants and removed tensors too")
    command.add_argument(
        "--only",
        choices=ROW_FILTER_NAMES,
        help="only tensors that are converted, filled or moved; that have padding; or that "
        "onnxruntime writes or reads",
    )
    command.add_argument(
        "--sort",
        choices=ROW_ORDER_NAMES,
        help="the greatest first, without blocks: by measured time of the node that writes a "
        "tensor, by the bytes of its box, or by the estimated price of that node and of copies",
    )
    command.add_argument(
        "--html", metavar="FILE", help="write a page with the graph as a picture, for a browser"
    )
    command.add_argument(
        "--onnx",
        metavar="FILE",
        help="write the program as an ONNX graph for viewers such as Netron, with layouts, facts "
        "and reasons in the metadata of nodes and values",
    )
    command.add_argument("--dot", metavar="FILE", help="write the program as Graphviz text")
    command.add_argument("--profile", action="store_true", help=PROFILE_HELP)
    _add_peer_profile(command)


def _add_view(commands: Any) -> None:
    command = add_command(
        commands, "view", "inspect_commands", "show the decisions as a picture, in a browser"
    )
    add_model_arguments(command)
    command.add_argument("--profile", action="store_true", help=PROFILE_HELP)
    _add_peer_profile(command)


def _add_explain(commands: Any) -> None:
    command = add_command(
        commands, "explain", "inspect_commands", "explain the layout and padding of one tensor"
    )
    add_model_arguments(command)
    command.add_argument("tensor", metavar="TENSOR", help="a name in the model")
    command.add_argument(
        "--full", action="store_true", help="also the variants and steps that were refused, and why"
    )


def _add_diff(commands: Any) -> None:
    command = add_command(
        commands,
        "diff",
        "diff_command",
        "compare two reports of `inspect --json`: layouts, padding, variants, conversions, "
        "cancelled pairs, pins, counts, prices; exits with 0 if they are equal, 1 if they differ, "
        "2 if a file is not a report",
    )
    command.add_argument("before", metavar="BEFORE.json")
    command.add_argument("after", metavar="AFTER.json")
    command.add_argument("--json", action="store_true", help="the changes as a list of objects")
    command.add_argument(
        "--html", metavar="FILE", help="write a page with the changes on the graph, for a browser"
    )


def _add_peer_profile(command: argparse.ArgumentParser) -> None:
    """Let a command that profiles also show another program's own profile."""
    command.add_argument(
        "--against",
        choices=PEER_NAMES[:1],
        help="with a profile, also show what its own profiler says, by operator",
    )


def _add_profile(commands: Any) -> None:
    command = add_command(
        commands, "profile", "profile_command", "measure each step of a run, thread by thread"
    )
    add_model_arguments(command, MODEL_HELP)
    command.add_argument("--json", action="store_true", help="everything measured as JSON")
    command.add_argument(
        "--trace", metavar="FILE", help="write one run as a Chrome trace, which Perfetto opens"
    )
    _add_peer_profile(command)
    command.add_argument(
        "--top", type=int, default=15, metavar="N", help="how many steps are listed; default: 15"
    )


def _add_bench(commands: Any) -> None:
    command = add_command(commands, "bench", "measure_commands", "time models beside onnxruntime")
    command.add_argument("models", nargs="+", metavar="MODEL", help=MODEL_HELP)
    add_common_arguments(command)
    command.add_argument("--json", action="store_true", help="one JSON object on a line per model")
    command.add_argument(
        "--against",
        type=peers,
        default=[PEER_NAMES[0]],
        metavar="PEER,…",
        help="the programs to compare with",
    )


def _add_tune(commands: Any) -> None:
    command = add_command(
        commands,
        "tune",
        "measure_commands",
        "measure kernels and copies, for plans by measured prices",
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
    add_cluster_argument(
        command, "each machine times one thing at a time; default: this machine, in this process"
    )


def _add_calibrate(commands: Any) -> None:
    command = add_command(
        commands,
        "calibrate",
        "measure_commands",
        "measure the clock and the bandwidths of this processor, by which later plans for it are "
        "priced; nothing else should run",
    )
    command.add_argument(
        "--forget", action="store_true", help="drop what was measured of this kind of processor"
    )
    command.add_argument("--json", action="store_true", help="what is kept as JSON")


def _add_quantize(commands: Any) -> None:
    command = add_command(
        commands,
        "quantize",
        "quantize_command",
        "quantize a float model by onnxruntime's quantizer, and show what that costs each layer in "
        "error and gains it in time",
    )
    command.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    command.add_argument(
        "-o", "--output", required=True, metavar="OUT.onnx", help="the quantized model"
    )
    _add_samples(command)
    _add_quantized_types(command)
    command.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON")
    add_network_arguments(command)


def _add_samples(command: argparse.ArgumentParser) -> None:
    """Add the options that say what ranges and errors are measured with."""
    command.add_argument(
        "--data",
        nargs="+",
        default=[],
        metavar="PATH",
        help="samples of the inputs: files .npy for a model of one input, .npz with an array for "
        "each input, or folders of them",
    )
    command.add_argument(
        "--random-data",
        type=int,
        default=0,
        metavar="N",
        help="N random samples instead, whose ranges say nothing of real inputs",
    )
    command.add_argument(
        "--dynamic",
        action="store_true",
        help="scales of activations are those of each run; data only serves to measure errors",
    )
    command.add_argument(
        "--limit",
        type=int,
        default=CALIBRATION_SAMPLES,
        metavar="N",
        help="the most samples that are used; default: %(default)s",
    )
    command.add_argument(
        "--seed", type=int, default=0, help="which samples are used, and seed of random ones"
    )


def _add_quantized_types(command: argparse.ArgumentParser) -> None:
    """Add the options that say what is quantized, and to which types and scales."""
    for what, default in (("activations", "u8"), ("weights", "s8")):
        command.add_argument(
            f"--{what}",
            choices=BYTE_TYPE_NAMES,
            default=default,
            help=f"the type of {what}; default: %(default)s",
        )
    command.add_argument(
        "--per-tensor",
        action="store_true",
        help="one scale for each weight, instead of one for each of its channels",
    )
    command.add_argument(
        "--symmetric",
        action="store_true",
        help="ranges of activations with 0 in their middle",
    )
    command.add_argument(
        "--method",
        choices=CALIBRATION_METHOD_NAMES,
        default=CALIBRATION_METHOD_NAMES[0],
        help="how ranges follow from the values of activations; default: %(default)s",
    )
    command.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="NODE",
        help="a node that stays as it is, by the name in the table; may be repeated",
    )
    command.add_argument(
        "--exclude-operator",
        action="append",
        default=[],
        metavar="OPERATOR",
        help="an operator whose nodes stay as they are, such as Softmax; may be repeated",
    )
