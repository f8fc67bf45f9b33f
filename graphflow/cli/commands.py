"""The entry point of the command line: it parses the arguments and runs one command.

In: arguments.  Out: text or JSON on stdout, progress and errors on stderr, and an exit code: 0; 1
for an error of graphflow (one message that says why and what to do) or for reports that differ; 2
for wrong arguments; 130 after Ctrl-C.  What always holds: of the modules of commands only that of
the chosen one is imported.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Sequence
from io import TextIOWrapper

from graphflow.base.errors import GraphflowError, Remedy
from graphflow.cli.command_parsers import command_parser
from graphflow.cli.on_demand import on_demand

INTERRUPTED = 130
"""The exit code that shells expect of a command that SIGINT ended."""

FLAGS = {"input_shapes": "--shape NAME=1x3x224x224", "input_values": "--value NAME=[2,3]"}
"""The flag of each keyword argument of `compile` that an error may recommend without an example."""

NUMBER_FLAGS = {"input_shapes": ("--shape", "x"), "sizes": ("--size", ":")}
"""The flag of each argument whose example has numbers for names, and what separates these."""


def run_process() -> int:
    """`main` as all that this process does: it ends without passes of the garbage collector.

    Python's last passes visit everything that a compilation made, to find cycles whose memory goes
    back to the system with the process anyway: 7 % of the time of compiling resnet50.  Threads,
    functions of `atexit` and streams end as ever.
    """
    atexit.register(gc.freeze)  # what is frozen is not visited
    return main()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; None stands for the arguments of this process."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # an encoding without "µ" must not end a command
            stream.reconfigure(errors="replace")
    wanted = command_parser().parse_args(arguments)
    try:
        return int(on_demand(f"cli.{wanted.module}").COMMANDS[wanted.command](wanted))
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
    if isinstance(remedy.example, dict):
        flag, separator = NUMBER_FLAGS[remedy.argument]
        numbers = {name: separator.join(map(str, n)) for name, n in remedy.example.items()}
        return " ".join(f"{flag} {name}={text}" for name, text in numbers.items())
    return FLAGS.get(remedy.argument, str(remedy))
