"""Primitives that annotate a buffer: the memory that it is kept in, and its element type.

In: a kernel, a buffer that it allocates, and the annotation.  Out: the kernel with the buffer
annotated.  What always holds: types stay consistent.  Whether a target can keep the buffer there
is checked before code is generated (`tir.verify` at the stage `lowered`): indices of a buffer in
registers must be known to the emitter, and lowered kernels have no global buffers of their own.
`require_memories` checks memories that a user defines.
"""

from __future__ import annotations

from typing import get_args

import numpy as np

from graphflow import effects, tir
from graphflow.base.dtypes import FLOATS, STORED, integer_limits, smallest
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.buffers.relocation import allocation_of, private_buffer, touching
from graphflow.schedule.places.obligations import structural
from graphflow.schedule.steps.frame import Rewrite


def set_memory(func: tir.PrimFunc, buffer: str, scope: tir.Scope | tir.MemorySpace) -> Rewrite:
    """`a @ global` → `a @ scope`.

    Conditions: *memory*: the scope is one of `global`, `scratch` and `register`, or a `MemorySpace`
    that the user defines, and the kernel has no other one of this name.  *threads*: a buffer in
    registers is not shared by the iterations of a parallel loop.  Accesses are checked before code
    is generated, by `require_memories`.
    """
    old = private_buffer(func, buffer)
    if isinstance(scope, tir.MemorySpace):
        other = next(
            (m for m in tir.memories_of(func) if m.name == scope.name and m != scope), None
        )
        if other is not None:
            raise ScheduleError(f"memory: {func.name} has another memory called {scope.name}")
    elif scope not in get_args(tir.Scope):
        raise ScheduleError(f"memory: {scope!r} is none of {', '.join(get_args(tir.Scope))}")
    if scope == "register":
        _require_one_thread(func, old)
    if scope == old.scope:
        return Rewrite(func)
    new = replace(func, body=tir.rename_buffers(func.body, {old: replace(old, scope=scope)}))
    return Rewrite(new, (structural(f"where {buffer} is kept does not change its values"),))


def _require_one_thread(func: tir.PrimFunc, buffer: tir.Buffer) -> None:
    """ScheduleError where threads share a buffer: a parallel loop is between it and an access."""
    parallel = {
        one.stmt.var
        for one in effects.statements_of(func).statements
        if isinstance(one.stmt, tir.For) and one.stmt.kind is tir.LoopKind.PARALLEL
    }
    own = {axis.var for axis in allocation_of(func, buffer).domain.axes}
    for access in touching(func, buffer):
        shared = [a.var.name for a in access.domain.axes if a.var in parallel and a.var not in own]
        if shared:
            raise ScheduleError(
                f"threads: the iterations of {shared[0]} share {buffer.name} at {access}, and "
                "registers belong to one thread"
            )


def set_precision(func: tir.PrimFunc, buffer: str, dtype: str, exact: bool = True) -> Rewrite:
    """`a: T; a[i] = e; S[a[j]]` → `a: T'; a[i] = T'(e); S[T(a[j])]`.

    Conditions: *type*: T' is an element type that T can be cast to.  *exact*, unless the caller
    gives that up: T' holds every value of T.  *reduction*: none goes to the buffer, except minima
    and maxima where T' holds every value of T, and any between integers; others would be rounded
    elsewhere.
    """
    old = private_buffer(func, buffer)
    _require_castable(old, dtype)
    if dtype == old.dtype:
        return Rewrite(func)
    lost = _lost_value(old.dtype, dtype)
    holds = lost is None
    if exact and not holds:
        raise ScheduleError(f"exact: {dtype} does not hold every {old.dtype}, such as {lost}")
    wraps = all(np.issubdtype(tir.DTYPES[name], np.integer) for name in (old.dtype, dtype))
    for access in touching(func, old):
        op = access.access.op
        if op is not None and not (holds and (op.selects or wraps)):
            raise ScheduleError(f"reduction: {access} reduces by {op.value} in {old.dtype}")
    new = replace(func, body=_recast(func.body, old, replace(old, dtype=dtype)))
    claim = f"{dtype} holds every {old.dtype}" if holds else f"{buffer} may be rounded to {dtype}"
    return Rewrite(new, (structural(claim),))


def _require_castable(buffer: tir.Buffer, dtype: str) -> None:
    if dtype not in tir.DTYPES:
        raise ScheduleError(f"type: {dtype} is none of {', '.join(tir.DTYPES)}")
    if buffer.dtype in STORED or dtype in STORED or "bool" in (buffer.dtype, dtype):
        raise ScheduleError(f"type: {buffer.name} is {buffer.dtype}, not to be kept as {dtype}")


def _lost_value(old: str, new: str) -> float | int | None:
    """A number of one type that another one does not hold; None where it holds them all.

    That a float type holds an integer type is decided by the largest integer, which needs the most
    digits: numpy calls the cast of int64 to float64 safe, although 2**53 + 1 is rounded.
    """
    if old in FLOATS:
        if new in FLOATS:
            return None if np.can_cast(tir.DTYPES[old], tir.DTYPES[new], "safe") else smallest(old)
        return 0.5
    low, high = integer_limits(old)
    if new in FLOATS:
        return None if int(tir.DTYPES[new].type(high)) == high else high
    least, most = integer_limits(new)
    return high if high > most else low if low < least else None


def _recast(body: tir.Body, old: tir.Buffer, new: tir.Buffer) -> tir.Body:
    def on_expr(expr: tir.Expr) -> tir.Expr:
        if isinstance(expr, tir.Load) and expr.buffer == old:
            return tir.Cast(tir.Load(new, expr.indices), old.dtype)
        return expr

    def on_stmt(stmt: tir.Stmt) -> tir.Stmt:
        match stmt:
            case tir.Allocate() if stmt.buffer == old:
                return tir.Allocate(new)
            case tir.Store() | tir.Reduce() if stmt.buffer == old:
                return replace(stmt, buffer=new, value=tir.Cast(stmt.value, new.dtype))
            case _:
                return stmt

    return tir.map_body(tir.map_expressions(body, on_expr), on_stmt)
