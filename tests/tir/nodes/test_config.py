"""Configuration state in kernels: text form, verifier, interpreter, and what analyses see of it."""

from typing import Any

import numpy as np
import pytest

from graphflow.base.errors import ParseError, VerifyError
from graphflow.effects import overwritten_unread, state_unread, written_before_read
from graphflow.tir import Buffer, Config, fields_of, interpret, parse, to_text, verify

MODE = Config("mode", {"scale": "int32", "act": "int32"})

KERNEL = """
mode = config(act=i32, scale=i32)


@instruction
def scaled(to: out[i32[4]], x: i32[4]):
    assume(unless(False), mode.act == i32(1))
    for i in serial(0, 4):
        to[i] = x[i] * mode.scale


@primfunc
def k(x: i32[8], y: out[i32[8]]):
    mode.act = i32(1)
    for b in serial(0, 2):
        mode.scale = index(b + 2, i32)
        scaled(y[4*b:4*b + 4], x[4*b:4*b + 4])
"""
BARE = "mode = config(act=i32)\n\n\n@primfunc\ndef k(x: i32[8], y: out[i32[8]]):\n    "
X = {"x": np.arange(8, dtype="int32")}


def test_fields_are_declared_above_the_kernel_and_parse_back() -> None:
    func = parse(KERNEL)
    assert to_text(func) == KERNEL[1:]
    assert fields_of(func) == (MODE.field("act"), MODE.field("scale"))
    with pytest.raises(KeyError, match="mode has no field stride; it has scale, act"):
        MODE.field("stride")
    with pytest.raises(ParseError, match="mode is declared twice"):
        parse("mode = config(act=i32)\n" + KERNEL)
    with pytest.raises(ParseError, match="not a statement of the text form"):
        parse(BARE + "other.act = i32(1)\n    y[0] = x[0]")
    with pytest.raises(ValueError, match=r"it needs a name such as mode\.act and no axes"):
        Buffer("mode.act", (2,), "int32", "config")


def test_state_is_kept_from_kernel_to_kernel() -> None:
    state: dict[str, Any] = {}
    out = interpret(parse(KERNEL), X, state=state)["y"]
    np.testing.assert_array_equal(out, np.repeat([2, 3], 4) * X["x"])
    assert state == {"mode.act": 1, "mode.scale": 3}
    reader = parse(BARE + "y[0] = mode.act + x[1]")
    assert interpret(reader, X, state=state)["y"][0] == 2
    assert state == {"mode.act": 1, "mode.scale": 3}
    unset = [interpret(reader, X, undefined=poison)["y"][0] for poison in (5.0, 9.0)]
    assert unset == [6, 10]
    with pytest.raises(VerifyError, match=r"mode.act == i32\(1\)\) is false at b=0"):
        interpret(parse(KERNEL.replace("mode.act = i32(1)", "mode.act = i32(0)")), X)


def test_the_verifier_knows_fields() -> None:
    verify(parse(KERNEL), "scheduled")
    for stage in ("definition", "lowered"):
        with pytest.raises(VerifyError, match=r"mode\.act is configuration state, for scheduled"):
            verify(parse(BARE + "y[0] = mode.act"), stage)  # type: ignore[arg-type]
    with pytest.raises(VerifyError, match="int32"):
        verify(parse(BARE + "mode.act = i64(1)"), "scheduled")


def test_the_end_of_the_kernel_sees_state() -> None:
    func = parse(BARE + "mode.act = i32(1)\n    mode.act = i32(2)\n    y[0] = x[0]")
    first, second = ((0, False),), ((1, False),)
    assert overwritten_unread(func, first).proven
    left = overwritten_unread(func, second)
    assert not left.proven and "mode.act at () is left in the configuration" in left.reason
    assert not state_unread(func, second, after_kernel=True).proven
    assert state_unread(func, second, after_kernel=False).proven


def test_whether_a_field_is_written_before_it_is_read() -> None:
    field = MODE.field("act")
    assert written_before_read(parse(KERNEL), field).proven
    func = parse(BARE + "for i in serial(0, 8):\n        y[i] = mode.act\n        mode.act = x[i]")
    proof = written_before_read(func, field)
    assert proof.reason == "mode.act at i=0 may see what it held before"
    assert proof.witness == (("i", 0),)
