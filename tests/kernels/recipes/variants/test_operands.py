"""Tests of the layouts in which the operands of tiled variants may be."""

from itertools import product

import pytest

from graphflow.codegen import avx2_target
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.recipes import KernelContext, KernelVariant, Tiled, kernel_variants
from graphflow.kernels.recipes.tile_kinds.broadcast_tiles import BroadcastTile
from graphflow.layout import Layout, channels_last, row_major
from graphflow.tir import PrimFunc
from support.placing import in_order

pytestmark = pytest.mark.decisions

TARGET = avx2_target()


def reading(definition: PrimFunc, **given: Layout) -> list[KernelVariant]:
    """The variants that read each named operand in the layout given for it."""
    offers = tuple((name, (layout,)) for name, layout in given.items())
    found = kernel_variants(definition, frozenset(), TARGET, KernelContext(offered=offers))
    return [v for v in found if all(v.layouts[name] == layout for name, layout in given.items())]


A, B = (2, 3, 17, 24), (2, 3, 24, 40)
"""Batches, heads, rows and columns."""
HEADS_INSIDE = (0, 2, 1, 3)
"""The order in which a product leaves the heads of its columns."""


def test_a_product_reads_both_operands_where_products_left_them() -> None:
    definition = linear.matmul(A, B)
    names = [buffer.name for buffer in definition.inputs]
    layouts = [in_order(shape, HEADS_INSIDE) for shape in (A, B)]
    both = reading(definition, **dict(zip(names, layouts, strict=True)))
    assert any(v.layouts[definition.outputs[0].name] == row_major((2, 3, 17, 40)) for v in both)
    plain = kernel_variants(definition, frozenset(), TARGET)[0]
    assert min(v.work.cycles for v in both) == pytest.approx(plain.work.cycles, rel=0.25)


def transposing(definition: PrimFunc, layout: Layout) -> list[KernelVariant]:
    """The variants that read b in this layout, with lanes across its lines."""
    found = reading(definition, b=layout)
    return [
        v
        for v in found
        if isinstance(v.recipe, Tiled)
        and isinstance(v.recipe.kind, BroadcastTile)
        and "b" in v.recipe.kind.transposed
    ]


@pytest.mark.parametrize("order", [(0, 1, 3, 2), (0, 3, 1, 2)])
def test_the_operand_of_the_lanes_is_transposed_where_they_would_be_gathered(
    order: tuple[int, ...],
) -> None:
    """Neighbouring columns are a row apart, as the keys of an attention."""
    definition = linear.matmul(A, B)
    output = definition.outputs[0]
    found = transposing(definition, in_order(B, order))
    assert row_major(output.shape) in [v.layouts[output.name] for v in found]
    plain = kernel_variants(definition, frozenset(), TARGET)[0]
    assert plain.work.cycles < min(v.work.cycles for v in found) < 2 * plain.work.cycles


def test_transposing_costs_more_for_each_row_where_there_are_few() -> None:
    def share(rows: int) -> float:
        definition = linear.matmul((2, 3, rows, 24), B)
        plain = kernel_variants(definition, frozenset(), TARGET)[0]
        (best, *_) = transposing(definition, in_order(B, (0, 1, 3, 2)))
        return best.work.cycles / plain.work.cycles

    assert share(4) > share(17) > share(200) > 1


NOT_TRANSPOSED: dict[str, tuple[PrimFunc, Layout]] = {
    "the reduced axis is not contiguous": (linear.matmul(A, B), in_order(B, (3, 2, 0, 1))),
    "lines of two elements": (linear.matmul((2, 9, 2), (2, 2, 8)), in_order((2, 2, 8), (0, 2, 1))),
    "no rows": (linear.matmul((2, 1, 24), (2, 24, 40)), in_order((2, 24, 40), (0, 2, 1))),
    "elements of two bytes": (linear.matmul(A, B, "int16"), in_order(B, (0, 1, 3, 2))),
    "a plane that no near cache holds": (
        linear.matmul((2, 9, 1024), (2, 1024, 1024)),
        in_order((2, 1024, 1024), (0, 2, 1)),
    ),
    "one plane, and a panel that reaches past the columns": (
        linear.matmul((9, 24), (24, 37)),
        in_order((24, 37), (1, 0)),
    ),
}


@pytest.mark.parametrize("name", NOT_TRANSPOSED)
def test_an_operand_is_not_transposed_where(name: str) -> None:
    assert not transposing(*NOT_TRANSPOSED[name])


def test_lanes_over_the_padding_of_the_output_are_not_across_an_operand() -> None:
    """The last lanes would read columns that are not there."""
    shape = (2, 24, 40)
    found = transposing(linear.matmul((2, 13, 24), shape), in_order(shape, (2, 0, 1)))
    assert found
    assert not any(v.layouts["y"].is_padded for v in found)


def test_a_family_is_read_across_the_lanes_without_an_offer() -> None:
    """Of rank 3, keys in the order in which they are computed are channels-last."""
    definition = linear.matmul((4, 9, 24), (4, 24, 40))
    found = kernel_variants(definition, frozenset(), TARGET)
    assert any(
        v.layouts["b"] == channels_last((4, 24, 40)) and v.layouts["y"] == row_major((4, 9, 40))
        for v in found
    )


def test_constants_are_in_the_layout_that_they_are_packed_in() -> None:
    definition = linear.matmul(A, B)
    layout = in_order(B, HEADS_INSIDE)
    name = definition.inputs[1].name
    constant = kernel_variants(
        definition, frozenset({name}), TARGET, KernelContext(offered=((name, (layout,)),))
    )
    assert all(v.layouts[name] != layout for v in constant)


def test_more_offers_give_variants_for_each_pair_of_them() -> None:
    definition = linear.matmul(A, B)
    names = [buffer.name for buffer in definition.inputs]
    kinds = [[in_order(s, HEADS_INSIDE), in_order(s, (2, 0, 1, 3))] for s in (A, B)]
    offers = tuple((n, tuple(k)) for n, k in zip(names, kinds, strict=True))
    found = kernel_variants(definition, frozenset(), TARGET, KernelContext(offered=offers))
    pairs = {tuple(v.layouts[n] for n in names) for v in found}
    assert pairs >= set(product(*kinds))


def test_lanes_over_the_padding_of_the_output_read_no_offered_operand() -> None:
    definition = linear.matmul((2, 40, 24), (2, 24, 40))
    name, output = definition.inputs[0].name, definition.outputs[0]
    turned = in_order((2, 40, 24), (2, 0, 1))
    found = reading(definition, **{name: turned})
    assert found
    assert not [v for v in found if v.layouts[output.name].is_padded and v.layouts[name] == turned]
