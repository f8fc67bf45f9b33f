"""Tests of the cost model: prices rise with work, fall with threads, and depend on element
types."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.cost import (
    NEAR,
    BroadcastRows,
    ConversionWork,
    CostModel,
    OwnVectors,
    TileBands,
    TileProblem,
    Timings,
    TransformedTiles,
    Work,
    clearly_less,
    crossing_share,
    first_of_cheapest,
    move_cycles,
    narrow_saves,
    number_cycles,
    operation_cycles,
    plain_first,
    rows_worth_weights,
    tile_band_cycles,
    vector_cycles,
)
from graphflow.kernels.recipes.variants.tiling import choose_tiling

AVX2 = Target("avx2", "", "", 32, 16, fmas_per_cycle=2.0, cycles_per_vector_load=0.5)
AVX512 = Target("avx512", "", "", 64, 32)
TARGETS = pytest.mark.parametrize("target", (AVX2, AVX512), ids=lambda t: t.name)
LANES = {"float32": 4, "float16": 4, "int8": 4, "bool": 4, "int32": 4, "float64": 8, "int64": 8}
"""Bytes that a lane computes, by element type."""


@TARGETS
@pytest.mark.parametrize("dtype", LANES)
def test_a_vector_computes_elements_of_four_bytes_or_more(target: Target, dtype: str) -> None:
    assert target.computed_lanes(dtype) == target.vector_bytes // LANES[dtype]


def test_a_vector_holds_stored_elements_of_any_size() -> None:
    assert [AVX512.lanes(d) for d in ("int8", "float16", "float32", "float64")] == [64, 32, 16, 8]


WORKS = st.builds(
    Work,
    st.just(0.0),
    st.floats(1.0, 1e10),
    st.integers(1, 10_000),
    st.integers(1, 1 << 30),
    st.integers(1, 1 << 30),
)


@given(WORKS, st.floats(1.0, 100.0), st.integers(1, 64))
def test_more_work_never_takes_less_time(work: Work, more: float, threads: int) -> None:
    cost = CostModel(AVX2, threads)
    seconds = cost.kernel_seconds(work)
    assert seconds > 0
    assert cost.kernel_seconds(replace(work, cycles=work.cycles * more)) >= seconds
    assert cost.kernel_seconds(replace(work, flops=1e9)) == seconds
    assert cost.kernel_seconds(work, writes_padding=True) > seconds


@given(WORKS, st.integers(1, 32))
def test_more_threads_never_take_more_time(work: Work, threads: int) -> None:
    """Where rows can be shared evenly; seven rows on four threads wait for the fullest one."""
    even = replace(work, rows=2 * threads)
    several = CostModel(AVX2, 2 * threads).kernel_seconds(even)
    assert several <= CostModel(AVX2, threads).kernel_seconds(even) * (1 + 1e-12)


def test_one_row_is_not_shared() -> None:
    alone = Work(0.0, 1e9, 1, 0, 0)
    assert CostModel(AVX2, 8).kernel_seconds(alone) == CostModel(AVX2, 1).kernel_seconds(alone)


def test_one_row_is_moved_by_one_core() -> None:
    alone, shared = (Work(0.0, 1.0, rows, 1 << 26, 0) for rows in (1, 8))
    seconds = [CostModel(AVX2, threads).kernel_seconds(alone) for threads in (1, 2)]
    assert seconds[0] == seconds[1] > CostModel(AVX2, 2).kernel_seconds(shared)


def to_begin(cost: CostModel) -> float:
    """The seconds to begin a kernel, of next to no work."""
    return cost.kernel_seconds(Work(0.0, 1e-9, 1, 0, 0))


def test_units() -> None:
    """A second of cycles, a second of reading from each level, and what it takes to begin."""
    cost, start = CostModel(AVX2), CostModel(AVX2).fill_seconds(0)
    begin = to_begin(cost)
    assert 0 < begin < start < 1e-6
    second = Work(0.0, AVX2.clock_ghz * 1e9, 1, 0, 0)
    assert cost.kernel_seconds(second) == pytest.approx(1 + begin, rel=1e-9)
    for moved, rate in (
        (AVX2.l2_bytes // 4, AVX2.l2_gbps),
        (AVX2.l3_bytes // 4, AVX2.l3_gbps),
        (1 << 40, AVX2.dram_gbps),
    ):
        assert cost.fill_seconds(moved) - start == pytest.approx(moved / (rate * 1e9), rel=1e-6)
    few, many = (CostModel(AVX2, n).fill_seconds(1 << 40) for n in (AVX2.dram_cores, 64))
    assert few == many < cost.fill_seconds(1 << 40)


def test_what_is_not_executed_costs_nothing() -> None:
    assert CostModel(AVX2).kernel_seconds(Work(0.0, 0.0, 1, 100, 0)) == 0.0


def rewriting(count: int, dtype: str = "float32", source_run: int = 0) -> ConversionWork:
    return ConversionWork(1 << 14, dtype, count, False, source_run, 64)


def test_conversions_cost_more_where_runs_leave_no_whole_vectors() -> None:
    """Eight float64 fill two vectors of AVX2, but no vector of sixteen bytes' elements."""
    seconds = CostModel(AVX2).conversion_seconds
    assert seconds(rewriting(7)) > seconds(rewriting(12)) > seconds(rewriting(16))
    assert seconds(rewriting(4, "float64")) == seconds(rewriting(8))
    assert seconds(rewriting(4)) > seconds(rewriting(4, "float64"))
    assert seconds(rewriting(8, source_run=8)) < seconds(rewriting(8))
    adjacent = replace(rewriting(16), adjacent=True)
    assert seconds(adjacent) < seconds(rewriting(16))


def test_timings_scale_estimates_and_optimism_lowers_them() -> None:
    cost = CostModel(AVX2, 2, Timings({"k": 3e-6}, optimism=2.0, doubtful=frozenset("k")))
    known = cost.measured("k")
    assert known is not None and known.seconds == 3e-6 and not known.measured
    assert cost.measured("other") is None
    scale = cost.scale_of([(2.0, 1.0), (9.0, 3.0), (8.0, 2.0), (1.0, 0.0)])
    assert scale == 3.0 and cost.scale_of([]) == 1.0
    assert cost.estimated(1e-6, scale).seconds == 1.5e-6


def conv(channels: int, dtype: str) -> TileProblem:
    size = 8 if dtype in ("float64", "int64") else 4
    return TileProblem(channels, 56, 56, 576, channels * 576 * size, BroadcastRows(), dtype=dtype)


@TARGETS
@pytest.mark.parametrize("dtype", LANES)
@pytest.mark.parametrize("channels", (3, 20, 50, 58, 64, 116))
def test_a_tile_fits_the_registers_of_its_type(channels: int, dtype: str, target: Target) -> None:
    tiling, _ = choose_tiling(conv(channels, dtype), target)
    assert sum(panel.count * panel.width for panel in tiling.panels) >= channels
    for panel in tiling.panels:
        registers = -(-panel.lanes * LANES[dtype] // target.vector_bytes)
        assert registers == 1
        assert panel.nr_vectors * (panel.mr + 1) + 1 <= target.vector_registers


@TARGETS
def test_elements_twice_as_wide_take_about_twice_as_long(target: Target) -> None:
    single, double = (choose_tiling(conv(64, d), target)[1] for d in ("float32", "float64"))
    assert 1.9 < double / single < 2.2
    assert choose_tiling(conv(64, "int8"), target) == choose_tiling(conv(64, "float16"), target)
    assert move_cycles(10, True, "float64", target) == 2 * move_cycles(10, True, "int32", target)
    assert move_cycles(10, False, "float64", target) == move_cycles(10, False, "int8", target)


@TARGETS
def test_cycles_rise_with_each_part_of_a_problem(target: Target) -> None:
    plain = conv(64, "float32")
    cycles = choose_tiling(plain, target)[1]
    for more in ("columns", "rows", "planes", "steps"):
        assert choose_tiling(replace(plain, **{more: 2 * getattr(plain, more)}), target)[1] > cycles
    assert choose_tiling(replace(plain, weight_bytes=1 << 24), target)[1] >= cycles
    assert choose_tiling(replace(plain, nests=3), target)[1] > cycles


def test_operations_and_weights() -> None:
    assert operation_cycles(6) == 6 * operation_cycles(1) > 0
    near, far = (rows_worth_weights(1e5, near, 1e4, AVX2) for near in (True, False))
    assert 0 < near < far


# Near-ties --------------------------------------------------------------------------------------


def test_prices_within_a_thousandth_are_equal() -> None:
    assert not clearly_less(1.0, 1.0) and not clearly_less(1.0, 1.0 + NEAR / 2)
    assert clearly_less(1.0, 1.0 + 2 * NEAR) and not clearly_less(1.0 + 2 * NEAR, 1.0)
    assert not clearly_less(0.0, 0.0) and clearly_less(0.0, 1e-9)


def test_blocks_are_taken_where_they_are_clearly_cheaper() -> None:
    assert plain_first(100.0) > 100.0 * (1 + NEAR / 2)
    assert plain_first(100.0 * (1 - 2 * NEAR)) < 100.0


def test_rounding_decides_nothing() -> None:
    """The same price, summed up in two orders."""
    first, second = (0.1 + 0.2) + 0.3, 0.1 + (0.2 + 0.3)
    assert first != second
    assert first_of_cheapest([(first, "first"), (second, "second")]) == "first"
    assert first_of_cheapest([(second, "second"), (first, "first")]) == "second"
    assert first_of_cheapest([(1.0001, "first"), (1.0, "cheaper")]) == "cheaper"
    with pytest.raises(ValueError, match="empty"):
        first_of_cheapest([])


def test_passes_over_rows_cost_what_their_operations_cost() -> None:
    with_exp, with_mul = (vector_cycles(("load", op, "store"), AVX2) for op in ("exp", "mul"))
    assert with_exp > with_mul > 0
    assert number_cycles(("div",)) > number_cycles(("add",)) > 0
    assert vector_cycles((), AVX2) == number_cycles(()) == 0
    slow = replace(AVX2, slow_operations=(("exp", 100.0),))
    slower = vector_cycles(("load", "exp", "store"), slow) - with_exp
    assert slower == pytest.approx(100 - vector_cycles(("exp",), AVX2))


def test_constants_are_read_from_the_cache_that_holds_those_of_the_network() -> None:
    read = 1 << 20
    work = Work(0.0, 1.0, 1, read, 0, read)
    start = to_begin(CostModel(AVX2))
    for constants, rate in (
        (0, AVX2.l3_gbps),
        (AVX2.l3_bytes // 4, AVX2.l3_gbps),
        (AVX2.l3_bytes // 2, AVX2.dram_gbps),
    ):
        seconds = CostModel(AVX2, constants=constants).kernel_seconds(work) - start
        assert seconds == pytest.approx(read / (rate * 1e9), rel=1e-3)
    near = replace(work, read=read // 4, constants=read // 4)
    seconds = CostModel(AVX2).kernel_seconds(near) - start
    assert seconds == pytest.approx(read / 4 / (AVX2.l2_gbps * 1e9), rel=1e-2)


def test_data_beyond_the_second_level_cache_is_awaited_where_a_target_says_so() -> None:
    waits = replace(AVX2, lines_awaited=1.0)
    for size, far in ((AVX2.l2_bytes, 0.0), (4 * AVX2.l2_bytes, 0.75)):
        moving = size / (AVX2.l3_gbps * 1e9)
        work = Work(0.0, 10 * moving * AVX2.clock_ghz * 1e9, 1, size, 0)
        hidden, awaited = (CostModel(t).kernel_seconds(work) for t in (AVX2, waits))
        assert awaited - hidden == pytest.approx(max(0.0, far - 0.02) * moving, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("quotients", [1, 2])
def test_a_quotient_beside_other_operations_is_free_where_a_target_says_so(quotients: int) -> None:
    beside = replace(AVX512, divides_beside=True)
    others = ["load", "load", "mul", "add", "store"] * 3
    divided = ["div"] * quotients
    assert vector_cycles(others + divided, AVX512) == pytest.approx(
        vector_cycles(others, AVX512) + vector_cycles(divided, AVX512)
    )
    longest = max(vector_cycles(others, AVX512), vector_cycles(divided, AVX512))
    assert vector_cycles(others + divided, beside) == longest


def test_constants_from_memory_come_late() -> None:
    """A kernel waits for its first constants where no cache has those of the network."""
    waits = replace(AVX2, constants_latency=1e-6 * AVX2.clock_ghz * 1e9)
    work = Work(2e6, 1e5, 1, 100_000, 100_000, constants=10_000)
    cached = waits.l3_bytes // waits.constants_kept

    def later(constants: int, of: Work = work) -> float:
        now, before = (
            CostModel(target, constants=constants).kernel_seconds(of) for target in (waits, AVX2)
        )
        return now - before

    assert later(cached + 1) == pytest.approx(1e-6)
    assert later(cached) == later(cached + 1, replace(work, constants=0)) == 0.0


def test_constants_beyond_the_second_level_cache_are_awaited_where_a_target_says_so() -> None:
    waits = replace(AVX2, constants_awaited=1.0)
    for size, far in ((AVX2.l2_bytes // 2, 0.0), (AVX2.l2_bytes, 1.0)):
        rate = AVX2.l3_gbps if far else AVX2.l2_gbps
        reading = size / (rate * 1e9)
        work = Work(0.0, 10 * reading * AVX2.clock_ghz * 1e9, 1, size, 0, size)
        hidden, awaited = (CostModel(t).kernel_seconds(work) for t in (AVX2, waits))
        assert awaited - hidden == pytest.approx(
            max(0.0, far - 0.02) * reading, rel=1e-6, abs=1e-12
        )


def test_what_caches_keep_from_run_to_run_depends_on_the_target() -> None:
    """Of constants the part of one in `constants_kept`, of a step's data the share `l2_kept`."""
    start = to_begin(CostModel(AVX2))
    few = AVX2.l3_bytes // 4
    work = Work(0.0, 1.0, 1, few, 0, few)
    for kept, rate in ((3, AVX2.l3_gbps), (8, AVX2.dram_gbps)):
        seconds = CostModel(replace(AVX2, constants_kept=kept)).kernel_seconds(work) - start
        assert seconds == pytest.approx(few / (rate * 1e9), rel=1e-3)
    size = AVX2.l2_bytes * 5 // 8
    moving = Work(0.0, 1.0, 1, size, 0)
    for share, rate in ((0.5, AVX2.l3_gbps), (0.75, AVX2.l2_gbps)):
        seconds = CostModel(replace(AVX2, l2_kept=share)).kernel_seconds(moving) - start
        assert seconds == pytest.approx(size / (rate * 1e9), rel=1e-2)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_cache_that_keeps_a_part_leaves_only_the_rest_to_the_next_one(threads: int) -> None:
    """Of data each thread keeps its part; the price goes on where the cache is full."""
    keeps = replace(AVX2, l2_keeps_part=True, lines_awaited=1.0)
    kept = keeps.l2_bytes // 2 * threads
    for size in (kept // 2, kept, 2 * kept, 6 * kept):
        near, far = min(size, kept), max(0, size - kept)
        rates = AVX2.l2_gbps * threads * 1e9, AVX2.l3_gbps * threads * 1e9
        moved = Work(0.0, 1.0, threads, size, 0)
        seconds = CostModel(keeps, threads).kernel_seconds(moved)
        seconds -= to_begin(CostModel(keeps, threads))
        assert seconds == pytest.approx(near / rates[0] + far / rates[1], rel=1e-2)
        busy = replace(moved, cycles=1e9)
        hidden, awaited = (
            CostModel(replace(keeps, lines_awaited=share), threads).kernel_seconds(busy)
            for share in (0.0, 1.0)
        )
        unhidden = 0.02 * (near / rates[0] + far / rates[1])
        assert awaited - hidden == pytest.approx(max(0.0, far / rates[1] - unhidden), abs=1e-9)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_tiles_that_meet_constants_first_compute_as_these_arrive(share: float) -> None:
    """A product of one row takes as long as reading its matrix, where it computes for less."""
    waits = replace(AVX2, constants_awaited=1.0)
    size = AVX2.l2_bytes * 2
    reading = size / (AVX2.l3_gbps * 1e9)
    work = Work(0.0, reading / 2 * AVX2.clock_ghz * 1e9, 1, size, 0, size, first_share=share)
    seconds = CostModel(waits).kernel_seconds(work) - to_begin(CostModel(waits))
    assert seconds == pytest.approx(reading * (1.5 - share / 2), rel=0.02)


@pytest.mark.parametrize("keeps", [False, True])
def test_a_tile_by_itself_awaits_its_data(keeps: bool) -> None:
    """What is met for the first time are constants alone: a mean of one row has none."""
    waits = replace(AVX2, lines_awaited=1.0, l2_keeps_part=keeps)
    work = Work(0.0, 1e5, 1, AVX2.l2_bytes * 3, 0)
    alone, several = (
        CostModel(waits).kernel_seconds(replace(work, first_share=share)) for share in (1.0, 0.0)
    )
    assert alone == several
    assert alone > 1.1 * CostModel(replace(waits, lines_awaited=0.0)).kernel_seconds(work)


def test_short_runs_await_their_data_where_a_target_says_so() -> None:
    waits = replace(AVX2, short_runs_awaited=0.5)
    size = AVX2.l2_bytes // 4
    moving = size / (AVX2.l2_gbps * 1e9)
    work = Work(0.0, 10 * moving * AVX2.clock_ghz * 1e9, 1, size, 0)
    short = replace(work, short_runs=True)
    assert CostModel(AVX2).kernel_seconds(short) == CostModel(AVX2).kernel_seconds(work)
    more = CostModel(waits).kernel_seconds(short) - CostModel(waits).kernel_seconds(work)
    assert more == pytest.approx(0.48 * moving, rel=1e-6)


@pytest.mark.parametrize(("apart", "threads"), [(64, 1), (64, 2), (16, 1), (0, 1)])
def test_conversions_await_lines_apart_that_the_caches_do_not_hold(
    apart: int, threads: int
) -> None:
    """Rows of 16 elements of four bytes are one line, so that the next block goes on behind it."""
    waits = replace(AVX2, cycles_per_far_line=30.0)
    elements = AVX2.l2_bytes
    moving = ConversionWork(elements, "float32", 64, False, 64, 8 * elements, apart=apart)
    hidden, awaited = (CostModel(t, threads).conversion_seconds(moving) for t in (AVX2, waits))
    lines = elements * 4 / 64 / threads if apart > 16 else 0
    expected = (1 - threads / 8) * lines * 30 / (AVX2.clock_ghz * 1e9)
    assert awaited - hidden == pytest.approx(expected, rel=1e-6, abs=1e-15)
    near = replace(moving, moved_bytes=AVX2.l2_bytes)
    assert CostModel(AVX2).conversion_seconds(near) == CostModel(waits).conversion_seconds(near)


@pytest.mark.parametrize(("rows", "cycles", "panels"), [(55, 30.0, 1), (14, 30.0, 2), (55, 0.0, 2)])
def test_a_panel_has_all_channels_of_positions_whose_lines_are_awaited(
    rows: int, cycles: float, panels: int
) -> None:
    """A max pool of stride 2 over 64 channels: 3 MB are awaited, 200 KB are not, and neither are
    3 MB on other processors."""
    target = replace(
        PROCESSORS["cascadelake-server"], name=f"far {cycles}", cycles_per_far_line=cycles
    )
    loads = OwnVectors(256, 3, 2, apart=256, across=3, reducing=1.7)
    tiling, _ = choose_tiling(TileProblem(64, rows, rows, 9, 0, loads), target)
    assert sum(each.count for each in tiling.panels) == panels


def test_weights_of_transformed_tiles_are_awaited_once() -> None:
    """They are constants, of which a target awaits all, and arrive late by themselves."""
    size = 64 << 20
    work = Work(0.0, 1e9, 64, size, 0, size, awaited=size)
    target = replace(AVX2, transformed_awaited=1.0, arriving_bytes_per_cycle=1e6)
    both, once = (
        CostModel(replace(target, constants_awaited=share)).kernel_seconds(work)
        for share in (1.0, 0.0)
    )
    assert both == once
    plain = replace(work, awaited=0)
    assert CostModel(replace(target, constants_awaited=1.0)).kernel_seconds(plain) == once


def test_threads_that_share_the_bandwidth_of_memory_hide_less_of_awaited_weights() -> None:
    target = replace(AVX2, arriving_bytes_per_cycle=100.0, transformed_awaited=0.5, dram_cores=1.0)
    far, reading = 1 << 27, (1 << 27) / (AVX2.dram_gbps * 1e9)
    work = Work(0.0, 4 * reading * AVX2.clock_ghz * 1e9, 64, far, 0, far)
    for threads, computing in ((1, 4.0), (2, 2.0)):
        cost = CostModel(target, threads)
        start = to_begin(cost)
        awaited = cost.kernel_seconds(replace(work, awaited=far)) - start
        assert awaited == pytest.approx((computing + 0.5) * reading)
        assert cost.kernel_seconds(work) - start == pytest.approx((computing + 0.02) * reading)
    slow = replace(target, arriving_bytes_per_cycle=far / (reading * AVX2.clock_ghz * 2e9))
    waits = CostModel(slow).kernel_seconds(replace(work, awaited=far)) - start
    assert waits == pytest.approx(5 * reading)


def test_what_is_awaited_and_added_in_transformed_tiles_depends_on_the_target() -> None:
    work = TransformedTiles(4, 6, (10, 12), 1, 14, 14, 6 * 56, (64, 64))
    bands = TileBands(1, 64, 32, 14, 2, 16, 16)
    plain = tile_band_cycles(work, bands, AVX512)
    hidden = tile_band_cycles(work, bands, replace(AVX512, transformed_awaited=0.0))
    beside = tile_band_cycles(work, bands, replace(AVX512, sums_per_cycle=2.0))
    assert hidden < plain and beside < plain
    integers = replace(work, guarded=False)
    cycles = [
        tile_band_cycles(integers, bands, t) for t in (AVX512, replace(AVX512, sums_per_cycle=2.0))
    ]
    assert cycles[0] == cycles[1]


@TARGETS
def test_vectors_cross_lines_where_they_begin_between(target: Target) -> None:
    assert crossing_share((256, 64), target) == 0
    assert crossing_share((), target) == 0
    inside, across = target.vector_bytes, target.line_bytes
    # Begins are multiples of 8 bytes: those at which a vector fits its line, and the others.
    fits = (across - inside) // 8 + 1
    assert crossing_share((232,), target) == pytest.approx(1 - fits / (across // 8))


def depthwise(target: Target, rows: int, **fields: float) -> float:
    loads = OwnVectors(taps=3, across=3, **fields)
    problem = TileProblem(64, rows, 14, 9, 9 * 64 * 4, loads, whole_vectors=True)
    return choose_tiling(problem, target)[1]


@TARGETS
def test_own_vectors_cost_what_they_load_and_how_they_are_reduced(target: Target) -> None:
    plain = depthwise(target, 14)
    crossing = replace(target, cycles_per_crossing=4.0)
    assert depthwise(crossing, 14, crossings=0.75) > plain == depthwise(target, 14, crossings=0.75)
    assert depthwise(target, 14, reducing=4.0) > plain


@TARGETS
def test_lines_that_the_first_cache_does_not_keep_for_the_next_row_arrive_again(
    target: Target,
) -> None:
    filling = replace(target, cycles_per_fill=1.0)
    lines = target.line_bytes
    plain = [depthwise(target, rows, apart=4 * lines) for rows in (7, 56)]
    assert depthwise(filling, 7, apart=4 * lines) == plain[0], "three rows of seven stay"
    assert depthwise(filling, 56, apart=4 * lines) > plain[1]
    assert depthwise(filling, 56, apart=4 * lines, reducing=9.0) == depthwise(
        target, 56, reducing=9.0
    ), "a maximum takes longer"


def test_parts_of_lines_are_loaded_one_a_cycle_where_rows_do_not_share_them() -> None:
    """Tiles of two vectors, which a line has both of, where rows meet every second position."""
    banks = replace(AVX2, cycles_per_bank=1.0)
    far = OwnVectors(taps=3, tap_step=2, across=3, apart=4 * AVX2.line_bytes)
    problem = TileProblem(64, 14, 14, 9, 9 * 64 * 4, far, whole_vectors=True)
    (one, _), (two, _) = (choose_tiling(problem, each) for each in (AVX2, banks))
    assert one.panels[0].nr_vectors == 1 and two.panels[0].nr_vectors == 2
    near = replace(problem, loads=replace(far, apart=AVX2.line_bytes + 32))
    assert choose_tiling(near, banks) == choose_tiling(near, AVX2)


@TARGETS
def test_weights_from_the_second_cache_and_short_tiles_have_prices_that_choose_no_tiles(
    target: Target,
) -> None:
    plain = replace(target, l2_awaited=0.0, tiles_beside=0.0)
    awaiting, beside = replace(plain, l2_awaited=0.5), replace(plain, tiles_beside=1.0)
    deep = replace(conv(64, "float32"), steps=2304, rows=7, planes=7, weight_bytes=64 * 2304 * 4)
    few = replace(deep, steps=9, weight_bytes=64 * 9 * 4)
    for problem, dearer, cheaper in ((deep, awaiting, beside), (few, beside, awaiting)):
        (tiling, cycles), *others = (choose_tiling(problem, t) for t in (plain, awaiting, beside))
        assert all(other == tiling for other, _ in others)
        assert choose_tiling(problem, cheaper)[1] == pytest.approx(cycles, rel=1e-2)
        assert abs(choose_tiling(problem, dearer)[1] / cycles - 1) > 0.02


@TARGETS
def test_steps_in_the_padding_cost_nothing(target: Target) -> None:
    whole = replace(conv(64, "float32"), rows=7, planes=7)
    inside = replace(whole, inside=0.5)
    cycles = [choose_tiling(problem, target)[1] for problem in (inside, whole)]
    assert cycles[0] < cycles[1] < 2 * cycles[0]


def test_few_loads_of_a_tensor_beyond_the_cache_are_cheaper_in_16_bits() -> None:
    beyond = AVX512.l2_bytes
    assert narrow_saves(beyond, beyond, AVX512) and narrow_saves(beyond, 2 * beyond, AVX512)
    assert not narrow_saves(beyond, 16 * beyond, AVX512)
    assert not narrow_saves(beyond // 16, beyond // 16, AVX512)


def test_threads_that_share_a_kernel_in_phases_take_the_time_of_meetings() -> None:
    work = Work(0.0, 1e6, 16, 0, 0, meetings=100, repeated=2e5)
    models = [CostModel(AVX2, threads) for threads in (1, 2, 4)]
    begun = replace(work, cycles=1.0, meetings=0, repeated=0.0)
    one, two, four = (m.kernel_seconds(work) - m.kernel_seconds(begun) for m in models)
    clock = AVX2.clock_ghz * 1e9
    assert one == pytest.approx(1e6 / clock, rel=1e-4)
    for seconds, threads in ((two, 2), (four, 4)):
        meetings = 100 * (threads + 1) * AVX2.handover_cycles
        assert seconds == pytest.approx((8e5 / threads + 2e5 + meetings) / clock, rel=1e-4)


def test_threads_wait_for_each_other_and_for_lines_between_kernels() -> None:
    assert CostModel(AVX2).step_meeting_seconds() == CostModel(AVX2).exchange_seconds(64) == 0
    two, four = (CostModel(AVX2, threads) for threads in (2, 4))
    assert 0 < two.step_meeting_seconds() < four.step_meeting_seconds()
    # Of a tensor each thread takes what the others wrote.
    assert four.exchange_seconds(6400) == pytest.approx(1.5 * two.exchange_seconds(6400))
    assert two.exchange_seconds(6400) == pytest.approx(100 * two.exchange_seconds(64))
