"""Primitives on the lifetime of buffers: delete one that nothing reads, reuse one for another.

In: a kernel and buffers that it allocates.  Out: the kernel with fewer of them.  What always holds:
each read that stays sees the value that it saw before.
"""

from __future__ import annotations

from graphflow import effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.buffers import relocation
from graphflow.schedule.buffers.memory import without_allocation
from graphflow.schedule.conditions.conditions import without_stores
from graphflow.schedule.places.obligations import require
from graphflow.schedule.steps.frame import Rewrite


def delete_buffer(func: tir.PrimFunc, buffer: str) -> Rewrite:
    """`a: T; S` → `S`, without the stores to `a`.

    Condition: *dead*: nothing reads `a`, nor assumes anything of it.
    """
    old = relocation.private_buffer(func, buffer)
    unread = require(effects.never_read(func, old), f"dead: nothing reads {buffer}")
    new = replace(func, body=without_stores(func.body, {old}))
    return Rewrite(new, (unread,))


def reuse_buffer(func: tir.PrimFunc, buffer: str, other: str) -> Rewrite:
    """`a: T[n]; …; b: T[n]; S` → `a: T[n]; …; S[b → a]`, for `buffer` a and `other` b.

    Conditions: *type*: both have the same element type, shape and memory.  *scope*: `a` is
    allocated wherever `b` is used.  *dead*: each read still sees the same write, so `a` is not
    needed any more where `b` is written.
    """
    kept, gone = relocation.private_buffer(func, buffer), relocation.private_buffer(func, other)
    if kept == gone:
        raise ScheduleError(f"type: {buffer} is one buffer, and two are needed")
    if replace(gone, name=buffer) != kept:
        raise ScheduleError(f"type: {_type(kept)} is not {_type(gone)}")
    outer, inner = (
        relocation.allocation_of(func, kept).path,
        relocation.allocation_of(func, gone).path,
    )
    if not _encloses(outer, inner):
        raise ScheduleError(f"scope: {buffer} is not allocated around {other} and before it")
    body = tir.rename_buffers(without_allocation(func.body, gone), {gone: kept})
    new = replace(func, body=body)
    condition = f"dead: {buffer} is not needed where {other} is"
    proofs = relocation.require_same_sources(func, new, (kept, gone), (kept,), condition)
    return Rewrite(new, proofs, {other: (buffer,)})


def _type(buffer: tir.Buffer) -> str:
    return f"{buffer.name}: {buffer.dtype}{list(buffer.shape)} in {buffer.scope} memory"


def _encloses(outer: effects.Path, inner: effects.Path) -> bool:
    """Whether what is allocated at the first path exists at the second one."""
    depth = len(outer) - 1
    return (
        len(inner) > depth and inner[:depth] == outer[:depth] and inner[depth][0] > outer[depth][0]
    )
