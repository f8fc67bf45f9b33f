"""The command line, `graphflow` or `python -m graphflow`."""

from graphflow.cli.commands import main, run_process

__all__ = ["main", "run_process"]
