"""Tests of the verifier: for each rule a kernel that keeps it and one that breaks it."""

from collections.abc import Callable
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.arith import Var, const
from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.tir import (
    STAGES,
    Binary,
    Block,
    BlockNote,
    Buffer,
    Expr,
    For,
    IndexValue,
    Literal,
    Load,
    LoopKind,
    Param,
    PrimFunc,
    Reduce,
    ReduceOp,
    Role,
    Stmt,
    Store,
    Unary,
    Undef,
    parse,
    verify,
)
from support.strategies import KernelOptions, primfuncs

X = Buffer("x", (4,))
N = Buffer("n", (4,), "int32")
B = Buffer("b", (4,), "bool")
Y = Buffer("y", (4,))
M = Buffer("m", (4,), "int32")
P = Buffer("p", (4,), "bool")
PARAMS = (*(Param(b, Role.INPUT) for b in (X, N, B)), *(Param(b, Role.OUTPUT) for b in (Y, M, P)))
ZERO = (const(0),)


def text_kernel(body: str) -> PrimFunc:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    head = (
        "def f(x: f32[4], n: i32[4], b: bool[4], y: out[f32[4]], m: out[i32[4]], p: out[bool[4]])"
    )
    return parse(f"@primfunc\n{head}:\n{lines}\n")


def refuse(func: PrimFunc, stage: str, reason: str) -> None:
    with pytest.raises(VerifyError) as caught:
        verify(func, stage)
    assert reason in str(caught.value)


@given(
    st.sampled_from(tuple(STAGES)).flatmap(
        lambda stage: st.tuples(st.just(stage), primfuncs(KernelOptions(stage=stage)))
    )
)
def test_random_kernels_are_accepted_at_their_stage(case: tuple[str, PrimFunc]) -> None:
    stage, func = case
    verify(func, stage)


# -- names, scopes, ranks


@pytest.mark.parametrize(
    "body",
    [
        "for i in serial(0, 4):\n    y[i] = x[i]",
        "for i in serial(0, 4):\n    for j in serial(i, 4):\n        y[j] = x[i]",
        "t = alloc(f32[4])\nt[0] = x[0]\ny[0] = t[0]",
        'with block("a"):\n    pass\nwith block("b", states="x"):\n    y[0] += x[0]',
        "for i in serial(0, 4):\n    if i >= 2 and i != 3:\n        y[i] = index(i, f32)",
        "if data(x[0] < f32(0.0)):\n    y[0] = select(data(b[0]), x[0], f32(1.0))",
        "m[0] = n[0] & cast(i32, b[0])\np[0] = ~b[0] | (x[0] == x[1])",
        "p[0] *= b[0]\nm[0] += -n[0] / i32(2)",
        "assume(unless(data(b[0])), x[0] == undef(f32))\ny[0] = undef(f32)",
        "with let(x[0] * x[1]) as t:\n    with let(t[()] < x[2]) as c:\n        p[0] = c[()]",
        "for i in serial(0, 4):\n    with let(index(i + 1, i32)) as t:\n        m[i] = t[()]",
    ],
)
def test_well_formed_kernels_pass(body: str) -> None:
    verify(text_kernel(body), "definition")


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y[i] = x[0]", "no loop around the use binds i"),
        ("y[0] = x[i]", "no loop around the use binds i"),
        ("y[0] = index(i, f32)", "no loop around the use binds i"),
        ("if i < 3:\n    pass", "no loop around the use binds i"),
        ("assume(unless(i < 3), b[0])", "no loop around the use binds i"),
        ("y[0] = select(i < 3, x[0], x[1])", "no loop around the use binds i"),
        ("for i in serial(0, j):\n    pass", "no loop around the use binds j"),
        ("for i in serial(0, i):\n    pass", "no loop around the use binds i"),
        ("for i in serial(0, 4):\n    pass\ny[i] = x[0]", "no loop around the use binds i"),
        ("for i in serial(0, 4):\n    pass\nfor i in serial(0, 4):\n    pass", "used twice"),
        ('with block("a"):\n    pass\nwith block("a"):\n    pass', "block name a is used twice"),
        ("y[0, 0] = x[0]", "y is accessed with 2 indices for 1 axes"),
        ("y[0] = x[()]", "x is accessed with 0 indices for 1 axes"),
        ("x[0] = f32(0.0)", "input x is written"),
        ("x[0] += f32(0.0)", "input x is written"),
        ("if 0 < 1:\n    t = alloc(f32[4])\ny[0] = t[0]", "buffer t is not allocated here"),
        ("with let(x[0]) as t:\n    pass\ny[0] = t[()]", "buffer t is not allocated here"),
        ("with let(x[0]) as t:\n    t[()] = x[1]", "t is the value of a let, and is written"),
        ("with let(x[i]) as t:\n    pass", "no loop around the use binds i"),
        ("with let(x[0] + n[0]) as t:\n    pass", "add of float32 and int32"),
        ("for t in serial(0, 4):\n    with let(x[0]) as t:\n        pass", "for a loop variable"),
        ("t = alloc(f32[4], sep=(0,))", "separators (0,) do not split it"),
        ("t = alloc(f32[4, 4, 4], sep=(2, 1))", "separators (2, 1) do not split it"),
    ],
)
def test_broken_names_scopes_and_ranks(body: str, reason: str) -> None:
    refuse(text_kernel(body), "definition", reason)


# -- types


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("y[0] = n[0]", "y holds float32, the value is int32"),
        ("y[0] += n[0]", "y holds float32, the value is int32"),
        ("y[0] = x[0] + f64(1.0)", "add of float32 and float64; cast one of them"),
        ("p[0] = x[0] < n[0]", "lt of float32 and int32"),
        ("y[0] = select(0 < 1, x[0], n[0])", "select gives float32 or int32"),
        ("y[0] = select(data(x[0]), x[0], x[0])", "the condition x[0] is float32, not bool"),
        ("if data(n[0]):\n    pass", "the condition n[0] is int32, not bool"),
        ("assume(unless(0 < 1), x[0])", "the condition x[0] is float32, not bool"),
        ("assume(unless(data(x[0])), b[0])", "the condition x[0] is float32, not bool"),
        ("p[0] = -b[0]", "neg does not take a bool operand"),
        ("p[0] = b[0] - b[0]", "sub does not take bool operands"),
        ("y[0] = x[0] & x[0]", "and does not take float32 operands"),
        ("y[0] = ~x[0]", "not does not take a float32 operand"),
        ("m[0] = exp(n[0])", "exp does not take a int32 operand"),
        ("p[0] = index(0, bool)", "the index 0 is a number, not a bool"),
    ],
)
def test_broken_types(body: str, reason: str) -> None:
    refuse(text_kernel(body), "definition", reason)


@pytest.mark.parametrize(
    ("buffer", "value", "reason"),
    [
        (M, Literal(2**31, "int32"), "2147483648 is not a value of int32"),
        (M, Literal(0.5, "int32"), "0.5 is not a value of int32"),
        (M, Literal(float("nan"), "int32"), "nan is not an integer"),
        (P, Literal(1, "bool"), "the bool literal is 1"),
        (Y, Unary("gamma", Load(X, ZERO)), "gamma is not a unary operator"),
        (Y, Binary("nand", Load(X, ZERO), Load(X, ZERO)), "nand is not one of"),
        (Y, Undef("float24"), "float24 is not an element type"),
        (Y, IndexValue(const(0), "complex64"), "complex64 is not an element type"),
    ],
)
def test_broken_nodes_that_no_text_gives(buffer: Buffer, value: Expr, reason: str) -> None:
    func = PrimFunc("f", PARAMS, (Store(buffer, ZERO, value),))
    refuse(func, "definition", reason)


def test_a_buffer_must_be_the_declared_one() -> None:
    other = replace(X, shape=(5,))
    func = PrimFunc("f", PARAMS, (Store(Y, ZERO, Load(other, ZERO)),))
    refuse(func, "definition", "but declared as")


@pytest.mark.parametrize("name", ["a b", "for", "", "1x", "a..b"])
def test_names_must_be_identifiers(name: str) -> None:
    empty: tuple[Stmt, ...] = ()
    refuse(PrimFunc(name, (), empty), "definition", "is not an identifier")
    buffer = Param(Buffer(name, ()), Role.INPUT)
    refuse(PrimFunc("f", (buffer,), empty), "definition", "is not an identifier")
    loop = For(Var(name), const(0), const(1), LoopKind.SERIAL, ())
    refuse(PrimFunc("f", (), (loop,)), "definition", "is not an identifier")


def test_annotation_keys_are_different_and_known() -> None:
    note = BlockNote.STATES
    assert note.value == "states"
    for keys in ((note, note), (cast(BlockNote, "states"),), (cast(BlockNote, "paddin_of"),)):
        block = Block("b", (), tuple((key, "") for key in keys))
        refuse(PrimFunc("f", (), (block,)), "definition", "annotation keys")


def test_parameters_are_global_and_not_dotted() -> None:
    for buffer in (Buffer("a.b", ()), Buffer("a", (), "float32", "register")):
        func = PrimFunc("f", (Param(buffer, Role.INPUT),), ())
        refuse(func, "scheduled", "needs a plain name and global scope")


# -- stages

LEGAL_AT = [
    ("for i in parallel(0, 4):\n    y[i] = x[i]", ("scheduled", "lowered")),
    ("for i in vectorized(0, 4):\n    y[i] = x[i]", ("scheduled", "lowered")),
    ("for i in unrolled(0, 4):\n    y[i] = x[i]", ("scheduled", "lowered")),
    ("t = alloc(f32[4])", ("definition", "scheduled")),
    ("t = alloc(f32[4], scratch)", ("scheduled", "lowered")),
    ("t = alloc(f32[4], register)", ("scheduled", "lowered")),
    ("assume(unless(0 < 1), b[0])", ("definition", "scheduled")),
    ("y[0] = undef(f32)", ("definition", "scheduled")),
    ("y[0] = select(data(x[0] == undef(f32)), x[0], x[1])", ("definition", "scheduled")),
    ("for i in serial(0, 4):\n    for j in parallel(0, 4):\n        pass",
     ("scheduled", "lowered")),
    ("for i in parallel(0, 4):\n    pass\nfor j in parallel(0, 4):\n    pass",
     ("scheduled", "lowered")),
    ("y[0] = x[0]\nfor i in parallel(0, 4):\n    pass", ("scheduled",)),
    ("for i in parallel(0, 4):\n    pass\ny[0] = x[0]", ("scheduled",)),
    ('t = alloc(f32[4], scratch)\nwith block("b"):\n    for i in parallel(0, 4):\n        pass',
     ("scheduled", "lowered")),
    ("for i in vectorized(0, 4):\n    for j in vectorized(0, 4):\n        pass", ()),
    ("for i in vectorized(0, 4):\n    for j in parallel(0, 4):\n        pass", ()),
    ("for i in vectorized(0, 4):\n    for j in serial(0, 4):\n        pass",
     ("scheduled", "lowered")),
    ("for i in serial(0, 4):\n    for j in unrolled(0, i):\n        pass", ("scheduled",)),
    ("for i in serial(0, 4):\n    for j in vectorized(i, i + 4):\n        pass",
     ("scheduled", "lowered")),
    ("t = alloc(f32[4], register)\nfor i in serial(0, 4):\n    t[i] = x[i]", ("scheduled",)),
    ("t = alloc(f32[4], register)\nfor i in unrolled(0, 4):\n    t[i] = x[i]",
     ("scheduled", "lowered")),
    ("t = alloc(f32[4], scratch)\nfor i in serial(0, 4):\n    t[i] = x[i]",
     ("scheduled", "lowered")),
    ("with let(x[0]) as t:\n    y[0] = t[()]", tuple(STAGES)),
    ("with let(x[0]) as t:\n    for i in parallel(0, 4):\n        pass", ("scheduled",)),
]  # fmt: skip


@pytest.mark.parametrize("stage", tuple(STAGES))
@pytest.mark.parametrize(("body", "stages"), LEGAL_AT)
def test_what_is_legal_at_which_stage(body: str, stages: tuple[str, ...], stage: str) -> None:
    func = text_kernel(body)
    if stage in stages:
        verify(func, stage)
    else:
        refuse(func, stage, f"f is not a {stage} kernel")


def test_an_unknown_stage_is_named() -> None:
    with pytest.raises(ValueError, match="no stage is called final; there are definition"):
        verify(text_kernel("pass"), "final")


def test_the_message_shows_the_statement_in_its_kernel(golden: Callable[[str, str], None]) -> None:
    func = text_kernel(
        "for i in serial(0, 4):\n"
        '    with block("sum", preproc="pad"):\n'
        "        y[i] = f32(0.0)\n"
        "        for k in serial(0, 4):\n"
        "            y[i] += x[k] * n[k]"
    )
    with pytest.raises(VerifyError) as caught:
        verify(func, "definition")
    golden("verify_message", str(caught.value))


def test_reductions_keep_the_rules_of_stores() -> None:
    value = Load(X, ZERO)
    verify(PrimFunc("f", PARAMS, (Reduce(ReduceOp.MAX, Y, ZERO, value),)), "definition")
    func = PrimFunc("f", PARAMS, (Reduce(ReduceOp.MAX, X, ZERO, value),))
    refuse(func, "definition", "input x is written")
