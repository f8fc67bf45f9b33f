"""Tests of the memory of states: which tensors in it are as a run left them."""

import sys
from types import FrameType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.base.errors import GraphflowError
from graphflow.program import TensorSpec
from graphflow.runtime import StateMemory, StateTensor

SPEC = TensorSpec("past", "float32", (2, 8, 3))


def tensor(memory: StateMemory, rows: int) -> StateTensor:
    return StateTensor("present", memory, (2, rows, 3), rows)


def test_a_tensor_is_there_until_one_of_its_rows_is_written() -> None:
    memory = StateMemory(SPEC)
    memory.write(0)
    short = tensor(memory, 3)
    memory.write(3)
    longer = tensor(memory, 5)
    assert short.is_there and longer.is_there
    memory.write(3)
    assert short.is_there and not longer.is_there
    memory.write(2)
    assert not short.is_there
    with pytest.raises(GraphflowError, match=r"output present.* of an earlier run is no more"):
        np.asarray(short)
    assert "overwritten" in repr(short)


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=20))
def test_what_is_there_is_what_no_later_write_has_touched(steps: list[tuple[int, int]]) -> None:
    memory, made = StateMemory(SPEC), list[tuple[StateTensor, int, int]]()
    for number, (first, rows) in enumerate(steps):
        memory.write(first)
        made.append((tensor(memory, rows), rows, number))
    for one, rows, number in made:
        later = [first for first, _ in steps[number + 1 :]]
        assert one.is_there == all(first >= rows for first in later)


def test_what_is_gone_stays_gone_while_another_run_writes() -> None:
    """Another thread may ask between any two instructions of a write."""
    memory = StateMemory(SPEC)
    memory.write(0)
    gone = tensor(memory, 8)
    memory.write(5)
    memory.write(6)
    asked: list[bool] = []

    def ask(frame: FrameType, _event: str, _argument: Any) -> Any:
        if frame.f_code is not StateMemory.write.__code__:
            return None
        frame.f_trace_opcodes = True
        asked.append(gone.is_there)
        return ask

    before = sys.gettrace()
    sys.settrace(ask)
    try:
        memory.write(3)
    finally:
        sys.settrace(before)
    assert len(asked) > 10 and not any(asked)


def test_arrays_of_a_tensor_are_copies() -> None:
    memory = StateMemory(SPEC)
    memory.array[...] = 1
    state = tensor(memory, 4)
    assert (state.shape, state.ndim, state.dtype) == ((2, 4, 3), 3, np.float32)
    arrays = [
        np.asarray(state),
        np.from_dlpack(state),
        np.asarray(state, np.float64),
        np.add(state, 0),
    ]
    memory.array[...] = 2
    for array in arrays:
        np.testing.assert_array_equal(array, np.ones((2, 4, 3)))
    with pytest.raises(ValueError, match="copy it"):
        np.array(state, copy=False)


def test_memory_fits_one_shape_and_dtype() -> None:
    memory = StateMemory(SPEC)
    assert memory.fits(TensorSpec("other", "float32", (2, 8, 3)))
    assert not memory.fits(TensorSpec("past", "float16", (2, 8, 3)))
    assert not memory.fits(TensorSpec("past", "float32", (2, 9, 3)))


def test_a_tensor_that_is_kept_moves_before_it_is_written_over() -> None:
    memory = StateMemory(SPEC)
    memory.array[...] = 1
    short, longer, other, dropped = (tensor(memory, rows) for rows in (3, 5, 5, 6))
    for kept in (short, longer, dropped):
        memory.keep(kept)
    del dropped, kept
    memory.write(3)
    memory.array[:, 3:] = 2
    assert longer.is_there and longer.memory is None and not other.is_there
    assert short.memory is memory
    np.testing.assert_array_equal(longer, np.ones((2, 5, 3)))
    memory.write(0)
    memory.array[...] = 3
    np.testing.assert_array_equal(short, np.ones((2, 3, 3)))
