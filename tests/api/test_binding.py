"""Tests of `Executable.bind`: growing tensors stay in memory of the program from run to run."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphflow as gf
from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.runtime import StateRun
from support.models.sized_runs import OPTIONS, parsed_model

GROWING = (
    "g (float[b,n,4] x, float[b,p,4] past) => (float y, float present) <int64[1] axis = {1}> "
    "{ present = Concat<axis=1>(past, x) s = ReduceSum(present, axis) y = Add(x, s) }"
)
SIZES = {"b": (1, 2), "n": (0, 3), "p": (0, 8)}


@pytest.fixture(scope="module")
def exe() -> gf.Executable:
    return gf.compile(
        parsed_model(GROWING), sizes=SIZES, options=gf.Options(cache="off", validate=True)
    )


def rows(count: int, seed: int = 0, batch: int = 1) -> np.ndarray[Any, Any]:
    shape = (batch, count, 4)
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check(found: dict[str, Any], past: Any, x: np.ndarray[Any, Any]) -> None:
    """The results are those of numpy, whatever is behind the rows of a run."""
    present = np.concatenate([past, x], 1)
    np.testing.assert_array_equal(found["present"], present)
    np.testing.assert_allclose(found["y"], x + present.sum(1, keepdims=True), 1e-5, 1e-5)


def poison(state: gf.StateTensor) -> None:
    """Write NaN behind the rows of a state."""
    extents = tuple(map(slice, state.shape))
    kept = np.array(state)
    state.memory.array[...] = np.nan
    state.memory.array[extents] = kept


def test_rows_that_are_there_are_not_moved(exe: gf.Executable) -> None:
    bound, past, state = exe.bind(), rows(2), rows(2)
    for number, count in enumerate((1, 3, 0, 2)):
        x = rows(count, number)
        found = bound.run({"x": x, "past": state})
        check(found, past, x)
        past, state = np.concatenate([past, x], 1), found["present"]
        assert bound.copied == (2 * 4 * 4 if number == 0 else 0)
        assert isinstance(state, gf.StateTensor) and isinstance(found["y"], np.ndarray)
        assert state.shape == past.shape and state.dtype == np.float32
        poison(state)
    (report,) = exe.specializations[0].report()["states"]
    assert (report["input"], report["output"], report["in_place"]) == ("past", "present", True)
    assert report["keeps_rows_of_axis"] == 1


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 6), st.integers(0, 3)), max_size=12))
def test_earlier_states_are_given_back_as_they_were_or_refused(
    exe: gf.Executable, steps: list[tuple[int, int]]
) -> None:
    """A step takes the state of an earlier step, counted from the front, or begins anew."""
    bound, made = exe.bind(), list[tuple[Any, np.ndarray[Any, Any]]]()
    for number, (which, count) in enumerate(steps):
        anew = which < 0 or which >= len(made)
        state, past = (rows(2, 99), rows(2, 99)) if anew else made[which]
        if not anew and not state.is_there:
            with pytest.raises(GraphflowError, match="take it as an array first"):
                bound.run({"x": rows(count), "past": state})
            continue
        if past.shape[1] > 8:
            continue
        x = rows(count, number)
        found = bound.run({"x": x, "past": state})
        check(found, past, x)
        made.append((found["present"], np.concatenate([past, x], 1)))
        for one, array in made:
            if one.is_there:
                np.testing.assert_array_equal(one, array)


def test_batches_have_states_of_their_own(exe: gf.Executable) -> None:
    one, two = exe.bind(), exe.bind()
    first = one.run({"x": rows(1), "past": rows(0)})["present"]
    second = two.run({"x": rows(2, 7, batch=2), "past": rows(0, batch=2)})["present"]
    check(one.run({"x": rows(1, 1), "past": first}), rows(1), rows(1, 1))
    x = rows(2, 8, batch=2)
    third = two.run({"x": x, "past": second})
    check(third, rows(2, 7, batch=2), x)
    past = np.array(third["present"])
    check(one.run({"x": x, "past": third["present"]}), past, x)  # of another binding: copied
    assert one.copied == past.nbytes


def test_a_state_is_an_input_of_ordinary_runs(exe: gf.Executable) -> None:
    bound = exe.bind()
    state = bound.run({"x": rows(2), "past": rows(1)})["present"]
    wanted = np.array(state)
    check(exe.run({"x": rows(1, 5), "past": state}), wanted, rows(1, 5))


def test_inputs_that_do_not_fit_leave_the_states_as_they_are(exe: gf.Executable) -> None:
    bound = exe.bind()
    state = bound.run({"x": rows(2), "past": rows(1)})["present"]
    wanted = np.array(state)
    with pytest.raises(InvalidModel):
        bound.run({"x": rows(2).astype(np.float64), "past": state})
    with pytest.raises(InvalidModel):
        bound.run({"past": state})
    check(bound.run({"x": rows(1, 3), "past": state}), wanted, rows(1, 3))


def test_a_run_beyond_the_bounds_takes_another_program(exe: gf.Executable) -> None:
    """The state moves to that program's memory, and back."""
    bound, past, state = exe.bind(), rows(8), rows(8)
    for number in range(3):
        x = rows(1, number)
        found = bound.run({"x": x, "past": state})
        check(found, past, x)
        past, state = np.concatenate([past, x], 1), found["present"]
    found = bound.run({"x": rows(3, 5), "past": rows(1, 6)})
    check(found, rows(1, 6), rows(3, 5))


def test_a_saved_program_has_its_states(exe: gf.Executable, tmp_path: Path) -> None:
    exe.save(tmp_path / "growing.gfx")
    bound = gf.load(tmp_path / "growing.gfx").bind()
    state = bound.run({"x": rows(2), "past": rows(1)})["present"]
    wanted = np.array(state)
    poison(state)
    check(bound.run({"x": rows(1, 4), "past": state}), wanted, rows(1, 4))
    assert bound.copied == 0


def test_two_threads_do_not_share_a_binding(exe: gf.Executable) -> None:
    bound = exe.bind()
    errors: list[BaseException] = []

    def runs() -> None:
        try:
            for _ in range(200):
                bound.run({"x": rows(1), "past": rows(2)})
        except GraphflowError as error:
            errors.append(error)

    threads = [threading.Thread(target=runs) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all("by another thread" in str(error) for error in errors)
    check(bound.run({"x": rows(1), "past": rows(2)}), rows(2), rows(1))


REFUSED = {
    "an input that is read for something else too": (
        "g (float[n,4] x, float[p,4] past) => (float y, float present) "
        "{ present = Concat<axis=0>(past, x) y = Neg(past) }",
        "reads past too",
    ),
    "an input whose rows are moved": (
        "g (float[n,4] x, float[p,4] past) => (float y, float present) "
        "{ y = Neg(x) present = Concat<axis=0>(x, past) }",
        "reads x too",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_outputs_are_arrays(name: str) -> None:
    text, reason = REFUSED[name]
    exe = gf.compile(parsed_model(text), sizes={"n": (1, 3), "p": (1, 8)}, options=OPTIONS)
    bound, x, past = exe.bind(), rows(2)[0], rows(3, 1)[0]
    found = bound.run({"x": x, "past": past})
    wanted = exe.run({"x": x, "past": past})
    for output, array in wanted.items():
        assert isinstance(found[output], np.ndarray)
        np.testing.assert_array_equal(found[output], array)
    reasons = [one["why_not"] for one in exe.specializations[0].report()["states"]]
    assert all(reason in one for one in reasons) and (reasons or not reason)


def test_a_cache_of_one_size_is_updated_in_place() -> None:
    """Rows at given places are written over: what a run took back is no more behind it."""
    text = (
        "g (float[6,4] cache, int64[2,1] at, float[2,4] new) => (float[6,4] updated) "
        "{ updated = ScatterND(cache, at, new) }"
    )
    exe = gf.compile(parsed_model(text), options=OPTIONS)
    bound, cache = exe.bind(), rows(6)[0]
    at, new = np.array([[4], [1]]), rows(2, 1)[0]
    states = exe.report()["states"]
    first = bound.run({"cache": cache, "at": at, "new": new})["updated"]
    cache[[4, 1]] = new
    np.testing.assert_array_equal(first, cache)
    second = bound.run({"cache": first, "at": np.array([[0], [5]]), "new": new})["updated"]
    cache[[0, 5]] = new
    np.testing.assert_array_equal(second, cache)
    if states and states[0]["in_place"]:
        assert bound.copied == 0 and not first.is_there


def test_outputs_are_written_into_arrays_of_the_caller(exe: gf.Executable) -> None:
    bound, x = exe.bind(), rows(2)
    state = bound.run({"x": x, "past": rows(3)})["present"]
    past, out = np.array(state), {"y": np.zeros_like(x), "present": np.zeros_like(rows(7))}
    found = bound.run({"x": x, "past": state}, out=out)
    check(out, past, x)
    assert all(found[name] is array for name, array in out.items()) and bound.copied == 0
    with pytest.raises(InvalidModel, match="out gives"):
        bound.run({"x": x, "past": state}, out={"present": rows(2).astype(np.int32)})
    check(bound.run({"x": x, "past": state}), past, x)


def test_states_that_are_kept_stay_what_they_were(exe: gf.Executable) -> None:
    bound = exe.bind(keep=True)
    first = bound.run({"x": rows(2), "past": rows(1)})["present"]
    wanted = np.array(first)
    second = bound.run({"x": rows(1, 1), "past": rows(3, 2)})["present"]
    np.testing.assert_array_equal(first, wanted)
    past = np.array(second)
    check(bound.run({"x": rows(1), "past": first}), wanted, rows(1))
    check(bound.run({"x": rows(1), "past": second}), past, rows(1))


def test_a_run_whose_states_are_in_place_checks_no_more_than_it_must(
    exe: gf.Executable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such runs do without `StateRun.run`, also of shapes that no run had before."""
    calls = list[set[str]]()
    run = StateRun.run

    def counted(self: StateRun, inputs: Any, in_place: Any, out: Any = None) -> dict[str, Any]:
        calls.append(set(in_place))
        return run(self, inputs, in_place, out)

    monkeypatch.setattr(StateRun, "run", counted)
    bound, x = exe.bind(), rows(1)
    first = bound.run({"x": x, "past": rows(2)})["present"]
    past = np.concatenate([rows(2), x], 1)
    second = bound.run({"x": x, "past": first})
    check(second, past, x)
    check(bound.run({"x": x, "past": second["present"]}), np.concatenate([past, x], 1), x)
    check(bound.run({"x": x, "past": first}, out={}), past, x)
    assert calls == [set()]
    check(bound.run({"x": x.astype(">f4"), "past": first}), past, x)
    with pytest.raises(
        InvalidModel,
        match=r"expects float32\[b, n, 4\].* past: float32\[b, p, 4\]$",
    ):
        bound.run({"x": x.astype(np.float64), "past": first})
    check(bound.run({"x": x, "past": first}, out={"y": np.empty_like(x)}), past, x)
    assert calls == [set(), {"past"}, {"past"}, {"past"}]


@pytest.mark.parametrize("way", ["run_plainly", "run"])
def test_a_run_without_memory_says_so(
    exe: gf.Executable, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("Unable to allocate 64 GiB")

    bound = exe.bind()
    state = bound.run({"x": rows(2), "past": rows(1)})["present"]
    wanted = np.array(state)
    past = {"run_plainly": state, "run": rows(2)}[way]
    with monkeypatch.context() as patched:
        patched.setattr(StateRun, way, fails)
        with pytest.raises(GraphflowError, match="memory ran out in a run: Unable to allocate"):
            bound.run({"x": rows(1), "past": past})
    check(bound.run({"x": rows(1), "past": state}), wanted, rows(1))
