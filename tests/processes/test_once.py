"""Tests of `Once`: which threads wait for which, and the state after errors and forks."""

import gc
import os
import threading
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from graphflow.base.errors import GraphflowError
from graphflow.processes.once import Once

SECONDS = 60
"""A test that takes so long has hung."""


class Slow:
    """A `make` that waits until it is let go; `begun` is set once somebody makes."""

    def __init__(self, result: Any) -> None:
        self.result = result
        self.begun, self.go = threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self) -> Any:
        self.calls += 1
        self.begun.set()
        assert self.go.wait(SECONDS)
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result


def waiting_for(
    once: Once[str, Any], key: str, slow: Slow, pool: ThreadPoolExecutor
) -> Future[Any]:
    """Another caller of `key`, which is being made; it makes `again` if it has to."""
    asked = threading.Event()

    def ask() -> Any:
        asked.set()
        return once.get(key, lambda: "again")

    future = pool.submit(ask)
    assert slow.begun.wait(SECONDS) and asked.wait(SECONDS)
    return future


def test_what_is_there_does_not_wait_for_what_is_being_made() -> None:
    once: Once[str, Any] = Once(2)
    slow = Slow("b")
    assert once.get("a", lambda: "a") == "a"
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(once.get, "b", slow)
        assert slow.begun.wait(SECONDS)
        assert once.get("a", lambda: "other") == "a"  # and not after a minute
        assert once.get("c", lambda: "c") == "c"
        assert not second.done()
        slow.go.set()
        assert second.result(SECONDS) == "b"


def test_a_key_is_made_once_for_all_who_ask() -> None:
    once: Once[str, Any] = Once(2)
    slow = Slow(object())
    with ThreadPoolExecutor(3) as pool:
        first = pool.submit(once.get, "a", slow)
        others = [waiting_for(once, "a", slow, pool) for _ in range(2)]
        slow.go.set()
        assert {future.result(SECONDS) for future in (first, *others)} == {slow.result}
    assert slow.calls == 1


def test_an_error_reaches_all_who_wait_and_is_not_kept() -> None:
    once: Once[str, Any] = Once(2)
    slow = Slow(GraphflowError("no"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once.get, "a", slow)
        second = waiting_for(once, "a", slow, pool)
        slow.go.set()
        with pytest.raises(GraphflowError, match="no"):
            first.result(SECONDS)
        try:  # it may have asked after all was over
            assert second.result(SECONDS) == "again"
        except GraphflowError as error:
            assert error is slow.result
    assert once.get("a", lambda: "again") == "again"


def test_who_waits_for_somebody_interrupted_makes_it() -> None:
    once: Once[str, Any] = Once(2)
    slow = Slow(KeyboardInterrupt())
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(once.get, "a", slow)
        second = waiting_for(once, "a", slow, pool)
        slow.go.set()
        assert isinstance(first.exception(SECONDS), KeyboardInterrupt)
        assert second.result(SECONDS) == "again"


def test_what_needs_itself_is_refused() -> None:
    once: Once[str, Any] = Once(2)
    with pytest.raises(GraphflowError, match="needs its own result"):
        once.get("a", lambda: once.get("a", lambda: "a"))
    assert once.get("a", lambda: once.get("b", lambda: "b")) == "b"


def test_the_key_that_was_used_longest_ago_goes() -> None:
    once: Once[str, Any] = Once(2)
    for key in ("a", "b", "a", "c"):
        once.get(key, lambda key=key: key)
    assert once.kept == ("a", "c")


def test_a_forked_child_does_not_wait_for_its_parent() -> None:
    once: Once[str, Any] = Once(2)
    slow = Slow("parent")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(once.get, "a", slow)
        assert slow.begun.wait(SECONDS)
        child = os.fork()
        if child == 0:
            os._exit(0 if once.get("a", lambda: "child") == "child" else 1)
        try:
            assert os.waitpid(child, 0)[1] == 0
        finally:
            slow.go.set()
        assert first.result(SECONDS) == "parent"


def test_what_make_had_goes_with_its_error() -> None:
    """No frame of the error's traceback is kept by it, so that nothing waits for the collector."""

    class Held:
        """Something large."""

    held: list[weakref.ref[Held]] = []

    def make() -> int:
        large = Held()
        held.append(weakref.ref(large))
        raise GraphflowError("refused")

    once: Once[str, int] = Once(2)
    assert not gc.isenabled()
    for key in "ab":
        with suppress(GraphflowError):
            once.get(key, make)
    assert [ref() for ref in held] == [None, None]
