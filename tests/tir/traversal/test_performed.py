"""What lets, named windows and calls perform."""

import numpy as np

from graphflow import tir
from support.kernels.called_kernels import KERNEL

WINDOWS = """
@instruction
def fill(c: out[f32[2]], a: f32[2]):
    for lane in serial(0, 2):
        c[lane] = a[lane]


@instruction
def last(c: out[f32[4]], a: f32[3, 4]):
    with a[1] as row:
        with c[2:4] as end:
            fill(end[0:2], row[2:4])
            end[1] = row[0]


@primfunc
def k(x: f32[3, 8], y: out[f32[4]]):
    t = alloc(f32[8], scratch)
    for i in serial(0, 8):
        t[i] = f32(0.0)
    last(t[4:8], x[0:3, 4:8])
    for i2 in serial(0, 4):
        y[i2] = t[i2 + 4]
"""


def test_analyses_see_what_a_call_performs() -> None:
    func = tir.parse(KERNEL)
    plain = tir.without_calls(func)
    assert not tir.calls_in(plain.body)
    assert tir.accesses(func.body) == tir.accesses(plain.body)


def test_names_in_a_definition_do_not_meet_those_of_the_caller() -> None:
    """The definition's parameter is called like another buffer of the caller, its loop likewise."""
    text = """
@instruction
def move(y: out[i32[2]], x: i32[2], i: index):
    t = alloc(i32[2])
    with block("copy"):
        for j in serial(0, 2):
            t[j] = x[j] + index(i, i32)
        for i2 in serial(0, 2):
            y[i2] = t[i2]


@primfunc
def k(y: i32[4], x: out[i32[4]]):
    for j in serial(0, 2):
        move(x[2*j:2*j + 2], y[-2*j + 2:-2*j + 4], j)
"""
    func = tir.parse(text)
    tir.verify(func, "scheduled")
    assert tir.to_text(func) == text[1:]
    got = tir.interpret(func, {"y": np.arange(4, dtype="int32")})["x"]
    assert got.tolist() == [2, 3, 1, 2]


def test_windows_in_a_definition_are_windows_of_the_arguments() -> None:
    """Names and calls in the definition are of the parameters; performed, they are of what the
    caller hands in, with the scope of that."""
    func = tir.parse(WINDOWS.replace("a[1]", "a[1, 0:4]"))
    tir.verify(func, "scheduled")
    x = np.arange(24, dtype="float32").reshape(3, 8)
    expected = [0, 0, x[1, 6], x[1, 4]]
    assert tir.interpret(func, {"x": x})["y"].tolist() == expected
    plain = tir.without_calls(func)
    tir.verify(plain, "scheduled")
    assert tir.parse(tir.to_text(plain)) == plain
    assert tir.interpret(plain, {"x": x})["y"].tolist() == expected
    names = [
        stmt
        for stmt in tir.performed(tir.calls_in(func.body)[0])
        if isinstance(stmt, tir.NamedWindow)
    ]
    assert [window.buffer.name for window in names] == ["last.row"]
    (end,) = (stmt for stmt in names[0].body if isinstance(stmt, tir.NamedWindow))
    assert end.buffer.scope == "scratch" and end.window.buffer.name == "t"
    (inner,) = (stmt for stmt in tir.performed(end) if isinstance(stmt, tir.Call))
    assert [window.buffer.name for window in inner.windows] == ["t", "last.row"]
    assert {
        stmt.buffer.name for stmt in tir.walk(tir.performed(end)) if hasattr(stmt, "value")
    } == {"t"}
