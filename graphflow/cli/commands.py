"""The entry point of the command line: it parses the arguments and runs one command.

In: arguments.  Out: text or JSON on stdout, progress and errors on stderr, and an exit code: 0; 1
for an error of graphflow (one message that says why and what to do) or for reports that differ; 2
for wrong arguments; 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from graphflow.base.errors import GraphflowError, Remedy
from graphflow.cli.inspect_commands import add_inspect_commands
from graphflow.cli.measure_commands import add_measure_commands
from graphflow.cli.run_commands import add_run_commands

INTERRUPTED = 130
"""The exit code that shells expect of a command that SIGINT ended."""

FLAGS = {"input_shapes": "--shape NAME=1x3x224x224", "input_values": "--value NAME=[2,3]"}
"""The flag of each keyword argument of `compile` that an error may recommend."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; None stands for the arguments of this process."""
    wanted = _parser().parse_args(arguments)
    try:
        return int(wanted.command(wanted))
    except GraphflowError as error:
        notes = "".join(f" ({note})" for note in getattr(error, "__notes__", ()))
        print(f"error: {error.worded(_flag)}{notes}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of stdout, such as `head`, closed it early
        sys.stderr.close()
        return 1


def _flag(remedy: Remedy) -> str:
    """A remedy as the flag of the command line, if there is one."""
    return FLAGS.get(remedy.argument, str(remedy))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="graphflow", description="Compile ONNX models, and show why each layout was chosen."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add_run_commands(commands)
    add_inspect_commands(commands)
    add_measure_commands(commands)
    return parser
