"""Tests of the choice of a register tile."""

from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.cost import (
    AlongRow,
    BroadcastMisses,
    BroadcastRows,
    OwnVectors,
    OwnWindows,
    Panels,
    SlidingRows,
    TileProblem,
    Tiling,
    broadcast_misses,
    charge,
    fetches_ahead,
    panel_cycles,
    shared_line_cycles,
    tiling_cycles,
)
from graphflow.cost.charges import MASKED_LOADS, READ_AGAIN, ROWS_AWAITED, SHARED_LINE
from graphflow.cost.cycles import CHAINED_ROUNDING
from graphflow.kernels.recipes.analysis.roles import roles_of
from graphflow.kernels.recipes.variants.tiling import choose_tiling, with_epilogue
from graphflow.tir import parse

EIGHT_LANES = Target(
    "eight lanes", "", "", vector_bytes=32, vector_registers=16,
    fmas_per_cycle=2.0, cycles_per_vector_load=0.5,
)  # fmt: skip
PLANE = TileProblem(
    columns=1280, rows=7, planes=7, steps=112, weight_bytes=1280 * 112 * 4,
    loads=BroadcastRows(448),
)  # fmt: skip


def test_panels_outermost_that_do_not_divide_the_channels_pay_for_masked_stores() -> None:
    tiling, cheap = choose_tiling(PLANE, EIGHT_LANES)
    assert tiling.panel_outermost and PLANE.columns % tiling.panels[0].width
    slow = replace(EIGHT_LANES, cycles_per_masked_store=12.0)
    tiling, dear = choose_tiling(PLANE, slow)
    assert sum(p.count * p.width for p in tiling.panels) == PLANE.columns
    assert not tiling.panel_outermost
    # What is compared: some thread may have half a plane more than its share.
    assert cheap < dear * (1 + 0.5 / PLANE.planes) < 1.1 * cheap


def test_vectors_that_may_write_padding_need_no_mask() -> None:
    padded = replace(PLANE, columns=1276, whole_vectors=True)
    slow = replace(EIGHT_LANES, cycles_per_masked_store=12.0)
    assert choose_tiling(padded, EIGHT_LANES) == choose_tiling(padded, slow)


def test_the_last_channels_pay_where_they_do_not_fill_a_vector() -> None:
    odd = replace(PLANE, columns=13, planes=16)
    slow = replace(EIGHT_LANES, cycles_per_masked_store=12.0)
    more = choose_tiling(odd, slow)[1] - choose_tiling(odd, EIGHT_LANES)[1]
    assert 0 < more <= 2 * 11 * odd.rows * odd.planes


def test_a_mask_known_beforehand_costs_its_pieces() -> None:
    """Twenty channels are three vectors, the last one half full, not two and a narrow one."""
    slow = replace(EIGHT_LANES, cycles_per_masked_store=12.0)
    plane = replace(PLANE, columns=20, rows=128, steps=180, weight_bytes=0, loads=BroadcastRows(80))
    (panel,) = choose_tiling(plane, slow)[0].panels
    assert (panel.count, panel.nr_vectors, panel.lanes) == (1, 3, 8)


def test_weights_that_leave_the_first_cache_are_used_for_more_rows() -> None:
    plane = replace(PLANE, columns=80, rows=32, planes=32, steps=720, loads=BroadcastRows(320))
    assert choose_tiling(plane, EIGHT_LANES)[0].panels[0].mr > 2


ROWS = TileProblem(
    columns=128, rows=20, planes=128, steps=180, weight_bytes=14400,
    loads=AlongRow(misses=0.0, borders=True),
)  # fmt: skip


def test_lanes_along_rows_hold_the_same_channels_in_all_panels() -> None:
    """Weights are packed once; masks at the borders leave registers for fewer channels."""
    bordered, cycles = choose_tiling(ROWS, EIGHT_LANES)
    assert len({panel.mr for panel in bordered.panels}) == 1
    assert sum(panel.count for panel in bordered.panels) > 2
    for panel in bordered.panels:
        assert panel.nr_vectors * (panel.mr + 1) + 1 + 3 <= EIGHT_LANES.vector_registers
    _, fewer = choose_tiling(replace(ROWS, loads=AlongRow(0.0, borders=False)), EIGHT_LANES)
    assert fewer < cycles


def test_lanes_along_rows_are_cheaper_than_lanes_that_channels_do_not_fill() -> None:
    """Twenty channels in vectors of eight waste a sixth; rows of 128 positions waste nothing."""
    channels = TileProblem(20, 128, 128, 180, 14400, BroadcastRows(80))
    assert choose_tiling(ROWS, EIGHT_LANES)[1] < choose_tiling(channels, EIGHT_LANES)[1]
    full = replace(channels, columns=24, weight_bytes=17280)
    many = replace(ROWS, rows=24, weight_bytes=17280)
    assert choose_tiling(many, EIGHT_LANES)[1] > choose_tiling(full, EIGHT_LANES)[1]


def test_panels_along_rows_run_outermost_where_few_planes_leave_threads_nothing_to_share() -> None:
    one = replace(ROWS, columns=784, planes=1, loads=AlongRow(0.0, borders=False))
    tiling, _ = choose_tiling(one, EIGHT_LANES)
    (panel,) = tiling.panels
    assert tiling.panel_outermost and one.columns % panel.width == 0
    assert tiling.pieces(one.planes) == panel.count >= 16
    assert not choose_tiling(replace(one, planes=16), EIGHT_LANES)[0].panel_outermost
    assert not tiling.whole_apart
    bordered = choose_tiling(replace(one, loads=ROWS.loads), EIGHT_LANES)[0]
    assert bordered.panel_outermost and bordered.whole_apart


def test_data_that_leaves_the_first_cache_between_channels_costs_its_lines() -> None:
    apart = replace(ROWS, steps=20, loads=AlongRow(1.0, borders=False))
    near = replace(apart, loads=AlongRow(0.0, borders=False))
    assert choose_tiling(apart, EIGHT_LANES)[1] > 1.5 * choose_tiling(near, EIGHT_LANES)[1]


WINDOWS = TileProblem(
    columns=52, rows=40, planes=64, steps=9, weight_bytes=0,
    loads=OwnWindows(1.0),
)  # fmt: skip


def test_rows_of_windows_are_one_panel_of_few_rows() -> None:
    """Nothing that is loaded is shared, so no more accumulators than hide latency."""
    (panel,) = choose_tiling(WINDOWS, EIGHT_LANES)[0].panels
    assert (panel.count, panel.nr_vectors, panel.mr) == (1, 7, 1)
    (panel,) = choose_tiling(replace(WINDOWS, columns=13), EIGHT_LANES)[0].panels
    assert (panel.nr_vectors, panel.mr) == (2, 2)


def test_long_rows_of_windows_are_cut_into_pieces_that_cover_them() -> None:
    for columns in (64, 65, 130, 256):
        panels = choose_tiling(replace(WINDOWS, columns=columns), EIGHT_LANES)[0].panels
        assert {panel.count for panel in panels} == {1} and len(panels) == -(-columns // 64)
        assert 0 <= sum(panel.width for panel in panels) - columns < 8
        assert max(p.nr_vectors for p in panels) - min(p.nr_vectors for p in panels) <= 1


def test_rows_of_windows_cost_what_their_accumulators_load() -> None:
    more = replace(WINDOWS, loads=OwnWindows(2.0))
    assert choose_tiling(more, EIGHT_LANES)[1] > choose_tiling(WINDOWS, EIGHT_LANES)[1]


def test_a_tile_leaves_registers_for_what_neighbouring_taps_share() -> None:
    """For each row one element is kept for the next tap, or a vector where rows load their own."""
    problem = replace(PLANE, rows=28)
    plane = problem.plane
    assert [plane.loads.most_rows(plane, nr, EIGHT_LANES) for nr in (1, 2)] == [14, 6]
    many = replace(EIGHT_LANES, vector_registers=32)
    broadcast = replace(problem, loads=BroadcastRows(448, taps=3)).plane
    assert [plane.loads.most_rows(plane, nr, many) for nr in (1, 2)] == [28, 14]
    assert [broadcast.loads.most_rows(broadcast, nr, many) for nr in (1, 2)] == [15, 9]
    assert [broadcast.loads.most_rows(broadcast, nr, EIGHT_LANES) for nr in (1, 2)] == [7, 4]
    own = replace(problem, loads=OwnVectors(taps=3)).plane
    assert [own.loads.most_rows(own, nr, EIGHT_LANES) for nr in (1, 2)] == [7, 3]


def test_a_tile_with_few_registers_loads_again_what_only_some_rows_meet() -> None:
    """In a window of stride two, a row meets every second element that its neighbour meets."""
    plane = replace(PLANE, rows=28).plane
    strided = replace(PLANE, rows=28, loads=BroadcastRows(448, taps=7, tap_step=2)).plane
    assert strided.loads.most_rows(strided, 2, EIGHT_LANES) == plane.loads.most_rows(
        plane, 2, EIGHT_LANES
    )
    many = replace(EIGHT_LANES, vector_registers=32)
    assert strided.loads.most_rows(strided, 2, many) < plane.loads.most_rows(plane, 2, many)


def test_rows_of_many_channels_are_loaded_from_the_second_cache_again() -> None:
    one = replace(
        PLANE, columns=56, rows=56, planes=96, steps=9, weight_bytes=0,
        loads=SlidingRows(3, along=3, runs=1, borders=False),
    )  # fmt: skip
    tiling, near = choose_tiling(one, EIGHT_LANES)
    many = replace(one, steps=9 * 256, loads=SlidingRows(3, along=3, runs=256, borders=False))
    held = replace(many, loads=SlidingRows(3, along=3, runs=1, borders=False))
    far = tiling_cycles(many, tiling, EIGHT_LANES)
    assert far > 1.5 * tiling_cycles(held, tiling, EIGHT_LANES)
    masked = replace(one, loads=SlidingRows(3, along=3, runs=1, borders=True))
    assert tiling_cycles(masked, tiling, EIGHT_LANES) > near


SIXTEEN_LANES = Target("sixteen lanes", "", "", vector_bytes=64, vector_registers=32)


def product(steps: int, columns: int) -> TileProblem:
    """Seven rows of seven positions, each a reduction over `steps` channels with packed weights."""
    size = 4 * steps * columns
    return TileProblem(columns, 7, 7, steps, size, BroadcastRows())


def test_tilings_are_compared_at_the_peak_and_priced_below_it() -> None:
    """Loads from the second-level cache are hidden by one multiply-add a cycle, not by two."""
    problem, fast = product(512, 2048), replace(SIXTEEN_LANES, peak_factor=2.0)
    (slow_panel,), (panel,) = (
        choose_tiling(problem, target)[0].panels for target in (SIXTEEN_LANES, fast)
    )
    assert (slow_panel.nr_vectors, slow_panel.mr) == (4, 4)
    assert (panel.nr_vectors, panel.mr) == (2, 7)
    assert choose_tiling(problem, fast)[1] == choose_tiling(problem, SIXTEEN_LANES)[1]
    assert fast.at_peak.at_peak == fast.at_peak


def test_panels_are_as_wide_as_the_second_level_cache_holds_two() -> None:
    """It holds two panels of 32 columns and 3,072 steps, and one of 48 columns."""
    tiling, _ = choose_tiling(product(3072, 768), SIXTEEN_LANES)
    (panel,) = tiling.panels
    assert tiling.panel_outermost and panel.nr_vectors == 2
    caches = [replace(SIXTEEN_LANES, name=str(k), l2_bytes=1 << k) for k in (20, 19, 18)]
    charges = [charge(product(3072, 768), tiling, target) for target in caches]
    assert charges == [1.0, 1 + ROWS_AWAITED / 49, READ_AGAIN]
    row = replace(product(3072, 768), rows=1, planes=1)
    assert charge(row, tiling, caches[-1]) == 1
    inside = replace(tiling, panel_outermost=False)
    assert charge(replace(product(3072, 768), planes=16), inside, caches[-1]) == 1


def test_weights_are_fetched_ahead_where_several_tiles_share_each_of_several_panels() -> None:
    problem = product(3072, 768)
    tiling, _ = choose_tiling(problem, SIXTEEN_LANES)
    assert fetches_ahead(problem, tiling, SIXTEEN_LANES)
    assert not fetches_ahead(replace(problem, planes=1), tiling, SIXTEEN_LANES)
    assert not fetches_ahead(replace(problem, weight_bytes=0), tiling, SIXTEEN_LANES)
    assert not fetches_ahead(problem, replace(tiling, panel_outermost=False), SIXTEEN_LANES)
    wide = replace(tiling, panels=(replace(tiling.panels[0], nr_vectors=3),))
    assert not fetches_ahead(problem, wide, SIXTEEN_LANES)


def test_lines_to_which_two_threads_write_are_charged_where_rows_are_no_whole_lines() -> None:
    """116 channels are 464 bytes, 128 are eight lines of 64 bytes."""
    problem = TileProblem(116, 14, 14, 116, 4 * 116 * 116, BroadcastRows())
    outermost = Tiling((Panels(4, 2, 16, 14),), panel_outermost=True)
    assert shared_line_cycles(problem, outermost, SIXTEEN_LANES) == 196 * SHARED_LINE
    inside = replace(outermost, panel_outermost=False)
    padded = replace(problem, whole_vectors=True)
    whole = replace(problem, columns=128)
    assert shared_line_cycles(problem, inside, SIXTEEN_LANES) == 0
    assert shared_line_cycles(padded, outermost, SIXTEEN_LANES) == 0
    assert shared_line_cycles(whole, outermost, SIXTEEN_LANES) == 0
    fast = replace(SIXTEEN_LANES, peak_factor=2.0)
    assert not choose_tiling(problem, fast)[0].panel_outermost
    assert choose_tiling(whole, fast)[0].panel_outermost


def test_masks_on_every_load_are_charged_where_panels_reach_past_the_columns() -> None:
    depthwise = TileProblem(116, 14, 14, 9, 116 * 9 * 4, OwnVectors())
    target = replace(SIXTEEN_LANES, peak_factor=2.0)
    tiling, _ = choose_tiling(depthwise, target)
    assert not tiling.panel_outermost
    ragged = Tiling((Panels(4, 2, 16, 7),), panel_outermost=True)
    assert charge(depthwise, ragged, target) == MASKED_LOADS
    assert charge(replace(depthwise, columns=128), ragged, target) == 1
    assert charge(depthwise, replace(ragged, whole_apart=True), target) == 1
    assert charge(replace(depthwise, whole_vectors=True), ragged, target) == 1
    assert charge(replace(depthwise, loads=BroadcastRows()), ragged, target) == 1


def test_few_rows_of_own_vectors_load_what_taps_do_not_share() -> None:
    """Two rows meet six vectors in five taps, fourteen rows eighteen: fewer for each row."""
    depthwise = TileProblem(
        240, 14, 14, 25, 240 * 25 * 4,
        loads=OwnVectors(taps=5),
    )  # fmt: skip
    target = replace(SIXTEEN_LANES, peak_factor=2.0)
    (panel,) = choose_tiling(depthwise, target)[0].panels
    assert panel.mr >= 7
    few, many = (
        panel_cycles(depthwise.plane, Panels(1, vectors, 16, rows), target.at_peak) / vectors
        for vectors, rows in ((5, 2), (1, 14))
    )
    assert few > many
    pool = replace(depthwise, weight_bytes=0)
    unweighted = panel_cycles(pool.plane, Panels(1, 5, 16, 2), target.at_peak)
    assert unweighted < panel_cycles(depthwise.plane, Panels(1, 5, 16, 2), target.at_peak)


def test_lines_of_steps_that_lie_apart_are_awaited_for_each_tile_of_rows() -> None:
    """128 steps through weights of 1,024 columns: 4 KiB apart, all in one set of the cache."""
    apart = broadcast_misses(4, [(4096, 128)], 1 << 19, SIXTEEN_LANES)
    assert apart is not None and apart.misses == 1
    rows = TileProblem(16, 1024, 1, 128, 0, BroadcastRows())
    panel = Panels(1, 1, 16, 28)
    plain, awaited = (
        panel_cycles(replace(rows, misses=each).plane, panel, SIXTEEN_LANES)
        for each in (None, apart)
    )
    assert plain < awaited
    far = replace(rows, misses=BroadcastMisses(apart.misses, 2 * SIXTEEN_LANES.l2_bytes, 4))
    assert panel_cycles(far.plane, panel, SIXTEEN_LANES) > awaited
    # Three taps of each line, and every second element for neighbouring rows.
    taps = broadcast_misses(8, [(12544, 64), (448, 3), (4, 3)], 1 << 19, SIXTEEN_LANES)
    assert taps == BroadcastMisses(1 / 3, 1 << 19, 8)
    # A row of a tile in each line, steps along a line, and lines that the cache keeps.
    assert broadcast_misses(64, [(4096, 256)], 1 << 20, SIXTEEN_LANES) is None
    assert broadcast_misses(4, [(4096, 256), (32, 8)], 1 << 20, SIXTEEN_LANES) is None
    assert broadcast_misses(4, [(400, 96)], 96 * 400, SIXTEEN_LANES) is None
    assert broadcast_misses(0, [(4096, 256)], 1 << 20, SIXTEEN_LANES) is None


def test_roundings_that_follow_one_another_are_priced_one_by_one() -> None:
    """Bytes that are made once are made of several vectors together."""
    elements = parse("""
    @primfunc
    def k(x: f32[64, 64], y: out[u8[64, 64]]):
        with block("main"):
            for i in serial(0, 64):
                for j in serial(0, 64):
                    y[i, j] = cast(u8, round(x[i, j]))
    """)
    roles = roles_of(elements)
    assert roles is not None and roles.roundings == 1
    vectors = 64 * 64 / EIGHT_LANES.computed_lanes("uint8")
    assert with_epilogue(0.0, roles, EIGHT_LANES) == 0
    for count in (2, 3):
        chained = replace(roles, roundings=count)
        assert with_epilogue(0.0, chained, EIGHT_LANES) == count * CHAINED_ROUNDING * vectors
