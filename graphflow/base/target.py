"""What a processor can do, as plain data; how to ask the host stands in `codegen`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """A processor as the cost model, the recipes and the emitter see it.

    `vector_bytes` is the width of one vector register, `vector_registers` how many there are.
    `fmas_per_cycle` counts multiply-adds of whole vectors, `fma_gflops` is the peak of one core.
    A masked store is one that leaves out some lanes; only AVX-512 has cheap ones on all processors.
    Cache sizes are bytes a core (`l3_bytes` a chip); bandwidths are GB/s of one core reading from
    that level.
    """

    name: str
    cpu: str
    features: str
    vector_bytes: int
    vector_registers: int
    fma_latency: int = 4
    fmas_per_cycle: float = 1.0
    cycles_per_vector_load: float = 1.0
    cycles_per_masked_store: float = 1.0
    l3_bytes_per_cycle: float = 20.0
    fma_gflops: float = 100.0
    l1_bytes: int = 32 * 1024
    l1_ways: int = 8
    l2_bytes: int = 1024 * 1024
    l3_bytes: int = 32 * 1024 * 1024
    l2_gbps: float = 150.0
    l3_gbps: float = 80.0
    dram_gbps: float = 25.0

    def __hash__(self) -> int:
        return hash(self.name)  # targets are in the keys of many tables, and few in number

    def lanes(self, itemsize: int = 4) -> int:
        """Elements of `itemsize` bytes in one vector."""
        return self.vector_bytes // itemsize
