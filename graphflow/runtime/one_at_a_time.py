"""Work that one thread at a time may do; a second one is refused, and not kept waiting.

In: what threads share, in words.  What always holds: however the work ends, by an exception of a
signal handler too, the next thread may begin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from graphflow.base.errors import GraphflowError

Result = TypeVar("Result")


class OneAtATime:
    """Does work for one thread at a time; the error for a second one begins with `subject`."""

    __slots__ = ("_subject", "_under_way")

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._under_way: list[object] = []
        """The work that is being done, and behind it what is about to be refused."""

    @property
    def is_busy(self) -> bool:
        """Whether a thread is in the middle of its work."""
        return bool(self._under_way)

    def do(self, work: Callable[[], Result]) -> Result:
        """The result of `work`; GraphflowError if another thread is in the middle of its own."""
        this = object()
        try:
            # No lock: a handler of a signal may raise right behind the call that takes it, and
            # nobody would give it back.  An entry of this call's own can be removed in any case.
            self._under_way.append(this)
            if self._under_way[0] is not this:
                raise GraphflowError(
                    f"{self._subject} is being executed by another thread (or was when this "
                    "process was forked); bind once per thread"
                )
            return work()
        finally:
            self._under_way.remove(this)
