"""Tests of the primitives on layouts: transform a buffer, state its padding, order loops, absorb
padding."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from graphflow import tir
from graphflow.arith import Var
from graphflow.base.errors import ScheduleError
from graphflow.layout import IndexMap, Layout, blocked
from graphflow.schedule import (
    PadFunction,
    Schedule,
    absorb_padding,
    sequential_buffer_access,
    transform_layout,
)
from graphflow.tir.nodes.printer import DTYPE_TEXT
from support.schedule_checks import kernel, same

Golden = Callable[[str, str], None]
PACKED = blocked((14,), 0, 4)
"""[14] as [4, 4]: two padding elements at the end."""

DOUBLE = 'with block("double"):\n    for i in serial(0, 14):\n        y[i] = x[i] + x[i]'
PARAMS = "x: i32[14], y: out[i32[14]]"
X = np.arange(14, dtype="int32") * 3 - 5


def run(func: tir.PrimFunc, **arrays: Any) -> Any:
    tir.verify(func, "scheduled")
    return tir.interpret(func, arrays)["y"]


def packed(value: int) -> Any:
    return np.append(X, [value, value]).astype("int32").reshape(4, 4)


@pytest.mark.parametrize("pad", [None, "undef", 7], ids=["none", "undef", "constant"])
def test_transform_layout_of_an_output(pad: Any, golden: Golden) -> None:
    done = transform_layout(kernel(DOUBLE, PARAMS), "y", PACKED, pad).func
    golden(f"layout_out_{pad}", tir.to_text(done))
    got = run(done, x=X).reshape(-1)
    np.testing.assert_array_equal(got[:14], 2 * X)
    assert pad != 7 or (got[14:] == 7).all()


@pytest.mark.parametrize("pad", [None, "undef", 7], ids=["none", "undef", "constant"])
def test_transform_layout_of_an_input(pad: Any, golden: Golden) -> None:
    done = transform_layout(kernel(DOUBLE, PARAMS), "x", PACKED, pad).func
    golden(f"layout_in_{pad}", tir.to_text(done))
    np.testing.assert_array_equal(run(done, x=packed(7)), 2 * X)


def test_transform_layout_with_a_function_of_the_place(golden: Golden) -> None:
    p, q = Var("p"), Var("q")
    wrapped = tir.Load(tir.Buffer("y", (4, 4), "int32"), (p - p, (4 * p + q - 14) % 4))
    func = kernel(DOUBLE, PARAMS)
    done = transform_layout(func, "y", PACKED, PadFunction((p, q), wrapped)).func
    golden("layout_function", tir.to_text(done))
    got = run(done, x=X).reshape(-1)
    np.testing.assert_array_equal(got[14:], 2 * X[:2])
    foreign = tir.Load(tir.Buffer("x", (14,), "int32"), (p,))
    with pytest.raises(ScheduleError, match="the pad value of y reads x of shape"):
        transform_layout(func, "y", PACKED, PadFunction((p, q), foreign))
    before = tir.Load(tir.Buffer("y", (14,), "int32"), (p,))
    with pytest.raises(ScheduleError, match="it may read y of shape"):
        transform_layout(func, "y", PACKED, PadFunction((p, q), before))
    none = transform_layout(func, "y", PACKED, PadFunction((p, q), None)).func
    assert none == transform_layout(func, "y", PACKED, None).func


P, Q = Var("p"), Var("q")


@pytest.mark.parametrize("dtype", ["int32", "float32", "float16", "int8", "bool"])
def test_a_pad_function_may_return_an_index_expression(dtype: str) -> None:
    text = DTYPE_TEXT[dtype]
    func = tir.parse(
        f"@primfunc\ndef k(x: {text}[11], y: out[{text}[11]]):\n"
        "    for i in serial(0, 11):\n        y[i] = x[i]\n"
    )
    pack = lambda i: (i // 4, i % 4)  # noqa: E731
    pad = (lambda io, ii: io // 2) if dtype == "bool" else (lambda io, ii: 10 * io + ii)
    done = transform_layout(func, "y", pack, pad).func
    tir.verify(done, "scheduled")
    x = np.arange(11).astype(tir.DTYPES[dtype])
    got = tir.interpret(done, {"x": x})["y"].reshape(-1)
    np.testing.assert_array_equal(
        got, [*x, tir.DTYPES[dtype].type(True if dtype == "bool" else 23)]
    )
    assert transform_layout(func, "y", pack, PadFunction((P, Q), pad(P, Q))).func == done
    read = transform_layout(func, "x", pack, pad).func
    assert tir.interpret(read, {"x": got.reshape(3, 4)})["y"].shape == (11,)


@pytest.mark.parametrize(
    ("pad", "reason"),
    [
        (lambda io, ii: 100 * io + ii, "int8 cannot hold the pad value 100.*, from 0 to 303"),
        (lambda io, ii: io * ii, "the pad function fails on the 2 axes of y: .*quasi-affine"),
        (lambda io: io, "the pad function fails on the 2 axes of y: .*positional argument"),
        (lambda io, ii: Var("n") + ii, "n, which is no index of y"),
        (
            lambda io, ii: tir.Literal(1, "int32"),
            "the wrong type: y holds int8, the value is int32",
        ),
        (lambda io, ii: "zero", 'a pad value is None, "undef", a number or a PadFunction'),
    ],
)
def test_a_pad_function_that_fits_no_element_is_refused(pad: Any, reason: str) -> None:
    func = kernel("for i in serial(0, 14):\n    y[i] = x[i]", PARAMS.replace("i32", "i8"))
    with pytest.raises(ScheduleError, match=reason):
        transform_layout(func, "y", PACKED, pad)


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (lambda i: (i * i,), "the layout function fails on the 1 indices of .14.: .*quasi-affine"),
        (lambda i, j: (i, j), "the layout function fails on the 1 indices of .14.: .*positional"),
        (lambda i: ("i",), "the layout function returns 'i', which is no index"),
    ],
)
def test_a_layout_function_that_makes_no_layout_is_refused(layout: Any, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        transform_layout(kernel(DOUBLE, PARAMS), "y", layout)


def test_a_layout_function_takes_its_indices_by_name_or_all_at_once() -> None:
    func = kernel(DOUBLE, PARAMS)
    by_name = transform_layout(func, "y", lambda i: (i // 4, i % 4), 7).func
    assert by_name == transform_layout(func, "y", lambda *at: (at[0] // 4, at[0] % 4), 7).func
    assert by_name == transform_layout(func, "y", PACKED, 7).func


def test_transform_layout_with_an_offset_pads_in_front() -> None:
    layout = Layout.of(IndexMap.from_function(1, lambda i: [(i + 2) // 8, (i + 2) % 8]), (14,))
    done = transform_layout(kernel(DOUBLE, PARAMS), "y", layout, 0).func
    got = run(done, x=X)
    assert got.shape == (2, 8)
    np.testing.assert_array_equal(got.reshape(-1), [0, 0, *(2 * X)])


@pytest.mark.parametrize(
    ("buffer", "layout", "pad", "reason"),
    [
        ("x", blocked((16,), 0, 4), None, r"the layout is for shape \(16,\), and x has \(14,\)"),
        ("z", PACKED, None, "k has no buffer z"),
        ("y", PACKED, "zero", 'a pad value is None, "undef", a number or a PadFunction'),
        ("y", PACKED, 0.5, "int32 cannot hold the pad value 0.5"),
        ("y", PACKED, 2**31, "int32 cannot hold the pad value"),
        ("y", PACKED, float("nan"), "int32 cannot hold the pad value nan"),
    ],
)
def test_transform_layout_refuses(buffer: str, layout: Layout, pad: Any, reason: str) -> None:
    with pytest.raises(ScheduleError, match=reason):
        transform_layout(kernel(DOUBLE, PARAMS), buffer, layout, pad)


def test_an_input_cannot_be_assumed_to_hold_nan() -> None:
    func = kernel(DOUBLE, PARAMS.replace("i32", "f32"))
    with pytest.raises(ScheduleError, match="no comparison can state that its padding is NaN"):
        transform_layout(func, "x", PACKED, float("nan"))
    got = run(transform_layout(func, "y", PACKED, float("nan")).func, x=X.astype("float32"))
    assert np.isnan(got.reshape(-1)[14:]).all()


def test_the_padding_of_an_allocated_buffer_is_written_before_it_is_read(golden: Golden) -> None:
    func = kernel(
        't = alloc(i32[14])\nwith block("first"):\n'
        "    for i in serial(0, 14):\n        t[i] = x[i]\n"
        'with block("second"):\n    for j in serial(0, 14):\n        y[j] = t[j]',
        PARAMS,
    )
    done = transform_layout(func, "t", PACKED, 3).func
    golden("layout_allocated", tir.to_text(done))
    np.testing.assert_array_equal(run(done, x=X), X)
    inside = kernel(
        "for i in serial(0, 14):\n    t = alloc(i32[14])\n    t[i] = x[i]\n    y[i] = t[i]", PARAMS
    )
    with pytest.raises(ScheduleError, match="t is allocated inside a loop"):
        transform_layout(inside, "t", PACKED, 3)


def test_a_chain_of_layouts_keeps_each_padding(golden: Golden) -> None:
    """Padded to [4, 4] with 7, turned, and padded again to [4, 6] with 9."""
    s = Schedule.of(kernel(DOUBLE, PARAMS)).apply(transform_layout, "y", PACKED, 7)
    s = s.apply(transform_layout, "y", Layout.of(IndexMap.permute((1, 0)), (4, 4)), None)
    s = s.apply(transform_layout, "y", Layout.of(IndexMap.identity(2), (4, 4), (4, 6)), 9)
    golden("layout_chain", tir.to_text(s.func))
    want = np.full((4, 6), 9)
    want[:, :4] = np.append(2 * X, [7, 7]).reshape(4, 4).T
    np.testing.assert_array_equal(run(s.func, x=X), want)


def test_padding_that_nobody_may_touch_is_not_transformed_again() -> None:
    func = transform_layout(kernel(DOUBLE, PARAMS), "x", PACKED, None).func
    with pytest.raises(ScheduleError, match="x has padding that nobody may touch"):
        transform_layout(func, "x", Layout.of(IndexMap.permute((1, 0)), (4, 4)), None)


# -- sequential_buffer_access


def test_sequential_buffer_access(golden: Golden) -> None:
    s = Schedule.of(kernel(DOUBLE, PARAMS)).apply(transform_layout, "y", PACKED, 0)
    i = s.handle("i")
    s = s.apply(sequential_buffer_access, "double", "y", ("io", "ii"))
    golden("sequential", tir.to_text(s.func))
    assert [place.name for place in s.forward(i)] == ["io", "ii"]
    np.testing.assert_array_equal(run(s.func, x=X).reshape(-1)[:14], 2 * X)


def test_sequential_buffer_access_over_a_turned_input() -> None:
    func = kernel(
        'with block("b"):\n    for i in serial(0, 3):\n        for j in serial(0, 4):\n'
        "            y[i, j] = x[j, 2 - i]",
        "x: i32[4, 3], y: out[i32[3, 4]]",
    )
    done = sequential_buffer_access(func, "b", "x", ("p", "q")).func
    assert "x[p, q]" in tir.to_text(done)
    x = np.arange(12, dtype="int32").reshape(4, 3)
    np.testing.assert_array_equal(run(done, x=x), run(func, x=x))


@pytest.mark.parametrize(
    ("body", "buffer", "reason"),
    [
        # Each element is the sum of those before: the order is part of the meaning.
        ("y[i] = y[max(0, i - 1)] + x[i]", "x", "may run in any order does not hold"),
        ("y[0] = x[i]", "x", "may run in any order does not hold"),
        ("y[i] = x[i // 2]", "x", "i cannot be found again from the indices of x"),
        ("y[i] = x[i] + x[13 - i]", "x", "touches x at several places"),
        ("y[i] = i32(0)", "x", "the loop i does not touch x"),
    ],
)
def test_sequential_buffer_access_refuses(body: str, buffer: str, reason: str) -> None:
    func = kernel(f'with block("b"):\n    for i in serial(0, 14):\n        {body}', PARAMS)
    with pytest.raises(ScheduleError, match=reason):
        sequential_buffer_access(func, "b", buffer, ("p",))


def test_the_last_of_several_writers_is_part_of_the_meaning() -> None:
    """y[i] fixes i, and which j wrote it last still depends on the order."""
    func = kernel(
        'with block("b"):\n    for i in serial(0, 2):\n        for j in serial(0, 4):\n'
        "            y[i] = x[i, 3 - j]",
        "x: i32[2, 4], y: out[i32[2]]",
    )
    with pytest.raises(ScheduleError, match="may run in any order does not hold"):
        sequential_buffer_access(func, "b", "x", ("p", "q"))


# -- absorb_padding


def padded(pad: Any = 0) -> Schedule:
    s = Schedule.of(kernel(DOUBLE, PARAMS)).apply(transform_layout, "y", PACKED, pad)
    return s.apply(sequential_buffer_access, "double", "y", ("io", "ii"))


def test_absorb_padding(golden: Golden) -> None:
    s = padded(5)
    stage = s.handle("y_padding")
    s = s.apply(absorb_padding, "double", "y")
    golden("absorb", tir.to_text(s.func))
    assert s.forward(stage) == ()
    np.testing.assert_array_equal(run(s.func, x=X).reshape(-1), [*(2 * X), 5, 5])


def test_absorb_padding_refuses_what_reaches_too_little_or_too_much() -> None:
    s = Schedule.of(kernel(DOUBLE, PARAMS)).apply(transform_layout, "y", blocked((14,), 0, 6), 5)
    few = s.apply(sequential_buffer_access, "double", "y", ("io", "ii"))
    np.testing.assert_array_equal(
        run(few.apply(absorb_padding, "double", "y").func, x=X).reshape(-1), [*(2 * X), 5, 5, 5, 5]
    )
    text = tir.to_text(padded(5).func)
    for old, new, reason in [
        ("< 14:", "< 13:", "reaches nothing but padding of y does not hold"),
        ("for ii in serial(0, 4)", "for ii in serial(0, 3)", "all the padding of y does not hold"),
        ("y[io, ii] =", "y[io // 2 * 2 + 1, ii] =", "does not hold"),
    ]:
        func = _reparsed(text, old, new)
        with pytest.raises(ScheduleError, match=reason):
            absorb_padding(func, "double", "y")


def _reparsed(text: str, old: str, new: str) -> tir.PrimFunc:
    assert old in text
    return tir.parse(text.replace(old, new, 1))


def test_absorb_padding_refuses_other_readers_and_writers() -> None:
    text = tir.to_text(padded(5).func)
    stage = '    with block("y_padding"'
    for extra, reason in [
        ("    for e in serial(0, 1):\n        y[0, 0] = i32(3)\n", "alone, once each"),
        ("    for e in serial(0, 4):\n        z[e] = y[3, e]\n", "y is read before y_padding"),
    ]:
        func = _reparsed(text.replace("y: out", "z: out[i32[4]], y: out"), stage, extra + stage)
        with pytest.raises(ScheduleError, match=reason):
            absorb_padding(func, "double", "y")
    with pytest.raises(ScheduleError, match="k does not touch a buffer q"):
        absorb_padding(padded().func, "double", "q")
    with pytest.raises(ScheduleError, match="x has no padding stage of its own"):
        absorb_padding(padded().func, "double", "x")
    with pytest.raises(ScheduleError, match="y_padding does not store one constant"):
        absorb_padding(padded(None).func, "double", "y")
    straight = Schedule.of(kernel(DOUBLE, PARAMS)).apply(transform_layout, "y", PACKED, 0)
    with pytest.raises(ScheduleError, match="by one store under one index condition"):
        absorb_padding(straight.func, "double", "y")


CUMSUM = """
for i in serial(0, 14):
    if i == 0:
        y[i] = i32(0)
    else:
        y[i] = y[i - 1]
    for f in serial(0, 3):
        y[i] += w[f] * x[i + f]
"""


def test_a5_the_cumulative_convolution_is_refused_by_its_dependence() -> None:
    func = kernel(CUMSUM, "x: i32[16], w: i32[3], y: out[i32[14]]")
    with pytest.raises(ScheduleError, match="cannot be split off: the parts of i are indep") as no:
        sequential_buffer_access(func, "i", "x", ("o",))
    assert "y[i - 1] and [i] do not meet (integer sets: fails at i=1, i'=0" in str(no.value)


def test_a5_an_initialization_is_split_off() -> None:
    func = kernel(
        'with block("compute"):\n    for i in serial(0, 4):\n        y[i] = i32(0)\n'
        "        for f in serial(0, 4):\n            y[i] += x[f, i]",
        "x: i32[4, 4], y: out[i32[4]]",
    )
    done = sequential_buffer_access(func, "compute", "x", ("a", "b"))
    text = same(func, done)
    assert "y[b] += x[a, b]" in text
    assert text.index("y[i] = i32(0)") < text.index("for a")
