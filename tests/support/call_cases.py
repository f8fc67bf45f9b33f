"""Random applications of the primitives on calls, lanes and no-ops.

What the primitives on calls do never changes what a kernel computes, so that the rewrite without
conditions is the kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graphflow.schedule import (
    extract_subproc,
    inline,
    mark_unrolled,
    remove_no_op,
    vectorize_loop,
)
from graphflow.tir import Allocate, Block, For, LoopKind, PrimFunc, Reduce, Store, loops_of, walk
from support.buffer_cases import buffer_kernel
from support.loop_cases import Arguments, at, edited, one_of
from support.primitive_cases import PrimitiveCase
from support.random_kernels import Number
from support.statement_places import places_of


def _extracted(func: PrimFunc, number: Number) -> Arguments:
    place = one_of(places_of(func, For, Block), number)
    return place and (place, "inner")


def calling_kernel(number: Number) -> PrimFunc:
    """A buffer kernel of which one loop is a kernel that it calls."""
    func = buffer_kernel(number)
    arguments = _extracted(func, number)
    return extract_subproc(func, *arguments).func if arguments else func


def _innermost(func: PrimFunc, number: Number) -> Arguments:
    inner = [
        loop.var.name
        for loop in loops_of(func.body)
        if not any(isinstance(stmt, For | Allocate) for stmt in walk(loop.body))
    ]
    return (one_of(inner, number),) if inner else None


def _marked(kind: LoopKind) -> Callable[[PrimFunc, str], PrimFunc | None]:
    def rewrite(func: PrimFunc, loop: str) -> PrimFunc | None:
        if at(func, loop).extent is None:
            return None
        return edited(func, loop, lambda stmt: (replace(stmt, kind=kind),))

    return rewrite


def _write(func: PrimFunc, number: Number) -> Arguments:
    place = one_of(places_of(func, Store, Reduce), number)
    return place and (place,)


CALL_CASES = (
    PrimitiveCase(extract_subproc, _extracted, lambda func, *_: func, buffer_kernel),
    PrimitiveCase(
        inline,
        lambda func, _: ("inner",) if "inner" in places_of(func) else None,
        lambda func, *_: func,
        calling_kernel,
    ),
    PrimitiveCase(mark_unrolled, _innermost, _marked(LoopKind.UNROLLED)),
    PrimitiveCase(
        remove_no_op, _write, lambda func, place: edited(func, place, lambda _: ()), buffer_kernel
    ),
    PrimitiveCase(vectorize_loop, _innermost, _marked(LoopKind.VECTORIZED)),
)
