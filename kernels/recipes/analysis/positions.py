"""Positions of elements in memory, and how a conversion between two layouts walks through it.

In: layouts.  Out: the position of each logical index, in elements; a conversion's contiguous runs,
whether square blocks of it are transposed in registers, and the work that it takes; the bytes that
a kernel touches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import prod
from types import MappingProxyType
from typing import TypeAlias

from msgspec import Struct

from graphflow import arith
from graphflow.base.dtypes import BYTES
from graphflow.cost import ConversionWork
from graphflow.layout import IndexMap, Layout, logical_vars
from graphflow.tir import DTYPES, Buffer, Param, Role

MOST_TURNS = 8
"""The most stores by turns whose lanes are shuffled into whole vectors."""

ROUNDED_OFF = 0.5
"""The most elements by which padding may shorten the mean of runs that count as whole."""

TURNED = {*BYTES, *(name for name, kind in DTYPES.items() if kind.itemsize == 2)}
"""The types whose elements are stored by turns where these are few neighbours."""

LEAST_RUN, LEAST_SOURCE_RUN = 2, 3
"""The fewest contiguous elements of the target, and of the source, that are worth a square block: a
shorter line fills too little of the block's registers."""

LEAST_NARROW_RUNS = {1: (8, 5), 2: (8, 4)}
"""The same for elements of one and two bytes, of which few neighbours are loaded, or stored by
turns, in whole vectors: 160×160 pixels of bytes to channels last take a Zen 4, without and with
blocks, 1.4 and 8 µs for 3 channels, 2.4 and 8 for 5, 6 and 5 for 8; from there to planes 2 and 5
for 3 channels, 18 and 6 for 5.  In two bytes to channels last 3.5 and 8 µs for 3, 4 and 13 for 3 in
places of 4, 4.5 and 7 for 4, 6 and 8 for 5, 13 and 10 for 8; with AVX2 5 and 14, 5 and 20, 6 and 4,
10 and 15, 31 and 9.  Rows of 21 in blocks of 8 positions, of which 1575 leave the last one short, 9
and 1.6 µs in bytes, 15 and 2 in two bytes; with AVX2 9 and 3, 15 and 3."""


class CopyRun(Struct, frozen=True):
    """`count` elements that are contiguous in a conversion's target and `step` apart in its source.

    A step of 0 means that no single distance is known.  Where the step is more than one,
    `source_run` is the number of elements along another axis of the target that are contiguous in
    the source, 0 where there is no such axis.
    """

    count: int
    step: int
    source_run: int = 0


@lru_cache(maxsize=100_000)
def copy_run(source: Layout, target: Layout) -> CopyRun:
    """The longest runs in which a conversion from `source` writes the box of `target`.

    Both layouts are of the same logical shape.
    """
    place = target.physical_axes
    inner = next(
        ((v, n) for v, n in zip(reversed(place), reversed(target.physical_shape), strict=True)
         if n > 1), None)  # fmt: skip
    if inner is None:
        return CopyRun(1, 1)
    var, count = inner
    ranges = {v: (0, n - 1) for v, n in zip(place, target.physical_shape, strict=True)}
    there = source.index_map
    logical = dict(zip(there.inputs, target.logical_index(place), strict=True))
    strides = Buffer("_", source.physical_shape).strides
    # Axes that do not follow the innermost one stand still along a run.
    moving = {v for v, e in logical.items() if var in arith.variables(e)}
    moved = (
        (arith.substitute(e, logical), k)
        for e, k in zip(there.outputs, strides, strict=True)
        if not moving.isdisjoint(arith.variables(e))
    )
    following = [(e, k) for e, k in moved if var in arith.variables(e)]
    by_one = (e for e, k in zip(there.outputs, strides, strict=True) if k == 1)
    nearest = [arith.substitute(e, logical) for e in by_one]
    if len(following) == 1 and following[0][0] is var:
        step = following[0][1]
        return CopyRun(count, step, _contiguous(nearest, ranges) if step > 1 else 0)
    step = 0
    for atom, k in arith.terms_of(arith.simplify_index(arith.weighted(following), ranges))[0]:
        if var not in arith.variables(atom):
            continue
        if isinstance(atom, arith.FloorMod) and atom.numerator is var:
            count = min(count, atom.divisor)
            step += abs(k)
        elif isinstance(atom, arith.FloorDiv) and atom.numerator is var:
            count = min(count, atom.divisor)
        elif atom is var:
            step += abs(k)
        else:
            return CopyRun(1, 0)
    return CopyRun(count, step, _contiguous(nearest, ranges) if step > 1 else 0)


def _contiguous(
    places: Sequence[arith.IndexExpr], ranges: Mapping[arith.Var, arith.Interval]
) -> int:
    """The number of contiguous elements along the variable that the sum of `places` has with
    stride one; 0 where there is none."""
    for atom, k in arith.terms_of(
        arith.simplify_index(arith.weighted((e, 1) for e in places), ranges)
    )[0]:
        var = atom.numerator if isinstance(atom, arith.FloorMod) else atom
        if k == 1 and isinstance(var, arith.Var):
            extent = (ranges[var][1] or 0) + 1
            return min(extent, atom.divisor) if isinstance(atom, arith.FloorMod) else extent
    return 0


def transposes(source: Layout, target: Layout, dtype: str) -> bool:
    """Whether a conversion transposes so many elements that square blocks in registers pay.

    In such blocks both sides are read and written in vectors.  False for booleans, which are no
    bytes in registers.
    """
    run, itemsize = copy_run(source, target), DTYPES[dtype].itemsize
    least, least_source = LEAST_NARROW_RUNS.get(itemsize, (LEAST_RUN, LEAST_SOURCE_RUN))
    if run.source_run < least_source or dtype == "bool":
        return False
    # As many in the mean, but for padding at the end of an axis: 7.99 of 1575 rows in eights are 8.
    stored, box = run.count * prod(target.logical_shape), prod(target.physical_shape)
    return stored >= (least - ROUNDED_OFF) * box


def conversion_work(source: Layout, target: Layout, dtype: str) -> ConversionWork:
    """The work of converting a tensor of `dtype` from the layout `source` to `target`.

    A halo is filled in the same nest, whose loops are no copy then: no block of it is transposed.
    """
    run = copy_run(source, target)
    source_run = (
        run.source_run if transposes(source, target, dtype) and not _begins_later(target) else 0
    )
    elements, moved = prod(target.logical_shape), moved_bytes(target, dtype)
    by_turns = dtype in TURNED and 2 <= run.count <= MOST_TURNS < run.source_run
    apart = min(run.step, copy_run(target, source).step) if source_run else 0
    return ConversionWork(
        elements,
        dtype,
        run.count,
        run.step == 1,
        source_run,
        moved,
        by_turns and not source_run,
        apart,
    )


def _begins_later(layout: Layout) -> bool:
    """Whether padding lies before the first element of a tensor, as in a halo."""
    origin = [arith.const(0)] * len(layout.logical_shape)
    return arith.constant_value(flat_offset(layout, tuple(origin))) != 0


def moved_bytes(target: Layout, dtype: str) -> int:
    """Bytes that a conversion to `target` reads (the tensor) and writes (the box), summed."""
    return (prod(target.physical_shape) + prod(target.logical_shape)) * DTYPES[dtype].itemsize


def flat_offset(layout: Layout, indices: tuple[arith.IndexExpr, ...]) -> arith.IndexExpr:
    """The position in memory, in elements, at which a layout puts a logical index."""
    # By the index map, not the layout: equal layouts may have maps whose expressions differ.
    return _flat_offset(layout.index_map, layout.physical_shape, indices)


@lru_cache(maxsize=100_000)
def _flat_offset(
    index_map: IndexMap, box: tuple[int, ...], indices: tuple[arith.IndexExpr, ...]
) -> arith.IndexExpr:
    return Buffer("_", box).flat_index(index_map.apply(indices))


MemoryKey: TypeAlias = "tuple[arith.IndexExpr, int]"
"""The position of each element in memory, and the size of that memory, both in elements."""


@lru_cache(maxsize=100_000)
def memory_key(layout: Layout) -> MemoryKey:
    """A key that is equal for layouts which put each element at the same position in memory.

    A row-major tensor of shape (1, C, 1, 1) and a channels-last one are the same bytes, so nothing
    is copied between them.
    """
    names = logical_vars(len(layout.logical_shape))
    ranges = {v: (0, n - 1) for v, n in zip(names, layout.logical_shape, strict=True)}
    size = 1
    for extent in layout.physical_shape:
        size *= extent
    return arith.simplify_index(flat_offset(layout, names), ranges), size


def touched(
    params: Iterable[Param],
    layouts: Mapping[str, Layout],
    constants: frozenset[str],
    found: Mapping[str, int] = MappingProxyType({}),
) -> tuple[int, int, int]:
    """Bytes read, bytes written, and those read of the inputs in `constants`; each buffer once, but
    of an input no more than are `found` in it."""
    read = written = fixed = 0
    for param in params:
        size = layouts[param.buffer.name].bytes(param.buffer.dtype)
        if param.role is Role.INPUT:
            size = min(size, found.get(param.buffer.name, size))
            read += size
            fixed += size * (param.buffer.name in constants)
        else:
            written += size
    return read, written, fixed
