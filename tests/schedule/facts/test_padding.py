"""Tests of the seven ways to treat padding, each from its definition to the finished kernel, and of
padding between the kernels of a producer and a consumer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphflow.base.errors import ScheduleError
from graphflow.layout import IndexMap, Layout, blocked
from graphflow.schedule import (
    Schedule,
    absorb_padding,
    cache_read,
    mult_loops,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    simplify,
    transform_layout,
)
from graphflow.tir import PrimFunc, interpret, parse, to_text
from support.finished import outputs

Golden = Callable[[str, str], None]
PACKED = blocked((14,), 0, 4)

FILL = parse(
    """
    @primfunc
    def fill(y: out[f32[14]]):
        with block("compute"):
            for i in serial(0, 14):
                y[i] = f32(7.0)
    """
)
PRODUCER = parse(
    """
    @primfunc
    def producer(y: out[i32[14]]):
        with block("compute"):
            for i in serial(0, 14):
                y[i] = index(i + 1000, i32)
    """
)
SUM = """
    @primfunc
    def total(x: {t}[14], y: out[{t}[1]]):
        with block("init"):
            y[0] = {start}
        with block("compute"):
            for i in serial(0, 14):
                {reduce}
    """
CONSUMER = parse(SUM.format(t="f32", start="f32(0.0)", reduce="y[0] += x[i]"))
PRODUCT = parse(SUM.format(t="f32", start="f32(1.0)", reduce="y[0] *= x[i]"))
DOUBLE = parse(
    """
    @primfunc
    def double(x: f32[14], y: out[f32[14]]):
        with block("compute"):
            for i in serial(0, 14):
                y[i] = f32(2.0) * x[i]
    """
)


def laid_out(func: PrimFunc, buffer: str, pad: Any) -> Schedule:
    """The buffer packed to [4, 4] and the compute loop in its order."""
    s = Schedule.of(func).apply(transform_layout, buffer, PACKED, pad)
    return s.apply(sequential_buffer_access, "compute", buffer, ("io", "ii"))


def over(s: Schedule) -> Schedule:
    return s.apply(remove_branching_through_overcompute, "compute")


def run(func: PrimFunc, **arrays: Any) -> Any:
    return outputs(func, **arrays)["y"]


def packed(values: Any, pad: float) -> Any:
    return np.append(values, [pad, pad]).astype(values.dtype).reshape(4, 4)


X = np.array([3, -0.0, np.inf, 5, -2, 1e38, 7, 8, 9, 10, 11, 12, 13, 14], dtype="float32")


def test_c1_never_write_it(golden: Golden) -> None:
    s = laid_out(FILL, "y", None)
    golden("way_1", to_text(s.func))
    got = run(s.func).reshape(-1)
    assert (got[:14] == 7).all()
    assert np.isnan(got[14:]).all()
    with pytest.raises(ScheduleError, match=r"stays away from forbidden padding does not hold"):
        over(s)


def test_c2_never_read_it(golden: Golden) -> None:
    s = laid_out(CONSUMER, "x", None)
    golden("way_2", to_text(s.func))
    assert run(s.func, x=packed(X, np.nan))[0] == interpret(CONSUMER, {"x": X})["y"][0]
    with pytest.raises(ScheduleError, match=r"x\[io, ii\] stays away from forbidden padding"):
        over(s)


def test_c3_an_internal_padded_copy(golden: Golden) -> None:
    s = Schedule.of(CONSUMER).apply(cache_read, "x", "xc")
    s = s.apply(transform_layout, "xc", PACKED, 0.0)
    s = over(s.apply(sequential_buffer_access, "compute", "xc", ("io", "ii")))
    golden("way_3", to_text(s.func))
    assert s.func.inputs == CONSUMER.inputs
    assert run(s.func, x=X).tobytes() == interpret(CONSUMER, {"x": X})["y"].tobytes()


def test_c4_the_producer_writes_the_default_of_the_next(golden: Golden) -> None:
    producer = laid_out(PRODUCER, "y", 0).apply(absorb_padding, "compute", "y")
    golden("way_4_producer", to_text(producer.func))
    shared = run(producer.func)
    np.testing.assert_array_equal(shared.reshape(-1), [*range(1000, 1014), 0, 0])
    consumer = parse(SUM.format(t="i32", start="i32(0)", reduce="y[0] += x[i]"))
    done = over(laid_out(consumer, "x", 0))
    golden("way_4_consumer", to_text(done.func))
    assert run(done.func, x=shared)[0] == sum(range(1000, 1014))


def test_c4_a_product_wants_ones() -> None:
    with pytest.raises(ScheduleError, match="it must be equal to 1 float32"):
        over(laid_out(PRODUCT, "x", 0.0))
    done = over(laid_out(PRODUCT, "x", 1.0))
    assert "if" not in to_text(done.func)
    twos = np.full(14, 2, dtype="float32")
    assert run(done.func, x=packed(twos, 1))[0] == 2.0**14


CONV = """
    @primfunc
    def conv(x: {t}[16], f: {t}[3], y: out[{t}[18]]):
        for a in serial(0, 3):
            {finite}
        with block("compute"):
            for i in serial(0, 18):
                y[i] = {zero}
                for k in serial(0, 3):
                    if i + k >= 2 and i + k < 18:
                        y[i] += x[i + k - 2] * f[k]
    """
HALO = Layout.of(IndexMap.from_function(1, lambda i: [(i + 2) // 8, (i + 2) % 8]), (16,))
"""[16] as [3, 8] with padding at both ends, as far as a window reaches in front."""


def convolution(dtype: str, finite: str = "") -> Schedule:
    zero = "i32(0)" if dtype == "i32" else "f32(0.0)"
    assumed = finite or "assume(unless(a >= 0), bool(True))"
    func = parse(CONV.format(t=dtype, zero=zero, finite=assumed))
    return Schedule.of(func).apply(transform_layout, "x", HALO, 0)


@pytest.mark.parametrize(
    ("dtype", "finite"), [("i32", ""), ("f32", "assume(unless(a < 0), abs(f[a]) < f32(inf))")]
)
def test_c5_a_zero_halo_frees_the_window_of_its_branch(
    dtype: str, finite: str, golden: Golden
) -> None:
    """The halo in front and behind replaces the border predicate of the window."""
    s = convolution(dtype, finite)
    s = s.apply(remove_branching_through_overcompute, "k").apply(simplify)
    golden(f"way_5_{dtype}", to_text(s.func))
    assert "if" not in to_text(s.func).replace("diff", "")
    kind = "int32" if dtype == "i32" else "float32"
    x, f = (np.arange(16) % 7 - 3).astype(kind), np.array([2, -1, 3], dtype=kind)
    box = np.zeros(24, dtype=kind)
    box[2:18] = x
    got = run(s.func, x=box.reshape(3, 8), f=f)
    np.testing.assert_array_equal(got, np.convolve(x, f[::-1]))


def test_c5_in_floats_the_filter_must_be_finite() -> None:
    with pytest.raises(ScheduleError, match=r"nothing is known of f\[k\]"):
        convolution("f32").apply(remove_branching_through_overcompute, "k")


def test_c6_elementwise_over_the_padding(golden: Golden) -> None:
    s = Schedule.of(DOUBLE).apply(transform_layout, "x", PACKED, "undef")
    s = s.apply(transform_layout, "y", PACKED, "undef")
    s = over(s.apply(sequential_buffer_access, "compute", "y", ("io", "ii")))
    s = s.apply(mult_loops, "io", "ii", "all")
    golden("way_6", to_text(s.func))
    for poison in (np.nan, -42.0):
        got = run(s.func, x=packed(X, poison)).reshape(-1)
        np.testing.assert_array_equal(got[:14], 2 * X)


def test_c7_two_semantics_in_one_buffer(golden: Golden) -> None:
    """Rows padded by undef, columns by zero: the sums over rows lose both branches."""
    rows = parse(
        """
        @primfunc
        def rows(x: f32[14, 60], y: out[f32[14]]):
            with block("init"):
                for r in serial(0, 14):
                    y[r] = f32(0.0)
            with block("compute"):
                for i in serial(0, 14):
                    for j in serial(0, 60):
                        y[i] += x[i, j]
        """
    )
    by_rows = Layout.of(IndexMap.split(2, 0, 4), (14, 60))
    by_columns = Layout.of(IndexMap.split(3, 2, 8), (4, 4, 60))
    s = Schedule.of(rows).apply(transform_layout, "x", by_rows, "undef")
    s = s.apply(transform_layout, "x", by_columns, 0.0)
    s = s.apply(transform_layout, "y", PACKED, "undef")
    s = s.apply(sequential_buffer_access, "compute", "x", ("io", "ii", "jo", "ji"))
    s = s.apply(sequential_buffer_access, "init", "y", ("ro", "ri"))
    s = over(s.apply(remove_branching_through_overcompute, "init"))
    golden("way_7", to_text(s.func))
    x = (np.arange(14 * 60) % 23 - 11).reshape(14, 60).astype("float32")
    box = np.full((16, 64), np.nan, dtype="float32")
    box[:14, :60] = x
    box[:, 60:] = 0
    got = run(s.func, x=box.reshape(4, 4, 8, 8)).reshape(-1)[:14]
    np.testing.assert_array_equal(got, x.sum(axis=1))


# -- a function split in two: each kernel has only what it states itself


def test_split_1_without_a_statement_neither_side_changes() -> None:
    writer = parse(
        """
        @primfunc
        def writer(y: out[f32[4, 4]]):
            with block("compute"):
                for io in serial(0, 4):
                    for ii in serial(0, 4):
                        if 4*io + ii < 14:
                            y[io, ii] = f32(1.0)
        """
    )
    with pytest.raises(ScheduleError, match=r"io=3, ii=2 is left in the output at y.0=3, y.1=2"):
        over(Schedule.of(writer))


def test_split_2_nor_may_the_reader_rely_on_anything() -> None:
    reader = laid_out(CONSUMER, "x", "undef").func
    bare = parse(_without_stage(to_text(reader)))
    with pytest.raises(ScheduleError, match=r"nothing is known of x\[io, ii\]"):
        over(Schedule.of(bare))


def _without_stage(text: str) -> str:
    start = text.index('    with block("x_padding"')
    end = text.index('    with block("init")')
    return text[:start] + text[end:]


def test_split_3_undef_lets_the_writer_write_and_not_the_reader_sum() -> None:
    writer = over(laid_out(FILL, "y", "undef"))
    assert "if" not in to_text(writer.func).split("y_padding")[0]
    with pytest.raises(ScheduleError, match=r"nothing is known of x\[io, ii\]"):
        over(laid_out(CONSUMER, "x", "undef"))


def test_split_4_zeros_written_and_assumed_let_the_reader_sum() -> None:
    writer = laid_out(FILL, "y", 0.0).apply(absorb_padding, "compute", "y")
    reader = over(laid_out(CONSUMER, "x", 0.0))
    assert run(reader.func, x=run(writer.func))[0] == 98.0
