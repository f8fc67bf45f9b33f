"""Tests of the text form: kernels print and parse back to themselves, and errors name line and
column."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow import tir
from graphflow.arith import IndexExpr, Predicate, Var, const
from graphflow.base.errors import ParseError
from support.strategies import KernelOptions, index_exprs, predicates, primfuncs

X, Y = tir.Buffer("x", (8,)), tir.Buffer("y", (8,))
PARAMS = (tir.Param(X, tir.Role.INPUT), tir.Param(Y, tir.Role.OUTPUT))

EVERYTHING = """\
@primfunc
def k(x: f32[1, 8, 6, 6], w: buffer(f32[8, 8], sep=(1,)), n: i64[()], y: out[f32[1, 8, 6, 6]]):
    t.tile = alloc(f32[2, 4], register)
    local = alloc(i8[16], scratch, sep=(1,))
    with block("init", preproc="pad", states="it's \\"quoted\\""):
        for oc in parallel(0, 8):
            for oh in serial(0, min(6, oc + 2)):
                for ow in vectorized(0, 6):
                    y[0, oc, oh, ow] = f32(-inf)
    for io in unrolled(0, 2):
        pass
    for k in serial(0, 3):
        if k >= 1 and (k == 2 or k != 1):
            y[0, k, 0, 0] += x[0, k, (k + 1) % 3, k // 2] * w[k, 2] - f32(0.1)
            y[0, k, 0, 0] *= -x[0, k, 0, 0]
            reduce_max(y[0, k, 0, 0], exp(x[0, 0, 0, 0]))
            reduce_min(y[0, k, 0, 0], pow(x[0, 0, 0, 0], f32(2.0)))
        else:
            if data(x[0, 0, 0, 0] < f32(nan)):
                local[k] = cast(i8, n[()] + index(2*k - 1, i64))
        assume(unless(k < 2), x[0, 0, 0, 0] == undef(f32))
        assume(unless(data(bool(False))), ~(n[()] == i64(3)) | bool(True))
        with let(x[0, k, 0, 0] * f32(2.0)) as twice:
            with let(twice[()] < f32(1.0)) as small:
                y[0, k, 1, 1] = twice[()]
        t.tile[0, k] = select(k >= 1, undef(f32), select(data(bool(True)), f32(1.0), f32(2.0)))
"""


def kernel(value: tir.Expr, *indices: IndexExpr) -> tir.PrimFunc:
    loop = tir.For(
        Var("i"), const(0), const(8), tir.LoopKind.SERIAL, (tir.Store(Y, (Var("i"),), value),)
    )
    return tir.PrimFunc("kernel", PARAMS, (loop,))


def test_a_kernel_with_everything_prints_as_it_was_written() -> None:
    func = tir.parse(EVERYTHING)
    assert tir.to_text(func) == EVERYTHING
    assert tir.parse(tir.to_text(func)) == func


@given(primfuncs(KernelOptions(assumptions=True)))
def test_random_kernels_come_back(func: tir.PrimFunc) -> None:
    assert tir.parse(tir.to_text(func)) == func


@given(index_exprs((Var("i"), Var("j"), Var("a.b"))))
def test_index_expressions_come_back_as_the_same_object(index: IndexExpr) -> None:
    back = tir.parse(tir.to_text(kernel(tir.Load(X, (index,))))).body[0]
    assert isinstance(back, tir.For)
    store = back.body[0]
    assert isinstance(store, tir.Store)
    assert isinstance(store.value, tir.Load)
    assert store.value.indices[0] is index


@given(predicates())
def test_predicates_come_back_in_the_same_normal_form(predicate: Predicate) -> None:
    func = tir.PrimFunc("kernel", PARAMS, (tir.If(predicate, ()),))
    assert tir.parse(tir.to_text(func)) == func


@given(st.floats(), st.sampled_from(("float32", "float64")))
def test_floats_keep_their_bits(value: float, dtype: str) -> None:
    with np.errstate(over="ignore"):
        func = kernel(tir.Literal(value, dtype))
        assert tir.parse(tir.to_text(func)) == func


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (-0.0, "float32", "f32(-0.0)"),
        (0.1, "float32", "f32(0.1)"),
        (1e-45, "float32", "f32(1e-45)"),
        (5e-324, "float64", "f64(5e-324)"),
        (math.inf, "float32", "f32(inf)"),
        (-math.inf, "float64", "f64(-inf)"),
        (math.nan, "float32", "f32(nan)"),
        (-math.nan, "float32", "f32(bits=0xffc00000)"),
        (-128, "int8", "i8(-128)"),
        (2**63 - 1, "int64", "i64(9223372036854775807)"),
        (2**64 - 1, "uint64", "u64(18446744073709551615)"),
        (True, "bool", "bool(True)"),
    ],
)
def test_literals_read_short_and_keep_their_bits(value: float, dtype: str, text: str) -> None:
    literal = tir.Literal(value, dtype)
    assert tir.expr_text(literal) == text
    assert tir.parse(tir.to_text(kernel(literal))) == kernel(literal)


A, B, C = (tir.Load(X, (const(n),)) for n in range(3))


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (tir.Binary("sub", A, tir.Binary("sub", B, C)), "x[0] - (x[1] - x[2])"),
        (tir.Binary("sub", tir.Binary("sub", A, B), C), "x[0] - x[1] - x[2]"),
        (tir.Binary("mul", tir.Binary("add", A, B), C), "(x[0] + x[1]) * x[2]"),
        (tir.Binary("add", A, tir.Binary("mul", B, C)), "x[0] + x[1] * x[2]"),
        (tir.Unary("neg", tir.Binary("add", A, B)), "-(x[0] + x[1])"),
        (tir.Unary("neg", tir.Unary("neg", A)), "--x[0]"),
        (tir.Unary("neg", tir.Literal(1.0, "float32")), "-f32(1.0)"),
        (tir.Comparison("eq", tir.Comparison("lt", A, B), tir.Comparison("lt", B, C)),
         "(x[0] < x[1]) == (x[1] < x[2])"),
        (tir.Binary("and", tir.Comparison("lt", A, B), tir.Comparison("lt", B, C)),
         "(x[0] < x[1]) & (x[1] < x[2])"),
        (tir.Select(tir.Comparison("lt", A, B), A, tir.Cast(B, "float32")),
         "select(data(x[0] < x[1]), x[0], cast(f32, x[1]))"),
    ],
)  # fmt: skip
def test_brackets_stand_where_they_are_needed_and_only_there(expr: tir.Expr, text: str) -> None:
    assert tir.expr_text(expr) == text
    assert tir.parse(tir.to_text(kernel(expr))) == kernel(expr)


def test_a_statement_prints_alone_and_a_marked_one_in_its_kernel() -> None:
    func = kernel(A)
    loop = func.body[0]
    assert isinstance(loop, tir.For)
    assert tir.stmt_text(loop) == "for i in serial(0, 8):\n    y[i] = x[0]"
    marked = tir.to_text(func, loop.body[0], "here")
    assert "        y[i] = x[0]  # <-- here\n" in marked
    assert tir.parse(marked) == func


def test_empty_bodies_and_blocks_come_back() -> None:
    func = tir.PrimFunc(
        "nothing", (), (tir.Block("b", ()), tir.If(tir.Comparison("lt", A, B), (), ()))
    )
    text = tir.to_text(tir.PrimFunc("nothing", PARAMS, func.body))
    assert text.count("pass") == 2
    assert tir.parse(text).body == func.body
    assert tir.parse(tir.to_text(tir.PrimFunc("empty", (), ()))) == tir.PrimFunc("empty", (), ())


def test_the_usual_ways_to_write_a_condition_are_understood() -> None:
    chained = tir.parse(
        """
        @primfunc
        def f(y: out[f32[4]]):
            for i in serial(0, 4):
                if 0 <= i - 1 < 2 and not i == 3:
                    y[i] = f32(1.0)
        """
    )
    plain = tir.to_text(chained)
    assert "if i >= 1 and i < 3 and i != 3:" in plain


def with_line(line: str) -> str:
    return f"@primfunc\ndef f(x: f32[4], y: out[f32[4]]):\n    {line}\n"


@pytest.mark.parametrize(
    ("line", "place", "reason"),
    [
        ("y[0] = z[0]", "line 3, column 12", "no buffer is called z; declared so far: x, y"),
        ("y[0] = 1.0", "line 3, column 12", "needs its element type"),
        ("y[0] = i8(300)", "line 3, column 12", "300 does not fit in i8"),
        ("y[0] = i8(1.5)", "line 3, column 12", "needs an integer"),
        ("y[0] = bool(1)", "line 3, column 12", "bool cannot hold 1"),
        ("y[0] = q16(1)", "line 3, column 12", "q16 with 1 arguments"),
        ("y[0] = gamma(x[0])", "line 3, column 12", "gamma with 1 arguments"),
        ("y[i*j] = x[0]", "line 3, column 7", "cannot multiply i by j"),
        ("y[i // 0] = x[0]", "line 3, column 7", "divided by a positive constant"),
        ("y[x[0]] = x[0]", "line 3, column 7", "not an index expression"),
        ("x = alloc(f32[4])", "line 3, column 9", "buffer x is declared twice"),
        ("t = alloc(f32[4], heap)", "line 3, column 9", "expected a type and a scope"),
        ("t = alloc(f32[-4])", "line 3, column 9", "negative extent"),
        ("t = alloc(q32[4])", "line 3, column 15", "expected an element type"),
        ("y[0] -= x[0]", "line 3, column 5", "not a statement of the text form"),
        ("while True: pass", "line 3, column 5", "not a statement of the text form"),
        ("for i in range(3): pass", "line 3, column 5", "a loop is such as `for i in serial"),
        ("for i in range(0, 4): pass", "line 3, column 14", "expected a loop kind"),
        ("if x[0] < f32(1.0): pass", "line 3, column 8", "not an index expression"),
        ("if data(x[0] < 1): pass", "line 3, column 20", "needs its element type"),
        ("with block(b): pass", "line 3, column 10", "expected block("),
        ('with block("b", paddin_of="x"): pass', "line 3, column 21", "no annotation paddin_of"),
        ("with let(x[0]): pass", "line 3, column 10", "expected block("),
        ("with let(x[0]) as x: pass", "line 3, column 23", "buffer x is declared twice"),
        ("with let(1) as t: pass", "line 3, column 14", "needs its element type"),
        ('with block("b") as t: pass', "line 3, column 5", "not a statement of the text form"),
        ("assume(x[0])", "line 3, column 5", "expected assume(unless("),
        ("y[0] = = x[0]", "line 3, column 12", "not a kernel"),
    ],
)
def test_bad_statements_are_refused_with_place_and_reason(
    line: str, place: str, reason: str
) -> None:
    with pytest.raises(ParseError) as caught:
        tir.parse(with_line(line))
    message = str(caught.value)
    assert message.startswith(place)
    assert reason in message
    assert line in message


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "expected one function"),
        ("def f(): pass", "expected one function under @primfunc"),
        ("@primfunc\ndef f(x): pass", "parameter x needs a type"),
        ("@primfunc\ndef f(*x): pass", "plain parameters"),
        ("@primfunc\ndef f(x: f32[n]): pass", "expected an integer"),
    ],
)
def test_bad_kernels_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ParseError, match=reason):
        tir.parse(text)
