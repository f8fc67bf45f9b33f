"""The commands that show decisions: inspect, explain."""

from __future__ import annotations

import argparse
import json

from graphflow.cli.executables import executable_or_decisions
from graphflow.cli.on_demand import on_demand


def run_inspect(wanted: argparse.Namespace) -> int:
    """`graphflow inspect MODEL`."""
    with executable_or_decisions(wanted) as exe:
        pass
    if wanted.json:
        found = exe.report()
        if wanted.edge is not None:
            exe.explain(wanted.edge)  # raises for a name that the model does not have
            found = next(edge for edge in found["edges"] if edge["name"] == wanted.edge)
        print(json.dumps(found, indent=1))
    elif wanted.edge is not None:
        print(exe.explain(wanted.edge))
    else:
        on_demand("cli.drawing").show_decisions(exe.decisions(), constants=wanted.all)
    return 0


def run_explain(wanted: argparse.Namespace) -> int:
    """`graphflow explain MODEL TENSOR`."""
    with executable_or_decisions(wanted) as exe:
        pass
    print(exe.explain(wanted.tensor, full=wanted.full))
    return 0


COMMANDS = {"explain": run_explain, "inspect": run_inspect}
"""The commands of this module, by name."""
