"""Tests of bindings whose outputs are inputs of the next run: growing keys and values of a decoder.

The same code runs with onnxruntime and with graphflow, where such values stay in one memory; each
of them has to stay what it was, whatever runs later.
"""

import functools
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphflow as gf
from graphflow.api.session.session_options import SIZE_ENTRY
from support.models.session_models import MODULES
from support.models.sized_runs import parsed_model

with_both = pytest.mark.parametrize("ort", MODULES, ids=lambda module: module.__name__)

GROWING = (
    "g (float[n,4] x, float[p,4] past) => (float y, float present) <int64[1] axis = {0}> "
    "{ present = Concat<axis=0>(past, x) s = ReduceSum(present, axis) y = Add(x, s) }"
)
UPDATED = (
    "g (float[6,4] past, int64[2,1] at, float[2,4] x) => (float[6,4] present) "
    "{ present = ScatterND(past, at, x) }"
)
SIZES = {"n": "0:3", "p": "0:16"}


@functools.cache
def session(ort: Any, text: str = GROWING) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    for name, bounds in SIZES.items() if ort is gf and text == GROWING else ():
        options.add_session_config_entry(f"{SIZE_ENTRY}{name}", bounds)
    return ort.InferenceSession(
        parsed_model(text).SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def rows(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)


class Sequence:
    """Runs of one sequence, and what each present has to be for ever."""

    def __init__(self, ort: Any, seed: int, binding: Any = None) -> None:
        self.ort, self.seed, self.binding = ort, seed, binding
        past = rows(2, seed)
        self.made = [(ort.OrtValue.ortvalue_from_numpy(past.copy()), past)]

    def step(self, count: int = 1, which: int = -1, y: np.ndarray[Any, Any] | None = None) -> None:
        """Append rows to the present of an earlier step, the last one unless told."""
        value, past = self.made[which]
        sess, x = session(self.ort), rows(count, self.seed + len(self.made))
        binding = sess.io_binding() if self.binding is None else self.binding
        binding.bind_cpu_input("x", x)
        binding.bind_ortvalue_input("past", value)
        if y is None:
            binding.bind_output("y")
        else:
            place = y.__array_interface__["data"][0]
            binding.bind_output("y", "cpu", 0, np.float32, y.shape, place)
        binding.bind_output("present")
        sess.run_with_iobinding(binding)
        found = dict(zip(["y", "present"], binding.get_outputs(), strict=True))
        present = np.concatenate([past, x])
        np.testing.assert_allclose(found["y"].numpy(), x + present.sum(0), 1e-5, 1e-5)
        self.made.append((found["present"], present))

    def check(self) -> None:
        for value, wanted in self.made:
            assert (value.shape(), value.data_type()) == (list(wanted.shape), "tensor(float)")
            assert value.is_tensor() and value.element_type() == 1
            np.testing.assert_array_equal(value.numpy(), wanted)


@with_both
@pytest.mark.parametrize("reused", [False, True], ids=["a new binding", "one binding"])
def test_each_token_appends_to_what_the_last_run_gave(ort: Any, reused: bool) -> None:
    sequence = Sequence(ort, 10, session(ort).io_binding() if reused else None)
    for count in (1, 3, 1, 2):
        sequence.step(count)
    sequence.check()
    y = np.zeros((2, 4), np.float32)
    sequence.step(2, y=y)
    np.testing.assert_allclose(y, sequence.made[-1][1][-2:] + sequence.made[-1][1].sum(0), 1e-5)
    sequence.check()


@with_both
def test_sequences_that_take_turns(ort: Any) -> None:
    first, second = Sequence(ort, 20), Sequence(ort, 40)
    for one in (first, second, first, first, second):
        one.step()
    first.step(3, which=2)
    first.check()
    second.check()


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 6), st.integers(0, 3)), max_size=10))
def test_all_values_stay_what_they_were(steps: list[tuple[bool, int, int]]) -> None:
    """A step of one of two sequences appends to any of its values."""
    sequences = Sequence(gf, 60), Sequence(gf, 80)
    for which, number, count in steps:
        one = sequences[which]
        number = max(min(number, len(one.made) - 1), -len(one.made))
        if one.made[number][1].shape[0] <= 16:
            one.step(count, number)
    for one in sequences:
        one.check()


def test_rows_that_are_there_are_not_copied() -> None:
    """Rows that are changed in the memory behind its back are changed in the next present."""
    sequence = Sequence(gf, 100)
    for mark in (7, 8, 9):
        sequence.step()
        value, present = sequence.made[-1]
        value.value.memory.array[0] = present[0] = mark
    values = [value for value, _ in sequence.made[1:]]
    assert all(value.is_state for value in values)
    assert [value.numpy()[0, 0] for value in values] == [9, 9, 9]
    memory = values[0].value.memory
    Sequence(gf, 101).step()  # writes over them
    assert memory.array[0, 0] != 9 and [value.numpy()[0, 0] for value in values] == [9, 9, 9]
    assert all(value.value.memory is None for value in values)


@with_both
def test_a_value_has_an_address_and_takes_elements(ort: Any) -> None:
    sequence = Sequence(ort, 120)
    sequence.step()
    value, present = sequence.made[-1]
    place = value.data_ptr()
    value.update_inplace(present + 1)
    sequence.made[-1] = value, present + 1
    sequence.step()
    sequence.check()
    assert value.data_ptr() == place and value.tensor_size_in_bytes() == present.nbytes
    found = session(ort).run_with_ort_values(
        ["present"], {"x": ort.OrtValue.ortvalue_from_numpy(rows(1)), "past": sequence.made[-1][0]}
    )
    np.testing.assert_array_equal(found[0].numpy()[:-1], sequence.made[-1][1])


@with_both
def test_a_present_is_written_into_memory_of_the_caller(ort: Any) -> None:
    sequence = Sequence(ort, 140)
    sequence.step()
    value, past = sequence.made[-1]
    into = ort.OrtValue.ortvalue_from_shape_and_type((4, 4), np.float32)
    binding = session(ort).io_binding()
    binding.bind_cpu_input("x", rows(1))
    binding.bind_ortvalue_input("past", value)
    binding.bind_output("y")
    binding.bind_ortvalue_output("present", into)
    session(ort).run_with_iobinding(binding)
    np.testing.assert_array_equal(into.numpy(), np.concatenate([past, rows(1)]))
    np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[1], into.numpy())
    sequence.check()


@with_both
def test_a_cache_of_one_size(ort: Any) -> None:
    """Its rows are written over: each run makes a new one for the script."""
    sess, cache = session(ort, UPDATED), np.zeros((6, 4), np.float32)
    made = [(ort.OrtValue.ortvalue_from_numpy(cache.copy()), cache)]
    for number, at in enumerate(([4, 1], [0, 5], [1, 2])):
        binding = sess.io_binding()
        binding.bind_ortvalue_input("past", made[-1][0])
        binding.bind_cpu_input("x", rows(2, number))
        binding.bind_cpu_input("at", np.array(at)[:, None])
        binding.bind_output("present")
        sess.run_with_iobinding(binding)
        cache = cache.copy()
        cache[at] = rows(2, number)
        made.append((binding.get_outputs()[0], cache))
    for value, wanted in made:
        np.testing.assert_array_equal(value.numpy(), wanted)


def test_threads_run_one_session() -> None:
    errors = list[BaseException]()

    def runs(seed: int) -> None:
        try:
            sequence = Sequence(gf, seed)
            for _ in range(12):
                sequence.step()
                sequence.check()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=runs, args=[seed]) for seed in (160, 180, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
