"""Prints kernels in their text form, which is Python's syntax, so that `ast` can parse it.

In: a `PrimFunc`, a statement or a scalar expression.  Out: text.  What always holds:
`parse(to_text(func)) == func` for every kernel that `verify` accepts, to the last bit of each
literal.  Index expressions and predicates print as in `graphflow.arith`; a condition that depends
on data is wrapped in `data(…)`, which tells it from an index predicate.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import assert_never

import numpy as np

from graphflow.arith import IndexExpr
from graphflow.base.dtypes import DTYPES, FLOATING
from graphflow.tir.nodes import declared, exprs, stmts
from graphflow.tir.nodes.memory_space import MemorySpace
from graphflow.tir.nodes.node_bases import node_text

DTYPE_TEXT = {
    "float32": "f32",
    "float64": "f64",
    "int8": "i8",
    "int16": "i16",
    "int32": "i32",
    "int64": "i64",
    "uint8": "u8",
    "uint16": "u16",
    "uint32": "u32",
    "uint64": "u64",
    "bool": "bool",
    "float16": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8e4m3fn",
    "float8_e4m3fnuz": "f8e4m3fnuz",
    "float8_e5m2": "f8e5m2",
    "float8_e5m2fnuz": "f8e5m2fnuz",
    "float4_e2m1fn": "f4e2m1fn",
    "int4": "i4",
    "uint4": "u4",
    "int2": "i2",
    "uint2": "u2",
}
"""How each element type reads in the text form."""

BINARY_SIGNS = {
    "add": "+", "sub": "-", "mul": "*", "div": "/",
    "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>",
}  # fmt: skip
UNARY_SIGNS = {"neg": "-", "not": "~"}
COMPARISON_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!="}

INDENT = "    "

MEMORY_WORDS = ("instructions", "loads", "stores", "rank", "capacity", "alignment")
"""The keywords of `memory(…)`, the fields of a `MemorySpace` other than its name."""

# Python's precedence of the signs above, so that brackets stand only where they are needed.
_COMPARISON, _UNARY, _ATOM = 1, 8, 9
_BINARY_RANK = {
    "or": 2, "xor": 3, "and": 4, "shl": 5, "shr": 5, "add": 6, "sub": 6, "mul": 7, "div": 7,
}  # fmt: skip


def to_text(func: stmts.PrimFunc, mark: stmts.Stmt | None = None, note: str = "") -> str:
    """`func` as text; the statement `mark`, compared by identity, gets `note` as a comment."""
    lines = list(_declaration_lines(func))
    for definition in declared.definitions_in(func.body):
        lines += (*_func_lines(definition, "instruction", mark, note), "", "")
    return "\n".join((*lines, *_func_lines(func, "primfunc", mark, note))) + "\n"


def _declaration_lines(func: stmts.PrimFunc) -> Iterator[str]:
    """A line for each memory and each configuration, with the fields that are used."""
    configs: dict[str, list[str]] = {}
    for field in declared.fields_of(func):
        config, name = field.name.split(".")
        configs.setdefault(config, []).append(f"{name}={_dtype_text(field.dtype)}")
    yield from (f"{name} = config({', '.join(fields)})" for name, fields in configs.items())
    memories = declared.memories_of(func)
    yield from (_memory_text(memory) for memory in memories)
    if configs or memories:
        yield from ("", "")


def _memory_text(memory: MemorySpace) -> str:
    plain = MemorySpace(memory.name)
    words = [
        f"{word}={_word_text(getattr(memory, word))}"
        for word in MEMORY_WORDS
        if getattr(memory, word) != getattr(plain, word)
    ]
    return f"{memory.name} = memory({', '.join(words)})"


def _word_text(value: tuple[str, ...] | int | bool) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return f"({', '.join(map(_quoted, value))}{',' * (len(value) == 1)})"


def _intrinsic_text(intrinsic: stmts.Intrinsic) -> str:
    words = [f"llvm={_quoted(intrinsic.name)}"]
    if intrinsic.feature is not None:
        words.append(f"feature={_quoted(intrinsic.feature)}")
    if intrinsic.operands:
        words.append(f"operands={_word_text(intrinsic.operands)}")
    return f"instruction({', '.join(words)})"


def _func_lines(
    func: stmts.PrimFunc, decorator: str, mark: stmts.Stmt | None, note: str
) -> Iterator[str]:
    params = (*map(_param_text, func.params), *(f"{var}: index" for var in func.scalars))
    yield f"@{decorator if func.intrinsic is None else _intrinsic_text(func.intrinsic)}"
    yield f"def {func.name}({', '.join(params)}):"
    if func.callee is not None:
        yield f"{INDENT}# {func.callee} computes the outputs"
    yield from _body_lines(func.body, 1, mark, note)


def stmt_text(stmt: stmts.Stmt) -> str:
    """One statement with the bodies below it; no newline at the end."""
    return "\n".join(_stmt_lines(stmt, 0, None, ""))


def expr_text(expr: exprs.Expr) -> str:
    """One scalar expression."""
    return _expr(expr)[0]


def condition_text(condition: exprs.Condition) -> str:
    """An index predicate as it is, a condition on data as `data(…)`."""
    match condition:
        case (
            exprs.Literal()
            | exprs.Load()
            | exprs.IndexValue()
            | exprs.Unary()
            | exprs.Binary()
            | exprs.Comparison()
            | exprs.Select()
            | exprs.Cast()
            | exprs.Undef()
        ):
            return f"data({expr_text(condition)})"
        case _:
            return str(condition)


def element_text(buffer: exprs.Buffer, indices: Iterable[IndexExpr]) -> str:
    """`x[i, j]`; an element of a buffer without axes is `x[()]`, a field `mode.act`."""
    if buffer.is_field:
        return buffer.name
    return f"{buffer.name}[{_list_text(map(str, indices))}]"


def _dtype_text(dtype: str) -> str:
    # A damaged kernel is printed too, so that an error can show it.
    return DTYPE_TEXT.get(dtype, dtype)


def _list_text(items: Iterable[str]) -> str:
    return ", ".join(items) or "()"


def _param_text(param: stmts.Param) -> str:
    buffer = param.buffer
    details = _detail_text(buffer)
    text = f"buffer({_type_text(buffer)}{details})" if details else _type_text(buffer)
    text = f"window[{text}]" if param.strided else text
    text = text if param.role is stmts.Role.INPUT else f"{param.role.value}[{text}]"
    return f"{buffer.name}: {text}"


def _type_text(buffer: exprs.Buffer) -> str:
    return f"{_dtype_text(buffer.dtype)}[{_list_text(map(str, buffer.shape))}]"


def _detail_text(buffer: exprs.Buffer) -> str:
    """The arguments of a buffer's declaration other than its shape and dtype."""
    place = buffer.scope.name if isinstance(buffer.scope, MemorySpace) else buffer.scope
    scope = "" if place == "global" else f", {place}"
    return scope + (f", sep={buffer.separators}" if buffer.separators else "")


def _body_lines(body: stmts.Body, depth: int, mark: stmts.Stmt | None, note: str) -> Iterator[str]:
    if not body:
        yield INDENT * depth + "pass"
    for stmt in body:
        yield from _stmt_lines(stmt, depth, mark, note)


def _stmt_lines(stmt: stmts.Stmt, depth: int, mark: stmts.Stmt | None, note: str) -> Iterator[str]:
    comment = f"  # <-- {note}" if stmt is mark else ""
    yield f"{INDENT * depth}{head_text(stmt)}{comment}"
    match stmt:
        case stmts.For() | stmts.Block() | stmts.Let() | stmts.NamedWindow():
            yield from _body_lines(stmt.body, depth + 1, mark, note)
        case stmts.If():
            yield from _body_lines(stmt.then, depth + 1, mark, note)
            if stmt.orelse:
                yield f"{INDENT * depth}else:"
                yield from _body_lines(stmt.orelse, depth + 1, mark, note)
        case stmts.Store() | stmts.Reduce() | stmts.Allocate() | stmts.Assume() | stmts.Call():
            pass
        case _:
            assert_never(stmt)


def head_text(stmt: stmts.Stmt) -> str:
    """The line of a simple statement, or the first line of a compound one."""
    match stmt:
        case stmts.Store():
            return f"{element_text(stmt.buffer, stmt.indices)} = {expr_text(stmt.value)}"
        case stmts.Reduce():
            return _reduce_text(stmt)
        case stmts.For():
            return f"for {stmt.var} in {stmt.kind.value}({stmt.start}, {stmt.stop}):"
        case stmts.If():
            return f"if {condition_text(stmt.condition)}:"
        case stmts.Allocate():
            buffer = stmt.buffer
            return f"{buffer.name} = alloc({_type_text(buffer)}{_detail_text(buffer)})"
        case stmts.Block():
            words = (f", {key}={_quoted(value)}" for key, value in stmt.annotations)
            return f"with block({_quoted(stmt.name)}{''.join(words)}):"
        case stmts.Assume():
            return f"assume(unless({condition_text(stmt.unless)}), {expr_text(stmt.claim)})"
        case stmts.Call():
            return _call_text(stmt)
        case stmts.Let():
            return f"with let({expr_text(stmt.value)}) as {stmt.buffer.name}:"
        case stmts.NamedWindow():
            window = _window_text(stmt.window, stmt.buffer.shape)
            return f"with {window} as {stmt.buffer.name}:"
    assert_never(stmt)


def _call_text(call: stmts.Call) -> str:
    params = call.definition.params
    windows = (_window_text(w, p.buffer.shape) for w, p in zip(call.windows, params, strict=False))
    named = () if call.name == call.definition.name else (f"name={_quoted(call.name)}",)
    arguments = (*windows, *map(str, call.scalars), *named)
    return f"{call.definition.name}({', '.join(arguments)})"


def _window_text(window: stmts.BufferWindow, shape: tuple[int, ...]) -> str:
    extents = dict(zip(window.kept, shape, strict=False))
    items = (
        f"{start}:{start + extents[axis]}" if axis in extents else str(start)
        for axis, start in enumerate(window.starts)
    )
    return f"{window.buffer.name}[{_list_text(items)}]"


def _reduce_text(stmt: stmts.Reduce) -> str:
    element, value = element_text(stmt.buffer, stmt.indices), expr_text(stmt.value)
    match stmt.op:
        case stmts.ReduceOp.ADD:
            return f"{element} += {value}"
        case stmts.ReduceOp.MUL:
            return f"{element} *= {value}"
        case stmts.ReduceOp.MIN | stmts.ReduceOp.MAX:
            return f"reduce_{stmt.op.value}({element}, {value})"
    assert_never(stmt.op)


def _quoted(text: str) -> str:
    inner = repr(text)[1:-1].replace('"', '\\"').replace("\\'", "'")
    return f'"{inner}"'


def _expr(expr: exprs.Expr) -> tuple[str, int]:
    """The text of `expr`, and the precedence of its outermost operator."""
    match expr:
        case exprs.Literal():
            return f"{_dtype_text(expr.dtype)}({_number_text(expr)})", _ATOM
        case exprs.Load():
            return element_text(expr.buffer, expr.indices), _ATOM
        case exprs.IndexValue():
            return f"index({expr.index}, {_dtype_text(expr.dtype)})", _ATOM
        case exprs.Unary() if expr.op in UNARY_SIGNS:
            return UNARY_SIGNS[expr.op] + _within(expr.operand, _UNARY), _UNARY
        case exprs.Unary():
            return f"{expr.op}({expr_text(expr.operand)})", _ATOM
        case exprs.Binary() if expr.op in BINARY_SIGNS:
            rank = _BINARY_RANK[expr.op]
            left, right = _within(expr.left, rank), _within(expr.right, rank + 1)
            return f"{left} {BINARY_SIGNS[expr.op]} {right}", rank
        case exprs.Binary():
            return f"{expr.op}({expr_text(expr.left)}, {expr_text(expr.right)})", _ATOM
        case exprs.Comparison():
            left, right = (_within(side, _COMPARISON + 1) for side in (expr.left, expr.right))
            return f"{left} {COMPARISON_SIGNS[expr.op]} {right}", _COMPARISON
        case exprs.Select():
            sides = f"{expr_text(expr.if_true)}, {expr_text(expr.if_false)}"
            return f"select({condition_text(expr.condition)}, {sides})", _ATOM
        case exprs.Cast():
            return f"cast({_dtype_text(expr.dtype)}, {expr_text(expr.operand)})", _ATOM
        case exprs.Undef():
            return f"undef({_dtype_text(expr.dtype)})", _ATOM
    assert_never(expr)


def _within(expr: exprs.Expr, rank: int) -> str:
    text, own = _expr(expr)
    return text if own >= rank else f"({text})"


def _number_text(literal: exprs.Literal) -> str:
    """The shortest decimal with the literal's bits; an unusual NaN is printed as its bits."""
    try:
        number = np.asarray(literal.value, DTYPES[literal.dtype])[()]
    except (KeyError, OverflowError, ValueError):
        return str(literal.value)
    if literal.dtype not in FLOATING:
        return str(number)
    for text in (str(number), repr(float(number))):
        if exprs.Literal(float(text), literal.dtype) == literal:
            return text
    return f"bits=0x{literal.bits()[::-1].hex()}"


node_text.register(stmts.PrimFunc, to_text)
for _kind in (
    stmts.Store,
    stmts.Reduce,
    stmts.For,
    stmts.If,
    stmts.Allocate,
    stmts.Block,
    stmts.Assume,
    stmts.Call,
    stmts.Let,
    stmts.NamedWindow,
):
    node_text.register(_kind, stmt_text)
