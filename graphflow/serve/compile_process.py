"""ONNX models are compiled by a process of their own, beside the server.

In: the path of an ONNX model and options of `graphflow compile`.  Out: a saved model.  What always
holds: the server's own process never imports the compiler; the process runs with lower priority
than the server, and ends when the task that waits for it is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from graphflow.base.errors import InvalidModel

NICENESS = 10
"""How much the compiler yields to the server where both want a processor."""

_SHOWN = 2000
"""The most characters of what the compiler says that an error has."""


async def compile_beside(model: Path, saved: Path, options: Sequence[str]) -> None:
    """Compile `model` and save it as `saved`; InvalidModel with the compiler's error if not."""
    command = (sys.executable, "-P", "-m", "graphflow", "compile", str(model), "-o", str(saved))
    process = await asyncio.create_subprocess_exec(
        *command,
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,  # its workers are in its group, and end with it
    )
    try:
        with contextlib.suppress(OSError):  # it has ended already
            os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        _, said = await process.communicate()
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    if process.returncode:
        raise InvalidModel(f"cannot compile {model}: {_error_in(said)}")


def _error_in(said: bytes) -> str:
    """The error among what the compiler printed, or the end of it."""
    text = said.decode(errors="replace").strip()
    _, marker, error = text.rpartition("error: ")
    return (error if marker else text)[-_SHOWN:] or "it was stopped"
