"""`graphflow diff`: what differs between two reports."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from msgspec import to_builtins
from rich.markup import escape
from rich.table import Table

from graphflow.base.errors import GraphflowError
from graphflow.cli.drawing import stdout_console
from graphflow.cli.inspect_commands import write_page
from graphflow.inspect import Change, changes, difference_page, read_report


def run_diff(wanted: argparse.Namespace) -> int:
    """`graphflow diff BEFORE.json AFTER.json`."""
    try:
        before, after = read_report(wanted.before), read_report(wanted.after)
        found = changes(before, after)
        if wanted.html is not None:
            write_page(Path(wanted.html), difference_page(before, after))
    except GraphflowError as error:  # not 1, which means that the reports differ
        print(f"error: {error}", file=sys.stderr)
        return 2
    if wanted.html is None:
        _print_changes(found, wanted.json)
    return 1 if found else 0


def _print_changes(found: Sequence[Change], as_json: bool) -> None:
    """Print the differences as JSON or as a table."""
    if as_json:
        print(json.dumps(to_builtins(found), indent=1))
    elif found:
        stdout_console().print(_change_table(found))
    else:
        print("no difference")


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
