"""`Target`: what a processor can do, as plain data.

The cost model, the recipes and the code generator know a processor only through its `Target`;
nothing else in this package states a cache size, a bandwidth or a throughput.  `codegen` has the
functions that ask the host.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphflow.base.dtypes import DTYPES

COMPUTED_BYTES = 4
"""The narrowest element that kernels compute with: narrower stored types are widened to it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A processor: what code is made for, and what decides how long that code takes.

    The first five fields decide what code is emitted.  All others are for prices; their defaults
    describe the server processors of both makers that the cost model was fitted on, and a target
    that is not the host has them wherever it is planned for, so that its plans are the same on all
    machines.

    | field | unit | source | |---|---|---| | `vector_bytes`, `vector_registers` | bytes, registers
    | the instruction set | | `fma_latency` | cycles | the makers' tables: 4 from Skylake and Zen 2
    on | | `fmas_per_cycle` | multiply-adds of whole vectors a cycle | measured
    (`bench.measure_machine`) | | `cycles_per_vector_load` | cycles for a load from the first cache
    | two load ports; one for 64 bytes | | `cycles_per_masked_store` | cycles for a store that
    leaves out lanes | measured; only AVX-512's is cheap everywhere | | `clock_ghz` | 10⁹ cycles a
    second under multiply-adds | measured: 100 GFLOP/s of float32 a core | | `l1_bytes`, `l1_ways`,
    `line_bytes` | bytes, lines in a set, bytes | the host's are asked from the system | |
    `l2_bytes`, `l3_bytes` | bytes a core, bytes a chip | the host's are asked from the system | |
    `l2_bytes_per_cycle`, `l3_bytes_per_cycle` | bytes a cycle into one core's registers | measured
    on streams of packed weights | | `l2_line_cycles` | cycles for a line of the second cache that
    nothing fetched ahead | measured on rows apart | | `l2_gbps`, `l3_gbps` | 10⁹ bytes a second,
    one core, reads and writes | measured on copies | | `dram_gbps`, `dram_cores` | 10⁹ bytes a
    second of one core; cores that saturate memory | measured on copies | | `stack_bytes` | bytes of
    a thread's stack that one iteration may take | an eighth of the usual 8 MiB |"""

    name: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    fma_latency: int = 4
    fmas_per_cycle: float = 1.0
    cycles_per_vector_load: float = 1.0
    cycles_per_masked_store: float = 1.0
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
    dram_cores: int = 2
    stack_bytes: int = 1024 * 1024

    def __hash__(self) -> int:
        return hash(self.name)  # targets are in the keys of many tables, and few in number

    def lanes(self, dtype: str) -> int:
        """The number of elements of a type that one vector register stores."""
        return self.vector_bytes // DTYPES[dtype].itemsize

    def computed_lanes(self, dtype: str) -> int:
        """The number of elements of a type that one vector register computes: narrow types are
        widened to 32 bits.

        This is the number of channels in a block of a layout and in a vector of a register tile.
        """
        return self.vector_bytes // max(COMPUTED_BYTES, DTYPES[dtype].itemsize)
