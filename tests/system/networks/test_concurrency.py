"""Tests of compiled models under threads, forks and signals, and of the memory of their results.

This is about models; tests/runtime/test_pool.py runs kernels that are written by hand.
"""

import itertools
import signal
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.models import ModelBuilder
from graphflow.program import ProgramSpec
from graphflow.runtime import Program
from graphflow.runtime.driver import driver
from support.fresh_interpreters import run_fresh
from support.programs import rotations

Array = np.ndarray[Any, Any]
CALLERS = 20


def small_model(batch: int | str = 1) -> onnx.ModelProto:
    """Kernels that threads share and kernels that they do not; convolutions of single pixels have
    few variants to plan."""
    b = ModelBuilder(1)
    x = b.relu(b.conv(b.input("x", (batch, 3, 14, 13)), 17, 1))
    y = b.conv(x, 17, 1, in_channels=17)
    pooled = b.node("GlobalAveragePool", [b.relu(b.add(x, y))])
    b.output(b.node("Softmax", [b.node("Flatten", [pooled])], axis=1), y)
    return b.model()


def chain_model(length: int, size: int) -> onnx.ModelProto:
    """x·w·w·…·w: as many steps, one kernel, and the scale is kept."""
    b = ModelBuilder(2)
    x, w = b.input("x", (size, size)), b.weight(size, size, scale=size**-0.5)
    for k in range(length):
        x = b.node("MatMul", [x, w], ["y"] if k == length - 1 else None)
    b.output(x)
    return b.model()


def image(seed: int, batch: int = 1) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"x": rng.standard_normal((batch, 3, 14, 13)).astype(np.float32)}


def same(found: dict[str, Array], expected: dict[str, Array]) -> bool:
    return list(found) == list(expected) and all(
        np.array_equal(found[name], expected[name]) for name in expected
    )


def in_threads(work: Callable[[int], bool]) -> list[int]:
    """Which of the callers 0, 1, ... failed, all of them at work at the same time."""
    failed: list[int] = []
    start = threading.Barrier(CALLERS)

    def call(number: int) -> None:
        start.wait()
        try:
            done = work(number)
        except Exception:
            failed.append(number)
            raise
        if not done:
            failed.append(number)

    callers = [threading.Thread(target=call, args=(k,)) for k in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    return failed


def impatient(spec: ProgramSpec, threads: int) -> tuple[Program, list[int]]:
    """A program whose runs pause wherever they may, and a list of what each native call gave."""
    given: list[int] = []

    def counted(*arguments: int) -> int:
        result = driver().run(*arguments)
        given.append(result)
        return result

    native = replace(driver(), run=counted)
    return Program(spec, threads, native=native, patience_ns=0), given


# Threads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2])
def test_many_callers_of_one_executable(threads: int) -> None:
    executable = gf.compile(small_model(), threads=threads)
    inputs = [image(seed) for seed in range(CALLERS)]
    expected = [executable.run(given) for given in inputs]
    assert not same(expected[0], expected[1])

    def work(number: int) -> bool:
        order = [(number + k) % CALLERS for k in range(CALLERS)]
        return all(same(executable.run(inputs[k]), expected[k]) for k in order)

    assert in_threads(work) == []


def test_many_callers_of_one_executable_with_shapes_of_their_own() -> None:
    executable = gf.compile(small_model("N"), threads=2)
    inputs = [image(seed, batch=1 + seed % 3) for seed in range(CALLERS)]
    fixed = [gf.compile(small_model(batch), threads=2) for batch in (1, 2, 3)]
    expected = [fixed[seed % 3].run(inputs[seed]) for seed in range(CALLERS)]
    assert in_threads(lambda k: same(executable.run(inputs[k]), expected[k])) == []


def test_a_known_shape_runs_while_another_one_compiles() -> None:
    waiting, go, ended = threading.Event(), threading.Event(), threading.Event()

    def hold(stage: str) -> None:
        if threading.current_thread() is not threading.main_thread():
            waiting.set()
            assert go.wait(60)

    executable = gf.compile(small_model("N"), threads=2, progress=hold)
    expected = executable.run(image(0, batch=2))

    def compile_another() -> None:
        executable.run(image(0, batch=3))
        ended.set()

    other = threading.Thread(target=compile_another)
    other.start()
    assert waiting.wait(60)
    assert same(executable.run(image(0, batch=2)), expected)
    assert not ended.is_set() and len(executable.specializations) == 1
    go.set()
    other.join()
    assert len(executable.specializations) == 2


def test_many_callers_poison_their_own_runs() -> None:
    pins = {"relu_1": "blocked"}
    options = gf.Options(threads=2, poison=True)
    executable = gf.compile(small_model(), layouts=pins, options=options)
    assert executable.poisoned > 0
    inputs = image(0)
    expected = executable.run(inputs)
    poisons = (np.nan, -42.0, np.inf, 0.0)
    assert in_threads(
        lambda k: same(executable.run(inputs, poison=poisons[k % len(poisons)]), expected)
    ) == []  # fmt: skip


# Results ----------------------------------------------------------------------------------------


def sharing_model() -> onnx.ModelProto:
    """Outputs that could all be the same memory, or memory of an input, a weight or the arena."""
    b = ModelBuilder(3)
    x = b.input("x", (1, 16, 4, 4))
    y = b.conv(x, 16, 1)
    shape = b.constant(np.array([16, 16], np.int64))
    first, second = (b.constant(np.array([k], np.int64)) for k in (0, 8))
    axis = b.constant(np.array([1], np.int64))
    b.output(
        b.node("Identity", [x]),
        y,
        b.node("Identity", [y]),
        b.node("Reshape", [y, shape]),
        b.node("Slice", [y, first, second, axis]),
        b.node("Identity", [b.weight(4, 4)]),
        b.node("Concat", [y, y], axis=1),
    )
    return b.model()


def test_results_are_memory_of_their_own() -> None:
    executable = gf.compile(sharing_model(), threads=2)
    given = [np.random.default_rng(k).standard_normal((1, 16, 4, 4)).astype("f4") for k in (0, 1)]
    kept = [array.copy() for array in given]
    runs = [executable.run({"x": array}) for array in given]
    expected = [{name: array.copy() for name, array in run.items()} for run in runs]
    arrays = [*given, *(array for run in runs for array in run.values())]
    assert not any(np.shares_memory(a, b) for a, b in itertools.combinations(arrays, 2))
    for array in arrays[len(given) :]:
        assert array.flags.writeable and array.flags.c_contiguous
        array[...] = np.nan
    assert all(np.array_equal(a, b) for a, b in zip(given, kept, strict=True))
    for array, wanted in zip(given, expected, strict=True):
        found = executable.run({"x": array})
        assert same(found, wanted)
        assert np.array_equal(found["identity_1"], array)


# Pauses -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_run_that_pauses_between_its_steps_gives_the_same(threads: int) -> None:
    n, times = 13, 301
    program, calls = impatient(rotations(n, times), threads)
    x = np.arange(n, dtype=np.float32)
    expected = np.roll(x, -(times % n)) + np.float32(times)
    for _ in range(2):
        calls.clear()
        np.testing.assert_array_equal(program.run({"x": x})["y"], expected)
        assert calls[-1] == 0 and len(calls) >= times


@pytest.mark.parametrize("threads", [1, 2])
def test_a_model_that_pauses_between_its_steps_gives_the_same(threads: int) -> None:
    patient = gf.compile(small_model(), threads=threads)
    expected = [patient.run(image(k)) for k in range(CALLERS)]
    program, calls = impatient(patient.program.spec, threads)
    assert in_threads(lambda k: same(program.run(image(k)), expected[k])) == []
    assert len(calls) > 2 * CALLERS


def test_a_signal_handler_may_run_the_model_that_it_interrupts() -> None:
    program, _ = impatient(rotations(13, 301), 2)
    x = np.arange(13, dtype=np.float32)
    expected = program.run({"x": x})["y"]
    nested: list[Array] = []

    def handler(*_: object) -> None:
        nested.append(program.run({"x": x})["y"])

    before = signal.signal(signal.SIGALRM, handler)
    try:
        for runs in range(1, 20):
            signal.setitimer(signal.ITIMER_REAL, 1e-4)
            while len(nested) < runs:
                assert np.array_equal(program.run({"x": x})["y"], expected)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert all(np.array_equal(found, expected) for found in nested)


def test_a_bound_run_that_was_interrupted_may_begin_again() -> None:
    class Interrupted(Exception):
        pass

    def handler(*_: object) -> None:
        raise Interrupted

    program, _ = impatient(rotations(13, 301), 2)
    bound = program.bind({"x": np.zeros(13, np.float32)})
    before = signal.signal(signal.SIGALRM, handler)
    try:
        with pytest.raises(Interrupted):
            signal.setitimer(signal.ITIMER_REAL, 1e-4)
            while True:
                bound.run()
    finally:
        signal.signal(signal.SIGALRM, before)
    bound.run()
    assert (bound.outputs["y"] == 301).all()


# Processes --------------------------------------------------------------------------------------


def run_script(body: str) -> None:
    """In a fresh interpreter with this module's names in scope."""
    run_fresh(body, "import os\nfrom system.networks.test_concurrency import *\n")


def test_a_forked_child_runs_and_compiles() -> None:
    run_script("""
        executable = gf.compile(small_model(), threads=2)
        expected = [executable.run(image(k)) for k in range(3)]
        children = []
        for _ in range(2):
            child = os.fork()
            if child == 0:
                right = all(same(executable.run(image(k)), expected[k]) for k in range(3))
                again = gf.compile(small_model(), threads=2)
                right = right and same(again.run(image(0)), expected[0])
                os._exit(0 if right else 1)
            children.append(child)
        assert same(executable.run(image(1)), expected[1])
        assert all(os.waitpid(child, 0)[1] == 0 for child in children)
        assert same(executable.run(image(2)), expected[2])
    """)


def test_a_run_continues_in_a_child_that_a_signal_handler_forked() -> None:
    run_script("""
        program, _ = impatient(rotations(13, 301), 2)
        x, forked = np.zeros(13, np.float32), []
        def handler(*_):
            if not forked:
                forked.append(os.fork())
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        while True:  # at least once, if the signal comes at once
            right = (program.run({"x": x})["y"] == 301).all()
            if forked: break
        if forked[0] == 0:
            os._exit(0 if right else 1)
        assert right and os.waitpid(forked[0], 0)[1] == 0
    """)


def test_a_run_that_was_about_to_use_a_pool_of_its_parent_gets_another_one() -> None:
    """As a signal handler does that forks after the pool was asked for, before the native call."""
    run_script("""
        forked = []
        def forking(*arguments):
            if not forked:
                forked.append(os.fork())
            return driver().run(*arguments)
        program = Program(rotations(13, 301), 2, native=replace(driver(), run=forking))
        right = (program.run({"x": np.zeros(13, np.float32)})["y"] == 301).all()
        if forked[0] == 0:
            os._exit(0 if right else 1)
        assert right and os.waitpid(forked[0], 0)[1] == 0
    """)


@pytest.mark.parametrize("threads", [1, 2])
def test_control_c_ends_a_single_long_run(threads: int) -> None:
    """The output was not written, so it was one run that ended, and in the middle.

    At 200 GFLOPS a thread the run takes 0.27 s; native code keeps a signal waiting for 0.1 s.
    """
    run_script(f"""
        import time
        executable = gf.compile(chain_model({60 * threads}, 768), threads={threads})
        x = np.random.default_rng(0).standard_normal((768, 768)).astype(np.float32)
        bound = executable.program.bind({{"x": x}})
        bound.outputs["y"][...] = 7
        interrupted = []
        def interrupt():
            time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            bound.run()
        except KeyboardInterrupt:
            interrupted.append(True)
        assert interrupted and (bound.outputs["y"] == 7).all()
        small = gf.compile(small_model(), threads={threads})
        assert same(small.run(image(0)), small.run(image(0)))
        bound.run()
        assert same(executable.run({{"x": x}}), bound.outputs)
    """)
