"""The plain recipe: each stage keeps its own nest; lanes and threads where they are proven.

In: a definition and placements.  Out: its schedule.  Serves kernels of several nests that depend on
each other, and kernels that only move elements.
"""

from __future__ import annotations

from graphflow.arith import terms_of, variables
from graphflow.errors import ScheduleError
from graphflow.layout import Layout, row_major
from graphflow.schedule import (
    PadValue,
    Schedule,
    divide_loop,
    mult_loops,
    parallelize_loop,
    simplify_kernel,
    transform_layout,
    vectorize_loop,
)
from graphflow.target import Target
from graphflow.tir import DTYPES, Allocate, Block, For, LoopKind, PrimFunc, accesses, loops_of


def staged(
    definition: PrimFunc, placements: tuple[tuple[str, Layout, PadValue], ...], target: Target
) -> Schedule:
    """`definition` placed, its innermost loops in lanes, an outer loop shared by threads."""
    s = Schedule.of(definition)
    for name, layout, pad in placements:
        if layout != row_major(layout.logical_shape):
            s = s.apply(transform_layout, name, layout, pad)
    s = s.apply(simplify_kernel)
    lanes = target.lanes(max(DTYPES[p.buffer.dtype].itemsize for p in definition.params))
    for loop in [stmt for stmt in loops_of(s.func.body) if _is_innermost(stmt)]:
        s = _in_lanes(s, loop, lanes)
    return _threaded(s)


def _is_innermost(stmt: For) -> bool:
    return not any(True for _ in loops_of(stmt.body))


def _in_lanes(s: Schedule, loop: For, lanes: int) -> Schedule:
    """The loop in vectors where its accesses run along them; scalar otherwise."""
    extent, name = loop.extent, loop.var.name
    if extent is None or extent < 2 or not _contiguous(loop):
        return s
    try:
        if extent <= lanes:
            return s.apply(vectorize_loop, name)
        divided = s.apply(divide_loop, name, lanes, (name + "o", name + "v"), "cut")
        divided = divided.apply(vectorize_loop, name + "v")
        if extent % lanes:
            divided = divided.apply(vectorize_loop, name + "v_tail")
    except ScheduleError:
        return s  # a reduction into one element, or a carried value: it stays scalar
    return divided


def _contiguous(loop: For) -> bool:
    """Whether every access moves by one element or none when the loop does."""
    for access in accesses(loop.body):
        for atom, k in terms_of(access.buffer.flat_index(access.indices))[0]:
            if atom is loop.var and abs(k) > 1 and access.kind != "read":
                return False
            if atom is not loop.var and loop.var in variables(atom):
                return False
    return True


def _threaded(s: Schedule) -> Schedule:
    """Joins the outer loops of a kernel with a single nest, and gives them to the threads."""
    work = [stmt for stmt in s.func.body if not isinstance(stmt, Allocate)]
    if len(work) != 1 or any(isinstance(stmt, Allocate) for stmt in s.func.body):
        return s
    body = work[0].body if isinstance(work[0], Block) else (work[0],)
    if len(body) != 1 or not isinstance(body[0], For):
        return s
    outer = body[0]
    try:
        while len(outer.body) == 1 and isinstance(outer.body[0], For):
            inner = outer.body[0]
            if inner.kind is not LoopKind.SERIAL or _is_innermost(inner):
                break
            if any(
                stmt.kind is LoopKind.VECTORIZED for stmt in inner.body if isinstance(stmt, For)
            ):
                break
            name = f"{outer.var.name}_{inner.var.name}"
            s = s.apply(mult_loops, outer.var.name, inner.var.name, name)
            outer = next(stmt for stmt in loops_of(s.func.body) if stmt.var.name == name)
        if outer.kind is LoopKind.SERIAL:
            s = s.apply(parallelize_loop, outer.var.name)
    except ScheduleError:
        return s
    return s
