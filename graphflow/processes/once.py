"""A table that makes each value once, however many threads ask for it at the same time.

In: keys, and functions that make a value.  Out: the value of a key.  What always holds: a key that
is there never waits for another one that is being made; two threads never make the same key; a
forked child waits for nobody who stayed in its parent.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from graphflow.base.errors import GraphflowError

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class _Making(Generic[Value]):
    """A value that a thread is making; `values` has it, or `error` why not, once `done` is set.

    Neither is there where the thread was interrupted: that is no answer for those who wait.
    """

    def __init__(self) -> None:
        self.owner = threading.get_ident()
        self.done = threading.Event()
        self.values: list[Value] = []
        self.error: Exception | None = None


class Once(Generic[Key, Value]):
    """At most `most` values by key; beyond that the one that was used longest ago goes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[Key, Value] = OrderedDict()
        self._making: dict[Key, _Making[Value]] = {}
        # A signal's handler may ask while this thread holds the lock.
        self._lock = threading.RLock()
        _ALL.add(self)

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """The value of `key`, which `make` gives if there is none.

        What `make` raises is raised to all who wait for it, and not kept: whoever asks afterwards
        tries again.  GraphflowError where `make` itself asks for its key.
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
        return self._make(key, mine, make)

    @property
    def kept(self) -> tuple[Value, ...]:
        """The values that are there, the one used last at the end."""
        with self._lock:
            return tuple(self._kept.values())

    def _make(self, key: Key, making: _Making[Value], make: Callable[[], Value]) -> Value:
        try:
            value = make()
            making.values.append(value)
            with self._lock:
                self._kept[key] = value
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

    def forget_others(self) -> None:
        """In a forked child: nobody is making anything, and the lock is free."""
        self._making = {}
        self._lock = threading.RLock()


_ALL: weakref.WeakSet[Once[Any, Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for once in tuple(_ALL):
        once.forget_others()


os.register_at_fork(after_in_child=_after_fork)
