"""`graphflow run`: a model, compiled or saved, is run once."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import GraphflowError
from graphflow.cli.executables import (
    drawn_inputs,
    executable,
    read_array,
    tell_foreign_nodes,
)


def run_model(wanted: argparse.Namespace) -> int:
    """`graphflow run MODEL`."""
    given = {name: read_array(name, path) for name, path in wanted.input}
    with executable(wanted, [(name, array.shape) for name, array in given.items()]) as exe:
        shapes = dict(wanted.shape)
        if not given.keys() | shapes.keys() >= set(exe.deciding):
            exe.decisions()  # raises, and names the inputs whose shapes or values are missing
        results = exe.run(drawn_inputs(exe, given, shapes, wanted.seed))
    tell_foreign_nodes(exe)
    for name, array in results.items():
        print(f"{name}: {array.dtype}{list(array.shape)}{_statistics(array)}")
        if wanted.save is not None:
            _save_array(f"{wanted.save}{name.replace('/', '_')}.npy", array)
    return 0


COMMANDS = {"run": run_model}
"""The commands of this module, by name."""


def _save_array(path: str, array: NDArray[Any]) -> None:
    try:
        np.save(path, array)
    except (OSError, ValueError) as error:
        raise GraphflowError(f"cannot write {path}: {error}; give another --save") from None


def _statistics(array: NDArray[Any]) -> str:
    if not array.size:
        return ""
    return f", from {array.min():.6g} to {array.max():.6g}, mean {array.mean():.6g}"
