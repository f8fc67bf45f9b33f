"""Tests of the threads of runs under many callers, forks and signals, with kernels by hand."""

import threading
import time

import numpy as np
import pytest

from graphflow.base.errors import GraphflowError
from graphflow.program import ProgramSpec, ProgramStep, TensorSpec
from graphflow.runtime import Program
from support.fresh_interpreters import run_fresh
from support.programs import X, compiled, increments, rotations, spec

HANG = 120
"""Seconds, on a machine with much else to do."""


@pytest.mark.parametrize("threads", [1, 2])
def test_many_python_threads_run_several_programs(threads: int) -> None:
    programs = [Program(rotations(13, times), threads) for times in (1, 31, 301)]
    failures: list[str] = []

    def work(seed: int) -> None:
        x = np.random.default_rng(seed).integers(0, 100, 13).astype(np.float32)
        for k in range(20):
            program = programs[(seed + k) % 3]
            times = len(program.spec.run)
            expected = np.roll(x, -(times % 13)) + np.float32(times)
            if not np.array_equal(program.run({"x": x})["y"], expected):
                failures.append(f"thread {seed}, run {k}")

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(20)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures


def test_programs_come_and_go() -> None:
    x = np.zeros(8, np.float32)
    for k in range(1, 30):
        assert (Program(increments(8, k), 2).run({"x": x})["y"] == k).all()


def test_a_bound_run_refuses_a_second_thread() -> None:
    program = Program(busy_spec(), 1)
    bound = program.bind({"n": np.int64(300_000_000)})
    other = threading.Thread(target=bound.run)
    other.start()
    while not bound.running:
        time.sleep(0.001)
    with pytest.raises(GraphflowError, match="another thread"):
        bound.run()
    other.join()
    bound.run()


def test_idle_workers_sleep() -> None:
    program = Program(increments(64), 2)
    program.run({"x": np.zeros(64, np.float32)})
    start = time.process_time()
    time.sleep(0.3)
    assert time.process_time() - start < 0.1


def busy_spec() -> ProgramSpec:
    """Counts to the scalar input n in every iteration, with volatile loads."""
    code = compiled("""
define void @busy(ptr %buffers, i64 %lo, i64 %hi) {
entry:
  %p = load ptr, ptr %buffers
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %n = load volatile i64, ptr %p
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret void
}""")
    return spec(
        [("busy", code)], [ProgramStep("busy", (X,), 4)], [TensorSpec("n", "int64", ())], []
    )


def run_script(body: str) -> None:
    """In a fresh interpreter with this module's names in scope."""
    modules = "ctypes, itertools, os, signal, sys"
    run_fresh(body, f"import {modules}\nfrom runtime.test_pool import *\n")


def test_a_forked_child_starts_threads_of_its_own() -> None:
    run_script("""
        program = Program(rotations(13, 101), 4)
        bound = program.bind({"x": np.zeros(13, np.float32)})
        x = np.zeros(13, np.float32)
        program.run({"x": x}), bound.run()
        stop = []
        def work():  # runs are under way, and hold the pool, while this process forks
            while not stop:
                program.run({"x": x})
        others = [threading.Thread(target=work) for _ in range(3)]
        for other in others: other.start()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                ok = (program.run({"x": x})["y"] == 101).all()
                bound.run()
                ok = ok and (bound.outputs["y"] == 101).all()
                new = Program(increments(5), 2).run({"x": np.zeros(5, np.float32)})["y"]
                os._exit(0 if ok and (new == 1).all() else 1)
            assert os.waitpid(child, 0)[1] == 0
        stop.append(1)
        for other in others: other.join()
        assert (program.run({"x": x})["y"] == 101).all()
    """)


@pytest.mark.parametrize("handled", ["os.fork()", "first_run()"])
def test_a_signal_handler_may_interrupt_a_first_run_anywhere(handled: str) -> None:
    """Also while the run starts its pool.

    Python calls handlers between instructions.  Here a process interrupts itself before the k-th
    instruction of the modules that lead to native code, and another process before the next one.
    """
    run_script(f"""
        import graphflow.runtime.native_code as code, graphflow.runtime.pool as pool
        traced, passed = {{code.__file__, pool.__file__}}, 0
        program = Program(rotations(13, 13), 2)
        def first_run():
            assert (program.run({{"x": np.zeros(13, np.float32)}})["y"] == 13).all()
        def trace(frame, event, _):
            global passed
            if frame.f_code.co_filename not in traced:
                return None
            frame.f_trace_opcodes = True
            passed += event == "opcode"
            if event == "opcode" and passed == interrupted:
                {handled}
                signal.alarm({HANG})  # which ends this process, if it hangs
            return trace
        def exit_code():  # 3 if the run ended before that instruction
            signal.alarm({HANG})
            sys.settrace(trace)
            first_run()
            sys.settrace(None)
            try:
                failed = os.waitstatus_to_exitcode(os.wait()[1])
            except ChildProcessError:  # none was forked, or this is the one
                failed = 0
            return failed or (0 if passed >= interrupted else 3)
        for interrupted in itertools.count(1):
            child = os.fork()
            if child == 0:
                os._exit(exit_code())
            failed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if failed == 3: break
            assert failed == 0, (interrupted, failed)
        assert interrupted > 50
    """)


def test_a_signal_handler_may_fork_while_its_thread_waits_for_a_pool() -> None:
    """Which another thread is starting, that does not exist in the child."""
    run_script("""
        import graphflow.runtime.pool as pool
        from graphflow.base.fields import replace
        native, forked, starting = pool.driver(), [], threading.Event()
        def start_slowly(*arguments):
            if threading.current_thread() is not threading.main_thread():
                starting.set()
                signal.setitimer(signal.ITIMER_REAL, 0.1)
                while not forked: time.sleep(0.01)
            return native.start_pool(*arguments)
        pool.driver = lambda: replace(native, start_pool=start_slowly)
        signal.signal(signal.SIGALRM, lambda *_: forked.append(os.fork()))
        programs = [Program(increments(8, 3), 2) for _ in range(2)]
        x = np.zeros(8, np.float32)
        other = threading.Thread(target=programs[0].run, args=({"x": x},))
        other.start()
        starting.wait()
        right = (programs[1].run({"x": x})["y"] == 3).all()
        if forked[0] == 0:
            os._exit(0 if right else 1)
        other.join()
        assert right and os.waitpid(forked[0], 0)[1] == 0
    """)


def test_a_child_does_not_write_into_its_parents_memory() -> None:
    run_script("""
        from graphflow.runtime.aligned_memory import zeroed_block
        block = zeroed_block(4096)  # of which inputs, intermediate results and constants are made
        bound = Program(increments(5, 2), 1).bind({"x": np.zeros(5, np.float32)})
        child = os.fork()
        if child == 0:
            bound.run()
            block[:] = 7
            os._exit(0 if (bound.outputs["y"] == 2).all() and (block == 7).all() else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert not block.any()
        bound.run()
        assert (bound.outputs["y"] == 2).all()
    """)


@pytest.mark.parametrize("processors", [1, None])
def test_workers_may_run_where_they_might_before(processors: int | None) -> None:
    """Threads that meet on one processor are moved apart, if they may run on another at all."""
    run_script(f"""
        program = Program(increments(64, 9), 2)
        x = np.zeros(64, np.float32)
        program.run({{"x": x}})
        threads = [int(name) for name in os.listdir("/proc/self/task")]
        allowed = os.sched_getaffinity(0)
        one = set(sorted(allowed)[:1])
        for thread in threads: os.sched_setaffinity(thread, one)
        program.run({{"x": x}})
        wanted = set(sorted(allowed)[:{processors}])
        for thread in threads: os.sched_setaffinity(thread, wanted)
        from graphflow.runtime.driver.records import POOL, WORKER
        from graphflow.runtime.pool import POOLS
        # As if the caller had been seen where the worker is, which still looks around.
        workers = POOLS.address(2) + POOL.members["workers"].offset
        at = WORKER.members["processor"].offset
        caller, worker = (
            ctypes.c_int32.from_address(workers + k * WORKER.size + at) for k in range(2)
        )
        for _ in range(2000):
            assert (program.run({{"x": x}})["y"] == 9).all()
            caller.value = worker.value
        time.sleep(0.05)  # a worker that looks around behind a run may be moving
        assert all(os.sched_getaffinity(thread) == wanted for thread in threads)
    """)


@pytest.mark.parametrize("spinning", [True, False])
def test_the_interpreter_exits(spinning: bool) -> None:
    run_script(f"""
        program = Program(increments(64, 9), 4)
        x = np.zeros(64, np.float32)
        for _ in range(100): program.run({{"x": x}})
        if not {spinning}: time.sleep(0.05)
    """)


def test_the_interpreter_exits_while_a_daemon_thread_runs() -> None:
    run_script("""
        program = Program(busy_spec(), 2)
        n = np.int64(2_000_000_000)
        threading.Thread(target=program.run, args=({"n": n},), daemon=True).start()
        time.sleep(0.1)
    """)


def test_control_c_ends_a_series_of_runs_and_leaves_the_program_usable() -> None:
    run_script("""
        program = Program(busy_spec(), 2)
        def interrupt():
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        n = np.int64(50_000_000)
        try:
            while True: program.run({"n": n})
        except KeyboardInterrupt:
            pass
        program.run({"n": n})
        result = Program(rotations(13, 101), 2).run({"x": np.zeros(13, np.float32)})
        assert (result["y"] == 101).all()
    """)
