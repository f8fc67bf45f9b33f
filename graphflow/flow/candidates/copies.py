"""Copies of values: which a reader can use, which requirements they satisfy, what they cost.

In: the requirements on a value.  Out: `Copy`s and their prices.  A conversion writes another
tensor, in another layout or storage.  A fill writes a constant to the padding of the value in
place, so it starts from an edge type with the same layout.  A conversion can have a different price
for each layout that it starts from, since prices may be measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from graphflow.base.fields import replace
from graphflow.cost import CostModel, Price
from graphflow.flow.candidates.pricing import CopyPrices
from graphflow.flow.candidates.requirements import (
    InputAliasing,
    OperandRequirement,
    OutputAliasing,
    Production,
    weakest_edge_type,
)
from graphflow.graph import Value
from graphflow.kernels.recipes import moved_bytes
from graphflow.layout import Layout, Undefined, serves
from graphflow.plan import CopyKind, EdgeType, accepts, edge_type_of
from graphflow.tir import DTYPES


class Copy(Struct, frozen=True):
    """A possible copy of `value` to the edge type `target`.

    `bytes` is what a conversion reads and writes together, or what a fill writes.  A copy with
    `window` is made inside the output of the reader that required that; others may read it there,
    but it cannot be a graph output.  `seconds` and `measured` are set by `at`, once it is known
    what the copy is made from.
    """

    value: str
    target: EdgeType
    kind: CopyKind
    bytes: int
    window: bool = False
    seconds: float = 0.0
    measured: bool = False

    def at(self, price: Price) -> Copy:
        """This copy at the given price."""
        return replace(self, seconds=price.seconds, measured=price.measured)

    def serves(self, requirement: OperandRequirement) -> bool:
        """Whether the copy satisfies a requirement."""
        aliasing = requirement.input_aliasing
        if not aliasing.by_copy or (
            aliasing.inside_output != self.window and aliasing is not InputAliasing.ANYWHERE
        ):
            return False
        return edge_type_serves(self.target, requirement)


def edge_type_serves(edge_type: EdgeType, requirement: OperandRequirement) -> bool:
    """Whether `edge_type` has the required layout and padding, and the facts that the reader relies
    on.
    """
    if not accepts(edge_type, requirement.layout, requirement.demand):
        return False
    known = dict(edge_type.facts) if requirement.facts else {}
    return all(
        known.get(region) == fact for region, fact in requirement.facts if fact != Undefined()
    )


def directly(production: Production, requirement: OperandRequirement, output: bool) -> bool:
    """Whether a value satisfies a requirement without a copy.

    `output` says that the value is a graph output, which has a storage of its own.
    """
    output_aliasing = production.output_aliasing
    if requirement.input_aliasing is InputAliasing.UNMOVED:
        return production.unmoved and production.family == requirement.family
    if production.unmoved:
        return False
    match requirement.input_aliasing:
        case InputAliasing.COPIED:
            fits = False
        case InputAliasing.OWN_STORAGE:
            fits = output_aliasing in (OutputAliasing.FREE, OutputAliasing.CONTIGUOUS)
        case InputAliasing.INSIDE_OUTPUT:
            fits = output_aliasing is OutputAliasing.FREE and not output
        case InputAliasing.INSIDE_OUTPUT_CONTIGUOUS:
            fits = (
                output_aliasing in (OutputAliasing.FREE, OutputAliasing.CONTIGUOUS) and not output
            )
        case InputAliasing.CONTIGUOUS | InputAliasing.HOLDS_OUTPUT_CONTIGUOUS:
            fits = output_aliasing is not OutputAliasing.INSIDE_INPUT
        case _:
            fits = True
    return fits and edge_type_serves(production.edge_type, requirement)


def clashing(required: Iterable[InputAliasing]) -> bool:
    """Whether aliasings that readers of one value require exclude each other.

    A value is inside the output of at most one reader, and as a contiguous piece if another reader
    needs the value contiguous.
    """
    aliasings = list(required)
    windows = sum(aliasing.inside_output for aliasing in aliasings)
    pieces = any(aliasing.contiguous for aliasing in aliasings)
    return windows > 1 or (InputAliasing.INSIDE_OUTPUT in aliasings and pieces)


def relies_on_padding(requirement: OperandRequirement) -> bool:
    """Whether a requirement excludes padding with undefined contents."""
    return not edge_type_serves(edge_type_of(requirement.layout), requirement)


def copies_for(tensor: Value, requirement: OperandRequirement) -> Iterator[Copy]:
    """The copies that this requirement could ask for: a conversion, and a fill if that can satisfy
    it.

    Nothing where the reader's output is inside the value, or where it reads the value unmoved: then
    only the value itself will do.
    """
    if not requirement.input_aliasing.by_copy:
        return
    edge_type, window = weakest_edge_type(requirement), requirement.input_aliasing.inside_output
    yield Copy(
        tensor.name,
        edge_type,
        CopyKind.CONVERT,
        moved_bytes(edge_type.layout, tensor.dtype),
        window,
    )
    if edge_type.facts and not serves(Undefined(), requirement.demand):
        written = edge_type.layout.padding_elements * DTYPES[tensor.dtype].itemsize
        yield Copy(tensor.name, edge_type, CopyKind.FILL, written, window)


def copy_prices(
    tensor: Value,
    copies: Sequence[Copy],
    sources: Sequence[EdgeType],
    cost: CostModel,
) -> tuple[tuple[Price, ...], ...]:
    """For each edge type in `sources`, the price of each copy if made from it."""
    wanted = [(copy.target.layout, copy.target.constant) for copy in copies]
    layouts = [edge_type.layout for edge_type in sources]
    prices = CopyPrices(tensor.dtype, layouts, wanted, cost)
    return tuple(tuple(_price(copy, source, prices) for copy in copies) for source in layouts)


def _price(copy: Copy, source: Layout, prices: CopyPrices) -> Price:
    layout, constant = copy.target.layout, copy.target.constant
    if copy.kind == CopyKind.FILL:
        assert constant is not None, "a fill writes a constant"
        return prices.fill(layout, constant)
    return prices.conversion(source, layout, constant)
