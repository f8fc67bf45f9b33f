"""Kernels that perform nothing: a call is printed, parsed, verified and run as any other."""

from __future__ import annotations

import numpy as np
import pytest

from graphflow.base.errors import GraphflowError
from graphflow.tir import (
    PREFETCH16,
    accesses,
    calls_in,
    interpret,
    parse,
    performed,
    to_text,
    verify,
    windows_in,
    without_calls,
)

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
    func = parse(TEXT)
    assert to_text(func) == TEXT
    assert parse(to_text(PREFETCH16)) == PREFETCH16 == calls_in(func.body)[0].definition


def test_a_call_performs_nothing() -> None:
    func = parse(TEXT)
    verify(func, "lowered")
    (call,) = calls_in(func.body)
    assert performed(call) == ()
    assert [access.buffer.name for access in accesses(func.body)] == ["x", "y"]
    assert [window.buffer.name for window in windows_in(func.body)] == ["x"]
    x = np.arange(64, dtype="f").reshape(4, 16)
    for one in (func, without_calls(func)):
        np.testing.assert_array_equal(interpret(one, {"x": x})["y"], x[:, 0])


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
        verify(parse(text.replace("x[min(3, i + 1), 0:16]", window)), "definition")
