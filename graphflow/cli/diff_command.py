"""`graphflow diff`: what differs between two reports."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from rich.markup import escape
from rich.table import Table

from graphflow.base.errors import InvalidModel
from graphflow.cli.drawing import stdout_console
from graphflow.inspect import Change, changes, read_report


def run_diff(wanted: argparse.Namespace) -> int:
    """`graphflow diff BEFORE.json AFTER.json`."""
    try:
        found = changes(read_report(wanted.before), read_report(wanted.after))
    except InvalidModel as error:  # not 1, which means that the reports differ
        print(f"error: {error}", file=sys.stderr)
        return 2
    if wanted.json:
        print(json.dumps([asdict(change) for change in found], indent=1))
    elif found:
        stdout_console().print(_change_table(found))
    else:
        print("no difference")
    return 1 if found else 0


COMMANDS = {"diff": run_diff}
"""The commands of this module, by name."""


def _change_table(found: Sequence[Change]) -> Table:
    """The differences between two reports, one row each; a dash stands for no value."""
    table = Table(header_style="bold")
    for column in ("what", "of", "before", "after"):
        table.add_column(column, overflow="fold")
    for change in found:
        texts = (change.kind, change.name, change.before, change.after)
        table.add_row(*(escape(text or "-") for text in texts))
    return table
