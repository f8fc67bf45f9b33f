"""The tasks of one `Workers.map`, and the processes that take them.

In: a function and its tasks, by symbol.  Out: their results, in the order of the tasks.  What
always holds: each task is done once, by a worker or, where no worker can do it, by this process,
and the trace gets the reason; a worker that is lost gives its task back.
"""

from __future__ import annotations

import contextlib
import fcntl
import pickle
import subprocess
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, TypeVar, assert_never

from graphflow.base.trace import Trace
from graphflow.processes.worker_messages import (
    IDENTITY,
    Answer,
    Done,
    Failed,
    Unable,
    as_hint,
    in_short,
    read_message,
    write_message,
)

Task = TypeVar("Task")

Result = TypeVar("Result")


class WorkerTraceback(Exception):
    """The traceback of an error in a worker, as text; the cause of the error in the parent."""


class TaskShare(Generic[Task, Result]):
    """The tasks of one `Workers.map`: those that wait, those that this process must do, and the
    results.

    `results` and `failed` are in the order in which they came.  Tasks with one `kin` have work in
    common, which a process remembers: whoever took one of them takes the others, as long as there
    are tasks for the others to take.  `takers` are those that remember it already.
    """

    def __init__(
        self,
        function: Callable[[Task, Trace], Result],
        tasks: Mapping[str, Task],
        trace: Trace,
        kin: Callable[[Task], Hashable] | None = None,
        takers: Mapping[Hashable, object] = MappingProxyType({}),
    ) -> None:
        self.function = function
        self.tasks = tasks
        self.trace = trace
        self.waiting = deque(tasks)
        self._kin: dict[str, Hashable] = {
            name: name if kin is None else kin(task) for name, task in tasks.items()
        }
        self._takers = {**takers}
        self._returned: deque[str] = deque()
        self._found: dict[str, Result] = {}
        self._failed: dict[str, Exception] = {}
        self._out: set[str] = set()

    @property
    def open(self) -> bool:
        """Whether a task waits or is being done."""
        return bool(self.waiting or self._returned or self._out)

    def take(self, taker: object) -> str:
        """Take the first waiting task of whose kin nobody but `taker` has any; if there is none,
        the first one."""
        for name in self.waiting:
            if self._takers.get(self._kin[name], taker) is taker:
                break
        else:
            name = self.waiting[0]
        self.waiting.remove(name)
        self._takers[self._kin[name]] = taker
        return name

    def call(self, name: str) -> bytes:
        """The pickled call of a task, which from now on belongs to a worker."""
        self.begin(name)
        return pickle.dumps((self.function, self.tasks[name]), pickle.HIGHEST_PROTOCOL)

    def answer(self, name: str, answer: Answer) -> None:
        """Take the answer of a worker to a task."""
        match answer:
            case Done(result, times):
                self.trace.add(times)
                self._finish(name, result)
            case Failed(error, text):
                error.__cause__ = WorkerTraceback(f"in a worker process:\n{text}")
                self._fail(name, error)
            case Unable(reason):
                self.give_back(name, reason)
            case _:
                assert_never(answer)

    def give_back(self, name: str, reason: str) -> None:
        """Keep a task that a worker did not do for this process, which does it after all others."""
        self.trace.notice(f"{name} is done in this process: {reason}")
        self._out.discard(name)
        self._returned.append(name)

    def do_next(self) -> None:
        """Do one task in this process, if one is left."""
        queue = self.waiting or self._returned
        if not queue:
            return
        name = queue.popleft()
        self.done_here(name, lambda: self.function(self.tasks[name], self.trace))

    def begin(self, name: str) -> None:
        """From now on a task is being done."""
        self._out.add(name)

    def done_here(self, name: str, result: Callable[[], Result]) -> None:
        """Take the result of a task that this process did, or the error that `result` raises."""
        try:
            found = result()
        except Exception as error:
            self._fail(name, error)
        else:
            self._finish(name, found)

    def results(self) -> dict[str, Result]:
        """All results in the order of the tasks; raises the first error in that order."""
        for name in self.tasks:
            if name in self._failed:
                raise self._failed[name]
        return {name: self._found[name] for name in self.tasks}

    def _finish(self, name: str, result: Result) -> None:
        self._out.discard(name)
        self._found[name] = result
        self.trace.count(len(self._found), len(self.tasks))

    def _fail(self, name: str, error: Exception) -> None:
        """Begin no further task; a task under way may still raise an error that comes earlier."""
        error.add_note(f"in kernel {name}")
        self._failed[name] = error
        self._out.discard(name)
        self.waiting.clear()


_PIPE_UNIT = 4096
"""The bytes in which Linux gives out the room of a pipe."""

_WANTED_ROOM = 1 << 20
"""The most bytes that a process without privileges may have in a pipe."""


def _room(pipe: Any) -> int:
    """The bytes that a new pipe holds."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _WANTED_ROOM)
    return int(fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ))


class WorkerProcess:
    """One process; `call` names the task that it is doing, `tasks` and `hints` count those it was
    sent."""

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        self._calls: Any = self._process.stdin
        self.answers: Any = self._process.stdout
        self.pid = self._process.pid
        self.ready = False
        self.alive = True
        self.call: str | None = None
        self.tasks = 0
        self.hints = 0
        self._room = _room(self._calls)

    @property
    def idle(self) -> bool:
        """Whether the process is ready and has no task."""
        return self.alive and self.ready and self.call is None

    def send(self, name: str, share: TaskShare[Task, Result]) -> None:
        """Send a task to the process."""
        try:
            call = share.call(name)
        except Exception as error:  # a user's __reduce__ may raise anything
            share.give_back(name, f"it cannot be sent ({in_short(error)})")
            return
        self.call = name
        self.tasks += 1
        try:
            write_message(self._calls, call)
        except OSError as error:
            self._lose(share, f"the worker does not read ({error})")

    def hint(self, call: bytes) -> bool:
        """Send a call that is not answered, also to a process that is not ready; whether it was
        sent.  All of them fit into the pipe, so that nobody waits for the process to read them."""
        message = as_hint(call)
        self._room -= len(message) + _PIPE_UNIT
        if self._room < 0:
            return False
        try:
            write_message(self._calls, message)
        except OSError:  # it has ended, which `hear` finds out
            return False
        self.hints += 1
        return True

    def hear(self, share: TaskShare[Task, Result]) -> None:
        """Read a message: that the process is ready, or an answer; or notice that it has ended."""
        try:
            message = read_message(self.answers)
            answer = None if message is None else pickle.loads(message)
        except Exception as error:  # not a message, or it cannot be unpickled here
            self._lose(share, f"the worker's answer cannot be read ({in_short(error)})")
            return
        if answer is None:
            self._lose(share, "the worker ended")
        elif not self.ready:
            self.ready = answer == IDENTITY
            if not self.ready:
                self._lose(share, f"the worker is another installation: {answer}")
        elif self.call is not None:
            done, self.call = self.call, None
            if share.waiting:  # before its answer is handled, so that it is not idle
                self.send(share.take(self), share)
            share.answer(done, answer)

    def end(self) -> None:
        """Kill the process, which holds nothing that has to be cleaned up."""
        self.alive = False
        self._process.kill()
        self._process.wait()
        self._calls.close()
        self.answers.close()

    def leave_to_parent(self) -> None:
        """In a forked child: close the pipes, so that the worker still ends with the parent."""
        self.alive = False
        self._process.returncode = 0  # not a child of this process, so Popen must not wait for it
        self._calls.close()
        self.answers.close()

    def _lose(self, share: TaskShare[Task, Result], reason: str) -> None:
        self.end()
        reason = f"{reason}; exit status {self._process.returncode}"
        lost, self.call = self.call, None
        if lost is None:
            share.trace.notice(f"a worker process is lost: {reason}")
        else:
            share.give_back(lost, reason)
