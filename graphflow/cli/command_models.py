"""The models and options that the arguments of a command name.

In: parsed arguments.  Out: an ONNX model, an `Executable` compiled from one or loaded from a saved
file, or the `Options` to compile with.  Arguments that contradict each other are an `InvalidModel`.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from graphflow.api.compilation import compile
from graphflow.api.executable import Executable, load
from graphflow.base.errors import InvalidModel
from graphflow.base.options import Options
from graphflow.cli.command_arguments import TARGETS
from graphflow.cli.progress_bar import ProgressBar
from graphflow.models import LIGHT, ZOO_PREFIX, named
from graphflow.pipeline.compiler_stages import Model
from graphflow.runtime import is_container

MOST_FOREIGN = 3
"""How many nodes that run in onnxruntime `compile` and `run` name; `check` names all."""


def executable(
    wanted: argparse.Namespace,
    bar: ProgressBar,
    shapes: Sequence[tuple[str, tuple[int, ...]]] = (),
) -> Executable:
    """The saved model loaded, or the ONNX model compiled.

    `shapes` are those of the arrays that the command was given; `--shape` takes precedence over
    them.  InvalidModel if an option of compilation is given with a saved model.
    """
    if not is_container(wanted.model):
        return compiled(wanted, bar, [*shapes, *wanted.shape])
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
                f"{option} decides how a model is compiled, but {wanted.model} is compiled "
                "already; give the ONNX model instead, or leave the option out"
            )
    return load(wanted.model, threads=wanted.threads)


def compiled(
    wanted: argparse.Namespace,
    bar: ProgressBar,
    shapes: Sequence[tuple[str, tuple[int, ...]]],
) -> Executable:
    """The ONNX model, compiled with these input shapes."""
    return compile(
        onnx_model(wanted.model, wanted.reseed),
        input_shapes=dict(shapes),
        input_values=dict(wanted.value),
        target=TARGETS[wanted.target](),
        overridable=wanted.overridable,
        options=options(wanted),
        progress=bar.stage,
        counting=bar.count,
    )


def compile_bar(wanted: argparse.Namespace) -> ProgressBar:
    """The bar of a compilation, or of a run that compiles for the shapes that it brings."""
    return ProgressBar(f"compiling {os.path.basename(wanted.model)}")


def onnx_model(name: str, seed: int | None) -> Model:
    """The model that a name stands for: `light:NAME` of the onnx package, `zoo:NAME` of graphflow's
    networks, or the path itself.

    InvalidModel for a seed together with a path, and for the path of a saved model.
    """
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


def options(wanted: argparse.Namespace) -> Options:
    """The options of the environment, with those that the arguments give."""
    environment = Options.from_environment()
    strict = getattr(wanted, "strict", False)
    return replace(
        environment,
        threads=wanted.threads,
        dump=getattr(wanted, "dump", None),
        timings=getattr(wanted, "timings", None),
        validate=getattr(wanted, "validate", False),
        fallback=None if strict else environment.fallback,
    )


def stdout_console() -> Console:
    """A console as wide as the terminal; 160 columns, enough for a table, where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def tell_foreign_nodes(exe: Executable) -> None:
    """Print one line about the nodes that run in onnxruntime, if there are some."""
    nodes = exe.foreign
    if nodes:
        reasons = "; ".join(map(str, nodes[:MOST_FOREIGN]))
        more = f"; and {len(nodes) - MOST_FOREIGN} more" if len(nodes) > MOST_FOREIGN else ""
        print(f"{len(nodes)} nodes run in onnxruntime: {reasons}{more}", file=sys.stderr)
