"""Kernels with a part left out, for shrinking.

In: a kernel that is valid at a stage.  Out: kernels that are valid there, each with one part less:
a statement, a loop whose first iteration is left, a side of a condition, operands of a value, an
input that nothing reads.  Those that lose most come first.
"""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, Literal

from graphflow import tir
from graphflow.arith import constant_value
from graphflow.base.errors import GraphflowError
from graphflow.base.fields import replace


def smaller_kernels(func: tir.PrimFunc, stage: Literal["scheduled", "lowered"]) -> Iterator[Any]:
    for params in _fewer_params(func):
        yield from _valid(replace(func, params=params), stage)
    for body in _smaller_bodies(func.body):
        yield from _valid(replace(func, body=body), stage)


def _valid(func: tir.PrimFunc, stage: Any) -> Iterator[tir.PrimFunc]:
    try:
        tir.verify(func, stage)
    except GraphflowError:
        return
    yield func


def _fewer_params(func: tir.PrimFunc) -> Iterator[tuple[tir.Param, ...]]:
    used = {access.buffer for access in tir.accesses(func.body)}
    for param in func.params:
        if param.buffer not in used and len(func.params) > 1:
            yield tuple(p for p in func.params if p is not param)


def _smaller_bodies(body: tir.Body) -> Iterator[tir.Body]:
    for k in reversed(range(len(body))):
        yield (*body[:k], *body[k + 1 :])
    for k, stmt in enumerate(body):
        for made in _instead(stmt):
            yield (*body[:k], *made, *body[k + 1 :])


def _instead(stmt: tir.Stmt) -> Iterator[tir.Body]:
    """What may stand in the place of a statement."""
    match stmt:
        case tir.For():
            yield tir.substitute_body(stmt.body, {stmt.var: stmt.start})
            if stmt.kind is not tir.LoopKind.SERIAL:
                yield (replace(stmt, kind=tir.LoopKind.SERIAL),)
            extent = constant_value(stmt.stop - stmt.start)
            if extent is not None and extent > 1:
                yield (replace(stmt, stop=stmt.start + extent // 2),)
                yield (replace(stmt, stop=stmt.stop - 1),)
        case tir.If():
            yield stmt.then
            yield stmt.orelse
        case tir.Block():
            yield stmt.body
        case tir.Reduce():
            yield (tir.Store(stmt.buffer, stmt.indices, stmt.value),)
    for name in ("body", "then", "orelse"):
        inner = getattr(stmt, name, ())
        for less in _smaller_bodies(inner):
            yield (replace(stmt, **{name: less}),)  # type: ignore[type-var]
    if isinstance(stmt, tir.Store | tir.Reduce):
        for value in _smaller_values(stmt.value):
            yield (replace(stmt, value=value),)


def _smaller_values(expr: Any) -> Iterator[Any]:
    """Its operands of the same type, and the expression with one operand made smaller."""
    dtype = expr.dtype
    if not isinstance(expr, tir.Literal | tir.Load):
        yield tir.Literal(dtype == "bool" or (1.0 if dtype in tir.FLOATS else 1), dtype)
    parts = [f.name for f in fields(expr) if f.init] if is_dataclass(expr) else []
    operands = {
        name: part for name in parts if isinstance(part := getattr(expr, name), tir.EXPRESSIONS)
    }
    for part in operands.values():
        if part.dtype == dtype:
            yield part
    for name, part in operands.items():
        for less in _smaller_values(part):
            yield replace(expr, **{name: less})
