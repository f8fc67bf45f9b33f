"""The command line: demo, compile, run, check, operators, inspect, explain, diff, bench, tune.

In: arguments.  Out: text or JSON on stdout, progress and errors on stderr, an exit code: 0, 1 where
graphflow refuses (one message that says why and what to do) or reports differ, 2 for wrong
arguments, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

from graphflow.api.checking import check
from graphflow.api.compilation import compile
from graphflow.api.executable import Executable, load
from graphflow.base.errors import GraphflowError, InvalidModel, Remedy
from graphflow.base.options import Options, default_timings
from graphflow.bench import PEERS, bench_table, random_inputs
from graphflow.cli.comparison import bench
from graphflow.cli.demo import demo
from graphflow.cli.drawing import change_table, draw_table
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends import operator_document
from graphflow.inspect import changes, read_report
from graphflow.models import LIGHT, ZOO_PREFIX, named
from graphflow.pipeline.compiler import Model
from graphflow.runtime import is_container
from graphflow.tuning import tune

MOST_FOREIGN = 3
"""Nodes that run in onnxruntime which `compile` and `run` name; `check` names all."""

INTERRUPTED = 130
"""What shells expect of a command that SIGINT ended."""

MODEL_HELP = f"a path, {LIGHT}NAME or {ZOO_PREFIX}NAME"
SAVED_HELP = f"{MODEL_HELP}, or a file that `compile -o` wrote"
FLAGS = {"input_shapes": "--shape NAME=1x3x224x224", "input_values": "--value NAME=[2,3]"}
"""How an argument of `compile` is given here."""

TARGETS = {"host": host_target, "avx2": avx2_target}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit code."""
    wanted = _parser().parse_args(arguments)
    try:
        return int(wanted.command(wanted))
    except GraphflowError as error:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        print(f"error: {error.worded(_flag)}{notes}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        sys.stderr.close()
        return 1


# Commands ---------------------------------------------------------------------------------------


def run_demo(wanted: argparse.Namespace) -> int:
    """`graphflow demo`."""
    return 0 if demo(_console(), _options(wanted)) else 1


def run_compile(wanted: argparse.Namespace) -> int:
    """`graphflow compile MODEL`."""
    with _bar(wanted) as bar:
        exe = _compiled(wanted, bar, wanted.shape)
    _tell_foreign(exe)
    print(exe.decisions().summary)
    for stage, seconds in exe.compiled.timings["stages"].items():
        print(f"  {stage:13} {seconds:8.3f} s")
    kernels = len(exe.compiled.lowered.kernels)
    print(f"  {exe.compiled.cached} of {kernels} kernels were made before")
    if exe.compiled.validation is not None:
        print(exe.compiled.validation.summary())
    if wanted.output is not None:
        exe.save(wanted.output)
        print(f"saved to {wanted.output}, {os.path.getsize(wanted.output)} bytes")
    return 0


def run_model(wanted: argparse.Namespace) -> int:
    """`graphflow run MODEL`."""
    given = dict(_named_array(text) for text in wanted.input)
    with _bar(wanted) as bar:
        exe = _executable(wanted, bar, [(name, array.shape) for name, array in given.items()])
        if not given.keys() >= set(exe.deciding):
            exe.decisions()  # refuses, and says what is open
        arrays = {**random_inputs(exe.inputs, wanted.seed), **exe.values, **given}
        results = exe.run(arrays)
    _tell_foreign(exe)
    for name, array in results.items():
        print(f"{name}: {array.dtype}{list(array.shape)}{_statistics(array)}")
        if wanted.save is not None:
            _save_array(f"{wanted.save}{name.replace('/', '_')}.npy", array)
    return 0


def run_check(wanted: argparse.Namespace) -> int:
    """`graphflow check MODEL`."""
    model = _model(wanted.model, wanted.reseed)
    found = check(model, input_shapes=dict(wanted.shape), input_values=dict(wanted.value))
    print("\n".join(found.lines()))
    return 0 if found.runs else 1


def run_operators(wanted: argparse.Namespace) -> int:
    """`graphflow operators`."""
    print(operator_document(), end="")
    return 0


def run_inspect(wanted: argparse.Namespace) -> int:
    """`graphflow inspect MODEL`."""
    with _bar(wanted) as bar:
        exe = _executable(wanted, bar)
    if wanted.json:
        found = exe.report()
        if wanted.edge is not None:
            exe.explain(wanted.edge)  # refuses a name that the model does not have
            found = next(edge for edge in found["edges"] if edge["name"] == wanted.edge)
        print(json.dumps(found, indent=1))
    elif wanted.edge is not None:
        print(exe.explain(wanted.edge))
    else:
        console = _console()
        console.print(draw_table(exe.decisions(), constants=wanted.all))
        console.print(exe.decisions().summary)
    return 0


def run_explain(wanted: argparse.Namespace) -> int:
    """`graphflow explain MODEL TENSOR`."""
    with _bar(wanted) as bar:
        exe = _executable(wanted, bar)
    print(exe.explain(wanted.tensor, full=wanted.full))
    return 0


def run_diff(wanted: argparse.Namespace) -> int:
    """`graphflow diff BEFORE.json AFTER.json`."""
    try:
        found = changes(read_report(wanted.before), read_report(wanted.after))
    except InvalidModel as error:  # 1 says that they differ
        print(f"error: {error}", file=sys.stderr)
        return 2
    if wanted.json:
        print(json.dumps([asdict(change) for change in found], indent=1))
    elif found:
        _console().print(change_table(found))
    else:
        print("no difference")
    return 1 if found else 0


def run_bench(wanted: argparse.Namespace) -> int:
    """`graphflow bench MODEL...`."""
    results = []
    for name in wanted.models:
        with Console(stderr=True).status(f"measuring {name}"):
            results.append(_measured(name, wanted))
        if wanted.json:
            print(json.dumps(results[-1]), flush=True)
    if not wanted.json:
        _console().print(bench_table(results))
    return 0


def run_tune(wanted: argparse.Namespace) -> int:
    """`graphflow tune MODEL...`."""
    for name in wanted.models:
        with _Bar(f"tuning {os.path.basename(name)}") as bar:
            found = tune(
                _model(name, wanted.reseed),
                input_shapes=dict(wanted.shape),
                input_values=dict(wanted.value),
                target=TARGETS[wanted.target](),
                options=_options(wanted),
                progress=bar.stage,
                counting=bar.count,
            )
        print(f"{name}: {found}")
    return 0


def _tell_foreign(exe: Executable) -> None:
    """One line about the nodes that no kernel is built for, if there are some."""
    nodes = exe.foreign
    if nodes:
        reasons = "; ".join(map(str, nodes[:MOST_FOREIGN]))
        more = f"; and {len(nodes) - MOST_FOREIGN} more" if len(nodes) > MOST_FOREIGN else ""
        print(f"{len(nodes)} nodes run in onnxruntime: {reasons}{more}", file=sys.stderr)


def _measured(name: str, wanted: argparse.Namespace) -> dict[str, Any]:
    return bench(
        _model(name, wanted.reseed),
        name=name,
        threads=wanted.threads,
        against=wanted.against,
        input_shapes=dict(wanted.shape),
        input_values=dict(wanted.value),
        options=_options(wanted),
    )


def _flag(remedy: Remedy) -> str:
    """What mends an error, as it is said on the command line."""
    return FLAGS.get(remedy.argument, str(remedy))


# From arguments to what commands need -----------------------------------------------------------


def _executable(
    wanted: argparse.Namespace, bar: _Bar, shapes: Sequence[tuple[str, tuple[int, ...]]] = ()
) -> Executable:
    """Loaded where the model is a saved one, else compiled; `shapes` are those of given inputs."""
    if not is_container(wanted.model):
        return _compiled(wanted, bar, [*shapes, *wanted.shape])
    for option, value in (
        ("--target", wanted.target != "host"),
        ("--dump", wanted.dump is not None),
        ("--reseed", wanted.reseed is not None),
        ("--shape", bool(wanted.shape)),
        ("--value", bool(wanted.value)),
        ("--overridable", bool(wanted.overridable)),
        ("--timings", wanted.timings is not None),
        ("--strict", wanted.strict),
    ):
        if value:
            raise InvalidModel(
                f"{option} decides how a model is compiled, and {wanted.model} has been; give the "
                "ONNX model instead, or leave the option out"
            )
    return load(wanted.model, threads=wanted.threads)


def _compiled(
    wanted: argparse.Namespace, bar: _Bar, shapes: Sequence[tuple[str, tuple[int, ...]]]
) -> Executable:
    return compile(
        _model(wanted.model, wanted.reseed),
        input_shapes=dict(shapes),
        input_values=dict(wanted.value),
        target=TARGETS[wanted.target](),
        overridable=wanted.overridable,
        options=_options(wanted),
        progress=bar.stage,
        counting=bar.count,
    )


def _bar(wanted: argparse.Namespace) -> _Bar:
    """Shows what is being compiled, also where a first run does that."""
    return _Bar(f"compiling {os.path.basename(wanted.model)}")


class _Bar:
    """A line on stderr, where somebody sees it: what is going on, and how many kernels are done.

    It begins anew with each stage.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        console = Console(stderr=True)
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            disable=not console.is_interactive,
        )
        self._task = self._begin(what)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def stage(self, name: str) -> None:
        """A stage begins."""
        self._progress.remove_task(self._task)
        self._task = self._begin(f"{self._what}: {name}")

    def count(self, done: int, total: int) -> None:
        """The stage is done with `done` of `total` kernels."""
        count = f"{done}/{total} kernels"
        self._progress.update(self._task, completed=done, total=total, count=count)

    def _begin(self, text: str) -> TaskID:
        return self._progress.add_task(text, total=None, count="")


def _model(name: str, seed: int | None) -> Model:
    """A path, `light:NAME` for a model that the onnx package ships, `zoo:NAME` for one of ours."""
    known = named(name, seed)
    if known is not None:
        return known
    if seed is not None:
        raise InvalidModel(
            f"--reseed is for models named {LIGHT}NAME or {ZOO_PREFIX}NAME; {name} has weights of "
            "its own"
        )
    if is_container(name):
        raise InvalidModel(
            f"{name} is a saved model, which run, inspect and explain take; this command needs the "
            "ONNX model"
        )
    return name


def _options(wanted: argparse.Namespace) -> Options:
    dump, timings = getattr(wanted, "dump", None), getattr(wanted, "timings", None)
    plain = Options.from_environment()
    validate = getattr(wanted, "validate", False)
    fallback = None if getattr(wanted, "strict", False) else plain.fallback
    return replace(
        plain,
        threads=wanted.threads,
        dump=dump,
        timings=timings,
        validate=validate,
        fallback=fallback,
    )


def _console() -> Console:
    """The terminal's width, but enough for a table where the output goes into a file."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def _named_array(text: str) -> tuple[str, NDArray[Any]]:
    name, _, path = text.partition("=")
    try:
        return name, np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidModel(
            f"cannot read the input {text!r}: {error}; give NAME=FILE.npy, as numpy.save writes it"
        ) from None


def _save_array(path: str, array: NDArray[Any]) -> None:
    try:
        np.save(path, array)
    except (OSError, ValueError) as error:
        raise GraphflowError(f"cannot write {path}: {error}; give another --save") from None


def _statistics(array: NDArray[Any]) -> str:
    if not array.size:
        return ""
    return f", from {array.min():.6g} to {array.max():.6g}, mean {array.mean():.6g}"


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """`NAME=1x3x224x224`; a name may contain an equals sign itself."""
    name, _, extents = text.rpartition("=")
    try:
        return name, tuple(int(n) for n in extents.split("x") if n)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=1x3x224x224") from None


def _value(text: str) -> tuple[str, Any]:
    """`NAME=FILE.npy`, or `NAME=[2, 3]`: a number or nested lists of numbers."""
    name, _, value = text.partition("=")
    if value.endswith(".npy"):
        return _named_array(text)
    with contextlib.suppress(ValueError, SyntaxError):
        return name, ast.literal_eval(value)
    raise argparse.ArgumentTypeError(f"{text!r} is neither NAME=FILE.npy nor NAME=[2,3]")


def _peers(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PEERS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PEERS)}")
    return names


# The parser -------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="graphflow", description="Compile ONNX models, and show why each layout is what it is."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = _command(commands, "demo", run_demo, "build, compile, show and time a small model")
    command.add_argument("--threads", type=int)
    command.add_argument("--dump", metavar="DIR", help="write what each stage gave to DIR")

    command = _command(commands, "compile", run_compile, "compile a model")
    _add_model(command, MODEL_HELP)
    command.add_argument("-o", "--output", metavar="FILE", help="save the compiled model")
    command.add_argument(
        "--validate",
        action="store_true",
        help="run each distinct kernel beside the interpreter of its definition, and refuse to go "
        "on where one differs",
    )

    command = _command(commands, "run", run_model, "run a model, by default on random inputs")
    _add_model(command)
    command.add_argument("--input", action="append", default=[], metavar="NAME=FILE.npy")
    command.add_argument("--seed", type=int, default=0, help="of random inputs")
    command.add_argument("--save", metavar="PREFIX", help="write outputs to PREFIXname.npy")

    command = _command(
        commands, "check", run_check, "say which nodes have kernels, and what becomes of the others"
    )
    command.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    _add_common(command)

    _command(commands, "operators", run_operators, "print what becomes of each ONNX operator")

    command = _command(commands, "inspect", run_inspect, "show the decision about every tensor")
    _add_model(command)
    command.add_argument("--json", action="store_true")
    command.add_argument("--edge", metavar="NAME", help="only this tensor, in full")
    command.add_argument("--all", action="store_true", help="constants and removed tensors too")

    command = _command(commands, "explain", run_explain, "tell the story of one tensor")
    _add_model(command)
    command.add_argument("tensor", metavar="TENSOR")
    command.add_argument(
        "--full", action="store_true", help="also the variants and steps that were refused, and why"
    )

    command = _command(
        commands,
        "diff",
        run_diff,
        "compare two reports that `inspect --json` printed: layouts, padding, variants, "
        "conversions, pairs, pins, counts, prices; exits with 0 if nothing differs, 1 if something "
        "does, 2 if one is no report",
    )
    command.add_argument("before", metavar="BEFORE.json")
    command.add_argument("after", metavar="AFTER.json")
    command.add_argument("--json", action="store_true", help="the changes as a list of objects")

    command = _command(commands, "bench", run_bench, "time models beside onnxruntime")
    command.add_argument("models", nargs="+", metavar="MODEL", help=MODEL_HELP)
    _add_common(command)
    command.add_argument("--json", action="store_true", help="one object a line, one line a model")
    command.add_argument("--against", type=_peers, default=["onnxruntime"], metavar="PEER,…")

    command = _command(commands, "tune", run_tune, "time kernels, for plans by measured prices")
    command.add_argument("models", nargs="+", metavar="MODEL", help=MODEL_HELP)
    _add_common(command)
    command.add_argument("--target", choices=TARGETS, default="host")
    return parser


def _command(commands: Any, name: str, run: Any, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(command=run)
    return parser


def _add_model(parser: argparse.ArgumentParser, help: str = SAVED_HELP) -> None:
    parser.add_argument("model", metavar="MODEL", help=help)
    _add_common(parser)
    parser.add_argument("--target", choices=TARGETS, default="host")
    parser.add_argument(
        "--overridable",
        action="append",
        default=[],
        metavar="NAME",
        help="a graph input whose initializer is a default and no constant; may be repeated",
    )
    parser.add_argument("--dump", metavar="DIR", help="write what each stage gave to DIR")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, help="default: what this process may use")
    parser.add_argument(
        "--reseed", type=int, metavar="N", help=f"weights for a {LIGHT}NAME or {ZOO_PREFIX}NAME"
    )
    parser.add_argument(
        "--shape", type=_shape, action="append", default=[], metavar="NAME=1x3x224x224"
    )
    parser.add_argument(
        "--value",
        type=_value,
        action="append",
        default=[],
        metavar="NAME=FILE.npy|[2,3]",
        help="an input whose values decide shapes",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse nodes that no kernel is built for, instead of running them in onnxruntime",
    )
    parser.add_argument(
        "--timings",
        nargs="?",
        const=default_timings(),
        metavar="FILE",
        help="the table of times that `tune` fills; without FILE the one in the user's cache",
    )
