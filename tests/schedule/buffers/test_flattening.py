"""Flattening of buffers to one axis more than they have separators."""

import numpy as np
import pytest

from graphflow.base.errors import CodegenError, ScheduleError
from graphflow.base.fields import replace
from graphflow.codegen import emit_ir, host_target
from graphflow.schedule import Schedule, flatten_buffer
from graphflow.tir import interpret, parse, to_text
from support.native import Native
from support.schedule_checks import inputs_of

LOOPS = """
    for i in serial(0, 4):
        for j in serial(0, 5):
            for k in serial(0, 6):
                y[i, j, k] = x[i, j, k]
"""


def copy(kind: str) -> Schedule:
    text = f"@primfunc\ndef k(x: {kind}, y: out[i32[4, 5, 6]]):{LOOPS}"
    return Schedule.of(parse(text))


@pytest.mark.parametrize(
    ("kind", "param", "access"),
    [
        ("i32[4, 5, 6]", "i32[120]", "x[30*i + 6*j + k]"),
        ("buffer(i32[4, 5, 6], sep=(1,))", "buffer(i32[4, 30], sep=(1,))", "x[i, 6*j + k]"),
        ("buffer(i32[4, 5, 6], sep=(2,))", "buffer(i32[20, 6], sep=(1,))", "x[5*i + j, k]"),
        ("buffer(i32[4, 5, 6], sep=(1, 2))", "buffer(i32[4, 5, 6], sep=(1, 2))", "x[i, j, k]"),
    ],
)
def test_a2_each_group_of_axes_becomes_one(kind: str, param: str, access: str) -> None:
    s = copy(kind)
    done = s.apply(flatten_buffer, "x")
    text = to_text(done.func)
    assert f"x: {param}, " in text
    assert f"y[i, j, k] = {access}\n" in text
    assert done.apply(flatten_buffer, "x").func is done.func
    (x,) = inputs_of(s.func).values()
    flat = x.reshape(done.func.param("x").shape)
    np.testing.assert_array_equal(interpret(done.func, {"x": flat})["y"], x)
    np.testing.assert_array_equal(Native(done.func, host_target())({"x": flat})["y"], x)


def test_an_access_that_leaves_its_axis_is_refused() -> None:
    """x[i, j + 1, k] would reach x[i + 1, 0, k] in the flat buffer."""
    text = to_text(copy("i32[4, 5, 6]").func).replace("= x[i, j, k]", "= x[i, j + 1, k]")
    with pytest.raises(ScheduleError, match=r"x\[i, j \+ 1, k\] is in bounds does not hold"):
        Schedule.of(parse(text)).apply(flatten_buffer, "x")


def test_a_target_that_lacks_the_rank_says_so() -> None:
    flat = replace(host_target(), name="flat", buffer_axes=1)
    func = copy("buffer(i32[4, 5, 6], sep=(1,))").apply(flatten_buffer, "x").func
    emit_ir(func, "k", host_target())
    with pytest.raises(CodegenError, match="buffer x has 2 axes after flattening, and flat has 1"):
        emit_ir(func, "k", flat)
    emit_ir(copy("i32[4, 5, 6]").func, "k", flat)
