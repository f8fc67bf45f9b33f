"""Labels: when two of them are the same memory, and what a reader accepts."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias

from graphflow.arith import IndexExpr, simplify
from graphflow.flow.plan import Label
from graphflow.kernels.recipes import flat_offset
from graphflow.layout import LOGICAL, Demand, Fact, Layout, Undefined, logical_vars, serves

MemoryKey: TypeAlias = "tuple[IndexExpr, int]"


@lru_cache(maxsize=100_000)
def memory_key(layout: Layout) -> MemoryKey:
    """Equal for layouts that put every element at the same position of equally large memory.

    A row-major `[1, C, 1, 1]` and a channels-last one are the same bytes; nothing has to move
    between them.
    """
    names = logical_vars(len(layout.logical_shape))
    ranges = {v: (0, n - 1) for v, n in zip(names, layout.logical_shape, strict=True)}
    size = 1
    for extent in layout.physical_shape:
        size *= extent
    return simplify(flat_offset(layout, names), ranges), size


@lru_cache(maxsize=100_000)
def padding_regions(layout: Layout) -> tuple[str, ...]:
    """The names of the regions that are not logical."""
    if not layout.is_padded:
        return ()
    return tuple(region.name for region in layout.regions() if region.name != LOGICAL)


def label_of(layout: Layout, fact: Fact | None = None) -> Label:
    """The label whose padding regions all have `fact` (by default: anything)."""
    known = Undefined() if fact is None else fact
    return Label(layout, tuple((name, known) for name in padding_regions(layout)))


def accepts(label: Label, layout: Layout, demand: Demand) -> bool:
    """Whether a reader that wants `layout` and has this demand may read `label`."""
    return memory_key(label.layout) == memory_key(layout) and all(
        serves(fact, demand) for _, fact in label.facts
    )


def label_key(label: Label) -> tuple[MemoryKey, tuple[tuple[str, Fact], ...]]:
    """What tells labels apart."""
    return memory_key(label.layout), label.facts
