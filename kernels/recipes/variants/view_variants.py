"""Variants of movement kernels that move nothing.

In: a compute definition that only moves elements (a transpose, reshape, slice or concatenation).
Out: its view variants, in which an input is a view of the output's storage, or the output a view
of the input's.

What always holds: in a view variant each element that the definition moves has one position in
memory under both tensors' layouts, so leaving the copy out cannot be observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from math import prod
from typing import TypeAlias

from graphflow import arith
from graphflow.base.errors import ScheduleError
from graphflow.base.target import Target
from graphflow.cost import NO_WORK
from graphflow.kernels.recipes.analysis.positions import flat_offset, memory_key
from graphflow.kernels.recipes.analysis.variant import (
    KernelVariant,
    Link,
    Padding,
    RefusedVariant,
    View,
)
from graphflow.layout import (
    Family,
    IndexMap,
    Layout,
    StorageWindow,
    families,
    logical_vars,
    row_major,
)
from graphflow.schedule import Refusal
from graphflow.tir import Buffer, Load, Move, PrimFunc, Store, iteration_count, moves_of


def view_variants(
    definition: PrimFunc, target: Target, parts: bool = True
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variants of a movement kernel in which inputs are views of the output, or the other way.

    Either both are in layouts of one family without padding, or the output is the whole memory of
    the only input under another shape, in the layout that follows from the input's.  Refused
    variants are those whose layout has no inverse.  Nothing for a kernel that computes.

    A smaller output is a part of the input's box, which is padded to it.  Without `parts` such a
    view is made only where some family has a box of that size.
    """
    moves = _views_of(definition)
    if moves and _apart(moves):
        yield from _in_output(definition.outputs[0], moves, target)
    if len(moves) == 1:
        boxed, others = _in_input(*moves[0], target)
        if not parts:
            others = [layout for layout in others if _is_usual_box(layout, *moves[0][:2], target)]
        # First those that know the output as a box, as it may be one where the input is in a box.
        yield from _renamed(*moves[0], others, target)
        yield from boxed


def _is_usual_box(layout: Layout, store: Store, load: Load, target: Target) -> bool:
    """Whether the output has as many elements as the input, or a layout of a family has a box as
    large as that of the input's `layout`."""
    output, size = store.buffer, prod(layout.physical_shape)
    made = (
        family.instantiate(output.shape)
        for family in families(len(output.shape), target.computed_lanes(output.dtype), target)
    )
    return output.size == load.buffer.size or any(
        usual is not None and prod(usual.physical_shape) == size for usual in made
    )


def offered_views(
    definition: PrimFunc, target: Target, offered: Mapping[str, tuple[Layout, ...]]
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variants in which the output is a view of the only input, as that is `offered`."""
    moves = _views_of(definition)
    if len(moves) == 1:
        yield from _renamed(*moves[0], offered.get(moves[0][1].buffer.name, ()), target)


def _views_of(definition: PrimFunc) -> tuple[Move, ...]:
    """The moves of a kernel that has one output and reads each input in one move; else nothing.

    An input that is not read cannot be a view of the output, nor the output one of it.
    """
    moves = moves_of(definition) or ()
    read = [load.buffer for _, load, _ in moves]
    once = len(set(read)) == len(read) and set(read) == set(definition.inputs)
    return moves if once and len(definition.outputs) == 1 else ()


def _apart(moves: Sequence[Move]) -> bool:
    """Whether no two moves write the same element: each pair of boxes is apart along some axis.

    Where two do, the later one wins; as views, their inputs would overlap in memory.
    """
    boxes = [
        [arith.bounds(e, domain.ranges()) for e in store.indices] for store, _, domain in moves
    ]
    if any(in_a_row(sides) for sides in zip(*boxes, strict=True)):
        return True  # a concatenation: it may have hundreds of inputs, too many for all pairs
    return all(
        any(_before(a, b) or _before(b, a) for a, b in zip(first, second, strict=True))
        for first, second in combinations(boxes, 2)
    )


def in_a_row(sides: Sequence[arith.Interval]) -> bool:
    """Whether the intervals are not empty, and each ends before the next one begins."""
    filled = all(not _before((high, high), (low, low)) for low, high in sides)
    return filled and all(_before(a, b) for a, b in pairwise(sides))


def _before(first: arith.Interval, second: arith.Interval) -> bool:
    end, start = first[1], second[0]
    return end is not None and start is not None and end < start


def _in_output(output: Buffer, moves: Sequence[Move], target: Target) -> Iterator[KernelVariant]:
    """The variants in which all inputs are views of the output, in layouts of one family."""
    for family, whole in _unpadded(output, target):
        layouts: dict[str, Layout] = {output.name: whole}
        links: list[Link] = []
        for store, load, domain in moves:
            part = _alike(family, load.buffer)
            link = _link(load.buffer.name, (whole, store.indices), (part, load.indices), domain)
            if link is None:
                break
            layouts[load.buffer.name] = part
            links.append(link)
        else:
            yield _view(layouts, f"view in {whole.describe()}", View(tuple(links)))


def _in_input(
    store: Store, load: Load, domain: arith.Domain, target: Target
) -> tuple[list[KernelVariant], list[Layout]]:
    """The variants in which the output is a view of the input, in layouts of one family.

    Also the layouts of the input that give no such variant, or one whose output is all of it: for
    these, `_renamed` finds the layout of the output that follows.
    """
    source, output = load.buffer, store.buffer
    boxed: list[KernelVariant] = []
    others: list[Layout] = []
    for family, whole in _unpadded(source, target):
        part = _alike(family, output)
        link = _link(source.name, (whole, load.indices), (part, store.indices), domain)
        if link is not None:
            view = View((link,), outward=True)
            layouts = {output.name: part, source.name: whole}
            boxed.append(_view(layouts, f"view of {whole.describe()}", view))
        if link is None or source.size == output.size:
            others.append(whole)
    return boxed, others


def _renamed(
    store: Store, load: Load, domain: arith.Domain, layouts: Iterable[Layout], target: Target
) -> Iterator[KernelVariant | RefusedVariant]:
    """The variants in which the output is the memory of the input under the output's indices.

    `layouts` are those of the input; a padded one gives nothing.  Where the output has as many
    elements as the input, each may be the view of the other; where it has fewer, only the output
    may be the view, for an input cannot be part of a smaller storage.  Nothing where the move is
    under a condition, or does not write the whole output.
    """
    source, output = load.buffer, store.buffer
    if domain.where != arith.TRUE or iteration_count(domain.axes) != output.size:
        return
    if not output.size:
        return  # indices without values have no inverse, and there is nothing to copy
    for given in layouts:
        read = None if given.is_padded else read_as(given, store, load)
        if read is None:
            continue
        if isinstance(read, Refusal):
            yield RefusedVariant(f"view of {given.describe()}", read)
            continue
        if source.size == output.size:
            part = _common(_joined(read), output.dtype, target)
            placed = {output.name: part, source.name: given}
            inward = View((Link(source.name, None, 0),))
            yield _view(placed, f"view in {part.describe()}", inward)
            link = Link(source.name, read, 0)
        else:
            part, link = read, Link(source.name, read, 0)
            placed = {output.name: part, source.name: given}
        yield _view(placed, f"view of {given.describe()}", View((link,), outward=True))


def _unpadded(buffer: Buffer, target: Target) -> Iterator[tuple[Family, Layout]]:
    for family in families(len(buffer.shape), target.computed_lanes(buffer.dtype), target):
        layout = family.instantiate(buffer.shape)
        if layout is not None and not layout.is_padded:
            yield family, layout


def _alike(family: Family, buffer: Buffer) -> Layout:
    """The layout of a family for a buffer; row-major where the family has none for its shape."""
    return family.instantiate(buffer.shape) or row_major(buffer.shape)


def _view(layouts: dict[str, Layout], name: str, view: View) -> KernelVariant:
    return KernelVariant(name, layouts, frozenset(), {}, Padding.NONE, view, NO_WORK, True)


def read_as(part: Layout, store: Store, load: Load) -> Layout | Refusal | None:
    """The layout of the stored buffer in the memory of the loaded one, whose layout is `part`.

    None where the store's indices are not distinct loop variables, one for each axis; a refusal
    where no inverse of the index map is found.
    """
    axes = dict(zip(store.indices, logical_vars(len(store.indices)), strict=True))
    if len(axes) != len(store.indices) or not all(isinstance(e, arith.Var) for e in store.indices):
        return None
    renamed = {e: v for e, v in axes.items() if isinstance(e, arith.Var)}

    def place(*_: arith.Var) -> tuple[arith.IndexExpr, ...]:
        there = part.physical_index(load.indices)
        return tuple(arith.simplify_index(arith.substitute(e, renamed), ranges) for e in there)

    shape = store.buffer.shape
    ranges = {v: (0, n - 1) for v, n in zip(renamed.values(), shape, strict=True)}
    try:
        index_map = IndexMap.from_function(len(shape), place, shape)
        return Layout.of(index_map, shape, part.physical_shape)
    except ScheduleError as error:
        return Refusal.of(error)


def _joined(layout: Layout) -> Layout:
    """The same positions in memory, in a box of as few axes as their indices need."""
    names = layout.index_map.inputs
    ranges = {v: (0, n - 1) for v, n in zip(names, layout.logical_shape, strict=True)}
    outputs: list[arith.IndexExpr] = []
    box: list[int] = []
    for e, extent in zip(layout.simplified, layout.physical_shape, strict=True):
        if outputs:
            both = arith.simplify_index(outputs[-1] * extent + e, ranges)
            joins = extent == 1 or box[-1] == 1 or len(arith.terms_of(both)[0]) == 1
            if joins and extent > 0:  # an axis without elements would swallow the one before it
                outputs[-1], box[-1] = both, box[-1] * extent
                continue
        outputs.append(e)
        box.append(extent)
    shape = layout.logical_shape
    return Layout.of(IndexMap.from_function(len(shape), lambda *_: outputs, shape), shape, box)


def _common(layout: Layout, dtype: str, target: Target) -> Layout:
    """The layout of a family with the same positions in memory, or else `layout` itself."""
    for family in families(len(layout.logical_shape), target.computed_lanes(dtype), target):
        named = family.instantiate(layout.logical_shape)
        if named is not None and memory_key(named) == memory_key(layout):
            return named
    return layout


PlacedIndex: TypeAlias = tuple[Layout, tuple[arith.IndexExpr, ...]]
"""The layout of a buffer, and the logical index at which a move accesses it."""


def _link(name: str, outer: PlacedIndex, inner: PlacedIndex, domain: arith.Domain) -> Link | None:
    """The place of the tensor `inner` inside `outer`, if the move leaves each element where it is.

    `name` is the input's.  None where the move is under a condition or does not reach all of
    `inner`, where `inner` is padded or empty, and where the two tensors' positions in memory differ
    by more than an offset.
    """
    (whole, there), (part, here) = outer, inner
    if part.is_padded or domain.where != arith.TRUE or 0 in part.physical_shape:
        return None
    ranges = domain.ranges()
    room = prod(whole.physical_shape) - prod(part.physical_shape)
    if room < 0 or iteration_count(domain.axes) != prod(part.logical_shape):
        return None  # elements that are not moved would overlap others
    places = whole.physical_index(there), part.physical_index(here)
    steps: list[int | None] = [None]
    if len(places[0]) == len(places[1]):
        steps = [
            arith.constant_value(arith.simplify_index(a - b, ranges))
            for a, b in zip(*places, strict=True)
        ]
    known = [step for step in steps if step is not None]
    if len(known) == len(steps):
        # The positions differ by these steps, and where the boxes have different strides.
        strides = [Buffer("_", layout.physical_shape).strides for layout in (whole, part)]
        beside = ((e, a - b) for e, a, b in zip(places[1], *strides, strict=True) if a != b)
        apart = arith.weighted(beside) + sum(k * a for k, a in zip(known, strides[0], strict=True))
    else:
        apart = flat_offset(whole, there) - flat_offset(part, here)
    offset, window = arith.constant_value(arith.simplify_index(apart, ranges)), None
    if offset is not None and not 0 <= offset <= room:
        return None
    if len(known) == len(steps):
        box = StorageWindow(tuple(known), part.physical_shape)
        window = (
            part.windowed(known, whole.physical_shape) if box.fits(whole.physical_shape) else None
        )
    return None if window is None and offset is None else Link(name, window, offset)
