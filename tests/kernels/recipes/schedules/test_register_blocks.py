"""Tests of copies between layouts with different innermost axes, by blocks transposed in
registers."""

from itertools import permutations, product

import numpy as np
import pytest

from graphflow.arith import terms_of
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, emit_assembly, host_target
from graphflow.codegen.memory.emit_transpose import column_of
from graphflow.cost import CostModel
from graphflow.kernels.conversion import conversion
from graphflow.kernels.lowering import LoweredKernel
from graphflow.kernels.recipes import (
    Recipe,
    Staged,
    conversion_key,
    conversion_recipe,
    conversion_work,
    copy_run,
    transposes,
)
from graphflow.kernels.recipes.schedules.register_blocks import (
    copies_in_square_blocks,
    copy_in_square_blocks,
    staged_transposed,
)
from graphflow.layout import Layout, blocked, channels_last, channels_last_padded, row_major
from graphflow.llvm import IrBuilder, IrValue
from graphflow.lower.called_kernels import lower_call
from graphflow.physical import PhysicalCall, Placement
from graphflow.schedule import Schedule
from graphflow.tir import Allocate, Block, Literal, Load, LoopKind, Store, accesses, loops_of, walk
from support.placing import SENTINEL, Native, outside, place, unplace
from support.schedule_checks import kernel as parsed
from support.schedule_checks import same
from support.targets import in_turn

CHANNELS = (3, 4, 8, 12, 20, 24, 58)
IMAGES = ((2, 7), (3, 9), (1, 13), (2, 16))
FILLS = (None, 3.5)

HOST = host_target()
WIDE = replace(avx2_target(), name="sixteen lanes", vector_bytes=64, vector_registers=32)
"""Vectors of two registers each, which run everywhere."""


def layouts_of(shape: tuple[int, ...]) -> dict[str, Layout]:
    return {
        "NCHW": row_major(shape),
        "NHWC": channels_last(shape),
        "NHWC padded": channels_last_padded(shape, 8),
        "NCHW8c": blocked(shape, 1, 8),
        "NCHW16c": blocked(shape, 1, 16),
        "NHWC halo": channels_last(shape).halo((0, 1, 1, 0), (0, 1, 1, 0)),
    }


def kernel_of(
    source: Layout,
    target: Layout,
    dtype: str = "float32",
    fill: float | None = None,
    machine: Target = HOST,
    recipe: Recipe | None = None,
) -> LoweredKernel:
    written = None if fill is None else Literal(fill, dtype)
    definition = conversion(source, target, dtype, written)
    placements = {"src": Placement("src", source), "dst": Placement("dst", target)}
    made = conversion_recipe(source, target, dtype) if recipe is None else recipe
    call = PhysicalCall("convert", definition, placements, made, moves=True)
    return lower_call(call, machine, "convert")


def in_registers(kernel: LoweredKernel) -> bool:
    return any(isinstance(stmt, Allocate) for stmt in walk(kernel.func.body))


def check(
    source: Layout,
    target: Layout,
    dtype: str = "float32",
    fill: float | None = None,
    machine: Target = HOST,
) -> LoweredKernel:
    """The kernel, after it did what it should and wrote nothing else."""
    kernel = kernel_of(source, target, dtype, fill, machine)
    shape = source.logical_shape
    x = np.random.default_rng(sum(shape)).integers(-99, 99, shape).astype(dtype)
    got = Native(kernel, machine)({"src": place(source, x, np.nan)}, SENTINEL)["dst"]
    np.testing.assert_array_equal(unplace(target, got), x)
    kept = SENTINEL if x.dtype.kind == "f" else -99
    assert (outside(target, got) == (kept if fill is None else fill)).all()
    return kernel


@pytest.mark.parametrize("channels", CHANNELS)
def test_each_pair_of_families(channels: int) -> None:
    """Each with every second number of channels; the slow run has all sizes of all pairs."""
    turn = CHANNELS.index(channels)
    for k, (a, b) in enumerate(permutations(layouts_of((1, channels, 1, 1)), 2)):
        if (k + turn) % 2:
            continue
        layouts = layouts_of((1, channels, *IMAGES[k % len(IMAGES)]))
        check(layouts[a], layouts[b], "float32", FILLS[k // len(IMAGES) % len(FILLS)])


def test_a_filled_halo_is_written_in_the_order_of_its_memory() -> None:
    """Rows of the target use up lines of the source: columns outside rows would load each again."""
    shape = (1, 32, 9, 11)
    halo = channels_last(shape).halo((0, 1, 1, 0), (0, 1, 1, 0))
    kernel = check(row_major(shape), halo, fill=2.0)
    (outer,) = (loop for loop in loops_of(kernel.func.body) if loop.kind is LoopKind.PARALLEL)
    stores = [a for a in accesses(kernel.func.body) if a.writes]
    steps = {dict(terms_of(a.buffer.flat_index(a.indices))[0]).get(outer.var) for a in stores}
    assert outer.extent == 11 * 13 and steps == {32}


@pytest.mark.slow
@pytest.mark.parametrize("image", IMAGES)
@pytest.mark.parametrize("channels", CHANNELS)
def test_each_pair_of_families_at_each_size(channels: int, image: tuple[int, int]) -> None:
    for source, target in permutations(layouts_of((1, channels, *image)).values(), 2):
        for fill in FILLS:
            check(source, target, "float32", fill)


@in_turn("dtype", ["float64", "int32", "int64", "float16", "int16", "int8", "bool"])
def test_items_of_other_sizes(dtype: str, target: Target) -> None:
    """Elements of each size go through registers, but for booleans, which are no bytes there."""
    layouts = layouts_of((2, 13, 3, 11)), layouts_of((1, 40, 5, 37))
    for sized, (a, b) in product(
        layouts, (("NCHW", "NHWC"), ("NHWC padded", "NCHW"), ("NCHW8c", "NCHW"))
    ):
        kernel = check(sized[a], sized[b], dtype, None, target)
        assert in_registers(kernel) == (dtype != "bool")


@pytest.mark.parametrize("channels", [3, 4, 5])
def test_few_neighbours_of_narrow_elements_are_no_blocks(channels: int) -> None:
    """Few channels are stored by turns, and of bytes loaded in vectors of all channels."""
    layouts = layouts_of((1, channels, 9, 32))
    for dtype, least in (("float16", 4), ("int8", 5)):
        assert not in_registers(check(layouts["NCHW"], layouts["NHWC"], dtype))
        assert in_registers(check(layouts["NHWC"], layouts["NCHW"], dtype)) == (channels >= least)


@pytest.mark.parametrize("channels", CHANNELS)
def test_kernels_cross_where_prices_and_keys_say_so(channels: int) -> None:
    for source, target in permutations(layouts_of((1, channels, 3, 9)).values(), 2):
        if copy_run(source, target).step > 1:
            assert in_registers(kernel_of(source, target)) == transposes(source, target, "float32")


@pytest.mark.parametrize("channels", [4, 20, 40])
def test_vectors_of_sixteen_lanes(channels: int) -> None:
    layouts = layouts_of((1, channels, 2, 21))
    for a, b in (("NCHW", "NHWC padded"), ("NHWC", "NCHW"), ("NCHW16c", "NCHW")):
        assert in_registers(check(layouts[a], layouts[b], machine=WIDE))


def test_two_axes_alone_are_transposed() -> None:
    for rows, columns in ((8, 8), (5, 8), (16, 4), (7, 19), (40, 24)):
        layouts = row_major((1, rows, columns)), channels_last((1, rows, columns))
        for source, target in permutations(layouts):
            assert in_registers(check(source, target))


@pytest.mark.parametrize("rows", [32, 39])
def test_a_single_matrix_is_in_blocks_where_its_rows_do_not_fill_the_last_one(rows: int) -> None:
    """The loop over blocks is the outermost one, and its first iteration copies what is left."""
    layouts = row_major((1, rows, 21)), blocked((1, rows, 21), 1, 8)
    for source, target in permutations(layouts):
        kernel = check(source, target)
        assert kernel.extent == 4
        stores = (x for x in walk(kernel.func.body) if isinstance(x, Store))
        written = [x.value for x in stores if x.buffer.name == "dst"]
        assert all(isinstance(value, Load) and value.buffer.name != "src" for value in written)


@pytest.mark.parametrize(("left", "nests"), [(8, 1), (9, 2)])
def test_a_rest_of_more_than_an_iteration_stays_behind_it(left: int, nests: int) -> None:
    """Threads would wait for the one that copies it."""
    func = parsed(
        'with block("copy"):\n'
        "    for i in serial(0, 2):\n        for j in serial(0, 8):\n"
        "            y[8*i + j] = x[8*i + j]\n"
        f"    for k in serial(0, {left}):\n        y[k + 16] = x[k + 16]",
        f"x: f32[{left + 16}], y: out[f32[{left + 16}]]",
    )
    s, _ = copies_in_square_blocks(Schedule.of(func), 8)
    same(func, s)
    (block,) = s.func.body
    assert isinstance(block, Block) and len(block.body) == nests


def test_a_filled_target_is_in_blocks_but_for_what_is_filled() -> None:
    layouts = layouts_of((1, 20, 3, 16))
    assert in_registers(kernel_of(layouts["NCHW"], layouts["NHWC padded"], fill=0.0))
    assert in_registers(kernel_of(layouts["NCHW"], layouts["NCHW8c"], fill=0.0))


def test_a_threads_share_of_blocks_is_its_share_of_the_outer_loop() -> None:
    layouts = layouts_of((1, 20, 6, 13))
    for a, b in (("NCHW", "NHWC padded"), ("NHWC", "NCHW"), ("NCHW8c", "NCHW")):
        assert kernel_of(layouts[a], layouts[b]).extent >= 6


def test_what_runs_once_and_what_does_not_cross_keeps_its_variant() -> None:
    layouts = layouts_of((1, 24, 6, 16))
    assert not in_registers(kernel_of(layouts["NCHW"], layouts["NHWC"], recipe=Staged()))
    assert not in_registers(kernel_of(layouts["NCHW8c"], layouts["NHWC"]))
    two = layouts_of((1, 2, 6, 16))
    assert not in_registers(kernel_of(two["NHWC"], two["NCHW"]))


def test_rows_of_a_block_are_apart_where_neither_side_goes_on_behind_a_line() -> None:
    shape = (1, 64, 20, 30)
    rows, last, blocks = row_major(shape), channels_last(shape), blocked(shape, 1, 16)
    for pair, apart in (((rows, last), 64), ((rows, blocks), 16), ((blocks, last), 0)):
        for source, target in (pair, pair[::-1]):
            assert conversion_work(source, target, "float32").apart == apart


@pytest.mark.decisions
def test_the_blocks_have_a_price_and_a_key_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    layouts = layouts_of((1, 24, 16, 16))
    across, along = (layouts["NCHW"], layouts["NHWC"]), (layouts["NCHW8c"], layouts["NHWC"])
    assert transposes(*across, "float32") and not transposes(*along, "float32")
    keys = [conversion_key(*pair, "float32", None) for pair in (across, along)]
    cost = CostModel(avx2_target())
    seconds = [
        cost.conversion_seconds(conversion_work(*pair, "float32")) for pair in (across, along)
    ]
    for module in ("keys", "positions"):
        monkeypatch.setattr(
            f"graphflow.kernels.recipes.analysis.{module}.transposes", lambda *_: False
        )
    others = [conversion_key(*pair, "float32", None) for pair in (across, along)]
    gathered = [
        cost.conversion_seconds(conversion_work(*pair, "float32")) for pair in (across, along)
    ]
    assert keys[0] != others[0] and keys[1] == others[1]
    assert seconds[0] < gathered[0] and seconds[1] == gathered[1]


@pytest.mark.parametrize("dtype", ["uint8", "int16"])
def test_narrow_runs_of_few_neighbours_are_stored_by_turns(dtype: str) -> None:
    """Runs of eight are blocks, also where the last of them lacks an element."""
    for channels, padded, blocks in ((3, 1, False), (3, 4, False), (5, 1, False), (8, 1, True)):
        shape = (1, channels, 40, 40)
        pair = row_major(shape), channels_last_padded(shape, padded)
        assert transposes(*pair, dtype) == blocks
        assert conversion_work(*pair, dtype).by_turns != blocks
    rows = (1, 1575, 21)
    assert transposes(row_major(rows), blocked(rows, 1, 8), dtype)


def test_a_square_takes_n_log_n_shuffles_when_its_columns_are_all_read() -> None:
    layouts = layouts_of((1, 8, 8, 8))
    func = kernel_of(layouts["NHWC"], layouts["NCHW"]).func
    text = emit_assembly(func, "k", avx2_target())
    shuffles = [line for line in text.splitlines() if "vunpck" in line or "f128" in line]
    assert len(shuffles) == 24
    assert "vinsertps" not in text


class Shuffled(IrBuilder):
    """Does what it would write, on arrays."""

    def __init__(self) -> None:
        super().__init__(HOST)
        self.arrays: list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]] = []

    def value(self, items: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> IrValue:
        self.arrays.append(items)
        return IrValue(str(len(self.arrays) - 1), "float", len(items))

    def shuffled(self, low: IrValue, high: IrValue, places: list[int]) -> IrValue:
        none = np.full(low.lanes, -1)
        both = [none if v.text == "poison" else self.arrays[int(v.text)] for v in (low, high)]
        return self.value(np.concatenate(both)[places])


@pytest.mark.parametrize("itemsize", [1, 4, 8])
@pytest.mark.parametrize("width", [2, 4, 8, 16])
def test_columns_of_any_number_of_rows(width: int, itemsize: int) -> None:
    for count in range(1, 17):
        builder, items = Shuffled(), np.arange(count * width).reshape(count, width)
        rows = [builder.value(row) for row in items]
        for column in range(width):
            found = column_of(builder, rows, column, itemsize)
            assert (builder.arrays[int(found.text)][:count] == items[:, column]).all()


READ_ACROSS = """
for i in serial(0, 3):
    for j in serial(0, 10):
        y[i, j] = i32(0)
        for k in serial(0, 6):
            y[i, j] += x[j, i, k]
"""
SHAPES = "x: i32[10, 3, 6], y: out[i32[3, 10]]"


def test_what_a_loop_reads_is_staged_across_its_lines() -> None:
    func = parsed(READ_ACROSS, SHAPES)
    s = Schedule.of(func)
    i, j, k = (s.handle(name) for name in "ijk")
    s = staged_transposed(s, "x", i, (k, j), 4)
    same(func, s)
    made = {a.buffer.name: a.buffer for a in walk(s.func.body) if isinstance(a, Allocate)}
    assert (made["x_across"].shape, made["x_across"].scope) == ((6, 10), "scratch")
    assert any(name.startswith("rows_") for name in made)
    assert not s.refusals


def test_what_is_read_at_several_places_is_not_staged() -> None:
    body = READ_ACROSS.replace("x[j, i, k]", "x[j, i, k] * x[j, i, 5 - k]")
    s = Schedule.of(parsed(body, SHAPES))
    i, j, k = (s.handle(name) for name in "ijk")
    with pytest.raises(ScheduleError, match="touched at"):
        staged_transposed(s, "x", i, (k, j), 4)


def test_a_copy_along_memory_stays_as_it_is() -> None:
    func = parsed("for i in serial(0, 16):\n    y[i] = x[i]")
    s = Schedule.of(func)
    assert copy_in_square_blocks(s, s.handle("i"), 4).func == func


@pytest.mark.decisions
def test_bytes_of_few_channels_are_priced_as_stored_by_turns() -> None:
    """Three channels in places of four are cheaper than in places of 16, mostly padding."""
    image, target = (1, 3, 160, 160), avx2_target()
    few, many = (
        conversion_work(row_major(image), channels_last_padded(image, places), "uint8")
        for places in (4, 16)
    )
    assert few.by_turns and not few.source_run and not many.source_run
    seconds = [CostModel(target).conversion_seconds(work) for work in (few, many)]
    assert 5 * seconds[0] < seconds[1]
    assert conversion_work(row_major(image), channels_last(image), "float16").by_turns
    assert not conversion_work(row_major(image), channels_last(image), "float32").by_turns
