"""The main loop of a worker process.

In: calls, from stdin.  Out: an answer to each, to what was stdout.  What always holds: a call that
raises is answered with its error, one that cannot be read or whose answer cannot be sent with the
reason; the process ends when its stdin does.
"""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from queue import SimpleQueue
from typing import BinaryIO, NoReturn

from graphflow.base.options import Options
from graphflow.base.trace import Trace
from graphflow.processes.worker_messages import (
    IDENTITY,
    Answer,
    Done,
    Failed,
    Unable,
    in_short,
    read_message,
    write_message,
)

COLLECT_AFTER = 20_000
"""How many objects a worker creates between two passes of the cyclic garbage collector.  A kernel
creates 4,000 objects that stay alive and 700 that are garbage in cycles: with Python's default of
700 the passes take 5 % of its time."""


def serve(modules: Sequence[str]) -> NoReturn:
    """The main loop of a worker: answer the calls from stdin until it ends.

    Prints to stdout go to stderr from now on.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # imports leave no garbage; passes would take 20 % of their time
    nothing = os.open(os.devnull, os.O_RDWR)  # first: becomes descriptor 2 if stderr is closed
    calls, answers = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    waiting: SimpleQueue[bytes] = SimpleQueue()
    # On a thread of its own, so that the process ends with its parent even during a call.
    threading.Thread(target=_receive, args=(calls, waiting), daemon=True).start()
    for module in modules:
        import_module(module)
    gc.freeze()  # imported objects stay alive; passes skip them
    gc.set_threshold(COLLECT_AFTER)
    gc.enable()
    try:
        write_message(answers, pickle.dumps(IDENTITY))
        while True:
            write_message(answers, _answered(waiting.get()))
    except BrokenPipeError:
        os._exit(0)


def _receive(calls: BinaryIO, waiting: SimpleQueue[bytes]) -> None:
    while (call := read_message(calls)) is not None:
        waiting.put(call)
    os._exit(0)


def _answered(call: bytes) -> bytes:
    """The pickled answer to a call."""
    try:
        function, task = pickle.loads(call)
    except Exception as error:
        return _packed(Unable(f"it cannot be read ({in_short(error)})"))
    trace = Trace(Options())
    try:
        return _packed(Done(function(task, trace), trace.times))
    except (
        MemoryError,
        RecursionError,
    ) as error:  # the parent may have more memory or stack, and tries again
        return _packed(Unable(in_short(error)))
    except Exception as error:
        return _packed(Failed(error, "".join(traceback.format_exception(error))))


def _packed(answer: Answer) -> bytes:
    try:
        data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        if isinstance(answer, Failed):
            pickle.loads(data)  # some exceptions pickle but cannot be unpickled
    except Exception as error:
        return pickle.dumps(Unable(f"its answer cannot be sent ({in_short(error)})"))
    return data
