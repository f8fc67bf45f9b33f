"""The command line, `graphflow` or `python -m graphflow.cli`."""

from graphflow.cli.commands import main

__all__ = ["main"]
