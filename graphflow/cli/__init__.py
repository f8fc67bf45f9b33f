"""The command line, `graphflow` or `python -m graphflow`."""

from graphflow.cli.commands import main

__all__ = ["main"]
