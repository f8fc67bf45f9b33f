"""Tests of worker processes: results and their order do not depend on what happens to a worker, and
no worker outlives its parent."""

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow import codegen
from graphflow.base.errors import CodegenError, GraphflowError, VerifyError
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.base.trace import Trace
from graphflow.cli import main
from graphflow.codegen import host_target, target_machine
from graphflow.kernels.lowering import LoweredKernel
from graphflow.lower import kernel_task
from graphflow.models import ModelBuilder
from graphflow.pipeline import compiler, services
from graphflow.pipeline.compiler import WORKER_MODULES, compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.processes import workers as workers_module
from graphflow.processes.task_share import WorkerTraceback
from graphflow.processes.worker_messages import as_hint, hinted_call, is_hint
from graphflow.processes.workers import Crew, Workers
from support.chores import (
    Away,
    Unreadable,
    double,
    happens,
    name_of,
    refuse_code,
    refuse_odd,
    remember,
    remember_slowly,
    remembered,
    sleep,
    twice,
)
from support.models.some_convolutions import compiled_here, convolutions, objects_digest
from support.paths import TESTS
from support.targets import in_turn

HOST = host_target()

PATIENCE = 60.0
"""Seconds after which something that should happen by itself counts as not happening."""


# Starting ---------------------------------------------------------------------------------------


@pytest.fixture
def ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers are ready when they have been started: else this process would do all the work."""
    monkeypatch.setattr(Workers, "start", partialmethod(Workers.start, patience=PATIENCE))


def mapped(
    function: Callable[[Any, Trace], Any], tasks: list[Any], count: int = 2
) -> tuple[list[Any], Trace]:
    trace = Trace(Options())
    with Workers() as workers:
        workers.start(count, trace)
        found = workers.map(function, {str(k): task for k, task in enumerate(tasks)}, trace)
    assert list(found) == [str(k) for k in range(len(tasks))]
    return list(found.values()), trace


# The same as in one process ---------------------------------------------------------------------


@in_turn("count", (1, 3))
def test_objects_are_the_same_bit_for_bit(ready: None, count: int, target: Any) -> None:
    here = compiled_here(target)
    there = compile_graph(
        CompileRequest(convolutions(), target=target, options=Options(workers=count))
    )
    assert there.spec.objects == here.spec.objects
    assert there.spec.run == here.spec.run and there.spec.prepare == here.spec.prepare
    assert len(here.spec.objects) > 4
    assert not there.notices


def test_what_inspection_needs_comes_back(ready: None) -> None:
    here, there = (
        compiled_here(HOST),
        compile_graph(CompileRequest(convolutions(), options=Options(workers=2))),
    )
    assert there.lowered.kernels == here.lowered.kernels
    assert list(there.lowered.kernels) == list(here.lowered.kernels)

    def story(kernel: LoweredKernel) -> tuple[str, list[str]]:
        return kernel.schedule.trace(proofs=True), [str(proof) for proof in kernel.proofs]

    for symbol, kernel in here.lowered.kernels.items():
        assert story(there.lowered.kernels[symbol]) == story(kernel)


def test_dumps_are_the_same_and_each_kernel_is_timed(ready: None, tmp_path: Path) -> None:
    texts = []
    for count in (0, 2):
        folder = tmp_path / str(count)
        compile_graph(
            CompileRequest(convolutions(), options=Options(workers=count, dump=str(folder)))
        )
        files = {p.relative_to(folder).as_posix(): p.read_text() for p in folder.rglob("*.*")}
        times = json.loads(files.pop("timings.json"))
        assert set(times["steps"]) == {"schedule", "proofs", "llvm"}
        for seconds in times["steps"].values():
            assert set(seconds) == set(compiled_here(HOST).lowered.kernels)
            assert all(value > 0 for value in seconds.values())
        texts.append(files)
    assert texts[0] == texts[1]


def test_kernels_are_made_without_the_libraries_of_the_planner(tmp_path: Path) -> None:
    """They take longer to import than a kernel to make."""
    calls = compiled_here(HOST).lowered.calls
    tasks = [kernel_task(call, host_target(), step.symbol) for call, step in calls]
    (tmp_path / "tasks").write_bytes(pickle.dumps(tasks))
    done = python(
        "",
        "-c",
        f"import pickle, sys, {', '.join(WORKER_MODULES)}\n"
        "from graphflow.base.trace import Options, Trace\n"
        f"for task in pickle.loads(open({str(tmp_path / 'tasks')!r}, 'rb').read()):\n"
        "    kernel = graphflow.kernels.lowering.make_kernel(task, Trace(Options()))\n"
        "    task = kernel.func, kernel.symbol, task.target\n"
        "    graphflow.codegen.make_object(task, Trace(Options()))\n"
        "print({'networkx', 'onnx', 'rich'} & set(sys.modules))",
    )
    assert (done.stdout, done.stderr) == ("set()\n", "")


# Foreseeing -------------------------------------------------------------------------------------


def test_a_worker_does_what_is_foreseen_before_it_has_tasks(ready: None) -> None:
    trace = Trace(Options())
    with Workers() as workers:
        workers.foresee(remember, "nobody is there", "a")
        workers.start(1, trace)
        for k, task in enumerate(["one", "refused", "two"]):
            workers.foresee(remember, task, k)
        workers.foresee(remember, "known", 0)  # of that kin already
        time.sleep(1.0)
        assert workers.map(remembered, {"a": 0}, trace) == {"a": ["one", "two"]}
    assert trace.notices == ()


def test_tasks_do_not_wait_for_all_that_is_foreseen(ready: None) -> None:
    trace = Trace(Options())
    with Workers() as workers:
        workers.start(1, trace)
        for k in range(20):
            workers.foresee(remember_slowly, str(k), k)
        (found,) = workers.map(remembered, {"a": 0}, trace).values()
        assert len(found) < 20
        assert workers.map(remembered, {"a": 0}, trace) == {"a": found}


def test_foreseeing_waits_for_nobody_and_tells_nothing_of_errors(ready: None) -> None:
    """A stopped worker reads nothing, a dead one is found out later."""
    trace = Trace(Options())
    with Workers() as workers:
        workers.start(2, trace)
        os.kill(workers.pids[0], signal.SIGSTOP)
        os.kill(workers.pids[1], signal.SIGKILL)
        wait_for(lambda: not alive(workers.pids[1]))
        for k in range(50):
            workers.foresee(remember, "x" * 100_000, k)
        workers.foresee(lambda *_: None, "a function without a name", "a")
        os.kill(workers.pids[0], signal.SIGCONT)
        assert workers.map(double, {"a": 1}, trace)["a"][0] == 2


def test_another_installation_reads_no_hint(monkeypatch: pytest.MonkeyPatch) -> None:
    assert hinted_call(as_hint(b"call")) == b"call" and is_hint(as_hint(b"call"))
    assert not is_hint(pickle.dumps(double))
    assert hinted_call(b"graphflow 0.0 elsewhere\0call") is None


def test_workers_without_a_task_are_dismissed(ready: None) -> None:
    trace = Trace(Options())
    with Workers() as workers:
        workers.start(1, trace)
        workers.map(double, {"a": 1}, trace)
        (busy,) = workers.pids
        workers.start(2, trace)
        workers.dismiss()
        assert workers.pids == (busy,) and workers.map(double, {"a": 2}, trace)["a"] == (4, busy)


# Sharing out ------------------------------------------------------------------------------------


def test_results_keep_the_order_of_the_tasks_and_workers_make_them(ready: None) -> None:
    found, trace = mapped(double, list(range(20)))
    assert [value for value, _ in found] == [2 * k for k in range(20)]
    processes = {process for _, process in found}
    assert len(processes) == 2 and os.getpid() not in processes
    assert set(trace.times["doubling"]) == {str(k) for k in range(20)}
    assert trace.notices == ()


def test_messages_may_be_larger_than_a_pipe(ready: None) -> None:
    found, trace = mapped(twice, [bytes([k]) * 3_000_000 for k in range(4)])
    assert found == [bytes([k]) * 6_000_000 for k in range(4)] and trace.notices == ()


def test_without_workers_everything_happens_here() -> None:
    found, trace = mapped(double, [3, 4], count=0)
    assert found == [(6, os.getpid()), (8, os.getpid())]
    assert set(trace.times["doubling"]) == {"3", "4"} and trace.notices == ()


@pytest.mark.parametrize(("workers", "counted"), [(0, ("lower", "codegen")), (2, ("lower",))])
def test_who_watches_hears_the_count(
    ready: None, capfd: pytest.CaptureFixture[str], workers: int, counted: tuple[str, ...]
) -> None:
    """Workers make object code together with its kernel, so nothing is left to codegen."""
    stages: list[str] = []
    counts: list[tuple[str, int, int]] = []
    compile_graph(
        CompileRequest(
            convolutions(),
            options=Options(workers=workers),
            progress=stages.append,
            counting=lambda done, total: counts.append((stages[-1], done, total)),
        )
    )
    total = len(compiled_here(HOST).lowered.kernels)
    expected = [(s, k + 1, total) for s in counted for k in range(total)]
    assert counts == expected
    assert capfd.readouterr() == ("", "")


# Errors and losses ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 2])
def test_the_error_of_the_earliest_task_comes_back(ready: None, count: int) -> None:
    with pytest.raises(VerifyError, match="1 is odd") as caught:
        mapped(refuse_odd, [0, 1, 3, 5, 2], count)
    assert caught.value.__notes__ == ["in kernel 1"]
    cause = caught.value.__cause__
    assert (cause is None) == (count == 0)
    if cause is not None:
        assert isinstance(cause, WorkerTraceback)
        assert "in refuse_odd" in str(cause)


LOST = {
    "killed": "the worker ended; exit status -9",
    "exits": "the worker ended; exit status 3",
    "no memory": "MemoryError",
    "too deep": "RecursionError",
    "result without a pickle": "its answer cannot be sent",
    "error without a pickle": "its answer cannot be sent",
}


@pytest.mark.parametrize("what", LOST)
def test_what_a_worker_cannot_do_is_done_here_and_said(ready: None, what: str) -> None:
    tasks = [Away(os.getpid(), w) for w in ("a", what, "b", "c", "d")]
    found, trace = mapped(happens, tasks)
    assert found == ["a", what, "b", "c", "d"]
    (notice,) = trace.notices
    assert notice.startswith("1 is done in this process: ") and LOST[what] in notice


def test_all_workers_may_die(ready: None) -> None:
    found, trace = mapped(happens, [Away(os.getpid(), "killed") for _ in range(5)])
    assert found == ["killed"] * 5
    assert len(trace.notices) == 2


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_an_idle_worker_may_die(ready: None, sign: signal.Signals) -> None:
    trace = Trace(Options())
    with Workers() as workers:
        workers.start(2, trace)
        first = workers.pids[0]
        os.kill(first, sign)
        wait_for(lambda: not alive(first))
        found = workers.map(double, dict(zip("abcdef", range(6), strict=True)), trace)
    assert [value for value, _ in found.values()] == [0, 2, 4, 6, 8, 10]
    (notice,) = trace.notices
    assert f"exit status {-sign}" in notice


def test_tasks_that_cannot_be_sent_are_done_here(ready: None) -> None:
    found, trace = mapped(name_of, [1, lambda: None, Unreadable(), "a"])
    assert found == ["int", "function", "Unreadable", "str"]
    assert ["cannot be sent" in n or "cannot be read" in n for n in trace.notices] == [True, True]


def test_ctrl_c_and_prints_do_not_disturb_a_worker(
    ready: None, capfd: pytest.CaptureFixture[str]
) -> None:
    tasks = [Away(os.getpid(), what) for what in ("interrupted", "prints", "interrupted")]
    found, trace = mapped(happens, tasks)
    assert found == ["interrupted", "prints", "interrupted"] and trace.notices == ()
    assert capfd.readouterr() == ("", "hello from a worker\nand from below\n")


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
    return str(path)


@pytest.mark.parametrize(
    ("executable", "reason"),
    [
        ("", "not a Python interpreter"),
        ("/bin/sh", "not a Python interpreter"),
        ("/nowhere/python3", "No such file"),
        ("echo 'usage: something else altogether'", "not the start of a message"),
        ("exit 7", "exit status 7"),
        ("cat", None),
    ],
    ids=["none", "shell", "missing", "talks", "fails", "hangs"],
)
def test_where_no_python_can_be_started_all_is_done_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, executable: str, reason: str | None
) -> None:
    if executable and not executable.startswith("/"):
        executable = script(tmp_path / "python3", executable)
    monkeypatch.setattr(sys, "executable", executable)
    found, trace = mapped(sleep, [0.1] * 4, count=1)  # for the impostor to say something
    assert found == [0.1] * 4
    assert [reason in notice for notice in trace.notices] == [True] * (reason is not None)


def test_another_installation_is_not_talked_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphflow.processes.task_share.IDENTITY", "graphflow 0.0 elsewhere")
    trace = Trace(Options())
    with Workers() as workers:
        workers.start(1, trace, PATIENCE)
        assert workers.map(double, {"a": 1}, trace) == {"a": (2, os.getpid())}
    (notice,) = trace.notices
    assert "another installation: graphflow" in notice


def test_notices_are_kept_with_the_compiled_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "")
    compiled = compile_graph(CompileRequest(convolutions(), options=Options(workers=2)))
    (notice,) = compiled.notices
    assert notice.startswith("worker processes cannot be started: sys.executable is ''")
    assert compiled.spec.objects == compiled_here(HOST).spec.objects


def test_an_error_in_a_compile_names_kernel_and_stage(
    ready: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    narrow = host_target()
    bad = type(narrow)(name="bad", cpu=narrow.cpu, features=narrow.features,
                       vector_bytes=narrow.vector_bytes, vector_registers=16)  # fmt: skip
    monkeypatch.setattr(services, "make_object", refuse_code)
    with pytest.raises(CodegenError, match="no code for k") as caught:
        compile_graph(CompileRequest(convolutions(), target=bad, options=Options(workers=2)))
    assert caught.value.__notes__ == ["in kernel k0", "in stage codegen"]


# How many ---------------------------------------------------------------------------------------


def test_a_negative_number_of_workers_is_refused() -> None:
    with pytest.raises(GraphflowError, match=r"Options\.workers is -1"):
        Options(workers=-1)


# Embeddings -------------------------------------------------------------------------------------

PRELUDE = """
import os, signal, sys, threading, time
sys.path.insert(0, {tests!r})
import support.models.some_convolutions as t
from support import chores
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.base.options import Options
from graphflow.base.trace import Trace
from graphflow.processes.workers import Crew, Workers

pids = []
start = Workers.start

def start_and_wait(self, count, trace):
    start(self, count, trace, {patience})
    pids.extend(self.pids)

Workers.start = start_and_wait

def exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

def same():
    found = compile_graph(CompileRequest(t.convolutions(), options=Options(workers=1)))
    assert t.objects_digest(found) == {digest!r}
    assert not found.notices, found.notices
    assert pids and not any(map(exists, pids)), pids
"""


def program(text: str) -> str:
    """A script of `text`, in which `same` compiles by a worker what is compiled here."""
    digest = objects_digest(compiled_here(HOST))
    prelude = PRELUDE.format(tests=str(TESTS), digest=digest, patience=PATIENCE)
    return prelude + textwrap.dedent(text)


def python(text: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *(arguments or ("-c", program(text)))],
        capture_output=True,
        text=True,
        check=False,
        timeout=4 * PATIENCE,
        **options,
    )


def test_a_script_without_a_main_guard_runs_once(tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(program("print('top'); same(); print('end')"))
    done = python("", str(path))
    assert (done.stdout, done.stderr) == ("top\nend\n", "")


def test_a_program_from_stdin() -> None:
    done = python("", "-", input=program("same(); print('end')"))
    assert (done.stdout, done.stderr) == ("end\n", "")


def test_a_process_with_threads_and_its_fork() -> None:
    done = python(
        """
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
        worker = threading.Thread(target=same)
        worker.start()
        worker.join()
        pids.clear()
        if (child := os.fork()) == 0:
            same()
            os._exit(17)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
        print("end")
        """
    )
    assert (done.stdout, done.stderr) == ("end\n", "")


def test_closed_standard_streams_are_no_trouble(tmp_path: Path) -> None:
    path = tmp_path / "end"
    done = python(
        f"""
        for stream in (0, 1, 2):
            os.close(stream)
        same()
        open({str(path)!r}, "w").write("end")
        """
    )
    assert done.returncode == 0 and path.read_text() == "end"


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_workers_go_when_their_parent_dies(sign: signal.Signals) -> None:
    text = """
    with Workers() as workers:
        trace = Trace(Options())
        workers.start(2, trace)
        print(*pids, flush=True)
        workers.map(chores.sleep, {"a": 600, "b": 600, "c": 600}, trace)
    """
    command = [sys.executable, "-c", program(text)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2 and all(map(alive, pids))
        parent.send_signal(sign)
    wait_for(lambda: not any(map(alive, pids)))


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie that nobody has buried yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


# Crews ------------------------------------------------------------------------------------------


def doubled(crew: Crew, count: int = 2) -> list[int]:
    """The processes that did some work for a crew."""
    trace = Trace(Options())
    with crew.borrowed() as workers:
        workers.start(count, trace)
        found = workers.map(double, dict(zip("abcd", range(4), strict=True)), trace)
        assert [value for value, _ in found.values()] == [0, 2, 4, 6]
        return list(workers.pids)


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew(seconds=PATIENCE)
    yield made
    made.close()


def test_a_crew_serves_one_compilation_after_another(ready: None, crew: Crew) -> None:
    first = doubled(crew)
    assert doubled(crew) == first
    assert doubled(crew, 3)[:2] == first
    crew.close()
    assert not any(map(alive, first))
    assert set(doubled(crew)).isdisjoint(first)


def test_an_idle_crew_ends_by_itself(ready: None) -> None:
    pids = doubled(Crew(seconds=0.05))
    wait_for(lambda: not any(map(alive, pids)))


def test_a_crew_ends_with_a_compilation_that_fails(ready: None, crew: Crew) -> None:
    pids: list[int] = []
    with pytest.raises(ZeroDivisionError), crew.borrowed() as workers:
        workers.start(2, Trace(Options()))
        pids += workers.pids
        raise ZeroDivisionError
    assert len(pids) == 2 and not any(map(alive, pids))


def test_two_compilations_at_once_have_workers_of_their_own(ready: None, crew: Crew) -> None:
    with crew.borrowed() as workers:
        workers.start(1, Trace(Options()))
        (mine,) = workers.pids
        (other,) = doubled(crew, 1)
        assert mine != other
    assert doubled(crew, 1) == [other]
    assert not alive(mine)


def test_a_forked_child_leaves_the_crew_to_its_parent(ready: None, crew: Crew) -> None:
    pids = doubled(crew)
    child = os.fork()
    if child == 0:
        with crew.borrowed() as workers:  # others, which are not started yet
            is_without = not workers.started
        crew.close()
        os._exit(0 if is_without else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert all(map(alive, pids))
    assert doubled(crew) == pids


def test_no_crew_outlives_its_process() -> None:
    text = """
    crew = Crew(seconds=600)
    with crew.borrowed() as workers:
        workers.start(2, Trace(Options()))
        print(*workers.pids, flush=True)
    """
    done = python(text)
    pids = [int(word) for word in done.stdout.split()]
    assert len(pids) == 2, done.stderr
    assert not done.stderr
    wait_for(lambda: not any(map(alive, pids)))


def test_shapes_of_one_model_are_compiled_by_one_crew(
    ready: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    served: list[list[int]] = []
    used = Workers.map

    def noted(self: Workers, *arguments: Any, **options: Any) -> Any:
        served.append(list(self.pids))
        return used(self, *arguments, **options)

    monkeypatch.setattr(Workers, "map", noted)
    build = ModelBuilder(seed=1, name="open")
    build.output(build.relu(build.conv(build.input("x", ("N", 3, 9, 9)), 5, 3)))
    exe = gf.compile(build.model(), options=Options(workers=1, cache=""))
    for batch in (1, 2):
        exe.precompile({"x": (batch, 3, 9, 9)})
    assert len(served[0]) == 1
    assert all(pids == served[0] for pids in served)


def test_a_worker_that_has_done_many_tasks_is_replaced(
    ready: None, crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers_module, "TASKS_OF_WORKER", 5)
    first = doubled(crew, 1)
    assert doubled(crew, 1) == first  # it has done four tasks, and does eight
    assert not any(map(alive, first))
    assert doubled(crew, 1) != first


def test_llvm_leaves_the_process_when_a_model_has_many_shapes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each module takes memory that only the end of its process returns."""
    here: list[int] = []
    optimized = target_machine.optimized

    def noted(text: str, target: Target) -> Any:
        here.append(rows)
        return optimized(text, target)

    monkeypatch.setattr(target_machine, "optimized", noted)
    monkeypatch.setattr(codegen, "object_code", target_machine.object_code)  # compiles anew
    monkeypatch.setattr(compiler, "SHAPES_HERE", 2)
    build = ModelBuilder(seed=1, name="open")
    build.output(build.node("Softmax", [build.input("x", ("n", 40))], axis=0))
    exe = gf.compile(build.model(), options=Options(cache=""))
    for rows in (3, 4, 5, 6):
        x = np.arange(40.0 * rows, dtype=np.float32).reshape(rows, 40) / 100
        exps = np.exp(x)
        np.testing.assert_allclose(exe.run({"x": x}).popitem()[1], exps / exps.sum(0), 1e-5)
    assert set(here) == {3, 4}


# Ctrl-C -----------------------------------------------------------------------------------------

INTERRUPTED = """
def interrupted(stage, kill):
    def progress(name):
        nonlocal current
        current = name
        if name == stage and stage != "lower":  # where workers make kernels and their code
            kill()

    def counting(done, total):
        if current == stage and done == 2:
            kill()

    current = ""
    pids.clear()
    try:
        options = Options(workers=1)
        request = CompileRequest(
            t.convolutions(), options=options, progress=progress, counting=counting
        )
        compile_graph(request)
    except KeyboardInterrupt:
        print(stage, "interrupted;", len(pids), "started, left:", [p for p in pids if exists(p)])
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print("no child")

def process():
    os.kill(os.getpid(), signal.SIGINT)

def group():
    os.killpg(0, signal.SIGINT)

for stage in ("read", "import", "fuse", "flow", "lower", "codegen", "assemble"):
    interrupted(stage, process)
for stage in ("lower", "codegen"):
    interrupted(stage, group)
same()
print("end")
"""


def test_an_interrupted_compile_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = python(INTERRUPTED, start_new_session=True, env=environment)
    stages = ["read", "import", "fuse", "flow", "lower", "codegen", "assemble", "lower", "codegen"]
    expected = [
        f"{stage} interrupted; {int(k > 0)} started, left: []\nno child\n"
        for k, stage in enumerate(stages)
    ]
    assert (done.stdout, done.stderr) == ("".join(expected) + "end\n", "")
    assert left_in(tmp_path) == []


def left_in(folder: Path) -> list[str]:
    """Files in a folder for temporary ones, without that which importing onnxruntime makes."""
    return [path.name for path in folder.iterdir() if path.name != ".ses"]


def test_an_interrupt_does_not_wait_for_workers() -> None:
    """They sleep for longer than anybody would wait."""
    done = python(
        """
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            with Workers() as workers:
                trace = Trace(Options())
                workers.start(2, trace)
                workers.map(chores.sleep, {"a": 6000, "b": 6000}, trace)
        except KeyboardInterrupt:
            print("interrupted", [pid for pid in pids if exists(pid)])
        same()
        """
    )
    assert (done.stdout, done.stderr) == ("interrupted []\n", "")


@pytest.mark.parametrize("moment", ["count", "fsync", "replace"])
def test_an_interrupted_command_leaves_the_old_file_or_none(tmp_path: Path, moment: str) -> None:
    """Two commands of one process: one whose file is new, and one that has an older file."""
    folder, temporary = tmp_path / "folder", tmp_path / "temporary"
    folder.mkdir()
    temporary.mkdir()
    model, new, old = tmp_path / "model.onnx", folder / "new.gfx", folder / "old.gfx"
    onnx.save(convolutions(), model)
    old.write_bytes(b"an older file")
    text = f"""
    from graphflow.cli import commands
    from graphflow.runtime import container
    def interrupt(*_):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(600)
    if {moment!r} == "count":
        Trace.count = interrupt
    else:
        os.{moment if moment != "count" else "fsync"} = interrupt
    ends = [commands.main(["compile", {str(model)!r}, "-o", output])
            for output in {[str(new), str(old)]!r}]
    sys.exit(130 if ends == [130, 130] else 1)
    """
    done = python("", "-c", program(text), env={**os.environ, "TMPDIR": str(temporary)})
    assert (done.returncode, done.stderr) == (130, "interrupted\n" * 2)
    assert [p.name for p in folder.iterdir()] == ["old.gfx"]
    assert old.read_bytes() == b"an older file"
    assert left_in(temporary) == []


# The command line -------------------------------------------------------------------------------


def test_a_terminal_sees_how_many_kernels_are_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    onnx.save(convolutions(), tmp_path / "model.onnx")
    for terminal in (True, False):
        if terminal:
            monkeypatch.setenv("FORCE_COLOR", "1")
        else:
            monkeypatch.delenv("FORCE_COLOR")
        assert main(["compile", str(tmp_path / "model.onnx")]) == 0
        errors = capfd.readouterr().err
        assert ("compiling model.onnx: codegen" in errors and " kernels" in errors) == terminal
        assert terminal or errors == ""


def test_a_compile_of_the_library_says_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    gf.compile(convolutions(), options=Options(workers=1))
    assert capfd.readouterr() == ("", "")
