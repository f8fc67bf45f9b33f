"""`prepare_constants`: constants are packed and let go of, one after the other."""

import weakref
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

import graphflow as gf
import graphflow.runtime.constant_block as constant_block
from graphflow.codegen import chosen_target
from graphflow.models import ModelBuilder
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.program import ProgramSpec
from graphflow.runtime.aligned_memory import release
from graphflow.runtime.constant_block import NOTHING_BORROWED, Initial, prepare_constants
from graphflow.runtime.native_code import NativeCode
from graphflow.runtime.step_table import Arena


def products(widths: Sequence[int]) -> ProgramSpec:
    """The program of products whose weights are packed before the first run."""
    build = ModelBuilder(seed=4)
    value = build.input("x", (16, widths[0]))
    for inputs, outputs in pairwise(widths):
        value = build.node("MatMul", [value, build.weight(inputs, outputs)])
    build.output(value)
    options = gf.Options(threads=1, workers=0)
    return compile_graph(CompileRequest(build.model(), options=options)).spec


class Watched(NativeCode):
    """Native code that notes how many constants there are whenever it executes a table."""

    def __init__(self, spec: ProgramSpec, initial: dict[int, np.ndarray]) -> None:
        super().__init__(spec, 1)
        self.initial, self.counts = initial, list[int]()

    def walk(self, arena: Arena, job: int) -> None:
        self.counts.append(len(self.initial))
        super().walk(arena, job)


@pytest.mark.parametrize("at_once", [1, 1 << 30])
def test_constants_are_let_go_of_while_others_wait(
    at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = products([48, 80, 96, 112])
    whole = prepare_constants(spec, NativeCode(spec, 1), NOTHING_BORROWED, dict(spec.constants))
    monkeypatch.setattr(constant_block, "LET_GO_AT_ONCE", at_once)
    initial = dict(spec.constants)
    code = Watched(spec, initial)
    block = prepare_constants(spec, code, NOTHING_BORROWED, initial)
    assert code.counts == ([3, 2, 1] if at_once == 1 else [3])
    assert not initial
    assert len(spec.prepare) == 3
    runs = spec.run_constant_bytes
    np.testing.assert_array_equal(block.memory[:runs], whole.memory[:runs])
    assert block.memory[:runs].any()


class Read:
    """A constant that is read when it is needed; `alive` counts the arrays that exist."""

    def __init__(self, array: np.ndarray, alive: weakref.WeakSet[np.ndarray]) -> None:
        self.array, self.alive, self.nbytes = array, alive, array.nbytes

    def read(self) -> np.ndarray:
        copy = np.array(self.array).view(Countable)
        self.alive.add(copy)
        return copy


class Countable(np.ndarray):
    """An array that sets can have weakly."""

    __hash__ = object.__hash__


def test_constants_are_read_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = products([48, 80, 96, 112])
    whole = prepare_constants(spec, NativeCode(spec, 1), NOTHING_BORROWED, dict(spec.constants))
    monkeypatch.setattr(constant_block, "LET_GO_AT_ONCE", 1)
    alive: weakref.WeakSet[np.ndarray] = weakref.WeakSet()
    counts = list[int]()

    class Counting(NativeCode):
        def walk(self, arena: Arena, job: int) -> None:
            counts.append(len(alive))
            super().walk(arena, job)

    initial: Initial = {position: Read(array, alive) for position, array in spec.constants}
    block = prepare_constants(spec, Counting(spec, 1), NOTHING_BORROWED, initial)
    assert counts == [1, 1, 1] and not alive and not initial
    runs = spec.run_constant_bytes
    np.testing.assert_array_equal(block.memory[:runs], whole.memory[:runs])


def test_constants_that_kernels_cannot_read_in_place_are_copied_one_by_one() -> None:
    spec = products([48, 80, 96, 112])
    whole = prepare_constants(spec, NativeCode(spec, 1), NOTHING_BORROWED, dict(spec.constants))
    initial: Initial = {}
    for position, array in spec.constants:
        moved = np.zeros(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
        moved[...] = array
        assert not moved.flags.aligned
        initial[position] = moved
    block = prepare_constants(spec, NativeCode(spec, 1), NOTHING_BORROWED, initial)
    runs = spec.run_constant_bytes
    np.testing.assert_array_equal(block.memory[:runs], whole.memory[:runs])


def test_memory_of_what_is_made_on_the_way_is_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of transformed tiles are made in a plain layout, and then packed."""
    monkeypatch.setattr(constant_block, "LET_GO_AT_ONCE", 1)
    build = ModelBuilder(seed=4)
    x = build.input("x", (1, 128, 14, 14))
    for channels in (128, 256):
        x = build.conv(x, channels, 3, pads=[1, 1, 1, 1])
    build.output(x)
    options = gf.Options(threads=1, workers=0)
    request = CompileRequest(build.model(), options=options, target=chosen_target("avx2"))
    spec = compile_graph(request).spec
    ends = list[int]()

    def noted(block: np.ndarray, start: int) -> None:
        ends.append(start)
        block[start:] = 255  # what is read behind that is wrong
        release(block, start)

    monkeypatch.setattr(constant_block, "release", noted)
    block = prepare_constants(spec, NativeCode(spec, 1), NOTHING_BORROWED, dict(spec.constants))
    assert ends == sorted(ends, reverse=True) and ends[-1] == spec.run_constant_bytes
    monkeypatch.setattr(constant_block, "LET_GO_AT_ONCE", 1 << 40)
    monkeypatch.setattr(constant_block, "release", release)
    whole = prepare_constants(spec, NativeCode(spec, 1), NOTHING_BORROWED, dict(spec.constants))
    runs = spec.run_constant_bytes
    np.testing.assert_array_equal(block.memory[:runs], whole.memory[:runs])
    assert len({*ends}) > 1
