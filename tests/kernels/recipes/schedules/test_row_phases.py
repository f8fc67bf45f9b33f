"""Tests of kernels of one row in phases: `kernels/recipes/schedules/row_phases.py`, run by threads
that meet within a step."""

from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow import tir
from graphflow.base.errors import ScheduleError
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.base.trace import Trace
from graphflow.codegen import compile_object, host_target
from graphflow.kernels.definitions.recurrent import ACTIVATIONS, gru, lstm, rnn
from graphflow.kernels.definitions.recurrent_kernel import LANES, Recurrence
from graphflow.kernels.lowering import KernelTask, LoweredKernel, make_kernel
from graphflow.kernels.recipes import Staged, kernel_schedule
from graphflow.program import ALIGNMENT, BufferRef, ProgramSpec, ProgramStep, TensorSpec
from graphflow.runtime import Program
from graphflow.tir import LoopKind, PrimFunc
from support.targets import in_turn

SIGMOID, TANH = (ACTIVATIONS[name][1] for name in ("sigmoid", "tanh"))

KINDS = ("lstm", "quantized", "gru", "linear gru", "rnn")


def layer(kind: str, steps: int, hidden: int, reverse: bool, lengths: bool) -> PrimFunc:
    functions = {"lstm": 3, "quantized": 3, "rnn": 1}.get(kind, 2)
    chosen = (TANH,) if functions == 1 else (SIGMOID, TANH, TANH)[:functions]
    r = Recurrence(steps, 1, hidden, chosen, reverse=reverse, lengths=lengths)
    if kind in ("lstm", "quantized"):
        quantized = kind == "quantized"
        return lstm(r, peepholes=not quantized, quantized=quantized, zeros=quantized)
    return rnn(r) if kind == "rnn" else gru(r, linear_before_reset=kind == "linear gru")


def feeds_of(func: PrimFunc) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)

    def drawn(name: str, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        if name == "lengths":
            return np.full(shape, 3, dtype)
        if dtype == "float32":
            scale = 0.2 if name == "weights" else 1.0  # so that no rounding grows from step to step
            return np.float32(scale) * random.standard_normal(shape, np.float32)
        return random.integers(-100, 100, shape).astype(dtype)

    feeds = {b.name: drawn(b.name, b.dtype, b.shape) for b in func.inputs}
    if "scales" in feeds:
        feeds["scales"] *= np.float32(1e-4)  # so that the gates are not saturated
    return feeds


@lru_cache(maxsize=64)
def made(func: PrimFunc, in_phases: bool, target: Target) -> tuple[LoweredKernel, bytes]:
    recipe = Staged(in_phases=in_phases)
    kernel = make_kernel(KernelTask("k", func, (), recipe, target), Trace(Options()))
    assert kernel.in_phases is in_phases and not kernel.schedule.refusals
    return kernel, compile_object(kernel.func, "k", target)


def program(kernel: LoweredKernel, code: bytes, threads: int, limit: int = 0) -> Program:
    """The program of one kernel, which at most `limit` threads share."""
    definition, refs, end = kernel.task.definition, list[BufferRef](), 0
    sides = ((definition.inputs, "input"), (definition.outputs, "output"))
    places = {b: BufferRef(space, k) for side, space in sides for k, b in enumerate(side)}
    for param in kernel.func.params:
        known = [ref for b, ref in places.items() if b.name == param.buffer.name]
        refs.append(known[0] if known else BufferRef("arena", end))
        end += 0 if known else -(-param.buffer.bytes // ALIGNMENT) * ALIGNMENT
    step = ProgramStep("k", tuple(refs), kernel.extent, limit, meets=kernel.in_phases)
    inputs, outputs = (
        tuple(TensorSpec(b.name, b.dtype, b.shape) for b in side) for side, _ in sides
    )
    return Program(ProgramSpec((("k", code),), (), (step,), (), 0, end, inputs, outputs), threads)


@pytest.mark.parametrize("kind", KINDS)
def test_threads_share_the_loops_around_sums(kind: str) -> None:
    """With one meeting a step, but for the GRU whose reset gate is part of a sum."""
    s = kernel_schedule(layer(kind, 5, 48, False, False), (), Staged(in_phases=True), host_target())
    assert not s.refusals and tir.in_phases(s.func)
    (steps,) = (loop for loop in tir.loops_of(s.func.body) if loop.extent == 5)
    phases = [loop for loop in tir.loops_of(steps.body) if loop.kind is LoopKind.PARALLEL]
    assert len(phases) == (2 if kind == "gru" else 1)
    assert {loop.extent for loop in phases} == {48 // LANES}
    beside = {b.name for b in tir.replicated(s.func)}
    assert ("q_state" in beside) is (kind == "quantized")
    assert "h_state" not in beside and "c_state" not in beside


def agree(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """But for which products LLVM joins with a sum to one operation."""
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=name)


@in_turn("kind hidden", KINDS, (32, 21))
def test_threads_compute_what_one_does(kind: str, hidden: int, target: Target) -> None:
    """Bit for bit, also with more threads than panels, and what the definition says."""
    func = layer(kind, 3, hidden, False, False)
    feeds, shared = feeds_of(func), made(func, True, target)
    expected = program(*shared, 1).run(feeds)
    for threads in (2, 3, 7):
        found = program(*shared, threads).run(feeds)
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
    agree(expected, tir.interpret(func, feeds))
    agree(expected, program(*made(func, False, target), 1).run(feeds))


@settings(max_examples=8, deadline=None)
@given(
    st.sampled_from(KINDS),
    st.integers(1, 3),
    st.integers(17, 40),
    st.booleans(),
    st.booleans(),
    st.integers(2, 6),
    st.integers(0, 3),
)
def test_any_layer_and_any_threads(
    kind: str, steps: int, hidden: int, reverse: bool, lengths: bool, threads: int, limit: int
) -> None:
    func = layer(kind, steps, hidden, reverse, lengths)
    feeds, shared = feeds_of(func), made(func, True, host_target())
    expected = program(*shared, 1).run(feeds)
    found = program(*shared, threads, limit).run(feeds)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array)
    agree(expected, tir.interpret(func, feeds))
    agree(tir.interpret(shared[0].func, feeds, reverse=True), expected)


def test_many_runs_of_many_steps_meet_each_time() -> None:
    func = layer("rnn", 50, 40, False, False)
    feeds = feeds_of(func)
    shared = made(func, True, host_target())
    expected = program(*shared, 1).run(feeds)
    runs = [program(*shared, threads) for threads in (2, 3)]
    for _ in range(20):
        for each in runs:
            np.testing.assert_array_equal(each.run(feeds)["y"], expected["y"])


def test_what_threads_share_may_be_written_beside_phases_in_as_many_iterations_only() -> None:
    """Here one number of the state is written behind each step."""
    func = tir.parse("""
@primfunc
def k(x: f32[5, 4], w: f32[4, 32, 8], y: out[f32[32]]):
    h = alloc(f32[2, 32])
    for u in serial(0, 32):
        h[0, u] = f32(0.0)
    for t in serial(0, 5):
        for p in serial(0, 4):
            for v in serial(0, 8):
                h[(t + 1) % 2, 8*p + v] = x[t, p]
            for k in serial(0, 32):
                for z in serial(0, 8):
                    h[(t + 1) % 2, 8*p + z] += h[t % 2, k] * w[p, k, z]
        h[(t + 1) % 2, 0] = f32(1.0)
    for o in serial(0, 32):
        y[o] = h[1, o]
""")
    with pytest.raises(ScheduleError, match="written beside loops of 4 iterations"):
        kernel_schedule(func, (), Staged(in_phases=True), host_target())
