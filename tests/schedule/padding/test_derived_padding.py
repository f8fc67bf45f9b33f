"""Padding that needs no stage: what a kernel leaves there by itself, and where that is refused."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphflow as gf
from graphflow.base.errors import InvalidModel, ScheduleError
from graphflow.base.options import Options
from graphflow.schedule import Schedule, derive_padding, transform_layout
from graphflow.schedule.places.obligations import Unproven
from graphflow.tir import PrimFunc, interpret, parse, to_text
from support.schedule_checks import kernel
from support.schedules.halo_convolutions import (
    FILTER,
    NUMPY,
    branch_free,
    convolved,
    halo,
    in_rows,
    numbers,
    over_halos,
)
from support.schedules.scheduled_chains import elementwise, packed

Golden = Callable[[str, str], None]


def stage(func: PrimFunc, buffer: str) -> str:
    """The text of the last stage of the padding of `buffer`, or the first, without its name."""
    blocks = to_text(func).split("    with block(")
    (found,) = (block for block in blocks if block.startswith(f'"{buffer}_padding"'))
    return found.strip().replace(f"{buffer}_padding", "padding").replace(f"{buffer}[", "[")


# C5: a convolution that chains into itself --------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMPY)
def test_c5_no_branch_is_left_and_nothing_writes_the_padding(dtype: str, golden: Golden) -> None:
    func = branch_free(16, dtype).func
    golden(f"rfc_c5_{dtype}", to_text(func))
    compute = to_text(func).split('block("compute")')[1].split("with block")[0]
    assert "if" not in compute.replace("diff", "") and "% 3" in compute
    assert "assume" in stage(func, "y") and "y[" not in stage(func, "y").split("assume")[0]


@pytest.mark.parametrize("dtype", NUMPY)
def test_c5_what_one_convolution_leaves_is_what_the_next_assumes(dtype: str) -> None:
    first, second, third = (branch_free(n, dtype, 3).func for n in (14, 16, 18))
    for before, after in ((first, second), (second, third)):
        left, assumed = stage(before, "y"), stage(after, "x")
        assert left.replace('"y"', '"x"') == assumed


@settings(max_examples=12, deadline=None)
@given(st.integers(5, 18), st.integers(0, 2), st.sampled_from(sorted(NUMPY)))
def test_c5_chained_over_any_length_that_fits(extent: int, more: int, dtype: str) -> None:
    count = halo(extent + 4).physical_shape[0] + more
    x, f = numbers(extent, dtype), np.array(FILTER, NUMPY[dtype])
    box = in_rows(x, count)
    for n in (extent, extent + 2):
        box = interpret(branch_free(n, dtype, count).func, {"x": box, "f": f})["y"]
    np.testing.assert_array_equal(box, in_rows(convolved(x, 2), count))


@pytest.mark.parametrize("dtype", NUMPY)
@pytest.mark.parametrize("extent", [16, 14, 11])
def test_c5_natively(extent: int, dtype: str) -> None:
    x, f = numbers(extent, dtype), np.array(FILTER, NUMPY[dtype])
    box = in_rows(x, 3)
    for n in (extent, extent + 2):
        box = gf.build(branch_free(n, dtype, 3), threads=1).run({"x": box, "f": f})["y"]
    np.testing.assert_array_equal(box, in_rows(convolved(x, 2), 3))


def test_c5_the_halo_is_checked_where_that_is_asked_for() -> None:
    executable = gf.build(branch_free(16), threads=1, options=Options(check_assumes=True))
    box, f = in_rows(numbers(16)), np.array(FILTER, "int32")
    executable.run({"x": box, "f": f})
    box[2, 7] = 1
    with pytest.raises(InvalidModel, match=r"x was assumed to be equal to 0 .* x\[2, 7\] is 1"):
        executable.run({"x": box, "f": f})


def test_c5_in_floats_the_filter_must_be_finite() -> None:
    with pytest.raises(ScheduleError, match=r"nothing is known of f\[k\]"):
        branch_free(16, "f32", finite=False)


# The clauses --------------------------------------------------------------------------------------


def test_constant_a_stage_that_stores_anything_gives_nothing_to_derive() -> None:
    func = kernel("for i in serial(0, 14):\n    y[i] = x[i]", "x: i32[14], y: out[i32[14]]")
    rows = Schedule.of(func).apply(transform_layout, "y", lambda i: (i // 4, i % 4), "undef").func
    with pytest.raises(ScheduleError, match="constant: the stage y_padding stores undef"):
        derive_padding(rows, "y")
    with pytest.raises(ScheduleError, match="y has no padding stage of its own"):
        derive_padding(func, "y")


def test_constant_a_stage_that_calls_what_stores_the_constant() -> None:
    func = kernel("for i in serial(0, 14):\n    y[i] = x[i]", "x: i32[14], y: out[i32[14]]")
    s = Schedule.of(func).apply(transform_layout, "y", lambda i: (i // 4, i % 4), 0)
    s = s.extract_subproc("y_padding_0", "part")
    with pytest.raises(ScheduleError, match="a call in the stage y_padding stores the padding"):
        s.apply(derive_padding, "y")


def test_neutral_a_window_over_the_last_row_reaches_the_first() -> None:
    """[14] needs two rows and [16] three: row 2 of the input is its row 0 again, with values."""
    before = over_halos(14)
    with pytest.raises(ScheduleError, match=r"neutral: .* fails at io=2, ii=3, k=1") as refused:
        derive_padding(before.func, "y")
    assert isinstance(refused.value, Unproven)
    assert refused.value.proof.witness == (("io", 2), ("ii", 3), ("k", 1))
    x, f = numbers(14), np.array(FILTER, "int32")
    func = before.func
    got = interpret(func, {"x": in_rows(x), "f": f})["y"]
    np.testing.assert_array_equal(got, in_rows(convolved(x)))  # the stage writes what is needed


def test_neutral_a_filter_that_may_be_infinite_is_named_with_a_point() -> None:
    text = to_text(over_halos(16, "f32").func)
    func = parse(text.replace("< f32(inf)", "<= f32(inf)"))
    with pytest.raises(Unproven, match=r"neutral: .* nothing is known of f\[k\]") as refused:
        derive_padding(func, "y")
    assert {name for name, _ in refused.value.proof.witness} == {"io", "ii", "k"}


@pytest.mark.parametrize("start", ["i32(1)", "x[0, 0]"])
def test_left_there_a_sum_that_starts_at_another_value(start: str) -> None:
    text = to_text(over_halos(16).func).replace("y[io, ii] = i32(0)", f"y[io, ii] = {start}")
    if start == "x[0, 0]":  # the padding in front: a zero, as is known
        assert "assume" in stage(derive_padding(parse(text), "y").func, "y")
        return
    with pytest.raises(Unproven, match="left there: y holds 0 in its padding before y_padding"):
        derive_padding(parse(text), "y")


def test_left_there_a_sum_of_minus_zero_is_no_zero() -> None:
    text = to_text(over_halos(16, "f32").func)
    with pytest.raises(ScheduleError, match=r"the sum may start at -0\.0"):
        derive_padding(parse(text.replace("y[io, ii] = f32(0.0)", "y[io, ii] = f32(-0.0)")), "y")


def test_left_there_what_nobody_writes_holds_anything() -> None:
    text = to_text(over_halos(16).func).replace("for io in serial(0, 3)", "for io in serial(0, 2)")
    with pytest.raises(Unproven, match="left there") as refused:
        derive_padding(parse(text), "y")
    assert dict(refused.value.proof.witness)["y_padding_0"] == 2


# Other kernels than sums --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "pad"), [("f32(2.0) * x[i]", 0.0), ("exp(x[i])", 1.0), ("max(x[i], f32(3.0))", 3.0)]
)
def test_an_elementwise_kernel_leaves_what_it_computes_of_the_padding(
    value: str, pad: float
) -> None:
    func = elementwise("k", value, "f32")
    done = packed(func, 0.0, pad).apply(derive_padding, "yc").func
    assert "y_padding" not in to_text(done).split("yc_padding")[0]
    x = np.linspace(-2, 2, 14).astype("float32")
    np.testing.assert_array_equal(interpret(done, {"x": x})["y"], interpret(func, {"x": x})["y"])
    with pytest.raises(Unproven, match=r"left there: yc holds 5\.0 in its padding"):
        derive_padding(packed(func, 0.0, 5.0).func, "yc")
    with pytest.raises(Unproven, match="left there"):
        derive_padding(packed(func, "undef", pad).func, "yc")


def test_a_place_in_the_stage_survives() -> None:
    s = packed(elementwise("k", "f32(2.0) * x[i]", "f32"), 0.0, 0.0)
    held = [s.handle(name) for name in ("yc_padding", "yc_padding_0", "compute", "yc")]
    done = s.apply(derive_padding, "yc")
    assert [done[handle] for handle in held] == [handle.name for handle in held]
