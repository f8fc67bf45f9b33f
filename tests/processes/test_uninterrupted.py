"""Tests of functions that a signal's handler cannot leave in the middle."""

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from graphflow.processes.uninterrupted import uninterrupted


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_a_function_ends_before_an_interrupt_is_raised() -> None:
    steps = []

    @uninterrupted
    def interrupted() -> None:
        steps.append("begin")
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        steps.append("end")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps == ["begin", "end"]


def test_results_and_errors_are_those_of_the_function() -> None:
    @uninterrupted
    def quotient(dividend: int, divisor: int = 1) -> int:
        return dividend // divisor

    assert quotient(7, divisor=2) == 3 and quotient.__name__ == "quotient"
    with pytest.raises(ZeroDivisionError):
        quotient(7, divisor=0)


def test_the_caller_runs_it_where_no_handler_does_or_no_thread_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    thread_of = uninterrupted(threading.current_thread)
    assert thread_of() is not threading.current_thread()
    found = []
    other = threading.Thread(target=lambda: found.append(thread_of()))
    other.start()
    other.join()
    assert found == [other]

    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    assert thread_of() is threading.current_thread()
