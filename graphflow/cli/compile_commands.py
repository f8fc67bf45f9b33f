"""The commands that import and compile a model: check, compile."""

from __future__ import annotations

import argparse
import os

from graphflow.api.checking import check
from graphflow.base.decisions import byte_count
from graphflow.cli.compiling import compiled, onnx_model, values
from graphflow.cli.executables import tell_foreign_nodes
from graphflow.cli.graph_files import require_output


def run_compile(wanted: argparse.Namespace) -> int:
    """`graphflow compile MODEL`."""
    if wanted.output is not None:
        require_output(wanted.output, wanted.model)
    with compiled(wanted, wanted.shape) as exe:
        pass
    tell_foreign_nodes(exe)
    print(exe.decisions().summary)
    for stage, seconds in exe.compiled.timings["stages"].items():
        print(f"  {stage:13} {seconds:8.3f} s")
    kernels = len(exe.compiled.lowered.kernels)
    print(f"  {exe.compiled.cached} of {kernels} kernels came from the cache")
    for notice in exe.compiled.notices:
        print(f"  notice: {notice}")
    if exe.compiled.validation is not None:
        print(exe.compiled.validation.summary())
    if wanted.output is not None:
        exe.save(wanted.output)
        print(f"saved to {wanted.output}, {byte_count(os.path.getsize(wanted.output))}")
    return 0


def run_check(wanted: argparse.Namespace) -> int:
    """`graphflow check MODEL`."""
    model = onnx_model(wanted.model, wanted.reseed)
    found = check(model, input_shapes=dict(wanted.shape), input_values=values(wanted))
    print("\n".join(found.lines()))
    return 0 if found.runs else 1


COMMANDS = {"check": run_check, "compile": run_compile}
"""The commands of this module, by name."""
