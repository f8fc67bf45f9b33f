"""Tests of the runtime alone, with kernels of LLVM IR text and programs of hand-written tables."""

import ctypes
import itertools
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow.base.errors import CodegenError, GraphflowError, InvalidModel, VerifyError
from graphflow.base.fields import replace
from graphflow.program import (
    ALIGNMENT,
    BufferRef,
    InputSize,
    Portion,
    PortionDigit,
    ProgramStep,
    SharingPrices,
    Signature,
    SizeWithin,
    TensorSpec,
)
from graphflow.runtime import Program, default_threads
from graphflow.runtime.aligned_memory import Recycled, data_address, zeroed_block
from graphflow.runtime.cpus import cgroup_quota
from support.fresh_interpreters import run_fresh
from support.models.executed_work import executed_iterations
from support.programs import (
    X,
    Y,
    add,
    arena,
    compiled,
    elementwise,
    inc,
    increments,
    kernel,
    rotate,
    rotations,
    spec,
    vector,
)

THREADS = (1, 2, 4)
MOST_CHUNKS = 16
"""Of a thread's share of a step."""


def span() -> tuple[str, bytes]:
    """p0[i] = 1000 * lo + hi: which part of the loop the call did."""
    return kernel(
        "span",
        1,
        """%k = mul i64 %lo, 1000
  %r = add i64 %k, %hi
  %y = getelementptr i64, ptr %p0, i64 %i
  store i64 %r, ptr %y""",
    )


def whoami(name: str = "whoami", waits: Mapping[int, Sequence[int]] | None = None) -> Any:
    """p0[i] = the thread that did iteration i, int64.

    An iteration of `waits` ends when p0 is not 0 at all that it names: a thread that waits for
    others needs no sleep, whose length other processes would decide.  After half a minute it ends
    all the same, so that a test fails and does not hang.
    """
    pairs = [(i, j) for i, awaited in (waits or {}).items() for j in awaited]
    looks = "".join(
        f"""
  %here{k} = icmp eq i64 %i, {i}
  %at{k} = getelementptr i64, ptr %p, i64 {j}
  %seen{k} = load atomic i64, ptr %at{k} acquire, align 8
  %none{k} = icmp eq i64 %seen{k}, 0
  %new{k} = and i1 %here{k}, %none{k}
  %waits{k + 1} = or i1 %waits{k}, %new{k}"""
        for k, (i, j) in enumerate(pairs)
    )
    return kernel(
        name,
        1,
        """%r = call i64 @pthread_self()
  %y = getelementptr i64, ptr %p0, i64 %i
  store atomic i64 %r, ptr %y release, align 8
  call void @await(ptr %p0, i64 %i)""",
        f"""declare i64 @pthread_self()
declare i32 @usleep(i32)
define internal void @await(ptr %p, i64 %i) {{
entry:
  br label %poll
poll:
  %times = phi i64 [ 0, %entry ], [ %next, %pause ]
  %waits0 = icmp ult i64 %times, 0{looks}
  %early = icmp ult i64 %times, 300000
  %goes_on = and i1 %early, %waits{len(pairs)}
  br i1 %goes_on, label %pause, label %end
pause:
  %slept = call i32 @usleep(i32 100)
  %next = add i64 %times, 1
  br label %poll
end:
  ret void
}}""",
    )


def cleared() -> tuple[str, bytes]:
    """p0[i] = 0, int64."""
    body = "%y = getelementptr i64, ptr %p0, i64 %i\n  store i64 0, ptr %y"
    return kernel("cleared", 1, body)


# ---- results


@pytest.mark.parametrize("threads", THREADS)
def test_add_of_two_inputs(threads: int) -> None:
    step = ProgramStep("add", (X, BufferRef("input", 1), Y), 1000)
    program = Program(
        spec([add()], [step], [vector("a", 1000), vector("b", 1000)], [vector("c", 1000)]), threads
    )
    a, b = np.random.default_rng(0).standard_normal((2, 1000), dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(program.run({"b": b, "a": a})["c"], a + b)


@settings(derandomize=True, max_examples=40, deadline=None)
@given(extent=st.integers(1, 150), limit=st.integers(0, 5), threads=st.sampled_from(THREADS))
def test_shares_are_even_and_each_chunk_is_done_once(extent: int, limit: int, threads: int) -> None:
    program = Program(
        spec(
            [span()], [ProgramStep("span", (Y,), extent, limit)], [], [vector("y", extent, "int64")]
        ),
        threads,
    )
    parts = min(limit or threads, threads, extent)
    bounds = [extent * t // parts for t in range(parts + 1)]
    chunks = [
        (lo + (hi - lo) * c // n, lo + (hi - lo) * (c + 1) // n)
        for lo, hi in itertools.pairwise(bounds)
        for n in [min(MOST_CHUNKS, hi - lo) if parts > 1 else 1]
        for c in range(n)
    ]
    expected = [1000 * lo + hi for lo, hi in chunks for _ in range(lo, hi)]
    for _ in range(2):
        assert program.run({})["y"].tolist() == expected


@pytest.mark.parametrize(("size", "chunks"), [(64, 1), (1 << 19, 4), (1 << 24, MOST_CHUNKS)])
def test_shares_of_few_bytes_are_in_few_chunks(size: int, chunks: int) -> None:
    made = spec([span()], [ProgramStep("span", (Y,), 64)], [], [vector("y", 1 << 21, "int64")])
    signatures = {"span": Signature(64, (size,))}
    y = Program(replace(made, signatures=signatures), 2).run({})["y"]
    assert len(set(y[:64].tolist())) == 2 * chunks


SIZE_INPUTS = (3, 4)
"""The greatest values of the two sizes of `sized_digits`."""


@st.composite
def sized_digits(draw: st.DrawFn) -> Portion:
    """Digits of which each depends on the first size, on the second one, or on none."""
    digits = []
    for _ in range(draw(st.integers(1, 4))):
        size = draw(st.sampled_from([None, 0, 1]))
        count = draw(st.integers(1, 6))
        digits.append(
            PortionDigit(count)
            if size is None
            else PortionDigit(count, 1 + size, SIZE_INPUTS[size])
        )
    return Portion(tuple(digits))


@settings(derandomize=True, max_examples=80, deadline=None)
@given(
    part=sized_digits(),
    threads=st.sampled_from(THREADS),
    saved=st.sampled_from([0, 5, 20]),
    late=st.sampled_from([(), (1,), (1, 2)]),
)
def test_a_run_executes_the_iterations_of_its_sizes_once(
    part: Portion, threads: int, saved: int, late: tuple[int, ...]
) -> None:
    """Sizes that are `late` are those that a step before writes; the driver finds them there."""
    extent = part.extent
    places = {number: BufferRef("arena", 64 * number) for number in late}
    write = kernel("write", 2, "%n = load i64, ptr %p0\nstore i64 %n, ptr %p1")
    digits = tuple(
        replace(digit, input=None, place=places[digit.input]) if digit.input in places else digit
        for digit in part.digits
    )
    zero = kernel("zero", 1, "%y = getelementptr i64, ptr %p0, i64 %i\nstore i64 0, ptr %y")
    tally = kernel(
        "tally",
        1,
        """%y = getelementptr i64, ptr %p0, i64 %i
  %old = load i64, ptr %y
  %new = add i64 %old, 1
  store i64 %new, ptr %y""",
    )
    inputs = [
        TensorSpec("x", "float32", SIZE_INPUTS),
        TensorSpec("n", "int64", ()),
        TensorSpec("m", "int64", ()),
    ]
    steps = (
        ProgramStep("zero", (Y,), extent),
        *(ProgramStep("write", (BufferRef("input", k), place), 1) for k, place in places.items()),
        ProgramStep("tally", (Y,), extent, 0, Portion(digits), saved=saved),
    )
    sizes = tuple(
        InputSize(inputs[1 + k].name, 1 + k, 1, most, ((0, k),))
        for k, most in enumerate(SIZE_INPUTS)
    )
    made = spec([zero, write, tally], [], inputs, [vector("y", extent, "int64")])
    program = Program(replace(made, run=steps, sizes=sizes, sharing=SharingPrices(4, 8)), threads)
    for n, m in itertools.product(*(range(1, most + 1) for most in SIZE_INPUTS)):
        runs = executed_iterations(part, {1: n, 2: m})
        assert len(runs) == part.executed({1: n, 2: m})
        expected = [int(number in runs) for number in range(extent)]
        bound = program.bind({"x": np.zeros((n, m), np.float32)})
        bound.run()
        assert bound.outputs["y"].tolist() == expected
        assert program.run({"x": np.zeros((n, m), np.float32)})["y"].tolist() == expected


HALVES = Portion((PortionDigit(16, 1, 8),))
"""Two iterations for each unit of a size of at most 8."""

SHARED_FROM = {
    "meetings": (ProgramStep("span", (Y,), 16, 0, HALVES, saved=160), SharingPrices(80), 4),
    "waking": (ProgramStep("span", (Y,), 16, 0, HALVES, saved=160), SharingPrices(20, 100), 6),
    "a size within": (
        ProgramStep("span", (Y,), 16, saved=160, within=(SizeWithin(1, 8),)),
        SharingPrices(100),
        5,
    ),
    "a size twice": (
        ProgramStep("span", (Y,), 16, 0, HALVES, saved=160, within=(SizeWithin(1, 8),)),
        SharingPrices(70),
        6,
    ),
    "no estimate": (ProgramStep("span", (Y,), 16, 0, HALVES), SharingPrices(), 1),
    "as planned at the most": (ProgramStep("span", (Y,), 16, 0, HALVES), SharingPrices(50, 50), 8),
    "not planned": (ProgramStep("span", (Y,), 16, 1, HALVES, saved=160), SharingPrices(), 9),
}
"""A step, prices, and the least size of a run, of at most 8, from which threads share the step."""


@pytest.mark.parametrize(("step", "prices", "least"), SHARED_FROM.values(), ids=SHARED_FROM)
def test_runs_of_small_sizes_share_steps_where_that_saves_more_than_it_takes(
    step: ProgramStep, prices: SharingPrices, least: int
) -> None:
    inputs = [TensorSpec("x", "float32", (8,)), TensorSpec("n", "int64", ())]
    made = spec([span()], [], inputs, [vector("y", 16, "int64")])
    sizes = (InputSize("n", 1, 1, 8, ((0, 0),)),)
    program = Program(replace(made, run=(step,), sizes=sizes, sharing=prices), 2)
    for size in (*range(1, 9), *range(8, 0, -1)):
        extent = 16 if step.portion is None else 2 * size
        calls = set(program.run({"x": np.zeros(size, np.float32)})["y"][:extent].tolist())
        assert (calls != {extent}) == (size >= least), size


@settings(derandomize=True, max_examples=40, deadline=None)
@given(
    saved=st.lists(st.integers(0, 30), min_size=1, max_size=12),
    waking=st.integers(0, 60),
    threads=st.sampled_from(THREADS),
)
def test_steps_read_what_those_before_wrote_whoever_executes_them(
    saved: list[int], waking: int, threads: int
) -> None:
    places = [X, *(arena(64 * (k % 2)) for k in range(len(saved) - 1)), Y]
    steps = tuple(
        ProgramStep("inc", (read, written), 16, 0, Portion((PortionDigit(16, 1, 16),)), saved=gain)
        for (read, written), gain in zip(itertools.pairwise(places), saved, strict=True)
    )
    inputs = [vector("x", 16), TensorSpec("n", "int64", ())]
    made = spec([inc()], [], inputs, [vector("y", 16)], arena_bytes=128)
    sizes = (InputSize("n", 1, 1, 16, ((0, 0),)),)
    prices = SharingPrices(10, waking)
    program = Program(replace(made, run=steps, sizes=sizes, sharing=prices), threads)
    for size in (*range(1, 17), *range(16, 0, -1)):
        x = np.arange(size, dtype=np.float32)
        y = program.run({"x": x})["y"]
        np.testing.assert_array_equal(y[:size], x + len(saved))


def test_who_is_done_takes_what_others_have_not_begun() -> None:
    """Of two shares of 32, the second waits at its begin for the begin of the first, and that for
    the end of both."""
    steps = [ProgramStep("cleared", (Y,), 64), ProgramStep("whoami", (Y,), 64)]
    kernels = [cleared(), whoami(waits={0: (31, 63), 32: (0,)})]
    program = Program(spec(kernels, steps, [], [vector("y", 64, "int64")]), 2)
    first, *rest = program.run({})["y"].tolist()
    assert first not in rest[31:], "its own share"
    assert rest[30] not in (0, first), "and what the one that waits left of its own"


def test_parallel_steps_use_all_threads_and_sequential_ones_the_caller() -> None:
    """The first iterations of four shares of 16 wait for each other."""
    firsts = (0, 16, 32, 48)
    steps = [ProgramStep("cleared", (Y,), 64), ProgramStep("meeting", (Y,), 64)]
    steps.append(ProgramStep("whoami", (BufferRef("output", 1),), 1))
    steps.append(ProgramStep("whoami", (BufferRef("output", 2),), 64, threads=1))
    kernels = [cleared(), whoami("meeting", dict.fromkeys(firsts, firsts)), whoami()]
    outputs = [vector("all", 64, "int64"), vector("one", 1, "int64"), vector("own", 64, "int64")]
    program = Program(spec(kernels, steps, [], outputs), 4)
    result = program.run({})
    me = threading.get_ident()
    assert len({result["all"][i] for i in firsts}) == 4
    assert me in result["all"][list(firsts)]
    assert result["one"].tolist() == [me]
    assert set(result["own"].tolist()) == {me}
    again = program.run({})
    assert set(again["all"].tolist()) == set(result["all"].tolist()), "threads persist"


def test_a_parameter_may_begin_inside_its_storage() -> None:
    """Of x[6], the last four and 1 more go to the end of y[7], by way of the arena."""
    steps = [
        ProgramStep("inc", (BufferRef("input", 0, 8), BufferRef("arena", 64, 4)), 4),
        ProgramStep("inc", (BufferRef("arena", 64, 4), BufferRef("output", 0, 12)), 4),
        ProgramStep("inc", (X, Y), 3),
    ]
    program = Program(spec([inc()], steps, [vector("x", 6)], [vector("y", 7)]), 1)
    for start in (0.0, 10.0):
        x = start + np.arange(6, dtype=np.float32)
        np.testing.assert_array_equal(program.run({"x": x})["y"], [*(x[:3] + 1), *(x[2:] + 2)])


@pytest.mark.parametrize("threads", THREADS)
def test_every_step_sees_all_of_the_step_before(threads: int) -> None:
    n, times = 13, 10_001 if threads < 4 else 2_001
    program = Program(rotations(n, times), threads)
    x = np.arange(n, dtype=np.float32)
    expected = np.roll(x, -(times % n)) + np.float32(times)
    for _ in range(2):
        np.testing.assert_array_equal(program.run({"x": x})["y"], expected)


@settings(derandomize=True, max_examples=30, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 2, 8]), min_size=1, max_size=30))
def test_steps_of_mixed_widths_keep_their_order(limits: list[int]) -> None:
    """Barriers are left out between sequential steps only."""
    places = [X, *[arena(64 * (k % 2)) for k in range(len(limits) - 1)], Y]
    steps = [ProgramStep("rotate", (places[k], places[k + 1]), 7, t) for k, t in enumerate(limits)]
    program = Program(spec([rotate(7)], steps, [vector("x", 7)], [vector("y", 7)]), 2)
    x = np.arange(7, dtype=np.float32)
    expected = np.roll(x, -(len(limits) % 7)) + np.float32(len(limits))
    np.testing.assert_array_equal(program.run({"x": x})["y"], expected)


@pytest.mark.parametrize("threads", THREADS)
def test_prepare_runs_once_over_the_constants(threads: int) -> None:
    raw, packed, scratch = BufferRef("constant", 0), BufferRef("constant", 4096), arena(0)
    weights = np.arange(1000, dtype=np.float32)
    program = Program(
        spec(
            [inc(), add()],
            [ProgramStep("add", (X, packed, Y), 1000), ProgramStep("add", (Y, arena(0), Y), 1000)],
            [vector("x", 1000)],
            [vector("y", 1000)],
            prepare=(
                ProgramStep("inc", (raw, scratch), 1000),
                ProgramStep("inc", (scratch, packed), 1000),
            ),
            constants=((0, weights),),
            constant_bytes=8192,
        ),
        threads,
    )
    x = np.full(1000, 0.5, np.float32)
    for _ in range(2):  # the arena is zero again although prepare used it as scratch
        np.testing.assert_array_equal(program.run({"x": x})["y"], weights + 2 + x)


def _unaligned(values: np.ndarray) -> np.ndarray:
    """The same elements, beginning one byte behind an aligned place."""
    memory = np.empty(values.nbytes + 1, np.uint8)
    found = memory[1:].view(values.dtype)
    found[...] = values
    return found


@pytest.mark.parametrize("change", [np.asarray, _unaligned, lambda a: a.astype(">f4")])
def test_constants_that_only_prepare_reads_need_no_place(
    change: Callable[[np.ndarray], np.ndarray],
) -> None:
    """Aligned ones are read where they are; either way they are gone afterwards."""
    packed, raw = BufferRef("constant", 0), BufferRef("constant", 4096, 8)
    weights = np.arange(1002, dtype=np.float32)
    made = spec(
        [inc(), add()],
        [ProgramStep("add", (X, packed, Y), 1000)],
        [vector("x", 1000)],
        [vector("y", 1000)],
        prepare=(ProgramStep("inc", (raw, packed), 1000),),
        constants=((4096, change(weights)),),
        constant_bytes=16384,
    )
    program = Program(replace(made, kept_bytes=4096), 1)
    x = np.full(1000, 0.5, np.float32)
    np.testing.assert_array_equal(program.run({"x": x})["y"], weights[2:] + 1 + x)
    assert len(program.prepared) == 4096


def test_constants_are_stored_row_major_and_native() -> None:
    values = np.arange(12, dtype=">f4").reshape(3, 4).T
    program = Program(
        spec(
            [inc()],
            [ProgramStep("inc", (BufferRef("constant", 64), Y), 12)],
            [],
            [TensorSpec("y", "float32", (4, 3))],
            constants=((64, values),),
            constant_bytes=128,
        ),
        1,
    )
    np.testing.assert_array_equal(program.run({})["y"], values + 1)


def test_tensors_of_rank_0() -> None:
    scale = kernel(
        "scale",
        3,
        """%x = getelementptr float, ptr %p0, i64 %i
  %v = load float, ptr %x
  %s = load float, ptr %p1
  %r = fmul float %v, %s
  %y = getelementptr float, ptr %p2, i64 %i
  store float %r, ptr %y""",
    )
    run = [
        ProgramStep("scale", (X, BufferRef("input", 1), Y), 5),
        ProgramStep(
            "scale", (BufferRef("input", 1), BufferRef("input", 1), BufferRef("output", 1)), 1
        ),
    ]
    tensors = [vector("x", 5), TensorSpec("s", "float32", ())]
    outputs = [vector("y", 5), TensorSpec("square", "float32", ())]
    program = Program(spec([scale], run, tensors, outputs), 2)
    x = np.arange(5, dtype=np.float32)
    for scalar in (np.float32(3), np.array(3, np.float32), np.array(3, ">f4")):
        result = program.run({"x": x, "s": scalar})
        np.testing.assert_array_equal(result["y"], 3 * x)
        assert result["square"].shape == () and result["square"] == 9
    nan = program.run({"x": x, "s": np.float32("nan")})
    assert np.isnan(nan["y"]).all()


def test_tensors_of_size_0() -> None:
    empty = TensorSpec("x", "float32", (0, 3))
    steps = [ProgramStep("inc", (X, Y), 0), ProgramStep("inc", (arena(0), arena(0)), 0)]
    program = Program(
        spec([inc()], steps, [empty], [TensorSpec("y", "float32", (0, 3))], arena_bytes=0), 2
    )
    y = program.run({"x": np.empty((0, 3), np.float32)})["y"]
    assert y.shape == (0, 3) and y.dtype == np.float32


def test_a_program_without_steps_inputs_or_outputs() -> None:
    assert Program(spec([], [], [], [], arena_bytes=0), 2).run({}) == {}


def test_flush_denormals_holds_in_all_threads_and_only_during_a_run() -> None:
    half = elementwise("half", "%r = fmul float %v, 5.0e-1")
    text = spec([half], [ProgramStep("half", (X, Y), 64)], [vector("x", 64)], [vector("y", 64)])
    tiny = np.full(64, 1e-40, np.float32)
    for threads in THREADS:
        flushed = Program(text, threads, flush_denormals=True).run({"x": tiny})["y"]
        assert not flushed.any()
        kept = Program(text, threads).run({"x": tiny})["y"]
        np.testing.assert_array_equal(kept, tiny * np.float32(0.5))
        assert kept.all()


# ---- inputs and outputs


def test_inputs_of_any_strides_alignment_and_byte_order() -> None:
    program = Program(
        spec(
            [inc()],
            [ProgramStep("inc", (X, Y), 24)],
            [TensorSpec("x", "float32", (4, 6))],
            [TensorSpec("y", "float32", (4, 6))],
        ),
        2,
    )
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    wide = np.zeros((8, 18), np.float32)
    wide[::2, ::3] = x
    off = np.zeros(97, np.uint8)[1:].view(np.float32).reshape(4, 6)
    off[...] = x
    frozen = x.copy()
    frozen.flags.writeable = False
    aligned = Recycled((4, 6), np.dtype(np.float32)).array()
    aligned[...] = x
    variants = [x, wide[::2, ::3], np.asfortranarray(x), x[::-1][::-1], off, frozen, aligned]
    variants += [x.astype(">f4"), np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]]
    for variant in variants:
        np.testing.assert_array_equal(program.run({"x": variant})["y"], x + 1)
    flat = np.broadcast_to(np.float32(2), (4, 6))
    np.testing.assert_array_equal(program.run({"x": flat})["y"], flat + 1)


@pytest.mark.parametrize(("begin", "copied"), [(0, False), (4, False), (1, True)])
def test_inputs_whose_elements_are_aligned_are_read_in_place(
    begin: int, copied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernels need no more: numpy's own arrays begin at multiples of 16, and were copied before."""
    program = Program(increments(16), 1)
    memory = np.zeros(16 * 4 + 128, np.uint8)
    first = -data_address(memory) % 64 + begin
    x = memory[first : first + 64].view(np.float32)
    x[...] = 5
    copies: list[Any] = []
    copyto = np.copyto

    def counted(target: np.ndarray, source: np.ndarray) -> None:
        copies.append(source)
        copyto(target, source)

    monkeypatch.setattr("graphflow.runtime.executor.np.copyto", counted)
    y = program.run({"x": x})["y"]
    assert (y == 6).all()
    assert len(copies) == copied


@pytest.mark.filterwarnings("error")
def test_reading_in_place_leaves_no_trace_on_an_array() -> None:
    """No warning of a write, no buffer that stays exported, no reference that is kept."""
    program = Program(increments(3), 1)
    shared, _ = np.broadcast_arrays(np.ones(3, np.float32), np.ones((1, 3), np.float32))
    x = shared.reshape(3)
    assert (program.run({"x": x})["y"] == 2).all()
    own = np.ones(3, np.float32)
    before = sys.getrefcount(own)
    assert (program.run({"x": own})["y"] == 2).all()
    assert sys.getrefcount(own) == before
    own.resize(5)
    with pytest.raises(InvalidModel):
        program.run({"x": own})


def test_subclasses_of_arrays_and_inputs_that_overlap() -> None:
    program = Program(increments(6), 1)
    memory = np.arange(12, dtype=np.float32)
    for x in (
        memory[:6],
        memory[3:9],
        np.ma.masked_less(memory[:6], 0),
        memory[:6].view(np.recarray),
    ):
        np.testing.assert_array_equal(program.run({"x": x})["y"], np.asarray(x) + 1)
    np.testing.assert_array_equal(memory, np.arange(12))


def test_plain_runs_take_arrays_that_are_read_in_place_and_leave_others_to_run() -> None:
    program = Program(increments(6), 1)
    x = np.arange(6, dtype=np.float32)
    found = program.run_plainly({"x": x})
    assert found is not None
    np.testing.assert_array_equal(found["y"], x + 1)
    strided = np.arange(12, dtype=np.float32)[::2]
    others = (list(x), x[:5], strided, x.astype(np.int32), x.astype(">f4"))
    refused = [{}, {"z": x}, {"x": x, "z": x}, *({"x": other} for other in others)]
    for inputs in (*refused, MappingProxyType({"x": x})):
        assert program.run_plainly(inputs) is None
    np.testing.assert_array_equal(program.run({"x": strided})["y"], strided + 1)


def test_a_program_for_values_has_no_plain_runs() -> None:
    x = np.arange(6, dtype=np.float32)
    program = Program(increments(6), 1, values={"x": x})
    assert program.run_plainly({"x": x}) is None
    np.testing.assert_array_equal(program.run({"x": x})["y"], x + 1)


def test_addresses_of_arrays_without_a_writable_buffer() -> None:
    read_only = np.arange(12, dtype=np.float32)
    read_only.flags.writeable = False
    for array in (read_only, np.zeros((4, 6))[:, ::2], np.zeros((0, 3)), np.zeros(3, "M8[s]")):
        assert data_address(array) == array.ctypes.data


def test_outputs_are_fresh_and_aligned() -> None:
    program = Program(increments(37), 2)
    x = np.zeros(37, np.float32)
    first = program.run({"x": x})["y"]
    second = program.run({"x": x + 5})["y"]
    assert (first == 1).all() and (second == 6).all()
    assert not np.shares_memory(first, second)
    assert data_address(first) % ALIGNMENT == data_address(second) % ALIGNMENT == 0
    assert first.flags.writeable and first.flags.c_contiguous


def test_large_outputs_begin_apart_from_arrays_in_their_pages() -> None:
    """Those of numpy begin 16 bytes behind a page, and a load waits for a store with its place."""
    for count, apart in ((4, 0), (1024, 0), (1025, 1024), (1 << 20, 1024)):
        memory = Recycled((count,), np.dtype(np.float32))
        for _ in range(2):
            array = memory.array()
            assert memory.address == data_address(array) and memory.address % 64 == 0
            assert not apart or memory.address % 4096 == apart


def test_memory_of_an_output_is_used_again_when_nothing_refers_to_it() -> None:
    memory = Recycled((4, 6), np.dtype(np.float32))
    place = data_address(memory.array())
    assert memory.address == place and place % ALIGNMENT == 0
    assert data_address(memory.array()) == place


@pytest.mark.parametrize(
    "kept",
    [
        lambda y: y,
        lambda y: y[1:, ::2],
        lambda y: y.view(np.int32).T,
        lambda y: y.base,
        memoryview,
        lambda y: np.frombuffer(y, np.uint8),
        lambda y: np.lib.stride_tricks.as_strided(y, (2,), (4,)),
        lambda y: np.from_dlpack(y),
        lambda y: ctypes.c_char.from_buffer(y),
        lambda y: np.asarray(memoryview(y)[2:]),
    ],
)
def test_memory_that_anything_refers_to_is_left_alone(kept: Callable[[Any], object]) -> None:
    """Views and buffers keep the memory alive without the array that they were made of."""
    program = Program(increments(24), 1)
    x = np.zeros(24, np.float32)
    y = program.run({"x": x})["y"]
    place, one = data_address(y), kept(y.reshape(4, 6))
    del y
    assert data_address(program.run({"x": x + 5})["y"]) != place
    del one
    others = [program.run({"x": x + k})["y"] for k in range(4)]
    assert [float(other[7]) for other in others] == [1, 2, 3, 4]


def test_an_output_may_be_the_next_input() -> None:
    program = Program(increments(24), 1)
    y = np.zeros(24, np.float32)
    for k in range(4):
        y = program.run({"x": y})["y"]
        assert (y == k + 1).all()


def test_wrong_inputs_are_refused_with_what_is_expected() -> None:
    program = Program(increments(3), 1)
    good = np.zeros(3, np.float32)
    for inputs, message in [
        ({}, "'x' is missing"),
        ({"x": good, "z": good}, "no input 'z'"),
        ({"z": good}, "'x' is missing, there is no input 'z'"),
        ({"x": good.astype(np.float64)}, "float64"),
        ({"x": good[:2]}, r"float32\[2\]"),
        ({"x": good.reshape(3, 1)}, r"float32\[3, 1\]"),
        ({"x": [1.0, 2.0, 3.0]}, "float64"),
        ({"x": np.array(["a", "b", "c"])}, "<U1"),
        ({"x": [[1.0], [1.0, 2.0]]}, "no array|object"),
    ]:
        with pytest.raises(InvalidModel, match=message) as caught:
            program.run(inputs)
        with pytest.raises(InvalidModel):
            program.bind(inputs)
        assert "x: float32[3]" in str(caught.value) or "no array" in str(caught.value)
    np.testing.assert_array_equal(program.run({"x": good})["y"], good + 1)


def test_a_bound_run_repeats_on_its_own_copy() -> None:
    program = Program(increments(5, times=3), 2)
    x = np.zeros(5, np.float32)
    bound = program.bind({"x": x})
    x[:] = 100
    for _ in range(3):
        bound.run()
        assert (bound.outputs["y"] == 3).all()
    assert (program.run({"x": x})["y"] == 103).all()


# ---- what is refused when a program is made


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (ProgramStep("dec", (X, Y), 1), "no object"),
        (ProgramStep("inc", (X, Y), -1), "below 0"),
        (ProgramStep("inc", (BufferRef("input", 1), Y), 1), "input 1"),
        (ProgramStep("inc", (X, BufferRef("output", -1)), 1), "output -1"),
        (ProgramStep("inc", (arena(32), Y), 1), "arena 32"),
        (ProgramStep("inc", (arena(8192), Y), 1), "arena 8192"),
        (ProgramStep("inc", (BufferRef("constant", 64), Y), 1), "constant 64"),
        (ProgramStep("inc", (X, BufferRef("output", 0, 41)), 1), "output 0 \\+ 41"),
        (ProgramStep("inc", (X, BufferRef("arena", 0, -4)), 1), "arena 0 \\+ -4"),
    ],
)
def test_steps_that_do_not_fit_are_refused(step: ProgramStep, reason: str) -> None:
    with pytest.raises(VerifyError, match=reason):
        spec([inc()], [step], [vector("x", 1)], [vector("y", 1)])


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(VerifyError, match="when loading"):
        spec([inc()], [], [vector("x", 1)], [], prepare=(ProgramStep("inc", (X, arena(0)), 1),))
    with pytest.raises(VerifyError, match="leave the block"):
        spec([], [], [], [], constants=((64, np.zeros(20, np.float32)),), constant_bytes=128)
    with pytest.raises(VerifyError, match="multiple of 64"):
        spec([], [], [], [], constants=((4, np.zeros(1)),), constant_bytes=128)
    with pytest.raises(VerifyError, match="twice"):
        spec([], [], [vector("x", 1), vector("x", 2)], [])
    with pytest.raises(VerifyError, match="byte 64: it is empty, and another one is there"):
        both = ((64, np.zeros(0, np.float32)), (64, np.zeros(2, np.float32)))
        spec([], [], [], [], constants=both, constant_bytes=128)
    with pytest.raises(VerifyError, match="numeric dtype"):
        TensorSpec("x", "object", ())
    with pytest.raises(GraphflowError, match="threads"):
        Program(spec([], [], [], []), 0)


def test_unusable_object_code_is_refused() -> None:
    def load(symbol: str, code: bytes) -> None:
        Program(spec([(symbol, code)], [], [], []), 1)

    name, code = inc()
    with pytest.raises(CodegenError, match="does not define"):
        load("other", code)
    with pytest.raises(CodegenError, match="not 64-bit"):
        load(name, b"MZ" + code[2:])
    with pytest.raises(CodegenError, match="damaged"):
        load(name, code[: len(code) // 2])
    missing = kernel("k", 0, "call void @no_such_function()", "declare void @no_such_function()")
    with pytest.raises(CodegenError, match="no_such_function"):
        load(*missing)
    table = "@t = internal global [4 x i64] [i64 1, i64 2, i64 3, i64 4]"
    body = "%a = getelementptr [4 x i64], ptr @t, i64 0, i64 %i\n store i64 %i, ptr %a"
    _, pic = kernel("k", 0, body, table)
    load("k", pic)
    static = compiled(
        f"{table}\ndefine void @k(ptr %b, i64 %i, i64 %h) {{\n{body}\nret void\n}}", "static"
    )
    with pytest.raises(CodegenError, match="position-independent"):
        load("k", static)
    with pytest.raises(CodegenError, match="both define"):
        both = compiled("define void @a() {\nret void\n}\ndefine void @b() {\nret void\n}")
        Program(spec([("a", both), ("b", both)], [], [], []), 1)


def test_kernels_may_use_constant_pools_and_libm() -> None:
    name, code = kernel(
        "exp",
        2,
        """%x = getelementptr float, ptr %p0, i64 %i
  %v = load float, ptr %x
  %w = fmul float %v, 0x3FF3333340000000
  %r = call float @expf(float %w)
  %y = getelementptr float, ptr %p1, i64 %i
  store float %r, ptr %y""",
        "declare float @expf(float)",
    )
    program = Program(
        spec([(name, code)], [ProgramStep(name, (X, Y), 9)], [vector("x", 9)], [vector("y", 9)]), 2
    )
    x = np.linspace(-1, 1, 9, dtype=np.float32)
    np.testing.assert_allclose(program.run({"x": x})["y"], np.exp(1.2 * x), rtol=1e-6)


# ---- machine


def test_default_threads_is_within_the_affinity() -> None:
    assert 1 <= default_threads() <= len(os.sched_getaffinity(0))


def test_cgroup_quotas(tmp_path: Path) -> None:
    def write(name: str, text: str) -> None:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    assert cgroup_quota(tmp_path, "0::/a/b\n") is None
    write("a/b/cpu.max", "max 100000\n")
    assert cgroup_quota(tmp_path, "0::/a/b\n") is None
    write("a/cpu.max", "150000 100000\n")
    assert cgroup_quota(tmp_path, "0::/a/b\n") == 1.5
    assert cgroup_quota(tmp_path, "0::/other\n") is None
    write("cpu/cpu.cfs_quota_us", "50000\n")
    write("cpu/cpu.cfs_period_us", "100000\n")
    assert cgroup_quota(tmp_path, "2:memory:/x\n1:cpu:/hidden\n0::/a\n") == 0.5
    write("cpu/cpu.cfs_quota_us", "-1\n")
    assert cgroup_quota(tmp_path, "1:cpu,cpuacct:/\n") is None
    write("cpu/cpu.cfs_quota_us", "garbage\n")
    assert cgroup_quota(tmp_path, "1:cpu:/\nnonsense\n\n") is None


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 5_000_000])
def test_blocks_are_aligned_and_zero(nbytes: int) -> None:
    block = zeroed_block(nbytes)
    assert block.nbytes == nbytes and data_address(block) % ALIGNMENT == 0
    assert not block.any()
    block[:] = 1


def test_the_cost_of_a_barrier_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    bound = Program(increments(8, 10_001), 2).bind({"x": np.zeros(8, np.float32)})
    bound.run()
    times = []
    for _ in range(7):
        start = time.perf_counter()
        bound.run()
        times.append(time.perf_counter() - start)
    assert (bound.outputs["y"] == 10_001).all()
    with capsys.disabled():
        print(f"\nstep with two threads: {np.median(times) / 10_001 * 1e9:.0f} ns")


def test_the_first_object_of_a_process_may_use_memcpy() -> None:
    """As validation links it, before any program has made an engine."""
    run_fresh("""
        import graphflow as gf
        copy = gf.kernel("def f(x: i32[9], y: out[i32[9]]):\\n    for i in parallel(0, 9):\\n"
                         "        y[i] = x[i]")
        options = gf.Options(cache="off", validate=True)
        assert gf.build(copy, options=options).compiled.validation is not None
    """)


@pytest.mark.parametrize("threads", (1, 2))
def test_stamps_say_when_each_thread_works_on_each_step(threads: int) -> None:
    program = Program(increments(4096, 5), threads)
    bound = program.bind({"x": np.zeros(4096, np.float32)})
    runs = bound.stamped_runs(3)
    assert len(runs) == 3
    for run in runs:
        assert len(run.steps) == len(program.spec.run)
        ended = run.begin
        for step, spans in zip(program.spec.run, run.steps, strict=True):
            assert len(spans) == threads
            there = [span for span in spans if span is not None]
            assert len(there) == step.workers(threads)
            assert all(run.begin <= begin <= end <= run.end for begin, end in there)
            assert min(begin for begin, _ in there) >= ended
            ended = max(end for _, end in there)
