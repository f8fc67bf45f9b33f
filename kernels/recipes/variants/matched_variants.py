"""Variants of kernels that find elements by values, in layouts in which what they find is together.

In: a definition with matched loops, as a sampling of an image has, and the target.  Out: the
variants with its parameters in a family of layouts in which some innermost loop is contiguous that
is not so in row-major ones.  For example the channels of a pixel, of which each is read from the
same place, are next to each other in NHWC.

What always holds: the loops stay in their order, so a variant differs from the row-major one in
where the parameters are, and in what its innermost loops cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from functools import lru_cache

from graphflow import tir
from graphflow.arith import IndexExpr, Var, variables
from graphflow.base.target import Target
from graphflow.kernels.recipes.analysis.contiguity import is_contiguous
from graphflow.kernels.recipes.analysis.positions import flat_offset
from graphflow.layout import Layout, families, row_major


def layouts_of_found(definition: tir.PrimFunc, target: Target) -> Iterator[dict[str, Layout]]:
    """The layouts other than row-major in which further loops of a kernel with matched loops are
    contiguous; of the parameters that are read or written along these loops."""
    if not tir.matched_variables(definition.body):
        return
    buffers = [param.buffer for param in definition.params]
    known = contiguous_loops(definition, {}, target).keys()
    lanes = target.computed_lanes(definition.outputs[0].dtype)
    for family in families(max(len(b.shape) for b in buffers), lanes, target):
        placed = {b.name: family.placing(b.shape) for b in buffers}
        layouts = {name: layout for name, layout in placed.items() if layout is not None}
        gained = contiguous_loops(definition, layouts, target).keys() - known
        if gained:
            along = _read_or_written_along(definition, gained)
            yield {name: layout for name, layout in layouts.items() if name in along}


def _read_or_written_along(definition: tir.PrimFunc, loops: Set[Var]) -> set[str]:
    """The buffers that are indexed by the variables of these loops."""
    return {
        access.buffer.name
        for access in tir.accesses(definition.body)
        if not loops.isdisjoint(var for index in access.indices for var in variables(index))
    }


def contiguous_loops(
    definition: tir.PrimFunc, layouts: Mapping[str, Layout], target: Target
) -> dict[Var, int]:
    """The innermost loops, but for matched ones, that are contiguous in memory for all accesses,
    with the lanes of a vector; parameters without one of the `layouts` are row-major."""

    def place(access: tir.Access) -> IndexExpr:
        buffer = access.buffer
        return flat_offset(layouts.get(buffer.name, row_major(buffer.shape)), access.indices)

    return {
        loop.var: lanes
        for loop, inside, lanes in _innermost_loops(definition, target)
        if is_contiguous(loop, inside, lanes, place)
    }


@lru_cache(maxsize=64)  # asked for each layout, to offer a variant and to price it
def _innermost_loops(
    definition: tir.PrimFunc, target: Target
) -> tuple[tuple[tir.For, tuple[tir.Access, ...], int], ...]:
    """The innermost loops with accesses, but for matched ones: with these, and with the lanes of a
    vector of the widest elements among them."""
    accesses = tir.accesses(definition.body)
    found: list[tuple[tir.For, tuple[tir.Access, ...], int]] = []
    for loop in tir.loops_of(definition.body):
        inside = tuple(a for a in accesses if a.domain.axes and a.domain.axes[-1].var is loop.var)
        innermost = inside and not any(isinstance(stmt, tir.For) for stmt in tir.walk(loop.body))
        if innermost and tir.matched_value(loop) is None:
            lanes = min(target.computed_lanes(a.buffer.dtype) for a in inside)
            found.append((loop, inside, lanes))
    return tuple(found)


def bytes_found(definition: tir.PrimFunc) -> dict[str, int]:
    """The most bytes that are read of each buffer in a kernel with matched loops."""
    matched = tir.matched_variables(definition.body)
    found: dict[str, int] = {}
    for access in tir.accesses(definition.body):
        buffer = access.buffer
        axes = tir.executed_axes(access.domain.axes, matched)
        count = tir.iteration_count(axes) or buffer.size  # unknown where a size decides
        found[buffer.name] = found.get(buffer.name, 0) + count * tir.DTYPES[buffer.dtype].itemsize
    return found
