"""Tests of the thread that makes kernels beside worker processes."""

import os
import threading
from collections.abc import Callable
from typing import Any

import pytest

from graphflow.base.errors import VerifyError
from graphflow.base.options import Options
from graphflow.base.trace import Trace
from graphflow.processes.own_thread import own_threads
from graphflow.processes.task_share import TaskShare
from graphflow.processes.workers import Workers
from support.chores import double, refuse_odd

PATIENCE = 60.0
"""Seconds after which something that should happen by itself counts as not happening."""


def mapped(
    function: Callable[[Any, Trace], Any], tasks: list[Any], here: bool, count: int = 1
) -> tuple[list[Any], Trace]:
    trace = Trace(Options())
    with Workers() as workers:
        workers.start(count, trace, PATIENCE)
        found = workers.map(function, {str(k): t for k, t in enumerate(tasks)}, trace, here)
    assert list(found) == [str(k) for k in range(len(tasks))]
    return list(found.values()), trace


def test_this_process_and_its_workers_share_the_tasks() -> None:
    found, trace = mapped(double, list(range(20)), here=True)
    assert [value for value, _ in found] == [2 * k for k in range(20)]
    processes = {process for _, process in found}
    assert len(processes) == 2 and os.getpid() in processes
    assert set(trace.times["doubling"]) == {str(k) for k in range(20)}
    assert trace.notices == ()


def test_without_workers_the_calling_thread_does_all() -> None:
    def where(task: int, trace: Trace) -> str:
        return threading.current_thread().name

    found, _ = mapped(where, [1, 2], here=True, count=0)
    assert found == [threading.current_thread().name] * 2


def test_the_error_of_the_earliest_task_comes_back() -> None:
    before = threading.active_count()
    with pytest.raises(VerifyError, match="1 is odd") as caught:
        mapped(refuse_odd, [0, 1, 3, 5, 2], here=True)
    assert caught.value.__notes__ == ["in kernel 1"]
    assert threading.active_count() == before


def test_an_error_in_the_thread_has_its_own_traceback() -> None:
    share = TaskShare(refuse_odd, {"a": 1, "b": 2}, Trace(Options()))
    with own_threads(1) as (thread,):
        assert thread.idle
        thread.send(share.waiting.popleft(), share)
        assert share.open and not thread.idle
        thread.hear(share)  # waits for it
        assert thread.idle and not share.open
    with pytest.raises(VerifyError, match="1 is odd") as caught:
        share.results()
    assert caught.value.__cause__ is None
    assert any(entry.name == "refuse_odd" for entry in caught.traceback)


def test_a_context_without_threads_is_empty() -> None:
    with own_threads(0) as threads:
        assert threads == ()


@pytest.mark.parametrize(("call", "error"), [("pipe", OSError), ("start", RuntimeError)])
def test_where_the_system_gives_no_thread_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch, call: str, error: type[Exception]
) -> None:
    def refused(*_: object) -> None:
        raise error("too many")

    before = threading.active_count(), sorted(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(*((os, call) if call == "pipe" else (threading.Thread, call)), refused)
    with own_threads(1) as threads:
        assert threads == ()
    assert before == (threading.active_count(), sorted(os.listdir("/proc/self/fd")))
