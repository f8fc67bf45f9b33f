"""Temporary changes to process-wide state, undone when the last thread that needs them is done.

In: a function that makes a change and returns the function that undoes it.  Out: a context manager
for any number of threads: the first to enter makes the change, the last to leave undoes it.  What
always holds: outside of all scopes the process is unchanged, also in a forked child, where the
threads inside a scope do not exist.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class SharedScope:
    """`with scope.entered():` keeps the change in force inside; a thread may nest it.

    Other threads of the process see the change while it lasts.  Instances live as long as the
    process.
    """

    def __init__(self, make: Callable[[], Callable[[], None]]) -> None:
        self._make = make
        self._undo: Callable[[], None] | None = None
        self._inside: Counter[int] = Counter()
        # Reentrant: a signal handler may enter or leave while this thread holds the lock.
        self._lock = threading.RLock()
        os.register_at_fork(after_in_child=self._forget_other_threads)

    @contextmanager
    def entered(self) -> Iterator[None]:
        """The context manager inside which the change is in force."""
        thread, counted = threading.get_ident(), False
        try:  # nothing before it: a signal handler may raise anywhere
            with self._lock:
                if self._undo is None:
                    self._undo = self._make()
                self._inside[thread] += 1
                counted = True
            yield
        finally:
            with self._lock:
                self._inside[thread] -= counted
                self._end_if_empty()

    def _end_if_empty(self) -> None:
        if self._undo is not None and not self._inside.total():
            undo, self._undo = self._undo, None
            self._inside.clear()
            undo()

    def _forget_other_threads(self) -> None:
        self._lock = threading.RLock()
        thread = threading.get_ident()
        self._inside = Counter({thread: self._inside[thread]})
        self._end_if_empty()
