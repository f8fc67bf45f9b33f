"""Functions that a signal's handler cannot leave in the middle.

In: a function.  Out: one with the same results, which runs on another thread where the main thread
calls it.  What always holds: an exception of a handler, such as KeyboardInterrupt, is raised in the
caller when the function has ended.

Python runs handlers in the main thread, between any two of its steps.  llvmlite frees an object of
LLVM and notes that it has done so in two of them: a handler that raises in between makes it free
the memory twice, and one that raises while the object is deleted is not heard of.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Value = TypeVar("Value")


def uninterrupted(function: Callable[Arguments, Value]) -> Callable[Arguments, Value]:
    """`function`, to its end before a handler's exception is raised; a decorator.

    Where the system gives no thread, the caller's runs it.
    """

    @functools.wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Value:
        if threading.current_thread() is not threading.main_thread():
            return function(*args, **kwargs)
        future: Future[Value] = Future()

        def work() -> None:
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*args, **kwargs))
                except BaseException as error:  # the caller raises it
                    future.set_exception(error)

        try:
            try:
                threading.Thread(target=work, name="graphflow uninterrupted").start()
            except RuntimeError:
                return function(*args, **kwargs)
            return future.result()
        finally:
            if not future.cancel():  # it has begun, also where the start was interrupted
                wait([future])

    return call
