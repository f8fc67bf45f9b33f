"""The parsers of `graphflow serve` and `graphflow map`.

In: the commands of a parser.  Out: these two among them; the options of limits have the names of
the fields of `ServeLimits`, and are absent where they were not given.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from graphflow.cli.command_arguments import add_cluster_argument, add_command, add_size_argument

MOST_PORT = 65535
"""The largest number of a TCP port."""


def add_service_commands(commands: Any) -> None:
    """Add serve and map."""
    _add_serve(commands)
    _add_map(commands)


def _add_serve(commands: Any) -> None:
    text = "serve models over HTTP, by the Open Inference Protocol"
    parser = add_command(commands, "serve", "service_commands", text)
    parser.add_argument(
        "models",
        nargs="*",
        metavar="[NAME[:VERSION]=]PATH[@sha256:DIGEST]",
        help="a file that `compile -o` wrote, or an ONNX model, which is compiled; NAME is that of "
        "the file and VERSION is 1 if they are not given",
    )
    parser.add_argument(
        "--folder",
        action="append",
        default=[],
        metavar="DIR",
        help="a folder with models as NAME/VERSION/model.gfx or model.onnx; may be repeated",
    )
    _add_address(parser)
    _add_loading(parser)
    _add_limits(parser)


def _add_map(commands: Any) -> None:
    text = "run a model on files of arrays or tables, on the workers of a Dask cluster"
    parser = add_command(commands, "map", "service_commands", text)
    parser.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="a file that `compile -o` wrote, or several for different processors; an ONNX model, "
        "which workers compile that none of these fits",
    )
    parser.add_argument(
        "--input",
        required=True,
        metavar="PATTERN",
        help="files .npy, .npz with an array for each input, or .parquet, such as 'in/*.npy', or "
        "in a store that fsspec knows, such as 's3://bucket/in/*.parquet'",
    )
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="a folder that all workers see, or its URL"
    )
    parser.add_argument(
        "--columns",
        type=lambda text: text.split(","),
        metavar="NAME,…",
        help="the columns of .parquet that are the input, in this order; default: those that are "
        "named as the inputs, or the only one",
    )
    add_cluster_argument(parser, "default: processes on this machine", default="local")
    parser.add_argument("--threads", type=int, default=1, help="threads of a run; default: 1")
    add_size_argument(parser)


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="the address; default: %(default)s")
    parser.add_argument(
        "--port", type=_port, default=8000, help="default: %(default)s; 0 for any that is free"
    )
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="a file with the token that clients send as Authorization: Bearer TOKEN",
    )
    parser.add_argument(
        "--allow-anyone",
        action="store_true",
        help="serve other machines without a token",
    )
    parser.add_argument("--certificate", type=Path, metavar="FILE", help="for TLS, in PEM")
    parser.add_argument("--key", type=Path, metavar="FILE", help="of the certificate, in PEM")
    parser.add_argument("--access-log", action="store_true", help="print a line for each request")


def _add_loading(parser: argparse.ArgumentParser) -> None:
    add_size_argument(parser)
    parser.add_argument(
        "--threads", type=int, help="threads of a run; default: as many as this process may use"
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse ONNX models with nodes that have no kernel"
    )
    parser.add_argument(
        "--alone",
        action="store_true",
        help="make a run for each request, also where some could share",
    )
    parser.add_argument(
        "--reload", action="store_true", help="load a model again when its file changes"
    )


def _add_limits(parser: argparse.ArgumentParser) -> None:
    for option, field, scale, metavar, text in (
        ("--delay", "delay_seconds", 1e-3, "MS", "how long a request waits for others; default: 0"),
        ("--queue", "queue", 1, "N", "requests of a model that may wait; default: 512"),
        ("--timeout", "request_seconds", 1, "S", "the deadline of a request; default: 60 s"),
        ("--connections", "connections", 1, "N", "connections at a time; default: 4096"),
        ("--max-body", "body_bytes", 1 << 20, "MIB", "the largest request; default: 64 MiB"),
        ("--max-held", "held_bytes", 1 << 20, "MIB", "all requests together; default: 1024 MiB"),
    ):
        parser.add_argument(
            option,
            type=_scaled(scale),
            dest=field,
            default=argparse.SUPPRESS,
            metavar=metavar,
            help=text,
        )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_PORT:
        raise argparse.ArgumentTypeError(f"{text!r} is no port, a number from 0 to {MOST_PORT}")
    return int(text)


class _scaled:
    """The type of an option that is a number in another unit than the limit."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def __call__(self, text: str) -> float:
        number = float(text) if isinstance(self._scale, float) else int(text)
        return number * self._scale
