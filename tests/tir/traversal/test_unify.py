"""Unification of statements with definitions, and calls in the text form."""

import numpy as np
import pytest

from graphflow.base.errors import ParseError, VerifyError
from graphflow.tir import NotUnifiable, PrimFunc, calls_in, interpret, parse, to_text, unify, verify
from support.kernels.called_kernels import KERNEL


def definition(body: str, params: str) -> PrimFunc:
    return parse(f"@primfunc\ndef f({params}):\n" + "\n".join("    " + x for x in body.split("\n")))


def found(kernel: str, body: str, params: str) -> str:
    """The call of the definition that performs the last statement of a kernel, as text."""
    func = parse(f"@primfunc\ndef k({kernel}")
    call = unify(definition(body, params), func.body[-1:], "f")
    whole = PrimFunc("k", func.params, (*func.body[:-1], call))
    verify(whole, "scheduled")
    return to_text(whole).splitlines()[-1].strip()


def test_a_call_is_printed_parsed_and_interpreted() -> None:
    func = parse(KERNEL)
    verify(func, "scheduled")
    assert to_text(func) == KERNEL[1:]
    assert parse(to_text(func)) == func
    x, w = np.arange(3, dtype="float32"), np.arange(24, dtype="float32").reshape(3, 8)
    np.testing.assert_array_equal(interpret(func, {"x": x, "w": w})["y"], x @ w)


def test_a_definition_is_interpreted_with_what_its_inout_parameters_held() -> None:
    (call,) = calls_in(parse(KERNEL).body)
    given = {"c": np.ones(4, "float32"), "a": np.float32(2).reshape(()), "b": np.ones(4, "float32")}
    np.testing.assert_array_equal(interpret(call.definition, given)["c"], np.full(4, 3, "float32"))


def test_two_calls_need_two_names() -> None:
    line = "            fma(y[4*t:4*t + 4], x[r], w[r, 4*t:4*t + 4]"
    with pytest.raises(VerifyError, match="the call name fma is used twice"):
        verify(parse(KERNEL + line + ")\n"), "scheduled")
    func = parse(KERNEL + line + ', name="again")\n')
    verify(func, "scheduled")
    assert parse(to_text(func)) == func


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("fma(y[0:4], x[r])", "takes 3 windows and 0 scalars, not 2 arguments"),
        ("fma(y[0:5], x[r], w[r, 0:4])", "the window does not fit c of [4]"),
        ("fma(y[0], x[r], w[r, 0:4])", "the window does not fit c of [4]"),
        ("fma(y, x[r], w[r, 0:4])", "c takes a window"),
        ("fma(z[0:4], x[r], w[r, 0:4])", "no buffer is called z"),
        ("fma(y[0:], x[r], w[r, 0:4])", "has a start and a stop"),
        ('fma(y[0:4], x[r], w[r, 0:4], times="2")', "the only keyword"),
        ("fms(y[0:4], x[r], w[r, 0:4])", "an instruction defined above"),
    ],
)
def test_arguments_that_do_not_fit_are_no_text(call: str, reason: str) -> None:
    text = KERNEL.replace("fma(y[4*t:4*t + 4], x[r], w[r, 4*t:4*t + 4])", call)
    with pytest.raises(ParseError) as error:
        parse(text)
    assert reason in str(error.value)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("fma(y[4*t:4*t + 4], x[r], n[r, 4*t:4*t + 4])", "b holds float32, but gets n of int32"),
        ("fma(w[r, 0:4], x[r], w[r, 4*t:4*t + 4])", "input w is written"),
        ("fma(y[4*s:4*s + 4], x[r], w[r, 4*t:4*t + 4])", "no loop around the use binds s"),
    ],
)
def test_arguments_of_the_wrong_kind_are_not_verified(call: str, reason: str) -> None:
    text = KERNEL.replace("fma(y[4*t:4*t + 4], x[r], w[r, 4*t:4*t + 4])", call)
    with pytest.raises(VerifyError, match=reason):
        verify(parse(text.replace("def k(x", "def k(n: i32[3, 8], x")), "scheduled")


FILL = "for l in serial(0, 4):\n    c[l] = a[l]"
FILL_PARAMS = "c: out[f32[4]], a: f32[4]"


@pytest.mark.parametrize(
    ("kernel", "call"),
    [
        # an offset, a fixed axis in front, and one behind
        ("x: f32[9], y: out[f32[4]]):\n  for i in serial(0, 4):\n    y[i] = x[i + 5]",
         "f(y[0:4], x[5:9])"),
        ("x: f32[3, 4], y: out[f32[4]]):\n  for i in serial(0, 4):\n    y[i] = x[2, i]",
         "f(y[0:4], x[2, 0:4])"),
        ("x: f32[4, 3], y: out[f32[4]]):\n  for i in serial(0, 4):\n    y[i] = x[i, 2]",
         "f(y[0:4], x[0:4, 2])"),
        # one buffer twice
        ("y: out[f32[8]]):\n  for i in serial(0, 4):\n    y[i] = y[i + 4]",
         "f(y[0:4], y[4:8])"),
    ],
)  # fmt: skip
def test_windows_are_inferred(kernel: str, call: str) -> None:
    assert found(kernel, FILL, FILL_PARAMS) == call


def test_scalars_are_inferred_from_bounds_conditions_and_values() -> None:
    body = "for l in serial(0, 4):\n    if l < n:\n        c[l] = a[l] * index(m, f32)"
    kernel = (
        "x: f32[9], y: out[f32[9]]):\n  for i in serial(0, 4):\n    if i < 3:\n"
        "      y[i] = x[i + 5] * index(7, f32)"
    )
    params = "c: out[f32[4]], a: f32[4], n: index, m: index"
    assert found(kernel, body, params) == "f(y[0:4], x[5:9], 3, 7)"


def test_a_scalar_named_like_a_variable_of_the_kernel_is_another_one() -> None:
    body = "for l in serial(0, 4):\n    if l < i:\n        c[l] = a[l]"
    kernel = (
        "x: f32[9], y: out[f32[9]]):\n  for i in serial(0, 4):\n    if i < 3:\n      y[i] = x[i]"
    )
    assert found(kernel, body, "c: out[f32[4]], a: f32[4], i: index") == "f(y[0:4], x[0:4], 3)"


def test_a_scalar_named_like_a_loop_of_the_statement_is_not_that_loop() -> None:
    """In the statement i is the loop, and in the definition a number."""
    body = "for l in serial(0, 4):\n    c[l] = a[i]"
    func = parse(
        "@primfunc\ndef k(x: f32[4], y: out[f32[4]]):\n"
        "    for i in serial(0, 4):\n        y[i] = x[i]"
    )
    with pytest.raises(NotUnifiable, match=r"`a\[i\]` where the statement has `x\[i\]`"):
        unify(definition(body, "c: out[f32[4]], a: f32[4], i: index"), func.body, "f")


@pytest.mark.parametrize(
    ("statement", "difference"),
    [
        ("for i in serial(0, 5):\n    y[i] = x[i]",
         "f has `for l in serial(0, 4):` where the statement has `for i in serial(0, 5):`"),
        ("for i in serial(0, 4):\n    y[i] += x[i]", "`c[l] = a[l]` where the statement has `y["),
        ("for i in serial(0, 4):\n    y[i] = -x[i]", "`a[l]` where the statement has `-x[i]`"),
        ("for i in serial(0, 4):\n    y[i] = x[2*i]", "`a[l]` where the statement has `x[2*i]`"),
        ("for i in serial(0, 4):\n    y[3 - i] = x[i]", "`c[l]` where the statement has `y["),
        ("for i in serial(0, 4):\n    y[i] = x[i]\n    y[i] = x[i]",
         "`nothing` where the statement has `y[i] = x[i]`"),
        ("for i in serial(0, 4):\n    if i < 2:\n        y[i] = x[i]", "has `if i"),
        ("for i in serial(0, 4):\n    y[i] = n[i]",
         "`a[l] of float32` where the statement has `n[i] of int32`"),
    ],
)  # fmt: skip
def test_the_first_difference_is_shown(statement: str, difference: str) -> None:
    lines = "\n".join("    " + line for line in statement.split("\n"))
    # Types are not checked by the parser.
    func = parse(f"@primfunc\ndef k(x: f32[9], n: i32[9], y: out[f32[9]]):\n{lines}")
    with pytest.raises(NotUnifiable) as error:
        unify(definition(FILL, FILL_PARAMS), func.body, "f")
    assert difference in str(error.value)


def test_a_parameter_is_one_buffer() -> None:
    body = "for l in serial(0, 4):\n    c[l] = a[l] + a[l]"
    func = parse(
        "@primfunc\ndef k(x: f32[4], z: f32[4], y: out[f32[4]]):\n"
        "    for i in serial(0, 4):\n        y[i] = x[i] + z[i]"
    )
    with pytest.raises(NotUnifiable, match=r"`a\[l\]` where the statement has `z\[i\]`"):
        unify(definition(body, FILL_PARAMS), func.body, "f")


def test_a_parameter_that_nothing_accesses_has_no_window() -> None:
    func = parse("@primfunc\ndef k(y: out[f32[4]]):\n  for i in serial(0, 4):\n    y[i] = f32(1.0)")
    fill = definition("for l in serial(0, 4):\n    c[l] = f32(1.0)", FILL_PARAMS)
    with pytest.raises(NotUnifiable, match="f does not access a"):
        unify(fill, func.body, "f")
