"""Row A6 of the RFC in a kernel: padding that nobody touches is elided."""

from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.errors import ScheduleError
from graphflow.layout import IndexMap, Layout, blocked
from graphflow.schedule import (
    Schedule,
    cache_read,
    cache_write,
    elide_padding,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    transform_layout,
)
from graphflow.schedule.places.obligations import Unproven
from graphflow.tir import interpret, parse, to_text
from support.schedule_checks import kernel, same

PACKED = blocked((14,), 0, 4)
FRONT = Layout.of(IndexMap.from_function(1, lambda i: [(i + 2) // 8, (i + 2) % 8]), (14,))

DOUBLE = """
with block("compute"):
    for i in serial(0, 14):
        y[i] = i32(2) * x[i]
"""
FOURTEEN = "x: i32[14], y: out[i32[14]]"


def cached(layout: Layout, pad_in: Any = None, pad_out: Any = None) -> Schedule:
    s = Schedule.of(kernel(DOUBLE, FOURTEEN)).apply(cache_read, "x", "xc")
    s = s.apply(cache_write, "y", "yc").apply(transform_layout, "xc", layout, pad_in)
    return s.apply(transform_layout, "yc", layout, pad_out)


@pytest.mark.parametrize("layout", [PACKED, FRONT])
@pytest.mark.parametrize("pad", [None, "undef", 0])
def test_a6_a_copy_whose_padding_nobody_touches_is_flat(layout: Layout, pad: Any) -> None:
    before = cached(layout, pad, pad)
    func = kernel(DOUBLE, FOURTEEN)
    s = before.apply(elide_padding, "xc", layout).apply(elide_padding, "yc", layout)
    assert "padding" in to_text(before.func)
    text = same(func, s)
    assert "xc = alloc(i32[14])" in text and "yc = alloc(i32[14])" in text
    assert "yc[i] = i32(2) * xc[i]" in text and "padding" not in text


def test_a6_a_parameter_becomes_what_it_was_before_it_was_transformed() -> None:
    func = kernel(DOUBLE, FOURTEEN)
    there = (
        Schedule.of(func).apply(transform_layout, "x", FRONT).apply(transform_layout, "y", FRONT)
    )
    assert there.func.param("x").shape == (2, 8)
    back = there.apply(elide_padding, "x", FRONT).apply(elide_padding, "y", FRONT)
    assert to_text(back.func) == to_text(func)
    x = np.arange(14, dtype="int32")
    np.testing.assert_array_equal(gf.build(back, threads=1).run({"x": x})["y"], 2 * x)


def test_a6_flat_memory_is_what_lies_behind_the_padding_in_front() -> None:
    """The elements of the box, in memory, from the offset of the first one on."""
    func = kernel(DOUBLE, FOURTEEN)
    there = Schedule.of(func).apply(transform_layout, "x", FRONT).func
    memory = np.full(16, -99, dtype="int32")
    memory[2:] = np.arange(14)
    flat = elide_padding(there, "x", FRONT).func
    np.testing.assert_array_equal(
        interpret(flat, {"x": memory[2:]})["y"], interpret(there, {"x": memory.reshape(2, 8)})["y"]
    )


# The clauses --------------------------------------------------------------------------------------


def test_box_the_buffer_has_the_box_of_the_layout() -> None:
    with pytest.raises(ScheduleError, match=r"box: xc is \[4, 4\], and the box of .* is \[2, 8\]"):
        elide_padding(cached(PACKED).func, "xc", FRONT)


def test_one_piece_rows_that_are_padded_lie_apart() -> None:
    func = kernel(
        "for i in serial(0, 3):\n    for j in serial(0, 6):\n        y[i, j] = x[i, j]",
        "x: i32[3, 6], y: out[i32[3, 6]]",
    )
    rows = Layout.of(IndexMap.split(2, 1, 4), (3, 6))
    s = Schedule.of(func).apply(transform_layout, "x", rows)
    with pytest.raises(Unproven, match="one piece: x holds its elements in order") as refused:
        elide_padding(s.func, "x", rows)
    witness = dict(refused.value.proof.witness)
    assert witness["i0"] >= 1
    turned = Layout.of(IndexMap.permute((1, 0)), (3, 6))
    s = Schedule.of(func).apply(transform_layout, "x", turned)
    with pytest.raises(Unproven, match="one piece"):
        elide_padding(s.func, "x", turned)


def test_untouched_a_kernel_over_the_whole_box_reads_and_writes_its_padding() -> None:
    s = cached(PACKED, 0, "undef")
    s = s.apply(sequential_buffer_access, "compute", "yc", ("io", "ii"))
    s = s.apply(remove_branching_through_overcompute, "compute")
    for buffer in ("xc", "yc"):
        with pytest.raises(Unproven, match=f"the padding of {buffer} is not touched") as refused:
            elide_padding(s.func, buffer, PACKED)
        witness = dict(refused.value.proof.witness)
        assert (witness["io"], witness["ii"]) in ((3, 2), (3, 3))


def test_untouched_data_may_lead_to_the_padding() -> None:
    func = parse(
        """
        @primfunc
        def k(x: i32[4, 4], j: i32[1], y: out[i32[1]]):
            y[0] = x[0, 0]
            if data(j[0] == i32(0)):
                y[0] = x[3, 3]
        """
    )
    with pytest.raises(Unproven, match=r"untouched: .* where data decide, x\[3, 3\]"):
        elide_padding(func, "x", PACKED)


def test_untouched_the_caller_reads_the_zeros_of_an_output() -> None:
    s = Schedule.of(kernel(DOUBLE, FOURTEEN)).apply(transform_layout, "y", PACKED, 0)
    with pytest.raises(ScheduleError, match="untouched: y_padding writes what the caller reads"):
        elide_padding(s.func, "y", PACKED)


def test_untouched_an_assumption_may_be_about_the_padding() -> None:
    func = parse(
        """
        @primfunc
        def k(x: f32[4, 4], y: out[f32[14]]):
            for a in serial(0, 4):
                for b in serial(0, {b}):
                    assume(unless(False), x[a, b] > f32(0.0))
            for i in serial(0, 14):
                y[i] = x[i // 4, i % 4]
        """.replace("{b}", "4")
    )
    with pytest.raises(ScheduleError, match="is no assumption about padding") as refused:
        elide_padding(func, "x", PACKED)
    assert isinstance(refused.value, Unproven)
    assert dict(refused.value.proof.witness)["a"] == 3
    kept = parse(to_text(func).replace("serial(0, 4)", "serial(0, 2)"))
    assert "x[4*a + b]" in to_text(elide_padding(kept, "x", PACKED).func)


def test_a6_a_scalar_in_a_box_is_a_scalar_again() -> None:
    box = Layout.of(IndexMap.from_function(0, lambda: [1]), (), (3,))
    func = kernel("y[()] = x[()]", "x: f32[()], y: out[f32[()]]")
    s = Schedule.of(func).apply(transform_layout, "x", box, "undef")
    assert s.func.param("x").shape == (3,)
    assert same(func, s.apply(elide_padding, "x", box)) == to_text(func)


def test_places_survive() -> None:
    s = cached(PACKED)
    held = [s.handle(name) for name in ("xc", "compute", "i", "yc_padding")]
    done = s.apply(elide_padding, "xc", PACKED)
    assert [done[handle] for handle in held] == [handle.name for handle in held]
    gone = s.handle("xc_padding")
    with pytest.raises(ScheduleError, match="xc_padding is gone: elide_padding"):
        done[gone]
