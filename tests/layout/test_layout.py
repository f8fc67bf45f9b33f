"""Tests of layouts: index maps are injective and invertible, and the regions cover the box."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphflow.arith import FALSE, TRUE, constant_value, holds
from graphflow.base.errors import LayoutConflict, ScheduleError
from graphflow.kernels.conversion import conversion, fill_region
from graphflow.layout import (
    LOGICAL,
    IndexMap,
    Layout,
    blocked,
    channels_last,
    channels_last_padded,
    families,
    row_major,
)
from graphflow.tir import Literal, float32, interpret, loops_of
from support.strategies import transformed

SHAPE = (2, 5, 3, 2)
FRONT = IndexMap.from_function(1, lambda i: [(i + 2) // 8, (i + 2) % 8])
FOURS = IndexMap.from_function(1, lambda i: [i // 4, i % 4])

LAYOUTS = {
    "row_major": row_major(SHAPE),
    "channels_last": channels_last(SHAPE),
    "padded": channels_last_padded(SHAPE, 4),
    "blocked": blocked(SHAPE, 1, 4),
    "blocked_axis_0": blocked(SHAPE, 0, 4),
    "few_channels": blocked((1, 3, 2, 2), 1, 16),
    "halo": row_major(SHAPE).halo((0, 0, 1, 1), (0, 0, 2, 1)),
    "blocked_halo": blocked((1, 3, 2, 2), 1, 4).halo((0, 0, 1, 1, 0), (0, 0, 1, 1, 0)),
    "windowed": blocked((1, 8, 2, 2), 1, 4).windowed((0, 3, 0, 0, 0), (1, 6, 2, 2, 4)),
    "wide_block": blocked(SHAPE, 1, 4).boxed((2, 2, 3, 2, 6)),
    "fours": Layout.of(FOURS, (14,)),
    "front": Layout.of(FRONT, (14,)),
    "both_ends": Layout.of(FRONT, (16,)),
    "strided": Layout.of(IndexMap.from_function(1, lambda i: [2 * i + 1]), (4,)),
    "twice": transformed(
        Layout.of(FOURS, (14,)),
        IndexMap.from_function(2, lambda a, b: [a, (b + 1) // 3, (b + 1) % 3]),
    ),
    "two_axes": Layout.of(
        IndexMap.from_function(2, lambda i, j: [i // 4, i % 4, j // 8, j % 8]), (6, 13)
    ),
    "rank_0": row_major(()),
    "empty": blocked((1, 0, 2), 1, 4),
}


def points(shape):
    return product(*(range(n) for n in shape))


def values(indices):
    return tuple(constant_value(index) for index in indices)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_each_element_has_one_place_and_finds_back(layout):
    places = {}
    for logical in points(layout.logical_shape):
        place = values(layout.physical_index(logical))
        assert all(0 <= p < n for p, n in zip(place, layout.physical_shape, strict=True))
        assert values(layout.logical_index(place)) == logical
        assert place not in places
        places[place] = logical
    predicate = layout.is_logical()
    for place in points(layout.physical_shape):
        at = dict(zip(layout.physical_axes, place, strict=True))
        assert holds(predicate, at) == (place in places)
    padding = int(np.prod(layout.physical_shape)) - len(places)
    assert layout.padding_elements == padding
    assert layout.is_padded == (padding > 0)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_regions_are_disjoint_and_cover_the_box(layout):
    regions = layout.regions()
    assert regions[0].name == LOGICAL
    assert len({region.name for region in regions}) == len(regions)
    seen = dict.fromkeys((region.name for region in regions), 0)
    for place in points(layout.physical_shape):
        (home,) = [region.name for region in regions if region.contains(place)]
        seen[home] += 1
    assert seen[LOGICAL] == int(np.prod(layout.logical_shape))
    assert all(count for name, count in seen.items() if name != LOGICAL)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_the_solver_agrees_with_the_structural_inverse(layout):
    proof = layout.index_map.check(layout.logical_shape)
    assert proof.proven, proof


def test_regions_are_named_by_the_padded_logical_axes():
    names = [region.name for region in LAYOUTS["two_axes"].regions()]
    assert names == [LOGICAL, "pad(0)", "pad(1)", "pad(0,1)"]
    assert [r.name for r in LAYOUTS["strided"].regions()] == [LOGICAL, "gap"]
    assert [r.name for r in row_major(SHAPE).regions()] == [LOGICAL]
    with pytest.raises(KeyError, match=r"no region pad\(7\); it has logical, pad\(1\)"):
        LAYOUTS["padded"].region("pad(7)")


def test_the_smallest_box():
    assert LAYOUTS["fours"].physical_shape == (4, 4)
    assert LAYOUTS["fours"].padding_elements == 2
    assert LAYOUTS["front"].physical_shape == (2, 8)
    assert str(LAYOUTS["front"].is_logical()) == "8*p0 + p1 >= 2"
    assert LAYOUTS["both_ends"].physical_shape == (3, 8)
    assert blocked((1, 17, 2, 2), 1, 16).physical_shape == (1, 2, 2, 2, 16)


def test_predicates_are_simplified_on_the_box():
    assert blocked((2, 64, 3, 3), 1, 16).is_logical() == TRUE
    assert str(blocked((2, 58, 3, 3), 1, 16).is_logical()) == "16*p1 + p4 < 58"
    assert str(channels_last_padded((2, 58, 3, 3), 16).is_logical()) == "p3 < 58"
    assert LAYOUTS["padded"].is_logical((0, 0, 0, 7)) == FALSE


def test_equality_is_map_and_box():
    square = (4, 4, 4, 4)
    assert row_major(square) != channels_last(square)
    assert row_major(square).physical_shape == channels_last(square).physical_shape
    assert Layout.of(FRONT, (14,)) != Layout.of(FRONT, (14,), box=(3, 8))
    assert channels_last_padded((1, 32, 2, 2), 16) == channels_last((1, 32, 2, 2))
    assert channels_last_padded((1, 31, 2, 2), 16) != channels_last((1, 31, 2, 2))
    assert Layout.of(FOURS, (14,)) != row_major((14,))
    # One map written in two ways, and one that differs only beyond the tensor.
    by_hand = IndexMap.from_function(4, lambda n, c, h, w: [n, c // 16, h, w, c % 16])
    assert Layout.of(by_hand, (1, 32, 2, 2)) == blocked((1, 32, 2, 2), 1, 16)
    pinned = IndexMap.permute((0, 2, 3, 1))
    assert Layout.of(pinned, SHAPE) == channels_last(SHAPE)
    assert hash(Layout.of(pinned, SHAPE)) == hash(channels_last(SHAPE))


def test_maps_are_compared_whatever_their_variables_are_called():
    i, j = IndexMap.identity(2).inputs
    back = IndexMap.identity(2).inverse
    swapped = IndexMap((j, i), (j, i), back)
    assert swapped == IndexMap.identity(2)
    assert IndexMap.permute((1, 0)) != IndexMap.identity(2)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_composition_undoes_itself(data):
    rank = data.draw(st.integers(1, 3))
    shape = tuple(data.draw(st.integers(1, 6)) for _ in range(rank))
    index_map = IndexMap.identity(rank)
    for _ in range(data.draw(st.integers(1, 4))):
        index_map = index_map.then(data.draw(_steps(index_map.physical_rank)))
    layout = Layout.of(index_map, shape)
    places = [values(layout.physical_index(at)) for at in points(shape)]
    assert len(set(places)) == len(places)
    assert [values(layout.logical_index(place)) for place in places] == list(points(shape))
    assert index_map.check(shape).proven


def _steps(rank):
    axis = st.integers(0, rank - 1)
    return st.one_of(
        st.permutations(range(rank)).map(IndexMap.permute),
        st.builds(IndexMap.split, st.just(rank), axis, st.integers(1, 5), st.booleans()),
        st.builds(IndexMap.offset, st.just(rank), axis, st.integers(0, 3)),
    )


def test_inverses_are_derived_from_user_functions():
    three = IndexMap.from_function(1, lambda i: [i // 16, (i // 4) % 4, i % 4])
    assert str(three.inverse[1][0]) == "16*p0 + 4*p1 + p2"
    skewed = IndexMap.from_function(2, lambda i, j: [i + j, j + 3])
    assert values(skewed.invert(values(skewed.apply((5, 9))))) == (5, 9)
    flat = IndexMap.from_function(2, lambda i, j: [(7 * j + i) // 4, (7 * j + i) % 4], (7, 5))
    for at in points((7, 5)):
        assert values(flat.invert(values(flat.apply(at)))) == at


def test_maps_that_lose_an_index_are_refused():
    with pytest.raises(ScheduleError, match=r"cannot find i0, i1 again .* give the logical shape"):
        IndexMap.from_function(2, lambda i, j: [16 * i + j])
    with pytest.raises(ScheduleError, match="cannot find i0, i1 again"):
        IndexMap.from_function(2, lambda i, j: [16 * i + j], (4, 17))
    with pytest.raises(ScheduleError, match="cannot find i0"):
        IndexMap.from_function(1, lambda i: [i % 8])
    with pytest.raises(ScheduleError, match="cannot find i1"):
        IndexMap.from_function(2, lambda i, j: [i])
    assert IndexMap.from_function(2, lambda i, j: [16 * i + j], (4, 16)).physical_rank == 1


def test_a_wrong_inverse_is_found_out():
    i = IndexMap.identity(1).inputs
    p = IndexMap.identity(1).inverse[0]
    assert not IndexMap(i, (i[0] + 1,), (p, (p[0] + 1,))).check((8,)).proven
    assert not IndexMap(i, (i[0] // 2,), (p, (p[0] * 2,))).check((8,)).proven


def test_boxes_that_do_not_hold_the_image_are_refused():
    with pytest.raises(ScheduleError, match="physical axis 0 would start at -1"):
        Layout.of(IndexMap.offset(1, 0, -1), (4,))
    with pytest.raises(ScheduleError, match="too short"):
        Layout.of(FRONT, (16,), box=(2, 8))
    with pytest.raises(ScheduleError, match="does not fit into a storage"):
        row_major((4,)).windowed((2,), (5,))
    with pytest.raises(ScheduleError, match="rank 1 has none"):
        channels_last((4,))


def test_names():
    shape = (1, 58, 7, 7)
    assert row_major(shape).describe() == "NCHW"
    assert channels_last(shape).describe() == "NHWC"
    assert channels_last_padded(shape, 16).describe() == "NHWC padded to 64"
    assert blocked(shape, 1, 16).describe() == "NCHW16c"
    assert blocked(shape, 0, 8).describe() == "NCHW with N in blocks of 8"
    assert blocked(shape, 3, 2).describe() == "NCHW with W in blocks of 2"
    assert blocked((5, 3, 7), 0, 4).describe() == "NCW with N in blocks of 4"
    assert channels_last((1, 3, 7)).describe() == "NWC"
    assert row_major((3, 4)).describe() == "row-major"
    assert LAYOUTS["windowed"].describe() == "NCHW4c at [0, 3, 0, 0, 0] in [1, 6, 2, 2, 4]"
    assert LAYOUTS["fours"].describe() == "(i0) -> (i0 // 4, i0 % 4) in [4, 4]"
    assert row_major(shape).halo((0, 0, 1, 1), (0, 0, 1, 1)).describe() == (
        "NCHW at [0, 0, 1, 1] in [1, 58, 9, 9]"
    )


def test_families_by_rank():
    names = [family.name for family in families(4, 16)]
    expected = ["row_major", "channels_last", "channels_last_padded(16)", "blocked(16)"]
    assert names == expected
    assert [family.name for family in families(2, 16)] == ["row_major"]
    found = [family.instantiate((1, 58, 7, 7)) for family in families(4, 16)]
    assert [layout.describe() for layout in found] == [
        "NCHW",
        "NHWC",
        "NHWC padded to 64",
        "NCHW16c",
    ]
    assert families(4, 16)[0].instantiate((1, 2, 3)) is None


@pytest.mark.parametrize("channels", [1, 3, 17, 58])
@pytest.mark.parametrize("name", ["blocked", "padded", "halo", "channels_last"])
def test_conversions_go_there_and_back(channels, name):
    shape = (1, channels, 2, 3)
    target = {
        "blocked": blocked(shape, 1, 16),
        "padded": channels_last_padded(shape, 16),
        "halo": channels_last(shape).halo((0, 1, 1, 0), (0, 1, 1, 0)),
        "channels_last": channels_last(shape),
    }[name]
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    moved = interpret(conversion(row_major(shape), target, "float32", float32(-7.0)), {"src": x})
    packed = moved["dst"]
    assert packed.shape == target.physical_shape
    expected = np.full(target.physical_shape, -7.0, np.float32)
    for at in points(shape):
        expected[values(target.physical_index(at))] = x[at]
    np.testing.assert_array_equal(packed, expected)
    back = interpret(conversion(target, row_major(shape), "float32"), {"src": packed})["dst"]
    np.testing.assert_array_equal(back, x)


def test_conversion_between_two_padded_layouts_leaves_padding_unwritten_without_a_fill():
    shape = (1, 17, 1, 2)
    source, target = channels_last_padded(shape, 4), blocked(shape, 1, 8)
    packed = np.full(source.physical_shape, np.nan, np.float32)
    packed[..., :17] = np.arange(34, dtype=np.float32).reshape(1, 1, 2, 17)
    func = conversion(source, target, "float32")
    found = interpret(func, {"src": packed}, undefined=99.0)["dst"]
    for place in points(target.physical_shape):
        at = values(target.logical_index(place))
        expected = 99.0 if at[1] >= 17 else 17 * at[3] + at[1]
        assert found[place] == expected


def test_a_conversion_into_a_window_runs_over_the_window_alone():
    shape = (1, 5, 2, 3)
    whole = (1, 2, 3, 40)
    target = channels_last(shape).windowed((0, 0, 0, 30), whole)
    func = conversion(channels_last_padded(shape, 4), target, "float32")
    sides = [(constant_value(loop.start), loop.extent) for loop in loops_of(func.body)]
    assert sides == [(0, 1), (0, 2), (0, 3), (30, 5)]
    packed = np.arange(48, dtype=np.float32).reshape(1, 2, 3, 8)
    found = interpret(func, {"src": packed}, undefined=99.0)["dst"]
    np.testing.assert_array_equal(found[..., 30:35], packed[..., :5])
    assert (found[..., :30] == 99.0).all() and (found[..., 35:] == 99.0).all()


def test_a_conversion_reads_the_source_in_its_order_but_for_the_innermost_axis():
    shape = (1, 5, 2, 3)
    func = conversion(channels_last(shape), row_major(shape), "float32")
    assert [loop.extent for loop in loops_of(func.body)] == [1, 2, 5, 3]
    func = conversion(row_major(shape), channels_last(shape), "float32")
    assert [loop.extent for loop in loops_of(func.body)] == [1, 2, 3, 5]


def test_conversion_refuses_other_shapes_and_dtypes():
    with pytest.raises(LayoutConflict, match="logical shapes must be the same"):
        conversion(row_major((4,)), row_major((5,)), "float32")
    with pytest.raises(LayoutConflict, match="float64"):
        conversion(row_major((4,)), row_major((4,)), "float32", Literal(0.0, "float64"))


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_fill_writes_one_region_and_nothing_else(layout):
    for region in layout.regions():
        func = fill_region(layout, region, "float32", float32(5.0))
        found = interpret(func, {}, undefined=-1.0)["dst"]
        for place in points(layout.physical_shape):
            assert found[place] == (5.0 if region.contains(place) else -1.0)


@pytest.mark.parametrize("layout", [f.instantiate((2, 20, 3, 5)) for f in families(4, 8)], ids=str)
def test_a_shifted_map_is_the_map_and_then_the_shift(layout: Layout):
    amounts = [3 * (k % 2) for k in range(len(layout.physical_shape))]
    shifted = layout.index_map.shifted(amounts)
    composed = layout.index_map.then(IndexMap.shift(amounts))
    assert shifted == composed and shifted.inverse == composed.inverse
