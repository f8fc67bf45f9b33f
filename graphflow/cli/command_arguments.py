"""Commands of the command line, the arguments that several of them share, and the types of values.

In: a parser, to which a command or options are added, or the text of one argument.  Out: the parser
with these options, or the value of that text.  Text that is not valid raises
`argparse.ArgumentTypeError`, so that the command exits with 2.  What always holds: nothing is
imported here that takes time, because every command parses its arguments first.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from graphflow.base.offered_names import ASSUMPTION_NAMES, HOST, LIGHT, PEER_NAMES, ZOO_PREFIX
from graphflow.base.options import default_timings
from graphflow.cli.on_demand import on_demand

MODEL_HELP = f"a path, {LIGHT}NAME or {ZOO_PREFIX}NAME"
SAVED_HELP = f"{MODEL_HELP}, or a file that `compile -o` wrote"


def add_command(commands: Any, name: str, module: str, text: str) -> argparse.ArgumentParser:
    """The parser of a new command, which the COMMANDS of `module` runs."""
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.set_defaults(module=module)
    return parser


def add_model_arguments(parser: argparse.ArgumentParser, help: str = SAVED_HELP) -> None:
    """Add MODEL, and every option that decides how it is compiled."""
    parser.add_argument("model", metavar="MODEL", help=help)
    add_common_arguments(parser)
    add_target_argument(parser)
    parser.add_argument(
        "--overridable",
        action="append",
        default=[],
        metavar="NAME",
        help="treat the initializer of this graph input as a default, not as a constant; may be "
        "repeated",
    )
    parser.add_argument(
        "--layout",
        type=_pin,
        action="append",
        default=[],
        metavar="TENSOR=NHWC",
        help="pin a tensor to a layout, by its name or its description; may be repeated",
    )
    parser.add_argument(
        "--assume",
        type=_assumption,
        action="append",
        default=[],
        metavar="INPUT=finite",
        help="what holds for an input in every run: finite, nonnegative, LO:HI, or the number that "
        "each element equals; may be repeated",
    )
    parser.add_argument("--dump", metavar="DIR", help="write the result of each stage to DIR")


class _TargetNames:
    """The names of targets, read from the table of processors when an argument or the help needs
    them: the import takes longer than all of the parsing."""

    def __iter__(self) -> Iterator[str]:
        yield from on_demand("base.processors").TARGET_NAMES


def add_target_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--target`, the processor to compile for."""
    parser.add_argument(
        "--target",
        choices=_TargetNames(),
        default=HOST,
        metavar="NAME",
        help="the processor to compile for: %(choices)s; avx2 is the host without AVX-512, "
        "x86-64-v3 any processor with AVX2, x86-64-v4 any with AVX-512",
    )


def add_cluster_argument(
    parser: argparse.ArgumentParser, without: str, default: str | None = None
) -> None:
    """Add `--dask`, the cluster that a command uses; `without` says what it does without one."""
    parser.add_argument(
        "--dask",
        default=default,
        metavar="ADDRESS|local",
        help=f"the scheduler of a cluster, or local processes; {without}",
    )


def add_network_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which network is meant, with which shapes and threads."""
    parser.add_argument(
        "--threads", type=int, help="threads of a run; default: as many as this process may use"
    )
    parser.add_argument(
        "--reseed",
        type=int,
        metavar="N",
        help=f"seed of the random weights of a {LIGHT}NAME or {ZOO_PREFIX}NAME; default: 0",
    )
    parser.add_argument(
        "--shape",
        type=_shape,
        action="append",
        default=[],
        metavar="NAME=1x3x224x224",
        help="the shape of an input with symbolic dimensions, for which a program is compiled, or "
        "that of a program in a saved model; may be repeated",
    )


def add_common_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that takes an ONNX model and compiles it."""
    add_network_arguments(parser)
    add_size_argument(parser)
    parser.add_argument(
        "--value",
        type=_value,
        action="append",
        default=[],
        metavar="NAME=FILE.npy|[2,3]",
        help="the value of an input that decides shapes; may be repeated",
    )
    parser.add_argument(
        "--strict",
        action="store_true",
        help="refuse a model with nodes that have no kernel, instead of running them in "
        "onnxruntime",
    )
    parser.add_argument(
        "--no-winograd",
        action="store_true",
        help="compute convolutions as plain sums of products, never in transformed tiles",
    )
    parser.add_argument(
        "--no-integer-products",
        action="store_true",
        help="compute products of dequantized tensors as sums of floats, never of integers",
    )
    parser.add_argument(
        "--excess-precision",
        action="store_true",
        help="keep tensors of float16 and bfloat16 that only kernels read in float32 where that is "
        "cheaper, without rounding them",
    )
    parser.add_argument(
        "--timings",
        nargs="?",
        const=default_timings(),
        metavar="FILE",
        help="choose layouts by the times that `tune` measured; default FILE: the one in the "
        "user's cache folder",
    )


def add_size_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--size`, the bounds of a symbolic dimension."""
    parser.add_argument(
        "--size",
        type=_size,
        action="append",
        default=[],
        metavar="NAME=1:8",
        help="the bounds of a symbolic dimension, for all of which one program is compiled; may be "
        "repeated",
    )


def peers(text: str) -> list[str]:
    """The names of peers in a list with commas."""
    names = text.split(",")
    for name in names:
        if name not in PEER_NAMES:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PEER_NAMES)}")
    return names


def named_file(text: str) -> tuple[str, str]:
    """The name and the path of `NAME=FILE.npy`."""
    name, _, path = text.partition("=")
    if not name or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=FILE.npy")
    return name, path


def _shape(text: str) -> tuple[str, tuple[int, ...]]:
    """The name and the shape of `NAME=1x3x224x224`; the name may contain an equals sign."""
    name, _, extents = text.rpartition("=")
    with contextlib.suppress(ValueError):
        shape = tuple(int(n) for n in extents.split("x") if n)
        if name:
            return name, shape
    raise argparse.ArgumentTypeError(f"{text!r} is not NAME=1x3x224x224")


def _size(text: str) -> tuple[str, tuple[int, int | None]]:
    """The name and the bounds of `NAME=1:8`, or of `NAME=1:`, without a most."""
    name, _, bounds = text.rpartition("=")
    least, _, most = bounds.partition(":")
    try:
        return name, (int(least), int(most) if most or ":" not in bounds else None)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=1:8, or NAME=1:") from None


def _pin(text: str) -> tuple[str, str]:
    """The tensor and the layout of `TENSOR=NHWC`; the tensor's name may contain an equals sign."""
    name, _, layout = text.rpartition("=")
    if not name or not layout:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not TENSOR=LAYOUT, such as conv1_out=NHWC or conv1_out=NCHW16c"
        )
    return name, layout


def _assumption(text: str) -> tuple[str, Any]:
    """The input and the assumption of `INPUT=finite`, `INPUT=LO:HI` or `INPUT=NUMBER`."""
    name, _, stated = text.rpartition("=")
    if name and stated in ASSUMPTION_NAMES:
        return name, stated
    lo, colon, hi = stated.partition(":")
    if name:
        with contextlib.suppress(ValueError):
            return name, (_number(lo), _number(hi)) if colon else _number(stated)
    raise argparse.ArgumentTypeError(
        f"{text!r} is not INPUT={'|'.join(ASSUMPTION_NAMES)}, INPUT=LO:HI such as x=0:6 or "
        "x=0:inf, or INPUT=NUMBER"
    )


def _number(text: str) -> int | float:
    """An integer, exactly, or a float; ValueError for other text."""
    with contextlib.suppress(ValueError):
        return int(text)
    return float(text)


def _value(text: str) -> tuple[str, Any]:
    """The name and the `Path` of `NAME=FILE.npy`, or the name and value of `NAME=[2, 3]`: a number
    or nested lists."""
    name, _, value = text.partition("=")
    if value.endswith(".npy"):
        return name, Path(value)
    with contextlib.suppress(ValueError, SyntaxError):
        return name, ast.literal_eval(value)
    raise argparse.ArgumentTypeError(f"{text!r} is neither NAME=FILE.npy nor NAME=[2,3]")
