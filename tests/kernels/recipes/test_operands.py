"""Tests of the layouts in which the operands of tiled variants may be."""

from __future__ import annotations

from itertools import product

import pytest

from graphflow.codegen import avx2_target
from graphflow.kernels.definitions import matmul
from graphflow.kernels.recipes import KernelVariant, kernel_variants
from graphflow.layout import IndexMap, Layout, row_major
from graphflow.tir import PrimFunc

TARGET = avx2_target()


def permuted(shape: tuple[int, ...], order: tuple[int, ...]) -> Layout:
    """The layout with the logical axes in this order in memory."""
    index_map = IndexMap.from_function(len(shape), lambda *i: [i[k] for k in order], shape)
    return Layout.of(index_map, shape, [shape[k] for k in order])


def reading(definition: PrimFunc, **given: Layout) -> list[KernelVariant]:
    """The variants that read each named operand in the layout given for it."""
    offers = tuple((name, (layout,)) for name, layout in given.items())
    found = kernel_variants(definition, frozenset(), TARGET, offered=offers)
    return [v for v in found if all(v.layouts[name] == layout for name, layout in given.items())]


A, B = (2, 3, 17, 24), (2, 3, 24, 40)
"""Batches, heads, rows and columns."""
HEADS_INSIDE = (0, 2, 1, 3)
"""The order in which a product leaves the heads of its columns."""


def test_a_product_reads_both_operands_where_products_left_them() -> None:
    definition = matmul(A, B)
    names = [buffer.name for buffer in definition.inputs]
    layouts = [permuted(shape, HEADS_INSIDE) for shape in (A, B)]
    both = reading(definition, **dict(zip(names, layouts, strict=True)))
    assert any(v.layouts[definition.outputs[0].name] == row_major((2, 3, 17, 40)) for v in both)
    plain = kernel_variants(definition, frozenset(), TARGET)[0]
    assert min(v.work.cycles for v in both) == pytest.approx(plain.work.cycles, rel=0.25)


def test_the_operand_of_the_lanes_is_not_read_where_they_would_be_gathered() -> None:
    """Transposed, neighbouring columns are a row apart."""
    definition = matmul(A, B)
    name = definition.inputs[1].name
    output = definition.outputs[0]
    turned = permuted(B, (0, 1, 3, 2))
    assert not [
        v
        for v in reading(definition, **{name: turned})
        if v.layouts[output.name] == row_major(output.shape)
    ]


def test_constants_are_in_the_layout_that_they_are_packed_in() -> None:
    definition = matmul(A, B)
    layout = permuted(B, HEADS_INSIDE)
    name = definition.inputs[1].name
    constant = kernel_variants(definition, frozenset({name}), TARGET, offered=((name, (layout,)),))
    assert all(v.layouts[name] != layout for v in constant)


def test_more_offers_give_variants_for_each_pair_of_them() -> None:
    definition = matmul(A, B)
    names = [buffer.name for buffer in definition.inputs]
    kinds = [[permuted(s, HEADS_INSIDE), permuted(s, (2, 0, 1, 3))] for s in (A, B)]
    offers = tuple((n, tuple(k)) for n, k in zip(names, kinds, strict=True))
    found = kernel_variants(definition, frozenset(), TARGET, offered=offers)
    pairs = {tuple(v.layouts[n] for n in names) for v in found}
    assert pairs >= set(product(*kinds))


def test_lanes_over_the_padding_of_the_output_read_no_offered_operand() -> None:
    definition = matmul((2, 40, 24), (2, 24, 40))
    name, output = definition.inputs[0].name, definition.outputs[0]
    turned = permuted((2, 40, 24), (2, 0, 1))
    found = reading(definition, **{name: turned})
    assert found
    assert not [v for v in found if v.layouts[output.name].is_padded and v.layouts[name] == turned]
