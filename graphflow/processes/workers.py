"""Worker processes: they call one function for many tasks and return the results in order.

In: a function of a module, and a task for each kernel, by symbol.  Out: its results, by symbol.
What always holds: results and their order are those of calling the function in this process; a task
that a worker cannot do is done in this process, and the trace gets the reason.  No worker outlives
`close` (or, in a `Crew`, its idle time), nor its parent: a worker exits when its stdin ends.

A worker is `sys.executable` with this process's `sys.path`, and imports graphflow: the user's
`__main__` is not imported and nothing is forked, so threads and notebooks work.  It has a session
of its own, so that Ctrl-C at a terminal reaches only its parent.

    parent → worker   a pickled call
    worker → parent   its identity when it is ready, then an answer to each call
    both              a magic number, the length, the pickled bytes
"""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any, BinaryIO, Generic, NoReturn, TypeAlias, TypeVar, assert_never

from graphflow.base.options import Options
from graphflow.base.trace import Times, Trace
from graphflow.base.version import VERSION

Task = TypeVar("Task")
Result = TypeVar("Result")

IDENTITY = f"graphflow {VERSION} in {Path(__file__).resolve()}, Python {sys.version}"
"""Processes exchange pickles only if they agree on this text."""

IDLE_SECONDS = 10.0
"""How long idle workers wait for the next compilation of their model."""

COLLECT_AFTER = 20_000
"""How many objects a worker creates between two passes of the cyclic garbage collector.  A kernel
creates 4,000 objects that stay alive and 700 that are garbage in cycles: with Python's default of
700 the passes take 5 % of its time."""

_HEADER = struct.Struct("<4sQ")
_MAGIC = b"gfwk"
_BOOT = (
    "import sys; modules = sys.argv[1].split(); sys.path[:] = sys.argv[2:];"
    "from graphflow.processes.workers import serve; serve(modules)"
)


class WorkerTraceback(Exception):
    """The traceback of an error in a worker, as text; the cause of the error in the parent."""


@dataclass(frozen=True, slots=True)
class _Done:
    result: Any
    times: Times


@dataclass(frozen=True, slots=True)
class _Failed:
    error: Exception
    traceback: str


@dataclass(frozen=True, slots=True)
class _Unable:
    """The worker could not read the call, or could not send its result, which is unknown."""

    reason: str


_Answer: TypeAlias = _Done | _Failed | _Unable


# The parent's side ------------------------------------------------------------------------------


class Workers:
    """Worker processes of one compilation; a context manager that ends them all.

    `modules` are imported by a worker before it reports that it is ready.
    """

    def __init__(self, *modules: str) -> None:
        self._modules = modules
        self._workers: list[_Worker] = []
        self._startable = True

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
                self._workers.append(_Worker(command))
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

    def map(
        self, function: Callable[[Task, Trace], Result], tasks: Mapping[str, Task], trace: Trace
    ) -> dict[str, Result]:
        """The result of `function(task, trace)` for each task, by name and in the order of the
        tasks.

        In a worker, `function` gets a trace of its own, whose times are added to `trace`.  If
        several tasks raise an error, that of the earliest task is raised, with a note that names
        the task.  This process does the work until a worker is ready, and if there is none.
        """
        share = _Share(function, tasks, trace)
        while share.open:
            for worker in self._workers:
                if worker.idle and share.waiting:
                    worker.send(share.waiting.popleft(), share)
            busy = any(worker.call is not None for worker in self._workers)
            heard = self._heard(None if busy else 0.0)
            for worker in heard:
                worker.hear(share)
            if not busy and not heard:
                share.do_next()
        return share.results()

    @property
    def at_rest(self) -> bool:
        """Whether there are processes, and all of them are idle."""
        return self.started and all(worker.call is None for worker in self._workers)

    def close(self) -> None:
        """End all processes, working or idle."""
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
        share: _Share[None, None] = _Share(lambda *_: None, {}, trace)
        while not all(worker.ready for worker in self._workers):
            left = ends - time.monotonic()
            if left <= 0:
                return
            for worker in self._heard(left):
                worker.hear(share)

    def _heard(self, timeout: float | None) -> list[_Worker]:
        """The workers that have sent a message (or ended), after waiting for one.

        Workers that this process ended are forgotten.
        """
        self._workers = [worker for worker in self._workers if worker.alive]
        if not self._workers:
            return []
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.answers, selectors.EVENT_READ, worker)
            return [key.data for key, _ in selector.select(timeout)]


class Crew:
    """Workers that one compilation of a model leaves to the next; idle workers end after a time.

    Starting a worker takes half a second of processor time, as much as making a dozen kernels.
    `modules` are as for `Workers`; idle workers end after `seconds`.
    """

    def __init__(self, *modules: str, seconds: float = IDLE_SECONDS) -> None:
        self._modules, self._seconds = modules, seconds
        self._lock = threading.Lock()
        self._idle: Workers | None = None
        self._timer: threading.Timer | None = None
        _CREWS.add(self)

    @contextmanager
    def borrowed(self) -> Iterator[Workers]:
        """Workers for one compilation: the idle ones, or new ones if another compilation has those.

        If the compilation fails, its workers are ended.
        """
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
            if self._idle is None and workers.at_rest:
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


class _Share(Generic[Task, Result]):
    """The tasks of one `Workers.map`: those that wait, those that this process must do, and the
    results.

    `results` and `failed` are in the order in which they came.
    """

    def __init__(
        self,
        function: Callable[[Task, Trace], Result],
        tasks: Mapping[str, Task],
        trace: Trace,
    ) -> None:
        self.function = function
        self.tasks = tasks
        self.trace = trace
        self.waiting = deque(tasks)
        self._returned: deque[str] = deque()
        self._found: dict[str, Result] = {}
        self._failed: dict[str, Exception] = {}
        self._out: set[str] = set()

    @property
    def open(self) -> bool:
        """Whether a task waits or is being done."""
        return bool(self.waiting or self._returned or self._out)

    def call(self, name: str) -> bytes:
        """The pickled call of a task, which from now on belongs to a worker."""
        self._out.add(name)
        return pickle.dumps((self.function, self.tasks[name]), pickle.HIGHEST_PROTOCOL)

    def answer(self, name: str, answer: _Answer) -> None:
        """Take the answer of a worker to a task."""
        match answer:
            case _Done(result, times):
                self.trace.add(times)
                self._finish(name, result)
            case _Failed(error, text):
                error.__cause__ = WorkerTraceback(f"in a worker process:\n{text}")
                self._fail(name, error)
            case _Unable(reason):
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
        try:
            result = self.function(self.tasks[name], self.trace)
        except Exception as error:
            self._fail(name, error)
        else:
            self._finish(name, result)

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


class _Worker:
    """One process; `call` names the task that it is doing."""

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

    @property
    def idle(self) -> bool:
        """Whether the process is ready and has no task."""
        return self.alive and self.ready and self.call is None

    def send(self, name: str, share: _Share[Task, Result]) -> None:
        """Send a task to the process."""
        try:
            call = share.call(name)
        except Exception as error:  # a user's __reduce__ may raise anything
            share.give_back(name, f"it cannot be sent ({_in_short(error)})")
            return
        self.call = name
        try:
            _write(self._calls, call)
        except OSError as error:
            self._lose(share, f"the worker does not read ({error})")

    def hear(self, share: _Share[Task, Result]) -> None:
        """Read a message: that the process is ready, or an answer; or notice that it has ended."""
        try:
            message = _read(self.answers)
            answer = None if message is None else pickle.loads(message)
        except Exception as error:  # not a message, or it cannot be unpickled here
            self._lose(share, f"the worker's answer cannot be read ({_in_short(error)})")
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
                self.send(share.waiting.popleft(), share)
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

    def _lose(self, share: _Share[Task, Result], reason: str) -> None:
        self.end()
        reason = f"{reason}; exit status {self._process.returncode}"
        lost, self.call = self.call, None
        if lost is None:
            share.trace.notice(f"a worker process is lost: {reason}")
        else:
            share.give_back(lost, reason)


def _interpreter() -> list[str]:
    """The command that starts Python with `_BOOT`; OSError if this process is not a plain
    interpreter."""
    found = sys.executable
    if not found or getattr(sys, "frozen", False) or "python" not in Path(found).name.lower():
        raise OSError(f"sys.executable is {found!r}, which is not a Python interpreter")
    return [found, "-P", "-c", _BOOT]


def _is_text(entry: object) -> bool:
    return isinstance(entry, str)


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


# The worker's side ------------------------------------------------------------------------------


def serve(modules: Sequence[str]) -> NoReturn:
    """The main loop of a worker: answer the calls from stdin until it ends.

    Prints to stdout go to stderr from now on.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # imports leave no garbage; passes would take 20 % of their time
    nothing = os.open(os.devnull, os.O_RDWR)  # first: becomes descriptor 2 if stderr is closed
    calls, answers = os.fdopen(os.dup(0), "rb", 0), os.fdopen(os.dup(1), "wb", 0)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    waiting: SimpleQueue[bytes] = SimpleQueue()
    # On a thread of its own, so that the process ends with its parent even during a call.
    threading.Thread(target=_receive, args=(calls, waiting), daemon=True).start()
    for module in modules:
        import_module(module)
    gc.freeze()  # imported objects stay alive; passes skip them
    gc.set_threshold(COLLECT_AFTER)
    gc.enable()
    try:
        _write(answers, pickle.dumps(IDENTITY))
        while True:
            _write(answers, _answered(waiting.get()))
    except BrokenPipeError:
        os._exit(0)


def _receive(calls: BinaryIO, waiting: SimpleQueue[bytes]) -> None:
    while (call := _read(calls)) is not None:
        waiting.put(call)
    os._exit(0)


def _answered(call: bytes) -> bytes:
    """The pickled answer to a call."""
    try:
        function, task = pickle.loads(call)
    except Exception as error:
        return _packed(_Unable(f"it cannot be read ({_in_short(error)})"))
    trace = Trace(Options())
    try:
        return _packed(_Done(function(task, trace), trace.times))
    except (
        MemoryError,
        RecursionError,
    ) as error:  # the parent may have more memory or stack, and tries again
        return _packed(_Unable(_in_short(error)))
    except Exception as error:
        return _packed(_Failed(error, "".join(traceback.format_exception(error))))


def _packed(answer: _Answer) -> bytes:
    try:
        data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
        if isinstance(answer, _Failed):
            pickle.loads(data)  # some exceptions pickle but cannot be unpickled
    except Exception as error:
        return pickle.dumps(_Unable(f"its answer cannot be sent ({_in_short(error)})"))
    return data


# Messages ---------------------------------------------------------------------------------------


def _write(pipe: BinaryIO, message: bytes) -> None:
    rest = memoryview(_HEADER.pack(_MAGIC, len(message)) + message)
    while rest:
        rest = rest[pipe.write(rest) :]


def _read(pipe: BinaryIO) -> bytes | None:
    """The next message; None if the pipe ended, between two messages or inside one."""
    start = _read_exactly(pipe, _HEADER.size)
    if start is None:
        return None
    magic, size = _HEADER.unpack(start)
    if magic != _MAGIC:
        raise ValueError(f"{start!r} is not the start of a message")
    return _read_exactly(pipe, size)


def _read_exactly(pipe: BinaryIO, size: int) -> bytes | None:
    parts = []
    while size:
        part = pipe.read(size)
        if not part:
            return None
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
