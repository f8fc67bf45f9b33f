"""Random applications of the primitives on padding."""

from contextlib import suppress
from typing import Any

from graphflow import tir
from graphflow.base.errors import ScheduleError
from graphflow.layout import IndexMap, Layout
from graphflow.schedule import (
    Schedule,
    cache_read,
    derive_padding,
    elide_padding,
    marked_stage,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    simplify,
    transform_layout,
)
from support.kernels.random_kernels import Number
from support.primitives.primitive_cases import PrimitiveCase

ROWS = "xc"
"""The padded copy of the input."""


def halo_kernel(number: Number) -> tir.PrimFunc:
    """A convolution over a padded copy of its input, mostly without conditions; stages write the
    padding of the copy and of the output."""
    n, front, columns = number(5, 12), number(0, 2), number(2, 5)
    m = n + front + (number(0, 3) == 0)
    room = m + number(1, 9)
    input_pad, output_pad = int(number(0, 5) == 0), int(number(0, 5) == 0)
    value = "{x} * f[k]" if number(0, 5) else "{x} + f[k]"
    func = _convolution(n, m, front, value, int(number(0, 5) == 0))
    s = _padded(func, rows(n, room, front, columns), input_pad)
    s = s.apply(transform_layout, "y", rows(m, room, front, columns), output_pad)
    over = remove_branching_through_overcompute
    with suppress(ScheduleError):  # with the conditions that are left
        s = s.apply(over, "k", wrap=True).apply(simplify)
        s = s.apply(sequential_buffer_access, "compute", "y", ("io", "ii"), whole_box=True)
        s = s.apply(over, "compute", wrap=True).apply(simplify)
    return s.func


def rows_kernel(number: Number) -> tir.PrimFunc:
    """A convolution over a padded copy of its input that reads the padding, or does not."""
    n, front, columns = number(5, 12), number(0, 2), number(2, 5)
    layout = rows(n, n + number(0, 6), front, columns)
    pad = (None, "undef", 1, 0, 0, 0)[number(0, 5)]
    s = _padded(_convolution(n, n + front, front, "{x} * f[k]", 0), layout, pad)
    if number(0, 3):
        s = s.attempt(remove_branching_through_overcompute, "k", wrap=True)
    return s.func


def rows(extent: int, room: int, front: int, columns: int) -> Layout:
    """Rows that hold `room` elements behind `front` ones, of which the first `extent` are there."""
    rows = IndexMap.from_function(1, lambda i: [(i + front) // columns, (i + front) % columns])
    return Layout.of(rows, (extent,), (-(-(room + front) // columns), columns))


def _convolution(n: int, m: int, front: int, value: str, start: int) -> tir.PrimFunc:
    return tir.parse(
        f"""
        @primfunc
        def k(x: i64[{n}], f: i64[{m - n + 1}], y: out[i64[{m}]]):
            with block("compute"):
                for i in serial(0, {m}):
                    y[i] = i64({start})
                    for k in serial(0, {m - n + 1}):
                        if i + k >= {front} and i + k < {n + front}:
                            y[i] += {value.format(x=f"x[i + k - {front}]")}
        """
    )


def _padded(func: tir.PrimFunc, layout: Layout, pad: Any) -> Schedule:
    return Schedule.of(func).apply(cache_read, "x", ROWS).apply(transform_layout, ROWS, layout, pad)


def _output(func: tir.PrimFunc, _number: Number) -> tuple[str] | None:
    return ("y",) if _stage(func) is not None else None


def _stage(func: tir.PrimFunc) -> tir.Block | None:
    for stmt in func.body:
        if isinstance(stmt, tir.Block) and stmt.note(tir.BlockNote.PADDING_OF) == "y":
            return stmt
    return None


def _in_rows(func: tir.PrimFunc, number: Number) -> tuple[str, Layout] | None:
    """The copy and its layout, or at times one with an element more in front."""
    if all(access.buffer.name != ROWS for access in tir.accesses(func.body)):
        return None
    try:
        marked = marked_stage(func, "x")
    except ScheduleError:  # the stage reads or writes configuration state as well
        return None
    if marked is None:
        return None
    if len(marked.layout.physical_shape) != 2:  # another step has staged x since
        return None
    if number(0, 7):
        return ROWS, marked.layout
    count, columns = marked.layout.physical_shape
    (extent,) = marked.layout.logical_shape
    return ROWS, rows(extent, max(count * columns - 1, extent), 1, columns)


PADDING_CASES = (
    PrimitiveCase(derive_padding, _output, halo_kernel),
    PrimitiveCase(elide_padding, _in_rows, rows_kernel),
)
