"""Tests of staging, binding, lifting and caching: where they apply, where they refuse, and
traps."""

from collections.abc import Callable

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import ScheduleError
from graphflow.layout import blocked, row_major
from graphflow.schedule import (
    Schedule,
    cache_read,
    cache_write,
    fuse,
    lift_alloc,
    marked_stage,
    stage_mem,
    transform_layout,
)
from graphflow.tir import Block, interpret
from support.schedule_checks import kernel, same

Golden = Callable[[str, str], None]

SUMS = """
for i in serial(0, 4):
    for j in serial(0, 4):
        y[4*i + j] = i32(1)
        for k in serial(0, 3):
            y[4*i + j] += x[k + j] * x[i]
"""


# -- stage_mem


def test_stage_mem_of_an_output(golden: Golden) -> None:
    func = kernel(SUMS)
    golden("stage_output", same(func, stage_mem(func, "i", "y", "t", ("j",))))


def test_stage_mem_of_a_private_buffer_is_not_stored_back(golden: Golden) -> None:
    func = kernel(
        """
t = alloc(i32[4, 4])
for i in serial(0, 4):
    for j in serial(0, 4):
        t[i, j] = x[4*i + j]
        t[i, j] *= x[j]
        y[4*i + j] = t[i, j]
"""
    )
    golden("stage_private", same(func, stage_mem(func, "i", "t", "r", ("j",))))


@pytest.mark.parametrize("reads", [range(4), range(2, 4)])
def test_stage_mem_stores_back_what_any_of_several_stores_leaves_for_others(reads: range) -> None:
    """Stores of equal indices reach different elements; that the last one reaches none is nothing
    about the first."""
    func = kernel(
        f"""
t = alloc(i32[4])
for i in serial(0, 4):
    t[i] = x[i]
    if i < 2:
        for k in serial(0, 3):
            if k > i + 3:
                t[i] += x[k]
for j in serial({reads.start}, {reads.stop}):
    y[j] = t[j]
"""
    )
    assert "t[i] = r[()]" in same(func, stage_mem(func, "i", "t", "r", ()))


def test_stage_mem_loads_first_what_is_not_stored_first(golden: Golden) -> None:
    func = kernel(
        """
for z in serial(0, 16):
    y[z] = i32(0)
for i in serial(0, 4):
    for j in serial(0, 3):
        if i + j < 5:
            y[4*i + j] += x[j]
"""
    )
    golden("stage_loaded", same(func, stage_mem(func, "i", "y", "t", ("j",))))


def test_stage_mem_of_an_input_loads_only(golden: Golden) -> None:
    func = kernel(
        """
for z in serial(0, 16):
    y[z] = i32(0)
for i in serial(0, 4):
    for e in serial(2, 4):
        y[4*i + e] = x[4*i + e] * x[4*i + e]
"""
    )
    golden("stage_input", same(func, stage_mem(func, "i", "x", "t", ("e",))))


def test_stage_mem_knows_the_outer_loop_inside_floors() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[(8*i + 2*j) // 2] = x[j]"
    )
    same(func, stage_mem(func, "i", "y", "t", ("j",)))
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[(i + 3*j) // 2] = x[j]"
    )
    # For even i the elements are 0, 1, 3, 4 further on, for odd i 0, 2, 3, 5: apart in both.
    same(func, stage_mem(func, "i", "y", "t", ("j",)))


def test_stage_mem_refuses_indices_that_vary_beyond_the_dims() -> None:
    func = kernel(SUMS)
    with pytest.raises(ScheduleError, match=r"the indices of y use j, not among \(\)"):
        stage_mem(func, "i", "y", "t", ())
    with pytest.raises(ScheduleError, match="z is not a loop inside i"):
        stage_mem(func, "i", "y", "t", ("z",))
    with pytest.raises(ScheduleError, match="k has no buffer z"):
        stage_mem(func, "j", "z", "t", ())


def test_a_value_carried_to_the_next_iteration_is_loaded_and_stored() -> None:
    func = kernel(
        """
t = alloc(i32[1])
for i in serial(0, 16):
    for d in serial(0, 1):
        if i < 1:
            t[d] = i32(0)
        t[d] += x[i]
        y[i] = t[d]
"""
    )
    text = same(func, stage_mem(func, "i", "t", "s", ("d",)))
    assert "s[d_in] = t[d_in]" in text
    assert "t[d_out] = s[d_out]" in text


def test_accesses_under_other_conditions_than_the_first_are_staged_too() -> None:
    func = kernel(
        """
for z in serial(0, 16):
    y[z] = x[z]
for i in serial(0, 2):
    for d in serial(0, 8):
        if d < 4:
            y[8*i + d] = x[d]
        if d >= 4:
            y[8*i + d] += x[d]
"""
    )
    same(func, stage_mem(func, "i", "y", "t", ("d",)))


def test_stage_mem_does_not_make_threads_write_what_they_did_not() -> None:
    func = kernel(
        """
for z in serial(0, 16):
    y[z] = x[z]
for i in parallel(0, 2):
    for d in serial(0, 8):
        if d // 4 == i:
            y[d] = x[d] * x[d]
"""
    )
    # Guarded by i the elements are apart, and the copies keep that guard.
    same(func, stage_mem(func, "i", "y", "t", ("d",)))
    func = kernel(
        """
for z in serial(0, 16):
    y[z] = x[z]
for i in parallel(0, 2):
    for d in serial(0, 8):
        if d // 4 == i:
            y[d] = x[d] * x[d]
        if d // 4 == i and d < 7:
            y[d] += i32(1)
"""
    )
    same(func, stage_mem(func, "i", "y", "t", ("d",)))
    nested = kernel(
        """
for z in serial(0, 16):
    y[z] = x[z]
for i in parallel(0, 2):
    for d in serial(0, 8):
        for k in serial(0, 2):
            if d // 4 == i and k + d < 9 and 4*i + k <= d + k:
                y[d] = x[d] * x[d]
            if d // 4 + k == i + k and k < 1:
                y[d] += i32(1)
"""
    )
    same(nested, stage_mem(nested, "i", "y", "t", ("d",)))
    unguarded = kernel(
        """
for z in serial(0, 16):
    y[z] = x[z]
for i in parallel(0, 2):
    for d in serial(0, 8):
        if 4*i <= d and d < 4*i + 4:
            y[d] = x[d] * x[d]
        for k in serial(0, 2):
            if 4*i + k <= d and d < 4*i + k + 1:
                y[d] += i32(1)
"""
    )
    with pytest.raises(ScheduleError, match="the iterations of i are independent does not hold"):
        stage_mem(unguarded, "i", "y", "t", ("d",))


def test_stage_mem_calls_its_loops_otherwise_where_their_names_are_taken() -> None:
    func = kernel(
        "for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[4*i + j] += x[4*i + j]"
    )
    once = stage_mem(func, "i", "y", "t", ("j",))
    assert once.made == {"buffer": ("t",), "load": ("j_in",), "store": ("j_out",)}
    twice = stage_mem(once.func, "i", "x", "s", ("j",))
    assert twice.made == {"buffer": ("s",), "load": ("j_in_2",), "store": ()}
    same(func, twice)


def test_stage_mem_needs_a_fresh_name_and_no_lanes() -> None:
    func = kernel(SUMS)
    with pytest.raises(ScheduleError, match="uses the name x already"):
        stage_mem(func, "i", "y", "x", ("j",))
    lanes = kernel("for i in vectorized(0, 16):\n    y[i] = x[i]")
    with pytest.raises(ScheduleError, match="the iterations of i are lanes"):
        stage_mem(lanes, "i", "y", "t", ())


# -- lift_alloc


ALLOCATED = """
for i in {kind}(0, 4):
    for j in serial(0, 4):
        t = alloc(i32[2])
        t[0] = x[i + j]
        t[1] = t[0] * x[j]
        y[4*i + j] = t[1] + t[0]
"""


def test_lift_alloc(golden: Golden) -> None:
    func = kernel(ALLOCATED.format(kind="serial"))
    golden("lift_alloc", same(func, lift_alloc(func, "t", 2)))


def test_lift_alloc_where_stores_and_loads_have_the_same_condition() -> None:
    """The first access is under a condition, so the dataflow decides."""
    func = kernel(
        "for i in serial(0, 8):\n    t = alloc(i32[1])\n    if i % 2 == 0:\n        t[0] = x[i]\n"
        "    if 2*(i // 2) == i:\n        y[i] = t[0]"
    )
    text = same(func, lift_alloc(func, "t"))
    assert text.index("alloc") < text.index("for i")


@pytest.mark.parametrize("kind", ["parallel", "vectorized"])
def test_lift_alloc_does_not_share_a_buffer_between_threads(kind: str) -> None:
    func = kernel(ALLOCATED.format(kind=kind))
    once = lift_alloc(func, "t").func
    with pytest.raises(ScheduleError, match="the iterations of i run at once, and would share t"):
        lift_alloc(once, "t")


# -- caches


def test_cache_read_and_write(golden: Golden) -> None:
    func = kernel("for i in serial(0, 15):\n    y[i] = x[i + 1]\ny[15] = x[0]")
    done = cache_write(cache_read(func, "x", "xc").func, "y", "yc")
    golden("caches", same(func, done))


def test_caches_are_for_parameters_without_padding() -> None:
    func = kernel("for i in serial(0, 14):\n    y[i] = x[i]", "x: i32[14], y: out[i32[14]]")
    with pytest.raises(ScheduleError, match="y is not an input of k"):
        cache_read(func, "y", "c")
    with pytest.raises(ScheduleError, match="x is not an output of k"):
        cache_write(func, "x", "c")
    with pytest.raises(ScheduleError, match="uses the name i already"):
        cache_read(func, "x", "i")
    # The copy would read padding that nobody may touch, and the copy's own would be unknown.
    padded = transform_layout(func, "x", blocked((14,), 0, 4), None).func
    with pytest.raises(ScheduleError, match="x has padding, which the copy would touch"):
        cache_read(padded, "x", "xc")
    padded = transform_layout(func, "y", blocked((14,), 0, 4), 0).func
    with pytest.raises(ScheduleError, match="y has padding, which the copy would touch"):
        cache_write(padded, "y", "yc")


@pytest.mark.parametrize(
    "body",
    [
        "for i in serial(0, 16):\n    y[i] = y[i] + x[i]",
        "for i in serial(0, 16):\n    if i < 5:\n        y[i] = x[i]",
        "for i in serial(0, 16):\n    if data(x[i] < i32(0)):\n        y[i] += x[15 - i]",
        "y[3] = x[7]",
    ],
)
def test_a_cache_of_an_inout_parameter_begins_as_what_the_caller_gives(body: str) -> None:
    func = kernel(body, "x: i32[16], y: inout[i32[16]]")
    done = cache_write(func, "y", "yc")
    assert done.made == {"buffer": ("yc",), "block": ("yc_copy",), "load": ("yc_load",)}
    same(func, done)
    x, y = np.arange(-8, 8, dtype="int32"), np.arange(100, 116, dtype="int32")
    wanted = interpret(func, {"x": x, "y": y})["y"]
    s = Schedule.of(func).cache_write("y", "yc")
    for steps in (
        s,
        s.vectorize_loop("yc_load_0"),
        s.unroll_loop("yc_load_0").unroll_loop("yc_copy_0"),
        s.cut_loop("yc_load_0", 5, "_c").cut_loop("yc_copy_0", 7, "_d"),
        s.divide_loop("yc_copy_0", 4, ("a", "b"), "perfect").parallelize_loop("a"),
        s.cache_read("x", "xc").cache_write("y", "again"),
        s.set_memory("yc", "scratch").set_precision("yc", "int64"),
    ):
        got = gf.build(steps, threads=2, options=gf.Options(validate=True, cache="off"))
        np.testing.assert_array_equal(got.run({"x": x, "y": y})["y"], wanted)


def test_copies_that_later_steps_change_stay_in_the_kernel() -> None:
    func = kernel(
        "for i in serial(0, 11):\n    for j in serial(0, 7):\n"
        "        y[i, j] = x[10 - i, j] + i32(1)",
        "x: i32[11, 7], y: out[i32[11, 7]]",
    )
    x = np.arange(77, dtype="int32").reshape(11, 7)
    read, write = Schedule.of(func).cache_read("x", "c"), Schedule.of(func).cache_write("y", "c")
    lifted = [read.cut_loop("c_copy_0", 5, "_c"), write.cut_loop("c_copy_0", 5, "_c")]
    stays = [
        read.set_precision("c", "int64"),
        read.unroll_loop("c_copy_0"),
        write.unroll_loop("c_copy_1"),
        read.divide_loop("c_copy_0", 4, ("a", "b"), "guard"),
        read.vectorize_loop("c_copy_1").set_precision("c", "int64"),
    ]
    for s in (*lifted, *stays):
        exe = gf.build(s, options=gf.Options(cache="off"))
        np.testing.assert_array_equal(exe.run({"x": x})["y"], x[::-1] + 1)
    for s, name in zip(lifted, "xy", strict=True):
        stages = marked_stage(s.func, name)
        assert stages is not None and stages.layout == row_major((11, 7))


def test_caches_without_a_mark_are_stages_like_others() -> None:
    func = kernel('with block("a"):\n    for i in serial(0, 16):\n        y[i] = x[i]')
    marked, plain = (
        cache_write(cache_read(func, "x", "xc", liftable).func, "y", "yc", liftable).func
        for liftable in (True, False)
    )
    notes = [[bool(b.annotations) for b in f.body if isinstance(b, Block)] for f in (marked, plain)]
    assert notes == [[True, False, True], [False] * 3]
    with pytest.raises(ScheduleError, match="annotations"):
        fuse(marked, "xc_copy", "a")
    same(func, fuse(fuse(plain, "xc_copy", "a").func, "xc_copy", "yc_copy"))


def test_cache_names_of_the_copy_are_fresh() -> None:
    func = kernel(
        'with block("c_copy"):\n    for c_copy_0 in serial(0, 16):\n'
        "        y[c_copy_0] = x[c_copy_0]"
    )
    done = cache_read(func, "x", "c")
    assert done.made == {"buffer": ("c",), "block": ("c_copy_2",)}
    same(func, done)
