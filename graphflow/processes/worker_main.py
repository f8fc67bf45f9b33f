"""The main loop of a worker process.

In: calls and hints, from stdin.  Out: an answer to each call, to what was stdout.  What always
holds: a call that raises is answered with its error, one that cannot be read or whose answer cannot
be sent with the reason; no hint begins when a call waits; the process ends when its stdin does.
"""

from __future__ import annotations

import contextlib
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
    hinted_call,
    in_short,
    is_hint,
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
    called = threading.Event()
    # On a thread of its own, so that the process ends with its parent even during a call.
    threading.Thread(target=_receive, args=(calls, waiting, called), daemon=True).start()
    for module in modules:
        import_module(module)
    gc.freeze()  # imported objects stay alive; passes skip them
    gc.set_threshold(COLLECT_AFTER)
    gc.enable()
    try:
        write_message(answers, pickle.dumps(IDENTITY))
        while True:
            message = waiting.get()
            if not is_hint(message):
                called.clear()
                write_message(answers, _answered(message))
            elif not called.is_set():
                _take(message)
    except BrokenPipeError:
        os._exit(0)


def _receive(calls: BinaryIO, waiting: SimpleQueue[bytes], called: threading.Event) -> None:
    while (message := read_message(calls)) is not None:
        if not is_hint(message):
            called.set()
        waiting.put(message)
    os._exit(0)


def _take(hint: bytes) -> None:
    """Make the call of a hint for what this process remembers of it; an error comes again where the
    result is needed."""
    call = hinted_call(hint)
    if call is not None:
        with contextlib.suppress(Exception):
            function, task = pickle.loads(call)
            function(task, Trace(Options()))


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
