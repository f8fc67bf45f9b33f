"""Layouts and edge types as the page shows them, each once.

In: edge types of a plan.  Out: their positions in two lists.  What always holds: the browser
computes with the same index expressions as the compiler, so its pictures show the layout itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from graphflow import arith
from graphflow.inspect.page.page_data import IndexCode, ShownEdgeType, ShownLayout
from graphflow.inspect.tensor_decisions import known_regions
from graphflow.layout import Layout
from graphflow.plan import EdgeType

EXTENTS = re.compile(r" (?:padded to \d+|(?:at \[[-\d, ]*\] )?in \[[\d, ]*\])$")
"""What the name of a layout says about its box."""

INDEX_MAP, PERMUTED = "index map", "permuted axes"
"""The families of layouts without a short name."""


@dataclass
class ShownEdgeTypes:
    """The layouts and edge types met so far, in the order in which they were met."""

    layouts: dict[Layout, int] = field(default_factory=dict)
    edge_types: dict[EdgeType, int] = field(default_factory=dict)

    def place(self, edge_type: EdgeType) -> int:
        """The position of an edge type, which is added if it is new."""
        self.layouts.setdefault(edge_type.layout, len(self.layouts))
        return self.edge_types.setdefault(edge_type, len(self.edge_types))

    def shown_layouts(self) -> tuple[ShownLayout, ...]:
        """All layouts by position."""
        return tuple(map(_shown_layout, self.layouts))

    def shown(self) -> tuple[ShownEdgeType, ...]:
        """All edge types by position."""
        return tuple(
            ShownEdgeType(
                edge_type.describe(),
                self.layouts[edge_type.layout],
                tuple((known.region, known.fact) for known in known_regions(edge_type)),
            )
            for edge_type in self.edge_types
        )


def layout_family(name: str) -> str:
    """The name of a layout without extents: `NHWC` for `NHWC padded to 64`."""
    plain = EXTENTS.sub("", name)
    if plain.startswith("("):
        return INDEX_MAP
    return PERMUTED if plain.startswith("axes in order") else plain


def _shown_layout(layout: Layout) -> ShownLayout:
    return ShownLayout(
        name=layout.describe(),
        family=layout_family(layout.describe()),
        logical_shape=layout.logical_shape,
        physical_shape=layout.physical_shape,
        physical=tuple(map(index_code, layout.index_map.outputs)),
        logical=tuple(map(index_code, layout.logical_index(layout.physical_axes))),
        regions=tuple(region.name for region in layout.regions()),
        padding_elements=layout.padding_elements,
    )


def index_code(expr: arith.IndexExpr) -> IndexCode:
    """An index expression as JSON."""
    match expr:
        case arith.Const():
            return expr.value
        case arith.Var():
            return expr.name
        case arith.FloorDiv():
            return ["//", index_code(expr.numerator), expr.divisor]
        case arith.FloorMod():
            return ["%", index_code(expr.numerator), expr.divisor]
        case arith.Extremum():
            return [expr.kind, *map(index_code, expr.operands)]
        case _:
            terms, constant = arith.terms_of(expr)
            codes: list[IndexCode] = [_weighted(atom, factor) for atom, factor in terms]
            return ["+", *codes, *([constant] if constant else [])]


def _weighted(atom: arith.IndexExpr, factor: int) -> IndexCode:
    code = index_code(atom)
    return code if factor == 1 else ["*", factor, code]
