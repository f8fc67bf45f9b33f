"""Rewrites of what calls, lets and named windows perform."""

from graphflow.arith import Var, const
from graphflow.base.fields import replace
from graphflow.tir import (
    Binary,
    Block,
    Buffer,
    Call,
    Expr,
    Let,
    Load,
    PrimFunc,
    Reduce,
    Stmt,
    Store,
    calls_in,
    map_as_written,
    map_body,
    map_expressions,
    parse,
    performed,
    redirect_accesses,
    rename_buffers,
    substitute_body,
    to_text,
    with_performed,
)
from support.kernels.called_kernels import KERNEL

WRITTEN = """
@instruction
def fill(c: out[i32[()]], a: i32[()]):
    c[()] = a[()]


@primfunc
def k(x: i32[4], y: out[i32[4]]):
    t = alloc(i32[()], register)
    for i in serial(0, 4):
        with let(x[i]) as v:
            fill(t[()], v[()])
            y[i] = t[()] + v[()]
"""


def test_substituted_renamed_and_redirected_arguments_stay_a_call() -> None:
    func = parse(KERNEL)
    (call,) = calls_in(func.body)
    body = substitute_body((call,), {Var("t"): const(1)})
    body = rename_buffers(body, {func.param("x"): Buffer("z", (3,))})
    turned = Buffer("v", (8, 3))
    body = redirect_accesses(body, func.param("w"), turned, lambda at: (at[1], at[0]))
    (moved,) = body
    assert isinstance(moved, Call)
    assert to_text(PrimFunc("k", (), body)).endswith("    fma(y[4:8], z[r], v[4:8, r])\n")


def test_a_call_that_does_something_else_becomes_a_block() -> None:
    (call,) = calls_in(parse(KERNEL).body)
    doubled = map_expressions((call,), lambda e: e)
    assert doubled == (call,)
    zeros = redirect_accesses(
        (call,), call.windows[0].buffer, Buffer("v", (16,)), lambda at: (2 * at[0],)
    )
    (block,) = zeros
    assert isinstance(block, Block)
    assert block.name == "fma"
    assert len(block.body) == len(performed(call))


def test_a_rewrite_that_changes_nothing_returns_the_same_object() -> None:
    for text in (KERNEL, WRITTEN):
        body = parse(text).body
        assert map_body(body, lambda stmt: stmt) is body
        assert map_as_written(body, lambda stmt: stmt) is body
        assert map_expressions(body, lambda expr: expr) is body


def test_a_map_as_written_leaves_calls_whole() -> None:
    body = parse(KERNEL).body
    seen: list[Stmt] = []

    def change(stmt: Stmt) -> Stmt:
        seen.append(stmt)
        return stmt

    map_as_written(body, change)
    assert calls_in(body)[0] in seen and not any(isinstance(stmt, Reduce) for stmt in seen)
    map_body(body, change)
    assert any(isinstance(stmt, Reduce) for stmt in seen)


def the_let(body: tuple[Stmt, ...]) -> Let:
    (found,) = (stmt for loop in body for stmt in getattr(loop, "body", ()))
    assert isinstance(found, Let)
    return found


def test_a_let_whose_value_changes_stays_one() -> None:
    def doubled(expr: Expr) -> Expr:
        return Binary("add", expr, expr) if isinstance(expr, Load) and expr.buffer.shape else expr

    new = the_let(map_expressions(parse(WRITTEN).body, doubled))
    assert new.value == doubled(the_let(parse(WRITTEN).body).value)


def test_a_let_whose_buffer_is_written_is_none_any_more() -> None:
    """By a store, and by a call: the second needs the definition that the call names."""
    let = the_let(parse(WRITTEN).body)
    allocate, store, call, last = performed(let)
    assert isinstance(store, Store) and isinstance(call, Call)
    assert with_performed(let, (allocate, store, call, last)) == let
    assert isinstance(with_performed(let, (allocate, store, store, last)), Block)
    target, source = call.windows
    on_let = replace(call, windows=(replace(target, buffer=let.buffer), source))
    block = with_performed(let, (allocate, store, on_let, last))
    assert isinstance(block, Block) and block.name == "v.let"
    onto = replace(call, windows=(target, replace(source, buffer=target.buffer)))
    assert isinstance(with_performed(let, (allocate, store, onto, last)), Let)
