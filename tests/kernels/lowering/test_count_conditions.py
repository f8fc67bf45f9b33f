"""Tests of conditions on counts: what a kernel does not compute behind a count, and that it gives
the same as without conditions, in native code too, where loops end at the count."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.codegen import host_target
from graphflow.kernels.lowering.count_conditions import with_count_conditions
from support.native import Native

STAGES = """
@primfunc
def rows(x: f32[3, 20], count: i64[()], y: out[f32[3, 20]]):
    powers = alloc(f32[20], scratch)
    total = alloc(f32[1], scratch)
    for r in serial(0, 3):
        for e in serial(0, 5):
            for v in vectorized(0, 4):
                powers[4*e + v] = select(data(index(4*e + v, i64) < count[()]), exp(x[r, 4*e + v]), f32(0.0))
        total[0] = f32(0.0)
        for s in serial(0, 5):
            for v_1 in vectorized(0, 4):
                total[0] += powers[4*s + v_1]
        for d in serial(0, 5):
            for v_2 in vectorized(0, 4):
                y[r, 4*d + v_2] = select(data(index(4*d + v_2, i64) < count[()]), powers[4*d + v_2] / total[0], f32(0.0))
"""  # noqa: E501

WIDER = STAGES.replace("serial(0, 5):\n            for v_1 in vectorized(0, 4)", "S").replace(
    "for s in S:\n                total[0] += powers[4*s + v_1]",
    "for s in serial(0, 2):\n            for v_1 in vectorized(0, 10):\n"
    "                total[0] += powers[10*s + v_1]",
)
"""The sum reads ten elements at once, of which some stand in pieces behind the count."""

UNMASKED = STAGES.replace("f32(0.0))\n        total", "f32(1.0))\n        total")
"""What stands behind the count is not neutral to the sum."""


IN_PLACE = """
@primfunc
def rows(x: f32[3, 20], count: i64[()], y: out[f32[3, 20]]):
    held = alloc(f32[20], scratch)
    total = alloc(f32[4], register)
    for r in serial(0, 3):
        for e in serial(0, 20):
            held[e] = x[r, e]
        for t in vectorized(0, 4):
            total[t] = f32(0.0)
        for p in serial(0, 5):
            for v in vectorized(0, 4):
                held[4*p + v] = select(data(index(4*p, i64) < count[()]), exp(held[4*p + v]), f32(0.0))
                total[v] += held[4*p + v]
        for d in serial(0, 20):
            y[r, d] = select(data(index(d, i64) < count[()]), held[d] / (total[0] + total[1] + total[2] + total[3]), f32(0.0))
"""  # noqa: E501
"""Powers take the place of what they are of, and are added up in the same vectors."""


def counted_indices(func: tir.PrimFunc) -> list[str]:
    """The indices that are compared with the count, in program order."""
    tests = (stmt.condition for stmt in tir.walk(func.body) if isinstance(stmt, tir.If))
    return [
        str(test.left.index)
        for test in tests
        if isinstance(test, tir.Comparison) and isinstance(test.left, tir.IndexValue)
    ]


def expected(x: np.ndarray, count: int) -> np.ndarray:
    y, powers = np.zeros_like(x), np.exp(x[:, :count])
    y[:, :count] = powers / powers.sum(axis=1, keepdims=True)
    return y


def drawn(count: int) -> np.ndarray:
    x = np.random.default_rng(count).standard_normal((3, 20)).astype(np.float32)
    x[:, count:] = np.nan
    return x


def test_stages_have_conditions_on_what_stands_before_the_count() -> None:
    made = with_count_conditions(tir.parse(STAGES.strip()))
    # Vectors that the count cuts keep their mask.
    assert counted_indices(made) == ["4*e", "4*e + 3", "4*s", "4*d", "4*d + 3"]


@pytest.mark.parametrize("text", [STAGES, WIDER])
@pytest.mark.parametrize("count", [1, 3, 4, 5, 16, 19, 20])
def test_a_kernel_gives_the_same_with_conditions(text: str, count: int) -> None:
    func = tir.parse(text.strip())
    made = with_count_conditions(func)
    tir.verify(made, "lowered")
    assert made is not func
    given = {"x": drawn(count), "count": np.array(count, np.int64)}
    np.testing.assert_allclose(tir.interpret(made, given)["y"], expected(given["x"], count), 1e-5)


def test_what_a_wider_read_may_reach_is_written() -> None:
    made = with_count_conditions(tir.parse(WIDER.strip()))
    assert not any("4*e" in text for text in counted_indices(made))


def test_what_is_not_neutral_is_reduced() -> None:
    made = with_count_conditions(tir.parse(UNMASKED.strip()))
    assert not any("4*s" in text or "4*e" in text for text in counted_indices(made))


@pytest.mark.parametrize("count", [-3, 0, 1, 4, 17, 20, 21, 2**62, -(2**63)])
def test_loops_of_native_code_end_at_the_count(count: int) -> None:
    made = with_count_conditions(tir.parse(STAGES.strip()))
    loops = [loop for loop in tir.loops_of(made.body) if tir.counted_index(loop) is not None]
    assert [loop.var.name for loop in loops] == ["e", "s"]
    native = Native(made, host_target())
    given = {"x": drawn(min(max(count, 0), 20)), "count": np.array(count, np.int64)}
    np.testing.assert_allclose(
        native(given)["y"], expected(given["x"], min(max(count, 0), 20)), 1e-5
    )


@pytest.mark.parametrize("count", [4, 8, 12, 20])
def test_what_takes_the_place_of_what_it_reads_is_computed_before_the_count(count: int) -> None:
    func = tir.parse(IN_PLACE.strip())
    made = with_count_conditions(func)
    tir.verify(made, "lowered")
    # One condition around both statements of a vector; elements that are not stored are not read.
    assert [text for text in counted_indices(made) if "p" in text] == ["4*p"]
    x = np.random.default_rng(count).standard_normal((3, 20)).astype(np.float32)
    given = {"x": x, "count": np.array(count, np.int64)}
    found = tir.interpret(made, given)["y"]
    np.testing.assert_allclose(found, expected(x, count), 1e-5)


@pytest.mark.parametrize("count", [1, 6, 8, 19, 20])
def test_a_sum_of_what_each_lane_has_just_stored_ends_at_the_count(count: int) -> None:
    """Its own lanes count, not those of the loop of the store."""
    func = tir.parse(IN_PLACE.replace("index(4*p, i64)", "index(4*p + v, i64)").strip())
    made = with_count_conditions(func)
    tir.verify(made, "lowered")
    assert "4*p" in counted_indices(made)
    x = np.random.default_rng(count).standard_normal((3, 20)).astype(np.float32)
    found = tir.interpret(made, {"x": x, "count": np.array(count, np.int64)})["y"]
    np.testing.assert_allclose(found, expected(x, count), 1e-5)


def test_a_sum_of_more_lanes_than_were_just_stored_runs() -> None:
    """The last lane of each vector is not stored, nor zero behind the count."""
    store, update = (line for line in IN_PLACE.splitlines() if line.startswith(" " * 16))
    loop = " " * 12 + "for w in vectorized(0, 4):\n"
    split = f"{' ' * 16}if v < 3:\n    {store}\n{loop}{update.replace('v]', 'w]')}"
    func = tir.parse(IN_PLACE.replace(f"{store}\n{update}", split).strip())
    made = with_count_conditions(func)
    assert not any("p" in index for index in counted_indices(made))
    given = {"x": np.ones((3, 20), np.float32), "count": np.array(4, np.int64)}
    found, plain = (tir.interpret(each, given)["y"] for each in (made, func))
    np.testing.assert_array_equal(found, plain)


def test_what_reads_another_element_beside_its_own_place_needs_all() -> None:
    """The last element before the count takes in one behind it."""
    read = "exp(held[4*p + v])"
    assert read in IN_PLACE
    shifted = IN_PLACE.replace(read, "exp(held[4*p + v]) + held[(4*p + v + 1) % 20]")
    made = with_count_conditions(tir.parse(shifted.strip()))
    assert not any("e" in text for text in counted_indices(made))


def test_a_sum_of_what_was_stored_under_another_condition_runs() -> None:
    store = "                held[4*p + v] = select("
    text = IN_PLACE.replace(store, f"                if data(x[r, 0] < f32(0.0)):\n    {store}")
    made = with_count_conditions(tir.parse(text.strip()))
    assert not any("4*p" in index for index in counted_indices(made))


def test_a_sum_of_what_another_lane_has_stored_stays_behind_all_lanes() -> None:
    crossed = IN_PLACE.replace("total[v] += held[4*p + v]", "total[v] += held[4*p]")
    made = with_count_conditions(tir.parse(crossed.strip()))
    loops = [x for x in tir.loops_of(made.body) if x.kind is tir.LoopKind.VECTORIZED]
    assert any(len(loop.body) == 2 for loop in loops)
