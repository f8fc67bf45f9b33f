"""Worker processes: they call one function for many tasks and return the results in order.

In: a function of a module, and a task for each kernel, by symbol.  Out: its results, by symbol.
What always holds: results and their order are those of calling the function in this process; a task
that a worker cannot do is done in this process, and the trace gets the reason.  No worker outlives
`close` (or, in a `Crew`, its idle time), nor its parent: a worker exits when its stdin ends.

A worker is `sys.executable` with this process's `sys.path`, and imports graphflow: the user's
`__main__` is not imported and nothing is forked, so threads and notebooks work.  It has a session
of its own, so that Ctrl-C at a terminal reaches only its parent.

The standard library's pools do not keep this: with the start method `spawn`, each worker runs the
user's `__main__` again, so that a script without a guard, or from stdin, breaks the pool; and when
the parent is killed, workers of `ProcessPoolExecutor` wait for ever, as each holds both ends of the
queue of calls.  One worker that dies ends all calls under way with `BrokenProcessPool`, without its
exit status or its task; and Ctrl-C returns only when the calls under way are done.
"""

from __future__ import annotations

import atexit
import os
import pickle
import selectors
import sys
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import TracebackType

from graphflow.base.trace import Trace
from graphflow.processes.own_thread import OwnThread, own_threads
from graphflow.processes.task_share import Result, Task, TaskShare, WorkerProcess

IDLE_SECONDS = 10.0
"""How long idle workers wait for the next compilation of their model."""

TASKS_OF_WORKER = 500
"""After so many tasks a worker is not left to the next compilation, which starts another one: LLVM
keeps 0.1 to 0.2 MB of each module (see codegen/target_machine.py)."""

_BOOT = (
    "import sys; modules = sys.argv[1].split(); sys.path[:] = sys.argv[2:];"
    "from graphflow.processes.worker_main import serve; serve(modules)"
)


class Workers:
    """Worker processes of one compilation; a context manager that ends them all.

    `modules` are imported by a worker before it reports that it is ready.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._workers: list[WorkerProcess] = []
        self._startable = True
        self._foreseen: dict[Hashable, WorkerProcess] = {}

    def start(self, count: int, trace: Trace, patience: float = 0.0) -> None:
        """Start processes until there are `count`; wait up to `patience` seconds until they are
        ready.

        If they cannot be started, the trace gets a notice, there are none, and later calls do not
        try again.
        """
        if not self._startable:
            return
        try:
            command = [*_interpreter(), " ".join(self._modules), *filter(_is_text, sys.path)]
            for _ in range(count - len(self._workers)):
                self._workers.append(WorkerProcess(command))
        except OSError as error:
            self.close()
            self._startable = False
            trace.notice(f"worker processes cannot be started: {error}")
        self._wait(trace, time.monotonic() + patience)

    @property
    def started(self) -> bool:
        """Whether there are processes, working or idle."""
        return bool(self._workers)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process identifiers of the workers."""
        return tuple(worker.pid for worker in self._workers)

    def foresee(self, function: Callable[[Task, Trace], None], task: Task, kin: Hashable) -> None:
        """Have a process, if there is one, call `function(task, trace)` while it has nothing else
        to do, for what it then remembers; in a `map`, it takes the tasks of this `kin`.

        The process need not be ready.  No error comes back: a task that needs the result has it.
        """
        if not self._workers or kin in self._foreseen:
            return
        try:
            call = pickle.dumps((function, task), pickle.HIGHEST_PROTOCOL)
        except Exception:  # a user's __reduce__ may raise anything
            return
        worker = min(self._workers, key=lambda one: one.hints)
        if worker.hint(call):
            self._foreseen[kin] = worker

    def map(
        self,
        function: Callable[[Task, Trace], Result],
        tasks: Mapping[str, Task],
        trace: Trace,
        here: bool = False,
        kin: Callable[[Task], Hashable] | None = None,
    ) -> dict[str, Result]:
        """The result of `function(task, trace)` for each task, by name and in the order of the
        tasks.

        In a worker, `function` gets a trace of its own, whose times are added to `trace`.  If
        several tasks raise an error, that of the earliest task is raised, with a note that names
        the task.  This process does the work until a worker is ready, and if there is none; with
        `here` it takes part in it all the time, in a thread.  Tasks with one `kin` are done in one
        process if that leaves none idle.
        """
        self._wait(trace, time.monotonic())
        begun = {of: worker for of, worker in self._foreseen.items() if worker.ready}
        share = TaskShare(function, tasks, trace, kin, begun)
        with own_threads(1 if here and self._workers else 0) as threads:
            while share.open:
                everyone: list[WorkerProcess | OwnThread] = [*self._workers, *threads]
                for one in everyone:
                    if one.idle and share.waiting:
                        one.send(share.take(one), share)
                busy = any(one.call is not None for one in everyone)
                heard = self._heard(None if busy else 0.0, threads)
                for one in heard:
                    one.hear(share)
                if not busy and not heard:
                    share.do_next()
        return share.results()

    @property
    def fit(self) -> bool:
        """Whether there are processes, and all of them can serve another compilation: idle, and
        none of them has done `TASKS_OF_WORKER` tasks."""
        return self.started and all(
            worker.call is None and worker.tasks < TASKS_OF_WORKER for worker in self._workers
        )

    def dismiss(self) -> None:
        """End the processes that had no task so far."""
        for worker in self._workers:
            if not worker.tasks:
                worker.end()
        self._workers = [worker for worker in self._workers if worker.alive]

    def close(self) -> None:
        """End all processes, working or idle."""
        self._foreseen.clear()
        while self._workers:
            self._workers.pop().end()

    def leave_to_parent(self) -> None:
        """In a forked child: forget the processes, which belong to the parent and end with it."""
        while self._workers:
            self._workers.pop().leave_to_parent()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        self.close()

    def _wait(self, trace: Trace, ends: float) -> None:
        """Wait until each worker is ready or lost, but not beyond the time `ends`."""
        share: TaskShare[None, None] = TaskShare(lambda *_: None, {}, trace)
        while not all(worker.ready for worker in self._workers):
            heard = self._heard(max(0.0, ends - time.monotonic()))
            if not heard:
                return
            for worker in heard:
                worker.hear(share)

    def _heard(
        self, timeout: float | None, threads: Sequence[OwnThread] = ()
    ) -> list[WorkerProcess | OwnThread]:
        """The workers that have sent a message (or ended), and the threads that have done a task,
        after waiting for one.

        Workers that this process ended are forgotten.
        """
        self._workers = [worker for worker in self._workers if worker.alive]
        everyone: list[WorkerProcess | OwnThread] = [*self._workers, *threads]
        if not everyone:
            return []
        with selectors.DefaultSelector() as selector:
            for one in everyone:
                selector.register(one.answers, selectors.EVENT_READ, one)
            return [key.data for key, _ in selector.select(timeout)]


class Crew:
    """Workers that one compilation of a model leaves to the next; idle workers end after a time.

    Starting a worker takes half a second of processor time, as much as making a dozen kernels.
    `modules` are as for `Workers`; idle workers end after `seconds`.  `compilations` counts those
    that have begun.
    """

    def __init__(self, *modules: str, seconds: float = IDLE_SECONDS) -> None:
        self._modules, self._seconds = modules, seconds
        self.compilations = 0
        self._lock = threading.Lock()
        self._idle: Workers | None = None
        self._timer: threading.Timer | None = None
        _CREWS.add(self)

    @contextmanager
    def borrowed(self) -> Iterator[Workers]:
        """Workers for one compilation: the idle ones, or new ones if another compilation has those.

        If the compilation fails, its workers are ended.
        """
        with self._lock:
            self.compilations += 1
        workers = self._take()
        if workers is None:
            workers = Workers(*self._modules)
        try:
            yield workers
        except BaseException:
            workers.close()
            raise
        self._leave(workers)

    def close(self) -> None:
        """End the idle workers."""
        workers = self._take()
        if workers is not None:
            workers.close()

    def leave_to_parent(self) -> None:
        """In a forked child: forget the parent's workers, free the lock and drop the timer."""
        self._lock = threading.Lock()
        workers, self._idle, self._timer = self._idle, None, None
        if workers is not None:
            workers.leave_to_parent()

    def _take(self) -> Workers | None:
        with self._lock:
            workers, self._idle = self._idle, None
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
        return workers

    def _leave(self, workers: Workers) -> None:
        with self._lock:
            if self._idle is None and workers.fit:
                self._idle = workers
                self._timer = threading.Timer(self._seconds, self._expire, (workers,))
                self._timer.daemon = True
                self._timer.start()
                return
        workers.close()

    def _expire(self, workers: Workers) -> None:
        with self._lock:
            if self._idle is not workers:
                return  # a compilation borrowed them just now
            self._idle = self._timer = None
        workers.close()


_CREWS: weakref.WeakSet[Crew] = weakref.WeakSet()


def _for_each_crew(do: Callable[[Crew], None]) -> None:
    for crew in tuple(_CREWS):
        do(crew)


atexit.register(_for_each_crew, Crew.close)

os.register_at_fork(after_in_child=partial(_for_each_crew, Crew.leave_to_parent))


def _interpreter() -> list[str]:
    """The command that starts Python with `_BOOT`; OSError if this process is not a plain
    interpreter."""
    found = sys.executable
    if not found or getattr(sys, "frozen", False) or "python" not in Path(found).name.lower():
        raise OSError(f"sys.executable is {found!r}, which is not a Python interpreter")
    return [found, "-P", "-c", _BOOT]


def _is_text(entry: object) -> bool:
    return isinstance(entry, str)
