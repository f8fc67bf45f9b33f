"""`Target`: what a processor can do, as plain data.

The cost model, the recipes and the code generator know a processor only through its `Target`;
nothing else in this package states a bandwidth or a throughput.  `processors` has a table of fixed
targets, and `codegen` has the functions that ask the host.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from graphflow.base.fields import replace

COMPUTED_BYTES = 4
"""The narrowest element that kernels compute with: narrower stored types are widened to it."""


@cache
def element_bytes(dtype: str) -> int:
    """Bytes of an element in memory, by the bits in the type's name (`bool` has none) and at least
    one; without numpy, so that the command line can offer processors before it is imported."""
    bits = re.search(r"\d+", dtype)
    return max(1, int(bits[0]) // 8) if bits else 1


@dataclass(frozen=True, slots=True)
class Target:
    """A processor: the code generator and the cost model depend on these fields alone.

    `cpu`, `features` and `vector_bytes` decide which instructions a kernel becomes,
    `cycles_per_masked_store` whether a mask that is known beforehand becomes several stores,
    `cycles_per_far_line` whether panels along rows fetch lines ahead, and `near_steps` whether
    tiles fetch their own weights ahead, each beside the sizes of the caches;
    `steps_per_iteration` how many steps of a tile are written out between two jumps;
    with `whole_jumps` no jump crosses a multiple of 32 bytes of code;
    `flushes_denormals` permits instructions that take denormals for zeros whatever is asked of
    them, and says nothing of the processor: the options of a request do;
    `buffer_axes` and `stack_bytes` are limits.  All others are for prices, and so for the choice of
    variants and tiles; their defaults describe the server processors that the cost model was fitted
    on, and `graphflow calibrate` measures the clock and the bandwidths of the host.  Plans for a
    target of the table `PROCESSORS` are the same on every machine.

    | field | unit | source |
    |---|---|---|
    | `vector_bytes`, `vector_registers` | bytes, registers | the instruction set |
    | `fma_latency` | cycles | the makers' tables: 4 since Skylake, Zen 2 |
    | `fmas_per_cycle` | vector multiply-adds a cycle | measured (`bench.measure_machine`) |
    | `peak_factor` | of the rates of multiply-adds and of loads | measured: 2 in `FULL_WIDTH` |
    | `cycles_per_vector_load` | cycles, from the L1 cache | two load ports; one for 64 bytes |
    | `cycles_per_masked_store` | cycles | measured; cheap with AVX-512 only |
    | `narrowest_share` | of the cycles of a whole vector's multiply-add | measured: Zen 5 has 1 |
    | `narrow_latency` | factor on the latency of narrower vectors | measured: Zen 4 |
    | `brain_dot_factor` | multiply-adds | measured: Zen 4; 4 on Granite Rapids, and if unknown |
    | `cycles_per_blend` | cycles taken from multiply-adds | measured: Zen 5; its tables: Intel |
    | `cycles_per_broadcast` | cycles, from the L1 cache | two load ports |
    | `broadcast_conflicts` | cycles more of those of the same part of lines | measured: AMD |
    | `cycles_per_crossing` | cycles more of a load across two lines | measured on rows apart: AMD |
    | `cycles_per_bank` | cycles of a load of the same part of another line | measured: AMD |
    | `cycles_per_fill` | cycles of loads in which a line arrives | measured on rows apart: AMD |
    | `sums_per_cycle` | vector sums a cycle, 0: as multiply-adds | two more units: AMD |
    | `transformed_awaited` | share of the time of their weights not hidden | in networks: AMD |
    | `arriving_bytes_per_cycle` | bytes a cycle of these weights | measured in networks: Intel |
    | `transformed_factor` | of the counted cycles of transformed tiles | measured in networks |
    | `l2_awaited` | share of the time of weights from L2 not hidden | AMD (AVX2), Cascade Lake |
    | `tiles_beside` | share of entering short tiles beside others | measured on shallow sums: AMD |
    | `long_tiles_beside` | the same of any tiles | measured on 8 to 40 terms with AVX2: AMD |
    | `near_steps` | steps by which a tile fetches weights ahead, 0: never | Cascade Lake |
    | `steps_per_iteration` | steps of a tile that one iteration does | measured: Cascade Lake |
    | `lines_awaited` | share of the time of data from L3 awaited | measured on 1.5 to 6 MB: AMD |
    | `streams_awaited` | the same of any data | measured on depthwise convolutions: AMD |
    | `short_runs_awaited` | the same of short runs, without sums | densenet121: Granite Rapids |
    | `constants_awaited` | the same of constants that L2 does not hold | measured: Cascade Lake |
    | `constants_latency` | cycles until a kernel has constants from memory | densenet121: Zen 4 |
    | `exchange_awaited` | share of the time of data of other cores | panels: Granite Rapids |
    | `constants_kept` | constants up to 1 / so many of L3 stay there | measured: 3 on Zen 4 |
    | `l2_kept` | share of L2 that keeps data from step to step | measured: Cascade Lake |
    | `l2_keeps_part` | whether L2 keeps a part of more than that | measured: Granite Rapids |
    | `cycles_per_far_line` | cycles of a line from L3, no prefetch, 0: hidden | Cascade Lake |
    | `far_rows_awaited` | cycles a tile awaits rows that L2 lacks | products: Granite Rapids |
    | `whole_jumps` | whether jumps across 32 bytes of code are slow | Intel's erratum SKX102 |
    | `handover_cycles` | cycles until a core has a line of another | measured on meetings: Zen 4 |
    | `slow_operations` | cycles on a vector, by operation | measured on vectors in the L1 cache |
    | `divides_beside` | whether a statement divides beside what else it does | norms: Zen 4 |
    | `clock_ghz` | 10⁹ cycles a second | measured: 100 GFLOP/s of float32 a core; `RATES` |
    | `l1_bytes`, `l1_ways` | bytes, lines in a set | asked from the host's system; data sheets |
    | `line_bytes` | bytes | asked from the host's system |
    | `l2_bytes`, `l3_bytes` | bytes a core, a chip | as `l1_bytes` |
    | `l2_bytes_per_cycle` | bytes a cycle into registers | measured on streams of packed weights |
    | `l3_bytes_per_cycle` | bytes a cycle into registers | measured on streams of packed weights |
    | `l2_line_cycles` | cycles a line, no prefetch | measured on rows apart |
    | `l2_gbps`, `l3_gbps` | 10⁹ bytes a second, one core | measured on copies, reads and writes |
    | `dram_gbps` | 10⁹ bytes a second, one core | measured on copies |
    | `dram_cores` | bandwidth of memory, in those of one core | measured on reads |
    | `buffer_axes` | axes of a flattened buffer, None for any | memory is addressed by strides |
    | `stack_bytes` | bytes of stack an iteration | an eighth of the usual 8 MiB |
    | `layout_families` | `graphflow.layout.Construction`s | tried beside those of every target |
    | `flushes_denormals` | whether runs count denormals as zero | `Options.flush_denormals` |
    | `tile_kinds` | `graphflow.kernels.recipes.ImageTile`s | asked before those of every target |
    """

    name: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    fma_latency: int = 4
    fmas_per_cycle: float = 1.0
    peak_factor: float = 1.0
    cycles_per_vector_load: float = 1.0
    cycles_per_masked_store: float = 1.0
    narrowest_share: float = 0.5
    narrow_latency: float = 1.0
    cycles_per_blend: float = 0.0
    cycles_per_broadcast: float = 0.5
    broadcast_conflicts: float = 0.0
    cycles_per_crossing: float = 0.0
    cycles_per_bank: float = 0.0
    cycles_per_fill: float = 0.0
    sums_per_cycle: float = 0.0
    transformed_awaited: float = 1.0
    arriving_bytes_per_cycle: float = 5.0
    transformed_factor: float = 1.1
    l2_awaited: float = 0.0
    tiles_beside: float = 0.0
    long_tiles_beside: float = 0.0
    near_steps: int = 0
    steps_per_iteration: int = 1
    lines_awaited: float = 0.0
    streams_awaited: float = 0.0
    short_runs_awaited: float = 0.0
    constants_awaited: float = 0.0
    constants_latency: float = 0.0
    exchange_awaited: float = 0.0
    constants_kept: int = 3
    l2_kept: float = 0.5
    l2_keeps_part: bool = False
    cycles_per_far_line: float = 0.0
    far_rows_awaited: float = 0.0
    whole_jumps: bool = False
    handover_cycles: float = 200.0
    slow_operations: tuple[tuple[str, float], ...] = ()
    divides_beside: bool = False
    brain_dot_factor: float = 4.0
    clock_ghz: float = 3.125
    l1_bytes: int = 32 * 1024
    l1_ways: int = 8
    line_bytes: int = 64
    l2_bytes: int = 1024 * 1024
    l2_bytes_per_cycle: float = 28.0
    l2_line_cycles: float = 10.0
    l2_gbps: float = 150.0
    l3_bytes: int = 32 * 1024 * 1024
    l3_bytes_per_cycle: float = 20.0
    l3_gbps: float = 80.0
    dram_gbps: float = 25.0
    dram_cores: float = 2.0
    stack_bytes: int = 1024 * 1024
    buffer_axes: int | None = None
    layout_families: tuple[object, ...] = ()
    tile_kinds: tuple[object, ...] = ()
    flushes_denormals: bool = False

    def __hash__(self) -> int:
        return hash(self.name)  # cheap: targets are in the keys of many tables, and few exist

    @property
    def at_peak(self) -> Target:
        """The processor at its highest rates of multiply-adds and of loads.

        Tilings are compared there, with broadcasts that may wait for each other, and without loads
        that cross lines, which padding would avoid at a price that is none of the tiles'.  Weights
        that are awaited, lines that arrive again and tiles beside each other are in prices of plans
        alone, which were fitted with the lower rates.
        """
        return replace(
            self,
            cycles_per_broadcast=self.cycles_per_broadcast + self.broadcast_conflicts,
            broadcast_conflicts=0.0,
            cycles_per_crossing=0.0,
            cycles_per_fill=0.0,
            narrow_latency=1.0,
            l2_awaited=0.0,
            tiles_beside=0.0,
            long_tiles_beside=0.0,
            fmas_per_cycle=self.fmas_per_cycle * self.peak_factor,
            cycles_per_vector_load=self.cycles_per_vector_load / self.peak_factor,
            peak_factor=1.0,
        )

    @property
    def priced_at_peak(self) -> bool:
        """Whether the rates of the prices of plans are the highest ones."""
        return self.peak_factor == 1

    def lanes(self, dtype: str) -> int:
        """The number of elements of a type that one vector register stores."""
        return self.vector_bytes // element_bytes(dtype)

    def computed_lanes(self, dtype: str) -> int:
        """The number of elements of a type that one vector register computes: narrow types are
        widened to 32 bits.

        This is the number of channels in a block of a layout and in a vector of a register tile.
        """
        return self.vector_bytes // max(COMPUTED_BYTES, element_bytes(dtype))
