"""`graphflow check`: what import does with each node of a model."""

from __future__ import annotations

import argparse

from graphflow.api.checking import check
from graphflow.cli.compiling import onnx_model, values


def run_check(wanted: argparse.Namespace) -> int:
    """`graphflow check MODEL`."""
    model = onnx_model(wanted.model, wanted.reseed)
    found = check(model, input_shapes=dict(wanted.shape), input_values=values(wanted))
    print("\n".join(found.lines()))
    return 0 if found.runs else 1


COMMANDS = {"check": run_check}
"""The commands of this module, by name."""
