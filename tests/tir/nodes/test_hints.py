"""Kernels that perform nothing: a call is printed, parsed, verified and run as any other."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.errors import GraphflowError

TEXT = """\
@instruction
def prefetch16(line: f32[16]):
    pass


@primfunc
def k(x: f32[4, 16], y: out[f32[4]]):
    for i in serial(0, 4):
        y[i] = x[i, 0]
        prefetch16(x[min(3, i + 1), 0:16])
"""


def test_its_text_is_parsed_again() -> None:
    func = tir.parse(TEXT)
    assert tir.to_text(func) == TEXT
    assert (
        tir.parse(tir.to_text(tir.PREFETCH16))
        == tir.PREFETCH16
        == tir.calls_in(func.body)[0].definition
    )


def test_that_of_the_first_cache_has_a_name_of_its_own() -> None:
    near = tir.PREFETCH16_NEAR
    assert tir.parse(tir.to_text(near)) == near != tir.PREFETCH16
    assert near.params == tir.PREFETCH16.params and not near.body


def test_a_call_performs_nothing() -> None:
    func = tir.parse(TEXT)
    tir.verify(func, "lowered")
    (call,) = tir.calls_in(func.body)
    assert tir.performed(call) == ()
    assert [access.buffer.name for access in tir.accesses(func.body)] == ["x", "y"]
    assert [window.buffer.name for window in tir.windows_in(func.body)] == ["x"]
    x = np.arange(64, dtype="f").reshape(4, 16)
    for one in (func, tir.without_calls(func)):
        np.testing.assert_array_equal(tir.interpret(one, {"x": x})["y"], x[:, 0])


@pytest.mark.parametrize(
    ("window", "message"),
    [
        ("x[i, 0:8]", r"the window does not fit line of \[16\], but \[8\]"),
        ("z[i, 0:16]", "no buffer is called z"),
        ("x[n, 0:16]", "no loop around the use binds n"),
        ("b[0:16]", "line holds float32, but gets b of int32"),
    ],
)
def test_its_window_is_checked_as_that_of_any_call(window: str, message: str) -> None:
    """Its elements are not accessed, and its buffer and variables have to be there all the same."""
    text = TEXT.replace("def k(x", "def k(b: i32[16], x")
    with pytest.raises(GraphflowError, match=message):
        tir.verify(tir.parse(text.replace("x[min(3, i + 1), 0:16]", window)), "definition")
