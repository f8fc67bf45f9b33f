"""A table that makes each value once, however many threads ask for it at the same time.

In: keys, and functions that make a value.  Out: the value of a key.  What always holds: a thread
that asks for a key that is there never waits for another key; two threads never make the same key;
a forked child waits for no thread of its parent.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from msgspec import Struct

from graphflow.base.errors import GraphflowError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Counts(Struct, frozen=True):
    """How many values a table keeps now, how many it keeps at most, and how many it has made."""

    kept: int
    most: int
    made: int

    @property
    def dropped(self) -> int:
        """How many values were dropped, since others were used more recently."""
        return self.made - self.kept


class _Making(Generic[Value]):
    """A value that a thread is making; once `done` is set, it is in `values`, or the error is in
    `error`.

    Both are empty if the thread was interrupted; then a waiting thread makes the value itself.
    """

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.done = threading.Event()
        self.values: list[Value] = []
        self.error: Exception | None = None


class Once(Generic[Key, Value]):
    """Keeps at most `most` values by key, and drops the least recently used one first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._made = 0
        self._making: dict[Key, _Making[Value]] = {}
        # Reentrant: a signal handler may call `get` while this thread holds the lock.
        self._lock = threading.RLock()
        _ALL.add(self)

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of `key`; `make` is called if there is none.

        An error of `make` is raised in all threads that wait for it, and is not kept: the next call
        tries again.  Raises GraphflowError if `make` asks for its own key.
        """
        while True:
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
                    return self._kept[key]
                making = self._making.get(key)
                if making is None:
                    mine = self._making[key] = _Making()
                    break
            if making.owner == threading.get_ident():
                raise GraphflowError(
                    "a compilation needs its own result: something that it calls (offers=, "
                    "progress=, a signal handler) runs the model that is being compiled"
                )
            making.done.wait()
            if making.error is not None:
                raise making.error
            if making.values:
                return making.values[0]
        try:
            return self._make(key, mine, make)
        finally:
            # The traceback of an error has this frame: with it they would refer to each other, and
            # all that `make` had in memory would stay until the collector finds them.
            del mine

    @property
    def kept(self) -> tuple[Value, ...]:
        """The values that are kept, the most recently used one last."""
        with self._lock:
            return tuple(self._kept.values())

    @property
    def counts(self) -> Counts:
        """How many values are kept and were made so far."""
        with self._lock:
            return Counts(len(self._kept), self._most, self._made)

    def _make(self, key: Key, making: _Making[Value], make: Callable[[], Value]) -> Value:
        try:
            value = make()
            making.values.append(value)
            with self._lock:
                self._kept[key] = value
                self._made += 1
                if len(self._kept) > self._most:
                    self._kept.popitem(last=False)
            return value
        except Exception as error:
            making.error = error
            raise
        finally:
            with self._lock:
                self._making.pop(key, None)
            making.done.set()
            del making  # for the reason in `get`

    def forget_others(self) -> None:
        """Reset the state in a forked child: no value is being made, and the lock is free."""
        self._making = {}
        self._lock = threading.RLock()


_ALL: weakref.WeakSet[Once[Any, Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for once in tuple(_ALL):
        once.forget_others()


os.register_at_fork(after_in_child=_after_fork)
