"""The layouts that a schedule gave to parameters, and what a compiled module tells of them."""

from pathlib import Path

import numpy as np

import graphflow as gf
from graphflow.layout import Constant, IndexMap, Layout, NoAccess, Undefined, blocked
from graphflow.schedule import (
    Schedule,
    elide_padding,
    parameter_layouts,
    specialize,
    transform_layout,
)
from support.schedule_checks import kernel
from support.schedules.halo_convolutions import (
    FILTER,
    branch_free,
    convolved,
    halo,
    in_rows,
    numbers,
)

DOUBLE = "for i in serial(0, 14):\n    y[i] = i32(2) * x[i]"
PACKED = blocked((14,), 0, 4)


def double() -> Schedule:
    return Schedule.of(kernel(DOUBLE, "x: i32[14], y: out[i32[14]]"))


def test_each_transformed_parameter_has_its_layout_and_its_padding() -> None:
    s = double().apply(transform_layout, "x", PACKED, 3)
    s = s.apply(transform_layout, "y", lambda i: (i // 8, i % 8), "undef")
    found = parameter_layouts(s)
    assert found["x"].layout == PACKED
    assert isinstance(found["x"].padding, Constant) and found["x"].padding.literal.value == 3
    assert found["y"].layout.physical_shape == (2, 8) and found["y"].padding == Undefined()
    none = double().apply(transform_layout, "x", PACKED)
    assert list(parameter_layouts(none)) == ["x"]
    assert parameter_layouts(none)["x"].padding == NoAccess()


def test_two_transformations_are_one_layout() -> None:
    again = Layout.of(IndexMap.permute((1, 0)), (4, 4))
    s = double().apply(transform_layout, "x", PACKED, 0).apply(transform_layout, "x", again)
    (found,) = parameter_layouts(s).values()
    assert (found.layout.logical_shape, found.layout.physical_shape) == ((14,), (4, 4))
    assert [str(e) for e in found.layout.simplified] == ["i0 % 4", "i0 // 4"]


def test_what_was_undone_is_not_told() -> None:
    s = double().apply(transform_layout, "x", PACKED).apply(elide_padding, "x", PACKED)
    assert parameter_layouts(s) == {}


def test_padding_that_no_statement_locates_any_more_holds_anything() -> None:
    """So it is under a condition on data, and where a condition never holds."""
    s = Schedule.of(kernel("for i in serial(0, 6):\n    y[i] = x[i]", "x: f32[6], y: out[f32[6]]"))
    s = s.apply(transform_layout, "y", blocked((6,), 0, 4), 0.0)
    s = s.apply(specialize, "y_padding_0", ("data(x[0] < f32(1))",))
    assert parameter_layouts(s)["y"].padding == Undefined()
    values = np.arange(6, dtype="float32")
    stored = gf.build(s, threads=1).run({"x": values})["y"]
    np.testing.assert_array_equal(stored.reshape(-1), [*values, 0, 0])


def test_a6_a_compiled_schedule_tells_the_logical_shape_of_its_parameters(tmp_path: Path) -> None:
    executable = gf.build(branch_free(16), threads=1)
    x, y = executable.layouts["x"], executable.layouts["y"]
    assert (x.logical_shape, x.physical_shape) == ((16,), (3, 8))
    assert (y.logical_shape, y.physical_shape) == ((18,), (3, 8))
    assert x.layout == halo(16)
    assert [(r.region, r.fact) for r in y.regions] == [("pad(0)", "0 int32")]
    assert executable.layouts["f"].logical_shape == (3,)
    got = executable.run({"x": in_rows(numbers(16)), "f": np.array(FILTER, "int32")})["y"]
    np.testing.assert_array_equal(got, in_rows(convolved(numbers(16))))
    executable.save(tmp_path / "conv.gf")
    again = gf.load(tmp_path / "conv.gf")
    assert (again.layouts["x"].logical_shape, again.layouts["x"].physical_shape) == ((16,), (3, 8))
