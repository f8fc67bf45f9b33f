"""Cycles of kernels that multiply transformed tiles of an image (Winograd's minimal filtering).

In: the extents of such a kernel (`TransformedTiles`), how it is cut (`TileBands`), and the
target.  Out: cycles of one core.  The terms are those of a kernel's stages: the tiles of a band are
transformed, multiplied with transformed weights at each of their positions in register tiles, and
the sums are transformed back.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from graphflow.base.fields import replace
from graphflow.base.processors import NARROW_BYTES
from graphflow.base.target import Target
from graphflow.cost.cycles import pair_step_cycles, streaming_cycles
from graphflow.cost.roofline import constant_seconds
from graphflow.cost.tiles import TILE_OVERHEAD, near_weights, register_cycles

SUM_BYTES = 4
"""Bytes of a sum, of floats or of integers."""

SPILLED = 1.5
"""The factor on the operations of a transformation, whose tile exceeds the registers."""


ROOM = 16 * 1024
"""Bytes of the stack that are left for what else an iteration holds."""

OF_INTEGERS = 0.75
"""The factor in place of `Target.transformed_factor` where integers are added up, but for the
weights: additions of integers take half the time of those of floats.  Measured with AVX2 on ten
convolutions of 16 to 256 channels: 0.7 to 0.8."""

LATE_BYTES_PER_CYCLE = 2.5
"""Bytes of weights of 16 bits that arrive in a cycle, which are not fetched ahead.  Measured with
AVX2 on 7×7 and 14×14 images of 512 and 256 channels."""


FEWER_ZEROS = 1.1
"""By how much fewer zeros have to make products smaller for half vectors, which take more loads and
broadcasts for each multiply-add."""


class TransformedTiles(Struct, frozen=True):
    """A convolution in tiles of `tile` outputs along each of its `axes`, one or two, from windows
    of `window` elements.

    `operations` are the additions and multiply-adds along one axis of a window, of the image and of
    the sums.  `rows` and `columns` count the tiles of an image, `images` the images, and
    `tail_operations` the operations on each output that follow.  Transformed elements and weights
    have `item_bytes`, and where the kernel is `guarded`, so many `looked` elements of each channel
    are looked at first for each row of tiles.  Where rows or columns are `counted`, a run may have
    fewer.
    """

    tile: int
    window: int
    operations: tuple[int, int]
    images: int
    rows: int
    columns: int
    looked: int
    channels: tuple[int, int]
    tail_operations: int = 0
    item_bytes: int = SUM_BYTES
    guarded: bool = True
    axes: int = 2
    counted: tuple[bool, bool] = (False, False)

    @property
    def positions(self) -> int:
        """The elements of a window, each with a plane of products."""
        return prod((self.window,) * self.axes)

    @property
    def taps(self) -> int:
        """The products of plain sums for each output and pair of channels."""
        return prod((self.window - self.tile + 1,) * self.axes)

    @property
    def outputs(self) -> int:
        """The outputs of a tile."""
        return prod((self.tile,) * self.axes)

    @property
    def terms(self) -> int:
        """The neighbouring terms that one instruction adds up in each lane."""
        return SUM_BYTES // self.item_bytes


class TileBands(Struct, frozen=True):
    """How a kernel is cut.

    An iteration handles `rows` of tiles and a `group` of output channels, in slices of input
    channels; a register tile `tiles` tiles of a row and `vectors` vectors of `lanes` channels.
    Elements of the image are transformed in vectors of `data_lanes` channels, and one instruction
    adds up `terms` neighbouring ones in each lane.
    """

    rows: int
    group: int
    slice: int
    tiles: int
    vectors: int
    lanes: int
    data_lanes: int
    terms: int = 1


PARTS = 1, 2, 4
"""Runs for which bands are chosen where sides are counted: those with the most rows and columns,
with half and with a quarter of them."""


def typical_runs(work: TransformedTiles) -> tuple[TransformedTiles, ...]:
    """The work of some runs: one for each of `PARTS` where rows or columns are counted."""
    rows, columns = work.counted
    if not (rows or columns):
        return (work,)
    return tuple(
        replace(
            work,
            rows=-(-work.rows // part) if rows else work.rows,
            columns=-(-work.columns // part) if columns else work.columns,
            looked=-(-work.looked // part) if columns else work.looked,
        )
        for part in PARTS
    )


def smaller_runs(work: TransformedTiles, bands: TileBands, target: Target) -> tuple[float, ...]:
    """What the typical runs with fewer tiles take over plain sums of these runs, relative to what
    the one with the most takes over its plain sums.

    Transformed weights, up to four times the plain ones, are read by each run.
    """
    most, *fewer = (_over_plain_sums(run, bands, target) for run in typical_runs(work))
    return tuple(ratio / most for ratio in fewer)


def _over_plain_sums(run: TransformedTiles, bands: TileBands, target: Target) -> float:
    """The cycles of a run of a kernel over those of plain sums."""
    weights = awaited_weights(run)
    read = constant_seconds(weights, weights, target, 1) * target.clock_ghz * 1e9
    arriving = max(weights / target.arriving_bytes_per_cycle, read)
    of_run = replace(bands, rows=min(bands.rows, run.rows))
    outputs = run.images * run.rows * run.columns * run.outputs
    lanes = target.vector_bytes // SUM_BYTES
    sums = outputs * run.channels[0] * run.channels[1] * run.taps / lanes / target.fmas_per_cycle
    plain = sums + arriving * run.taps / run.positions
    return (tile_band_cycles(run, of_run, target) + arriving) / plain


def transformed_lanes(channels: tuple[int, int], target: Target) -> int:
    """The lanes of the vectors in which so many channels of an image and of outputs are transformed
    and multiplied.

    Those of half a vector where that takes half the time, and where whole ones would be filled up
    with more zeros, or would not be two.  Each side has two vectors or more.
    """
    whole = target.computed_lanes("float32")
    half = whole // 2
    if target.vector_bytes == NARROW_BYTES or target.narrowest_share > 1 / 2:
        return whole
    wide, narrow = ([-(-count // n) * n for count in channels] for n in (whole, half))
    if min(wide) >= 2 * whole and narrow[0] * narrow[1] * FEWER_ZEROS > wide[0] * wide[1]:
        return whole
    return half if min(narrow) >= 2 * half else whole


def plane_elements(work: TransformedTiles, bands: TileBands, target: Target) -> tuple[int, int]:
    """How many elements apart the planes of transformed tiles are, and those of sums.

    They are an odd number of cache lines, so that the elements of all positions of a tile, which
    are stored and loaded one after the other, lie in different sets of the cache.  Measured on a
    Zen 4: 128 channels of 14×14 in planes of 8 and 4 KiB take 273 µs with AVX2, and 204 so.
    """
    tiles = bands.rows * work.columns
    sizes = (bands.slice, work.item_bytes), (bands.group, SUM_BYTES)
    line = target.line_bytes
    tiles_apart, sums_apart = (
        (-(-tiles * count * size // line) | 1) * line // size for count, size in sizes
    )
    return tiles_apart, sums_apart


def private_bytes(work: TransformedTiles, bands: TileBands, target: Target) -> int:
    """Bytes of the memory of the thread: the transformed tiles of a slice, and the sums."""
    tiles, sums = plane_elements(work, bands, target)
    return work.positions * (tiles * work.item_bytes + sums * SUM_BYTES)


def fits_stack(work: TransformedTiles, bands: TileBands, target: Target) -> bool:
    """Whether the memory of an iteration fits the stack of a thread, with room for tiles."""
    return private_bytes(work, bands, target) + ROOM <= target.stack_bytes


def iterations(work: TransformedTiles, bands: TileBands) -> int:
    """How many iterations threads share."""
    return work.images * (work.channels[1] // bands.group) * -(-work.rows // bands.rows)


def awaited_weights(work: TransformedTiles) -> int:
    """Bytes of weights that arrive for the first band of each group, once for each image.

    Products hide only a part of their latency, for each is used for the tiles of one band.  0 for
    those of 16 bits, whose arrival is in the cycles.
    """
    return work.images * _weight_bytes(work, work.channels[1]) if work.terms == 1 else 0


def _weight_bytes(work: TransformedTiles, outputs: int) -> int:
    """Bytes of the transformed weights of so many output channels."""
    return work.positions * work.channels[0] * outputs * work.item_bytes


def tile_band_cycles(work: TransformedTiles, bands: TileBands, target: Target) -> float:
    """Cycles of one core for all iterations, without the time in which `awaited_weights` arrive."""
    one = (
        _data_cycles(work, bands, target)
        + _product_cycles(work, bands, target)
        + _output_cycles(work, bands, target)
    )
    weights = _weight_cycles(work, bands, target)
    if work.guarded:
        # Along one axis the cycles are as counted: measured 0.97 to 1.04 times them with AVX-512.
        factor = target.transformed_factor if work.axes > 1 else 1.0
        return iterations(work, bands) * (one + weights) * factor
    return iterations(work, bands) * (one * OF_INTEGERS + weights)


def _data_cycles(work: TransformedTiles, bands: TileBands, target: Target) -> float:
    """Cycles in which the tiles of a band are looked at and transformed."""
    vectors = work.channels[0] / bands.data_lanes * _vector_share(bands, target)
    moved = 2 * work.positions * target.cycles_per_vector_load
    lines = work.axes * work.positions // work.window
    spilled = SPILLED if work.axes > 1 else 1.0
    transformed = lines * work.operations[0] * spilled / _sums_per_cycle(work, target)
    looked = 0.0
    if work.guarded:
        one = 2 / target.fmas_per_cycle + target.cycles_per_vector_load
        looked = work.looked * one
    return bands.rows * vectors * (work.columns * (moved + transformed) + looked)


def _vector_share(bands: TileBands, target: Target) -> float:
    """The cycles of one of the vectors of a kernel, as a share of those of a whole vector."""
    return bands.lanes * SUM_BYTES / target.vector_bytes


def _sums_per_cycle(work: TransformedTiles, target: Target) -> float:
    """The sums of a transformation in a cycle.  The factors for integers count them already."""
    return (target.sums_per_cycle if work.guarded else 0.0) or target.fmas_per_cycle


def _output_cycles(work: TransformedTiles, bands: TileBands, target: Target) -> float:
    """Cycles in which the sums of a band are transformed back and stored."""
    vectors = bands.group / bands.lanes * _vector_share(bands, target)
    moved = (work.positions + 4 * work.outputs) * target.cycles_per_vector_load
    lines = work.window + work.tile if work.axes > 1 else 1
    spilled = SPILLED if work.axes > 1 else 1.0
    both = lines * work.operations[1] * spilled / _sums_per_cycle(work, target)
    tails = work.outputs * work.tail_operations / target.fmas_per_cycle
    return bands.rows * vectors * work.columns * (moved + both + tails)


def _product_cycles(work: TransformedTiles, bands: TileBands, target: Target) -> float:
    """Cycles of the register tiles of a band."""
    slices = work.channels[0] // bands.slice
    panels = bands.group // (bands.vectors * bands.lanes)
    whole, rest = divmod(work.columns, bands.tiles)
    row = whole * _tile_cycles(work, bands, bands.tiles, slices > 1, target)
    if rest and work.counted[1]:  # there are register tiles for 1, 2, 3, 4, 6, 8, 12, … tiles
        power = 1 << (rest - 1).bit_length()
        rest = min(bands.tiles, 3 * power // 4 if 4 * rest <= 3 * power else power)
    row += _tile_cycles(work, bands, rest, slices > 1, target) if rest else 0.0
    return work.positions * slices * panels * bands.rows * row


def _weight_cycles(work: TransformedTiles, bands: TileBands, target: Target) -> float:
    """Cycles in which the weights of a group arrive again for its further bands: from the second
    cache if they stay there.  For weights of 16 bits also those for the first band."""
    weights = _weight_bytes(work, bands.group)
    again = 1 - bands.rows / work.rows
    near = near_weights(weights + private_bytes(work, bands, target), target)
    late = work.terms > 1
    far = weights / (LATE_BYTES_PER_CYCLE if late else target.arriving_bytes_per_cycle)
    further = again * (min(far, streaming_cycles(weights, True, target)) if near else far)
    return (1 - again) * far + further if late else target.transformed_awaited * further


def _tile_cycles(
    work: TransformedTiles, bands: TileBands, tiles: int, loads_sums: bool, target: Target
) -> float:
    """Cycles of one register tile over a slice."""
    share = _vector_share(bands, target)
    if work.terms > 1:
        step = pair_step_cycles(tiles, bands.vectors, target)
    else:
        multiply_adds = tiles * bands.vectors / target.fmas_per_cycle
        loads = (bands.vectors + tiles) * target.cycles_per_vector_load
        latency = target.fma_latency * (target.narrow_latency if share < 1 else 1.0)
        step = max(multiply_adds * share, loads * share, latency)
    sums = tiles * bands.vectors * share * register_cycles(target) * (1.5 if loads_sums else 1.0)
    return bands.slice // work.terms * step + sums + TILE_OVERHEAD
