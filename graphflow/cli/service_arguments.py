"""The arguments of `graphflow serve` and `graphflow map`, and the types of their values.

In: an argument parser.  Out: the parser with these options; those of limits have the names of the
fields of `ServeLimits`, and are absent where they were not given.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphflow.cli.command_arguments import add_size_argument


def add_serve_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the models, where they are served, how they are loaded, and the limits."""
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


def add_map_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the model, the inputs, the folder of outputs, and the cluster."""
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
        help="files .npy, or .npz with an array for each input, such as 'in/*.npy'",
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="a folder of every worker")
    parser.add_argument(
        "--dask",
        default="local",
        metavar="ADDRESS|local",
        help="the scheduler of a cluster; default: processes on this machine",
    )
    parser.add_argument("--threads", type=int, default=1, help="threads of a run; default: 1")
    add_size_argument(parser)


def _add_address(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="the address; default: %(default)s")
    parser.add_argument(
        "--port", type=int, default=8000, help="default: %(default)s; 0 for any that is free"
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


class _scaled:
    """The type of an option that is a number in another unit than the limit."""

    def __init__(self, scale: float) -> None:
        self._scale = scale

    def __call__(self, text: str) -> float:
        number = float(text) if isinstance(self._scale, float) else int(text)
        return number * self._scale
