"""A thread of this process that does tasks beside worker processes.

In: tasks of a `TaskShare`, one at a time.  Out: their results.  What always holds: a share is
changed by the thread that sends and hears alone; this one only calls the function.  That one waits
for messages meanwhile, so that no worker waits until a long task is done here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

from graphflow.base.options import Options
from graphflow.base.trace import Trace
from graphflow.processes.task_share import Result, Task, TaskShare


class OwnThread:
    """One thread; `call` names the task that it is doing, and `answers` can be read when it is
    done.  OSError where the system gives no pipe, RuntimeError where it starts no thread."""

    def __init__(self) -> None:
        self.call: str | None = None
        self._calls: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self._future: Future[Any] = Future()
        self._trace = Trace(Options())
        self.answers, self._done = os.pipe()
        self._thread = threading.Thread(target=self._serve, name="graphflow kernels", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._close_pipe()
            raise

    @property
    def idle(self) -> bool:
        """Whether the thread has no task."""
        return self.call is None

    def send(self, name: str, share: TaskShare[Task, Result]) -> None:
        """Begin a task."""
        self.call, self._future, trace = name, Future(), Trace(Options())
        self._trace = trace
        share.begin(name)
        self._calls.put(lambda: share.function(share.tasks[name], trace))

    def hear(self, share: TaskShare[Task, Result]) -> None:
        """Hand over the result of the task, after waiting until it is done."""
        os.read(self.answers, 1)
        done, self.call = self.call, None
        assert done is not None
        share.trace.add(self._trace.times)
        share.done_here(done, self._future.result)

    def close(self) -> None:
        """End the thread, after the task that it is doing."""
        self._calls.put(None)
        self._thread.join()
        self._close_pipe()

    def _close_pipe(self) -> None:
        os.close(self.answers)
        os.close(self._done)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                self._future.set_result(call())
            except BaseException as error:  # also what only ends a thread: the caller hears of it
                self._future.set_exception(error)
            os.write(self._done, b".")


@contextmanager
def own_threads(count: int) -> Iterator[tuple[OwnThread, ...]]:
    """So many threads, which end with the context; fewer where the system starts no more."""
    threads: list[OwnThread] = []
    try:
        for _ in range(count):
            threads.append(OwnThread())
    except (OSError, RuntimeError):
        pass
    try:
        yield tuple(threads)
    finally:
        for thread in threads:
            thread.close()
