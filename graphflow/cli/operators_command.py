"""`graphflow operators`: how each ONNX operator is compiled.

The page is a file of the package, since importing a model of every operator takes ten seconds;
`tests/frontends/test_operator_table.py` compares the two.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphflow.cli.on_demand import on_demand

PAGE = Path(__file__).with_name("operators.md")


def run_operators(wanted: argparse.Namespace) -> int:
    """`graphflow operators`, with `--probe` of the installed onnx."""
    if wanted.probe:
        print(on_demand("frontends.operator_table").operator_document(), end="")
    else:
        print(PAGE.read_text(encoding="utf-8"), end="")
    return 0


COMMANDS = {"operators": run_operators}
"""The commands of this module, by name."""
