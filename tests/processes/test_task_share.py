"""Which process takes which task."""

from __future__ import annotations

from graphflow.base.options import Options
from graphflow.base.trace import Trace
from graphflow.processes.task_share import TaskShare


def share(*tasks: str) -> TaskShare[str, str]:
    """A share of tasks whose kin is their first letter."""
    return TaskShare(lambda task, _: task, {t: t for t in tasks}, Trace(Options()), lambda t: t[0])


def test_who_took_a_task_takes_its_kin() -> None:
    tasks = share("a1", "a2", "b1", "c1", "b2")
    takers = ("one", "other", "other", "one", "other")
    assert [tasks.take(who) for who in takers] == ["a1", "b1", "c1", "a2", "b2"]
    assert not tasks.waiting


def test_nobody_is_idle_because_of_kin() -> None:
    tasks = share("a1", "a2", "a3")
    assert [tasks.take(who) for who in ("one", "other", "other")] == ["a1", "a2", "a3"]


def test_tasks_without_kin_are_taken_in_their_order() -> None:
    same = "task"
    tasks = TaskShare(lambda task, _: task, {"x": same, "y": same}, Trace(Options()))
    assert [tasks.take(who) for who in ("one", "other")] == ["x", "y"]


def test_who_remembers_a_kin_takes_it_first_and_others_leave_it() -> None:
    named = {t: t for t in ("a1", "b1", "c1")}
    tasks = TaskShare(
        lambda task, _: task, named, Trace(Options()), lambda t: t[0], {"a": "one", "b": "one"}
    )
    assert [tasks.take(who) for who in ("other", "one", "other")] == ["c1", "a1", "b1"]
