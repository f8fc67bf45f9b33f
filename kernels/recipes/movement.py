"""Kernels that only move elements: views of one storage, where the layouts allow."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from graphflow.arith import TRUE, Domain, IndexExpr, constant_value, simplify
from graphflow.kernels.recipes.alternative import Alternative, Padding, View, Work
from graphflow.layout import Layout, Window, families, row_major
from graphflow.target import Target
from graphflow.tir import Load, PrimFunc, Store, sites

FREE = Work(0.0, 0.0, 1, 0, 0)


def flat_offset(layout: Layout, indices: tuple[IndexExpr, ...]) -> IndexExpr:
    """The position in memory, in elements, of a logical index."""
    return layout.buffer("_", "float32").flat_index(layout.physical_index(indices))


def moves_of(definition: PrimFunc) -> list[tuple[Store, Load, Domain]] | None:
    """Each store with the bare load it stores and its domain; None if anything is computed."""
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


def window_forms(definition: PrimFunc, target: Target) -> Iterator[Alternative]:
    """The forms in which the output is made of its inputs without moving anything.

    For each family of layouts: every input must lie in the output's storage at a fixed offset, so
    that each element it moves stays where it is.
    """
    moves = moves_of(definition)
    if not moves or len(definition.outputs) != 1:
        return
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
            name = f"view in {layout.describe()}"
            recipe = View(tuple(windows))
            yield Alternative(name, layouts, frozenset(), {}, Padding.NONE, recipe, FREE, True)


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
