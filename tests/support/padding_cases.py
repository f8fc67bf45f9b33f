"""Random applications of the primitives on padding."""

from __future__ import annotations

from dataclasses import replace

from graphflow.base.errors import ScheduleError
from graphflow.layout import IndexMap, Layout
from graphflow.schedule import (
    Schedule,
    cache_read,
    derive_padding,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    simplify_kernel,
    transform_layout,
)
from graphflow.tir import Block, BlockNote, PrimFunc, parse
from support.primitive_cases import PrimitiveCase
from support.random_kernels import Number


def halo_kernel(number: Number) -> PrimFunc:
    """A convolution or an elementwise kernel over a padded copy of its input, as far as its
    conditions can go; stages write the padding of the copy and of the output."""
    n, front, columns = number(5, 12), number(0, 2), number(2, 5)
    more = front + (number(0, 3) == 0)  # further elements of the output
    start = number(0, 5) == 0
    value = "x[i + k - FRONT] * f[k]" if number(0, 5) else "x[i + k - FRONT] + f[k]"
    func = parse(
        f"""
        @primfunc
        def k(x: i64[{n}], f: i64[{more + 1}], y: out[i64[{n + more}]]):
            with block("compute"):
                for i in serial(0, {n + more}):
                    y[i] = i64({int(start)})
                    for k in serial(0, {more + 1}):
                        if i + k >= {front} and i + k < {n + front}:
                            y[i] += {value.replace("FRONT", str(front))}
        """
    )
    rows = IndexMap.from_function(1, lambda i: [(i + front) // columns, (i + front) % columns])
    count = -(-(n + more + front + number(1, 9)) // columns)
    input_pad, output_pad = int(number(0, 5) == 0), int(number(0, 5) == 0)
    s = Schedule.of(func).apply(cache_read, "x", "xc")
    s = s.apply(transform_layout, "xc", Layout.of(rows, (n,), (count, columns)), input_pad)
    whole = Layout.of(rows, (n + more,), (count, columns))
    s = s.apply(transform_layout, "y", whole, output_pad)
    over = remove_branching_through_overcompute
    try:
        s = s.apply(over, "k", wrap=True).apply(simplify_kernel)
        s = s.apply(sequential_buffer_access, "compute", "y", ("io", "ii"), whole_box=True)
        s = s.apply(over, "compute", wrap=True).apply(simplify_kernel)
    except ScheduleError:
        pass  # with the conditions that are left
    return s.func


def _output(func: PrimFunc, _number: Number) -> tuple[str] | None:
    return ("y",) if _stage(func) is not None else None


def _stage(func: PrimFunc) -> Block | None:
    for stmt in func.body:
        if isinstance(stmt, Block) and stmt.note(BlockNote.PADDING_OF) == "y":
            return stmt
    return None


def _without_stage(func: PrimFunc, _buffer: str) -> PrimFunc | None:
    stage = _stage(func)
    return replace(func, body=tuple(stmt for stmt in func.body if stmt is not stage))


PADDING_CASES = (PrimitiveCase(derive_padding, _output, _without_stage, halo_kernel),)
