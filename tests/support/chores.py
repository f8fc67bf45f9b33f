"""Tasks that the tests of worker processes send; this module imports little, so workers start
fast."""

import os
import signal
import time
from dataclasses import dataclass
from typing import Any

from graphflow.base.errors import CodegenError, VerifyError
from graphflow.base.trace import Trace


def double(task: int, trace: Trace) -> tuple[int, int]:
    with trace.timer("doubling", str(task)):
        return 2 * task, os.getpid()


def twice(task: bytes, trace: Trace) -> bytes:
    return task + task


def refuse_odd(task: int, trace: Trace) -> int:
    if task % 2:
        time.sleep(0.5 / task)  # later errors come first
        raise VerifyError(f"{task} is odd")
    return task


class Peculiar(Exception):
    """An exception that can be pickled, and not unpickled."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


@dataclass(frozen=True)
class Away:
    """A task that misbehaves in every process but the test's, by name."""

    parent: int
    what: str


def happens(task: Away, trace: Trace) -> Any:
    if os.getpid() == task.parent:
        return task.what
    match task.what:
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "exits":
            os._exit(3)
        case "no memory":
            raise MemoryError
        case "too deep":
            raise RecursionError
        case "result without a pickle":
            return lambda: None
        case "error without a pickle":
            raise Peculiar("a", "b")
        case "interrupted":
            os.kill(os.getpid(), signal.SIGINT)
        case "prints":
            print("hello from a worker", flush=True)
            os.write(1, b"and from below\n")
    return task.what


class Unreadable:
    """Comes out of its pickle in the process that made it only."""

    def __init__(self) -> None:
        self.parent = os.getpid()

    def __reduce__(self) -> Any:
        return _restored, (self.parent,)


def _restored(parent: int) -> Unreadable:
    if os.getpid() != parent:
        raise ImportError("no such module here")
    return Unreadable()


def name_of(task: object, trace: Trace) -> str:
    return type(task).__name__


def sleep(task: float, trace: Trace) -> float:
    time.sleep(task)
    return task


def refuse_code(task: tuple[Any, str, Any], trace: Trace) -> bytes:
    raise CodegenError(f"no code for {task[1]}")


REMEMBERED: list[str] = []
"""What this process was told by `remember`."""


def remember(task: str, trace: Trace) -> None:
    if task == "refused":
        raise VerifyError(task)
    REMEMBERED.append(task)


def remembered(task: object, trace: Trace) -> list[str]:
    return REMEMBERED


def remember_slowly(task: str, trace: Trace) -> None:
    time.sleep(1.0)
    remember(task, trace)
