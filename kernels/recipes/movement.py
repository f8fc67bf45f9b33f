"""Kernels that only move elements: views of one storage, where the layouts allow."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TypeAlias

from graphflow.arith import (
    TRUE,
    Domain,
    IndexExpr,
    Ranges,
    Var,
    constant_value,
    simplify,
    substitute,
    terms_of,
)
from graphflow.errors import ScheduleError
from graphflow.kernels.recipes.alternative import Alternative, Padding, View, Work
from graphflow.layout import IndexMap, Layout, Window, families, logical_vars, row_major
from graphflow.target import Target
from graphflow.tir import Load, PrimFunc, Store, sites

FREE = Work(0.0, 0.0, 1, 0, 0)


def flat_offset(layout: Layout, indices: tuple[IndexExpr, ...]) -> IndexExpr:
    """The position in memory, in elements, of a logical index."""
    return layout.buffer("_", "float32").flat_index(layout.physical_index(indices))


Move: TypeAlias = tuple[Store, Load, Domain]
"""A store, the bare load that it stores, and its domain."""


def moves_of(definition: PrimFunc) -> list[Move] | None:
    """All that a kernel moves; None if it computes anything."""
    found = []
    for site in sites(definition.body):
        stmt = site.stmt
        if isinstance(stmt, Store):
            if not isinstance(stmt.value, Load) or site.guards:
                return None
            found.append((stmt, stmt.value, site.domain))
        elif hasattr(stmt, "op") or hasattr(stmt, "claim"):
            return None
    outputs = set(definition.outputs)
    if any(store.buffer not in outputs for store, _, _ in found):
        return None
    return found


def view_forms(
    definition: PrimFunc, target: Target, offered: Mapping[str, tuple[Layout, ...]]
) -> Iterator[Alternative]:
    """The forms in which the output is made of its inputs without moving anything.

    Either every input lies in the output's storage at a fixed offset, for one family of layouts; or
    the memory of the only input, in the layout of a family or in one of those `offered`, is read as
    the output, in whatever layout it then has.
    """
    moves = moves_of(definition)
    if not moves or len(definition.outputs) != 1:
        return
    yield from _window_forms(definition, moves, target)
    yield from _renamed_forms(moves, target, offered)


def _window_forms(definition: PrimFunc, moves: list[Move], target: Target) -> Iterator[Alternative]:
    output = definition.outputs[0]
    for family in families(len(output.shape), target.lanes()):
        layout = family.instantiate(output.shape)
        if layout is None or layout.is_padded:
            continue
        layouts: dict[str, Layout] = {output.name: layout}
        windows: list[tuple[str, Layout]] = []
        for store, load, domain in moves:
            part = row_major(load.buffer.shape)
            if len(load.buffer.shape) == len(output.shape):
                part = family.instantiate(load.buffer.shape) or part
            window = window_of(layout, part, store, load, domain)
            if window is None or load.buffer.name in layouts:
                break
            layouts[load.buffer.name] = part
            windows.append((load.buffer.name, window))
        else:
            yield _view(layouts, layout, tuple(windows))


def _renamed_forms(
    moves: list[Move], target: Target, offered: Mapping[str, tuple[Layout, ...]]
) -> Iterator[Alternative]:
    store, load, domain = moves[0]
    source, output = load.buffer, store.buffer
    if len(moves) > 1 or source.size != output.size or domain.where != TRUE:
        return
    known = [
        family.instantiate(source.shape) for family in families(len(source.shape), target.lanes())
    ]
    for part in dict.fromkeys((*known, *offered.get(source.name, ()))):
        if part is None or part.is_padded:
            continue
        renamed = _read_as(part, store, load)
        if renamed is not None:
            whole = _common(renamed, target)
            yield _view({output.name: whole, source.name: part}, whole, ((source.name, part),))


def _view(
    layouts: dict[str, Layout], whole: Layout, windows: tuple[tuple[str, Layout], ...]
) -> Alternative:
    name = f"view in {whole.describe()}"
    return Alternative(name, layouts, frozenset(), {}, Padding.NONE, View(windows), FREE, True)


def _read_as(part: Layout, store: Store, load: Load) -> Layout | None:
    """The layout of the stored buffer in the memory of the loaded one; None where it has no name
    for each of its places."""
    axes = dict(zip(store.indices, logical_vars(len(store.indices)), strict=True))
    if len(axes) != len(store.indices) or not all(isinstance(e, Var) for e in store.indices):
        return None
    renamed = {e: v for e, v in axes.items() if isinstance(e, Var)}

    def place(*_: Var) -> tuple[IndexExpr, ...]:
        there = part.physical_index(load.indices)
        return tuple(simplify(substitute(e, renamed), ranges) for e in there)

    shape = store.buffer.shape
    ranges = {v: (0, n - 1) for v, n in zip(renamed.values(), shape, strict=True)}
    try:
        index_map = IndexMap.from_function(len(shape), place, shape)
        return _joined(Layout.of(index_map, shape, part.physical_shape), ranges)
    except ScheduleError:
        return None


def _joined(layout: Layout, ranges: Ranges) -> Layout:
    """The same memory with as few axes as its indices need."""
    outputs: list[IndexExpr] = []
    box: list[int] = []
    for e, extent in zip(layout.simplified, layout.physical_shape, strict=True):
        if outputs:
            both = simplify(outputs[-1] * extent + e, ranges)
            if extent == 1 or box[-1] == 1 or len(terms_of(both)[0]) == 1:
                outputs[-1], box[-1] = both, box[-1] * extent
                continue
        outputs.append(e)
        box.append(extent)
    shape = layout.logical_shape
    return Layout.of(IndexMap.from_function(len(shape), lambda *_: outputs, shape), shape, box)


def _common(layout: Layout, target: Target) -> Layout:
    """The layout of a family that is the same memory, where there is one."""
    indices = logical_vars(len(layout.logical_shape))
    ranges = {v: (0, n - 1) for v, n in zip(indices, layout.logical_shape, strict=True)}
    for family in families(len(layout.logical_shape), target.lanes()):
        named = family.instantiate(layout.logical_shape)
        if named is not None and not named.is_padded:
            apart = flat_offset(named, indices) - flat_offset(layout, indices)
            if constant_value(simplify(apart, ranges)) == 0:
                return named
    return layout


def window_of(
    whole: Layout, part: Layout, store: Store, load: Load, domain: Domain
) -> Layout | None:
    """The layout of the loaded buffer inside the storage of the stored one, or None.

    It is `part` moved by a constant for each physical axis, all of it inside, or all of the memory
    read with another shape.
    """
    if part.is_padded or domain.where != TRUE:
        return None
    ranges = domain.ranges()
    there = whole.physical_index(store.indices)
    here = part.physical_index(load.indices)
    if len(there) == len(here):
        offsets = [
            constant_value(simplify(a - b, ranges)) for a, b in zip(there, here, strict=True)
        ]
        known = [k for k in offsets if k is not None]
        window = Window(tuple(known), part.physical_shape)
        if len(known) == len(offsets) and window.fits(whole.physical_shape):
            return part.windowed(known, whole.physical_shape)
    flat = simplify(flat_offset(whole, store.indices) - flat_offset(part, load.indices), ranges)
    same_size = prod(part.physical_shape) == prod(whole.physical_shape)
    return part if same_size and constant_value(flat) == 0 else None
