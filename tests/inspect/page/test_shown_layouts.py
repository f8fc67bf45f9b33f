"""Tests of the layouts on the page: the browser computes the same indices as the compiler."""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import pytest

from graphflow.inspect.page.page_data import IndexCode, ShownLayout
from graphflow.inspect.page.shown_layouts import ShownEdgeTypes, layout_family
from graphflow.layout import (
    Constant,
    IndexMap,
    Layout,
    blocked,
    channels_last,
    channels_last_padded,
    row_major,
)
from graphflow.plan import EdgeType, edge_type_of
from graphflow.tir import Literal

SHAPE = (2, 10, 3, 3)

LAYOUTS = {
    "NCHW": row_major(SHAPE),
    "NHWC": channels_last(SHAPE),
    "NHWC padded to 16": channels_last_padded(SHAPE, 16),
    "NCHW8c": blocked(SHAPE, 1, 8),
    "halo": row_major(SHAPE).halo((0, 0, 1, 2), (0, 0, 1, 0)),
    "shuffled": Layout.of(
        IndexMap.from_function(4, lambda n, c, h, w: (h, w, n, 5 * (c % 2) + c // 2), SHAPE), SHAPE
    ),
    "with a gap": Layout.of(
        IndexMap.from_function(4, lambda n, c, h, w: (n, h, w, 2 * c), SHAPE), SHAPE
    ),
}


def value(code: IndexCode, values: Mapping[str, int]) -> int:
    """The value of an index expression, as `indexValue` of index_code.js computes it."""
    if isinstance(code, int):
        return code
    if isinstance(code, str):
        return values[code]
    operation, *operands = code
    numbers = [value(operand, values) for operand in operands]
    match operation:
        case "+":
            return sum(numbers)
        case "*":
            return numbers[0] * numbers[1]
        case "//":
            return numbers[0] // numbers[1]
        case "%":
            return numbers[0] % numbers[1]
        case "min" | "max":
            return min(numbers) if operation == "min" else max(numbers)
    raise AssertionError(operation)


def region_at(layout: ShownLayout, physical: Sequence[int]) -> str:
    """The region of a place, as `placeInBox` of index_code.js finds it."""
    places = {f"p{axis}": index for axis, index in enumerate(physical)}
    logical = [value(code, places) for code in layout.logical]
    indices = {f"i{axis}": index for axis, index in enumerate(logical)}
    if [value(code, indices) for code in layout.physical] != [*physical]:
        return "gap"
    pairs = enumerate(zip(logical, layout.logical_shape, strict=True))
    outside = [str(axis) for axis, (index, extent) in pairs if not 0 <= index < extent]
    return f"pad({','.join(outside)})" if outside else "logical"


def shown(layout: Layout) -> ShownLayout:
    edge_types = ShownEdgeTypes()
    edge_types.place(edge_type_of(layout))
    return edge_types.shown_layouts()[0]


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_page_finds_every_element_where_the_layout_has_it(name: str) -> None:
    layout, page = LAYOUTS[name], shown(LAYOUTS[name])
    for logical in product(*map(range, SHAPE)):
        indices = {f"i{axis}": index for axis, index in enumerate(logical)}
        found = [value(code, indices) for code in page.physical]
        assert found == [int(str(index)) for index in layout.physical_index(logical)]
        assert region_at(page, found) == "logical"


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_page_finds_the_region_of_every_place(name: str) -> None:
    layout, page = LAYOUTS[name], shown(LAYOUTS[name])
    assert page.regions == tuple(region.name for region in layout.regions())
    for place in product(*map(range, layout.physical_shape)):
        assert layout.region(region_at(page, place)).contains(place)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("NCHW16c", "NCHW16c"),
        ("NHWC padded to 64", "NHWC"),
        ("NCHW in [1, 64, 30, 30]", "NCHW"),
        ("NCHW at [0, 0, 1, 1] in [1, 64, 30, 30]", "NCHW"),
        ("NCHW with N in blocks of 32", "NCHW with N in blocks of 32"),
        ("axes in order [2, 0, 1, 3]", "permuted axes"),
        ("(i0, i1) -> (i1 // 2, i0) in [3, 4]", "index map"),
    ],
)
def test_families_are_names_without_extents(name: str, family: str) -> None:
    assert layout_family(name) == family


def test_equal_edge_types_are_shown_once_and_layouts_shared() -> None:
    edge_types = ShownEdgeTypes()
    zero: Any = Constant(Literal(0.0, "float32"))
    first = edge_types.place(edge_type_of(LAYOUTS["NCHW8c"]))
    assert edge_types.place(edge_type_of(blocked(SHAPE, 1, 8))) == first
    assert edge_types.place(edge_type_of(LAYOUTS["NCHW8c"], zero)) != first
    assert edge_types.place(EdgeType(row_major(SHAPE))) == 2
    assert len(edge_types.shown_layouts()) == 2
    assert [dict(one.facts) for one in edge_types.shown()] == [
        {"pad(1)": "undef"},
        {"pad(1)": str(zero)},
        {},
    ]
