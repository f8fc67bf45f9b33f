"""Edge types: a layout with facts about its padding; when two are equal, and what accepts one.

In: layouts, facts and demands.  Out: edge types, keys, and proofs.  Layouts are compared by memory
key: two index maps that put every element in the same place are equal.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct

from graphflow.arith import Proof, Verdict
from graphflow.kernels.recipes import MemoryKey, memory_key
from graphflow.layout import LOGICAL, Constant, Demand, Fact, Layout, Undefined, serves
from graphflow.tir import Literal


class EdgeType(Struct, frozen=True):
    """A layout, and for each of its padding regions a fact (none where there is no padding)."""

    layout: Layout
    facts: tuple[tuple[str, Fact], ...] = ()

    @property
    def constant(self) -> Literal | None:
        """The constant that the padding holds (of the first region that holds one); None if no
        region does.
        """
        return next((fact.literal for _, fact in self.facts if isinstance(fact, Constant)), None)

    def describe(self) -> str:
        """Layout and facts as text, such as `NCHW8c [pad(1) = 0.0 float32]`."""
        facts = ", ".join(f"{region} = {fact}" for region, fact in self.facts)
        return self.layout.describe() + (f" [{facts}]" if facts else "")


@lru_cache(maxsize=100_000)
def padding_regions(layout: Layout) -> tuple[str, ...]:
    """The names of a layout's padding regions (all but the logical region)."""
    if not layout.is_padded:
        return ()
    return tuple(region.name for region in layout.regions() if region.name != LOGICAL)


@lru_cache(maxsize=100_000)
def edge_type_of(layout: Layout, fact: Fact | None = None) -> EdgeType:
    """The edge type whose padding regions all have `fact` (by default Undefined)."""
    known = Undefined() if fact is None else fact
    return EdgeType(layout, tuple((name, known) for name in padding_regions(layout)))


def accepts(edge_type: EdgeType, layout: Layout, demand: Demand) -> bool:
    """Whether `edge_type` has this layout, and padding that meets the demand."""
    return memory_key(edge_type.layout) == memory_key(layout) and all(
        serves(fact, demand) for _, fact in edge_type.facts
    )


def edge_type_key(edge_type: EdgeType) -> tuple[MemoryKey, tuple[tuple[str, Fact], ...]]:
    """A key that is equal for edge types of the same memory and facts."""
    return memory_key(edge_type.layout), edge_type.facts


def serving(edge_type: EdgeType, layout: Layout, demand: Demand) -> tuple[Proof, ...]:
    """The proofs that a reader may read an edge type that it `accepts`: the layout, then each
    padding region.
    """
    place = Proof(
        Verdict.PROVEN,
        f"{edge_type.layout.describe()} and {layout.describe()} place every element alike",
        "equal index maps and boxes",
    )
    facts = tuple(
        Proof(Verdict.PROVEN, f"{region} holds {fact}, needed {demand}", "fact and demand")
        for region, fact in edge_type.facts
    )
    return place, *(facts or (Proof(Verdict.PROVEN, "there is no padding", "structure"),))
