"""`PROCESSORS`: fixed targets by name, and what is known of a processor by LLVM's name of it.

In: a name.  Out: a `Target`, or some fields of one.  What always holds: nothing here is asked from
the host, so a plan for one of `PROCESSORS` is the same on every machine; and no other module names
a processor.
"""

from __future__ import annotations

from collections.abc import Container
from types import MappingProxyType
from typing import TypedDict

from graphflow.base.fields import replace
from graphflow.base.target import Target

AVX2 = ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "popcnt")
AVX512 = ("avx512f", "avx512vl", "avx512dq", "avx512bw")
"""LLVM's names of the features that graphflow's kernels use, by width."""

DOT_PRODUCTS = MappingProxyType(
    {
        "alderlake": "avxvnni",
        **dict.fromkeys(
            (
                "cascadelake",
                "icelake-server",
                "sapphirerapids",
                "graniterapids",
                "rocketlake",
                "znver4",
                "znver5",
            ),
            "avx512vnni",
        ),
    }
)
"""By LLVM's name of a processor, its feature that has dot products of bytes."""

BRAIN_DOTS = MappingProxyType(
    dict.fromkeys(("sapphirerapids", "graniterapids", "znver4", "znver5"), "avx512bf16")
)
"""By LLVM's name of a processor, its feature that has dot products of two bfloat16 numbers."""

FULL_BRAIN_DOTS = ("znver4",)
"""Processors known to do as many of those as multiply-adds of float32, by LLVM's name: a Zen 4
takes 0.28 ns for either, 16 lanes each; a Granite Rapids 0.61 and 0.15."""

VBMI = "avx512vbmi"
"""LLVM's feature of instructions that move bytes within vectors of AVX-512."""

MATRICES = ("amx-tile", "amx-int8")
MATRIX_PROCESSORS = ("sapphirerapids", "graniterapids")
"""LLVM's features of matrix registers and of their products of bytes, and its names of processors
that have them.  They need vectors of AVX-512 beside them here."""

BRAIN_MATRICES = "amx-bf16"
"""LLVM's feature of products of bfloat16 numbers in matrix registers, of the same processors."""

HALF_ARITHMETIC = "avx512fp16"
"""LLVM's feature of arithmetic on float16, of the processors that have matrix registers."""

CODE_PREFETCHES = "prefetchi"
"""LLVM's feature of prefetches of code, which Intel's processors have since Granite Rapids."""

MATRIX_ROWS, MATRIX_GROUPS, MATRIX_LANES = 16, 16, 16
"""The most rows of a matrix register; and in a row of 64 bytes, the most groups of terms of an
operand, each of four bytes, whose products are added to one sum, and the sums."""

WIDE_BYTES, NARROW_BYTES = 64, 32
"""Bytes of a vector with AVX-512 and with AVX2."""

KIB = 1 << 10


class Caches(TypedDict, total=False):
    """The fields of `Target` about the sizes of caches."""

    l1_bytes: int
    l1_ways: int
    line_bytes: int
    l2_bytes: int
    l3_bytes: int


class Core(TypedDict, total=False):
    """The fields of `Target` that follow from the processor's design and the width of vectors;
    `core_of` gives all of them."""

    vector_bytes: int
    vector_registers: int
    fmas_per_cycle: float
    peak_factor: float
    cycles_per_vector_load: float
    cycles_per_masked_store: float
    narrowest_share: float
    narrow_latency: float
    cycles_per_blend: float
    broadcast_conflicts: float
    cycles_per_crossing: float
    cycles_per_bank: float
    cycles_per_fill: float
    sums_per_cycle: float
    transformed_awaited: float
    arriving_bytes_per_cycle: float
    transformed_factor: float
    l2_awaited: float
    tiles_beside: float
    long_tiles_beside: float
    near_steps: int
    steps_per_iteration: int
    lines_awaited: float
    streams_awaited: float
    short_runs_awaited: float
    constants_awaited: float
    constants_latency: float
    exchange_awaited: float
    constants_kept: int
    l2_kept: float
    l2_keeps_part: bool
    cycles_per_far_line: float
    far_rows_awaited: float
    whole_jumps: bool
    slow_operations: tuple[tuple[str, float], ...]
    divides_beside: bool
    brain_dot_factor: float


class Rates(TypedDict, total=False):
    """The fields of `Target` about clock and bandwidth; `bench.measured_rates` measures them."""

    clock_ghz: float
    l2_gbps: float
    l3_gbps: float
    dram_gbps: float
    dram_cores: float


FULL_WIDTH = (
    "skylake-avx512", "cascadelake", "icelake-server", "sapphirerapids", "graniterapids",
    "rocketlake", "znver5",
)  # fmt: skip
"""Processors that do two multiply-adds and two loads of 64 bytes a cycle, by LLVM's name.

Of Skylake to Ice Lake these are the Xeons that the makers call Gold (from 6100 on) and Platinum; a
Cascade Lake takes 0.21 ns for a multiply-add of 64 bytes, and 0.19 for one of 32.

A Rocket Lake itself has one such unit, so that tiles for it are compared at twice its peak; guests
on larger processors are given its name (`known_cpu`), and it is no fixed target.
"""

OF_64_BYTES = (
    ("exp", 8.0), ("log", 21.0), ("tanh", 15.5), ("erf", 12.5), ("sigmoid", 15.0), ("sin", 54.0),
    ("cos", 54.0), ("sqrt", 10.0), ("div", 6.5), ("pow", 114.0),
    ("max", 2.0), ("min", 2.0), ("load", 0.9), ("store", 1.5),
)  # fmt: skip
"""Cycles of operations on a vector of 64 bytes of float32, where it runs as two halves: measured on
a Zen 4."""

OF_32_BYTES = (
    ("exp", 11.5), ("log", 17.0), ("tanh", 13.5), ("erf", 20.0), ("sigmoid", 18.0), ("sin", 36.0),
    ("cos", 36.0), ("sqrt", 5.0), ("div", 3.5), ("pow", 91.0),
    ("max", 1.4), ("min", 1.4), ("add", 0.35), ("sub", 0.35), ("mul", 0.35), ("load", 0.35),
)  # fmt: skip
"""The same on a vector of 32 bytes without AVX-512, measured on a Zen 4: what AVX-512 does with a
table in registers or by scaling is several instructions then."""

CASCADE_LAKE_64_BYTES = (
    ("exp", 10.0), ("log", 25.0), ("tanh", 24.0), ("erf", 13.0), ("sigmoid", 20.0), ("sin", 60.0),
    ("cos", 56.0), ("sqrt", 10.5), ("div", 9.0), ("pow", 125.0), ("max", 1.7), ("min", 1.7),
)  # fmt: skip
CASCADE_LAKE_32_BYTES = (
    ("exp", 15.0), ("log", 24.0), ("tanh", 17.5), ("erf", 25.5), ("sigmoid", 21.0), ("sin", 43.5),
    ("cos", 60.0), ("sqrt", 5.0), ("div", 4.5), ("pow", 136.0), ("max", 1.5), ("min", 1.5),
)  # fmt: skip
"""The same on a Cascade Lake, whose units have 64 bytes, in cycles of the clock in `RATES`."""

RATES = MappingProxyType({
    # One core of an EPYC 9004, virtual: 117 GFLOP/s of float32, reads of 4 and of 200 MB at 92 and
    # 31 GB/s; reads, writes and copies of 64 to 512 KiB at 101 to 118 GB/s.  Two cores together
    # read from memory at 33 to 36 GB/s.
    "znver4": Rates(
        clock_ghz=3.65, l2_gbps=115.0, l3_gbps=92.0, dram_gbps=31.0, dram_cores=1.1
    ),
    # One core of a Xeon Platinum 8259CL, virtual: 146 GFLOP/s of float32, copies of 128 to
    # 384 KiB at 50 to 57 GB/s, bytes read and written (reads alone at 105); reads of 4 and of 192
    # MB at 22 to 24 and 10 to 11.  Two cores together read from memory at 19 to 21 GB/s.
    "cascadelake": Rates(
        clock_ghz=2.3, l2_gbps=55.0, l3_gbps=23.0, dram_gbps=10.5, dram_cores=1.9
    ),
    # One core of a Xeon 6972P, virtual: 180 to 204 GFLOP/s of float32; copies of 200 to 800 KiB at
    # 90 to 103 GB/s, bytes read and written (reads alone at 175 to 186); reads and copies of 3 to
    # 64 MB at 28 to 33, reads of 96 MB at 26, and of 192 MB and more at 15.  Two cores together
    # read from memory at 27.
    "graniterapids": Rates(
        clock_ghz=3.125, l2_gbps=95.0, l3_gbps=28.0, dram_gbps=15.0, dram_cores=1.9
    ),
})  # fmt: skip
"""What was measured on processors, by LLVM's name; others have the defaults of `Target`."""


def rates_of(cpu: str) -> Rates:
    """What is known of the clock and the bandwidth of a processor by LLVM's name of it."""
    return RATES.get(cpu, Rates())


NARROW_CORE = Core(
    vector_bytes=NARROW_BYTES,
    vector_registers=16,
    fmas_per_cycle=2.0,
    peak_factor=1.0,
    cycles_per_vector_load=0.5,
    cycles_per_masked_store=2.0,
    narrowest_share=0.5,
    narrow_latency=1.0,
    cycles_per_blend=0.0,
    broadcast_conflicts=0.0,
    cycles_per_crossing=0.0,
    cycles_per_bank=0.0,
    cycles_per_fill=0.0,
    sums_per_cycle=0.0,
    transformed_awaited=1.0,
    arriving_bytes_per_cycle=5.0,
    transformed_factor=1.1,
    l2_awaited=0.0,
    tiles_beside=0.0,
    long_tiles_beside=0.0,
    near_steps=0,
    steps_per_iteration=1,
    lines_awaited=0.0,
    streams_awaited=0.0,
    short_runs_awaited=0.0,
    constants_awaited=0.0,
    constants_latency=0.0,
    exchange_awaited=0.0,
    constants_kept=3,
    l2_kept=0.5,
    l2_keeps_part=False,
    cycles_per_far_line=0.0,
    far_rows_awaited=0.0,
    whole_jumps=False,
    slow_operations=(),
    divides_beside=False,
    brain_dot_factor=4.0,
)
"""A core with AVX2 of which nothing else was measured."""

WIDE_CORE: Core = {
    **NARROW_CORE,
    "vector_bytes": WIDE_BYTES,
    "vector_registers": 32,
    "fmas_per_cycle": 1.0,
    "cycles_per_vector_load": 1.0,
    "cycles_per_masked_store": 1.0,
    "cycles_per_blend": 1.0,
}
"""The same with AVX-512: one unit of 64 bytes, or two that do halves of such a vector."""

FULL_WIDTH_CORE = Core(peak_factor=2.0, narrowest_share=1.0)
"""What is other for `FULL_WIDTH`: a narrower vector takes as long as a whole one.  Prices count one
unit, at a clock at which it does 100 GFLOP/s of float32."""

HALVES_CORE = Core(
    # Its two units get their instructions before these are ready, so one may wait.
    narrow_latency=1.25,
    cycles_per_blend=0.7,
    cycles_per_crossing=1.6,
    cycles_per_fill=0.3,
    sums_per_cycle=2.0,
    transformed_awaited=0.6,
    arriving_bytes_per_cycle=40.0,
    transformed_factor=0.92,
    tiles_beside=1.0,
    lines_awaited=1.0,
    streams_awaited=0.25,
    # Normalizations of 0.2 to 1 MB in densenet121, whose constants come from memory, take 0.9 to
    # 1.7 µs longer than their price; those of densenet121_k12, whose constants a cache has, do not.
    constants_latency=4000.0,
    slow_operations=OF_64_BYTES,
    # Norms of 64 rows of 128 whose last statement divides take 10 cycles a vector, not 17.
    divides_beside=True,
)
"""What is other for a processor of AMD that does vectors of 64 bytes by halves: measured on a Zen
4."""

NARROW_AMD_CORE = Core(
    # vmaskmovps to memory is executed in microcode.
    cycles_per_masked_store=12.0,
    # Three in two cycles, where each multiply-add needs one.
    broadcast_conflicts=0.2,
    cycles_per_crossing=1.0,
    cycles_per_bank=1.0,
    cycles_per_fill=1.0,
    sums_per_cycle=4.0,
    transformed_awaited=0.8,
    arriving_bytes_per_cycle=40.0,
    transformed_factor=1.0,
    l2_awaited=0.2,
    tiles_beside=1.0,
    long_tiles_beside=0.65,
    lines_awaited=1.0,
    streams_awaited=0.25,
    constants_latency=4000.0,
    slow_operations=OF_32_BYTES,
    divides_beside=True,
)
"""What is other for processors of AMD with AVX2: measured on a Zen 4."""

CASCADE_LAKE_CORE = Core(
    cycles_per_crossing=0.5,
    lines_awaited=1.0,
    streams_awaited=0.5,
    constants_awaited=1.0,
    constants_kept=8,
    l2_awaited=0.25,
    l2_kept=0.75,
    # Conversions of 1 to 6.5 MB between rows and channels last take 21 to 41 cycles a line more
    # than those between rows and blocks of 16 channels.
    cycles_per_far_line=30.0,
)
"""What is other for a Cascade Lake, with either width."""

WIDE_CASCADE_LAKE_CORE: Core = {
    **CASCADE_LAKE_CORE,
    # Both units, at the clock in `RATES`.
    "fmas_per_cycle": 2.0,
    "cycles_per_vector_load": 0.5,
    "narrowest_share": 1.0,
    # Lines from the second-level cache are awaited where two units use them up.
    "near_steps": 8,
    # A core begins four instructions a cycle, and a step of 28 multiply-adds has 50 of them, of
    # which 4 count and jump.
    "steps_per_iteration": 2,
    "slow_operations": CASCADE_LAKE_64_BYTES,
}
NARROW_CASCADE_LAKE_CORE: Core = {**CASCADE_LAKE_CORE, "slow_operations": CASCADE_LAKE_32_BYTES}


COVE_64_BYTES = (
    ("exp", 7.5), ("log", 26.0), ("tanh", 20.5), ("erf", 11.5), ("sigmoid", 19.5), ("sin", 52.0),
    ("cos", 52.0), ("sqrt", 6.5), ("div", 5.0), ("pow", 137.0), ("max", 1.0), ("min", 1.0),
    ("load", 0.5), ("store", 1.0),
)  # fmt: skip
"""The same on a Granite Rapids: of 4,096 floats, half the difference between three such operations
in a row and one.  The unit that divides works beside others: a single division takes 5 more than a
product, a square root 6.5.  A core loads two vectors a cycle and stores one."""

COVE_CORE = Core(
    # Kernels of 8 channels whose lanes run along rows of 28 take 1.2 to 1.3 times their estimate.
    cycles_per_crossing=1.5,
    # Average pools of 3×3 whose three rows of 50 to 100 KB come from the second-level cache again.
    cycles_per_fill=1.0,
    lines_awaited=1.0,
    streams_awaited=0.5,
    constants_awaited=1.0,
    # 116 channels padded to 128 at 14×14 take 28 µs on two cores that share panels, 18 that share
    # rows, 32 on one; the time of 800 KB that 256 channels read is 110 of 430 µs.
    exchange_awaited=1.0,
    # Normalizations of 0.2 to 1 MB in densenet121 get 60 to 75 GB/s, copies in one run 88.
    short_runs_awaited=0.5,
    # Other guests use the third-level cache too: what is read again after 3 ms comes at 28 GB/s
    # from it, after 10 ms at 20 to 27 and after 30 ms at 15 from memory, whether it is 4 MB or 64.
    # Networks of 14 MB and less of constants run in less than 10 ms, those of 32 MB and more not.
    constants_kept=24,
    # Weights of transformed tiles come at the rate of the cache that has them.
    arriving_bytes_per_cycle=9.0,
    l2_awaited=0.25,
    # A step that moves m bytes gets m - 1 MB of them from the third-level cache, for m of 1.1 to
    # 3.2 MB; a copy by itself goes at 88 GB/s up to 1.5 MB, at 68 with 1.8 and 47 with 2.1.
    l2_kept=0.5,
    l2_keeps_part=True,
    # A line from beyond the second-level cache takes some 220 ns, and a prefetcher follows a row
    # behind its first lines: products of 384 to 3,072 terms take 0.3 to 0.5 µs a tile longer.
    far_rows_awaited=1400.0,
)
"""What is other for Sapphire and Granite Rapids, with either width: measured on the latter."""

WIDE_COVE_CORE: Core = {
    **COVE_CORE,
    # Both units, at the clock in `RATES`.  A core loads two vectors a cycle, so 0.75 is a fit: with
    # 0.5 tiles of few steps, which fill, cross lines and store nearly as often as they multiply,
    # were estimated at half of their time (grouped convolutions of 32 channels at 28×28: 0.57).
    "fmas_per_cycle": 2.0,
    "cycles_per_vector_load": 0.75,
    "narrowest_share": 1.0,
    "near_steps": 8,
    "slow_operations": COVE_64_BYTES,
}


WHOLE_JUMPS = ("skylake-avx512", "cascadelake")
"""Processors, by LLVM's name, that decode the 32 bytes of code around the end of a jump anew each
time where it crosses them: Intel's erratum SKX102, since a change of their microcode."""


def core_of(cpu: str, wide: bool) -> Core:
    """What LLVM's name of a processor tells of its cores, with AVX-512 if `wide`, else with AVX2.

    The sources of the fields are in `Target`'s docstring.
    """
    own = _measured(cpu, wide)
    if cpu in FULL_BRAIN_DOTS:
        own = {**own, "brain_dot_factor": 1.0}
    if cpu in WHOLE_JUMPS:
        own = {**own, "whole_jumps": True}
    return {**(WIDE_CORE if wide else NARROW_CORE), **own}


def _measured(cpu: str, wide: bool) -> Core:
    """The fields in which a processor differs from one of which nothing was measured."""
    if cpu == "cascadelake":
        return WIDE_CASCADE_LAKE_CORE if wide else NARROW_CASCADE_LAKE_CORE
    if cpu in MATRIX_PROCESSORS:
        cove = WIDE_COVE_CORE if wide else COVE_CORE
        # About as many bytes of a Sapphire Rapids' smaller third-level cache: their age decides.
        return {**cove, "constants_kept": 6} if cpu == "sapphirerapids" else cove
    if not wide:
        return NARROW_AMD_CORE if is_amd(cpu) else Core()
    if cpu in FULL_WIDTH:
        return {**FULL_WIDTH_CORE, "cycles_per_blend": 0.0} if is_amd(cpu) else FULL_WIDTH_CORE
    return HALVES_CORE if is_amd(cpu) else Core()


def known_cpu(cpu: str, features: Container[str]) -> str:
    """LLVM's name of a processor, of which LLVM says that it is `cpu` and has these `features`.

    LLVM calls a guest by the model that the hypervisor states, which may be older than the silicon:
    a Xeon 6972P that was measured is called rocketlake.  Where a model of `FULL_WIDTH` that has no
    matrix registers shows them, it is a Granite Rapids if it also shows prefetches of code, else a
    Sapphire Rapids; any other name is returned as it is.
    """
    if cpu not in FULL_WIDTH or cpu in MATRIX_PROCESSORS or MATRICES[0] not in features:
        return cpu
    return "graniterapids" if CODE_PREFETCHES in features else "sapphirerapids"


def is_amd(cpu: str) -> bool:
    """Whether LLVM's name of a processor is that of one by AMD; all others count as Intel's."""
    return cpu.startswith("znver")


def narrow_cpu(cpu: str) -> str:
    """LLVM's name of a processor of the same maker that has AVX2 and no AVX-512."""
    return "znver2" if is_amd(cpu) else "haswell"


def restricted_to_avx2(target: Target) -> Target:
    """The processor restricted to AVX2: 32-byte vectors, 16 registers; its caches are the same.

    A target that has no AVX-512 is returned as it is.
    """
    if target.vector_bytes == NARROW_BYTES:
        return target
    return replace(
        target,
        name=f"{target.name.removesuffix('-avx512')}-avx2",
        cpu=narrow_cpu(target.cpu),
        features=without_avx512(target.features),
        **core_of(target.cpu, wide=False),
    )


def without_avx512(features: str) -> str:
    """LLVM's list of features, with those switched off that need AVX-512, and matrix registers."""
    return ",".join(
        f"-{name[1:]}" if name[1:].startswith(("avx512", "avx10", "evex", "amx")) else name
        for name in features.split(",")
    )


def _processor(name: str, cpu: str, wide: bool, l1: int, ways: int, l2: int, l3: int) -> Target:
    """A fixed target; the sizes of its caches are in KiB."""
    dots = (DOT_PRODUCTS[cpu],) if cpu in DOT_PRODUCTS else ()
    brain_dots = (BRAIN_DOTS[cpu],) if cpu in BRAIN_DOTS else ()
    newest = (*MATRICES, BRAIN_MATRICES, HALF_ARITHMETIC) if cpu in MATRIX_PROCESSORS else ()
    features = (*AVX2, *(AVX512 if wide else ()), *dots, *brain_dots, *newest)
    return Target(
        name=name,
        cpu=cpu,
        features=",".join(f"+{feature}" for feature in features),
        **core_of(cpu, wide),
        **rates_of(cpu),
        l1_bytes=l1 * KIB,
        l1_ways=ways,
        l2_bytes=l2 * KIB,
        l3_bytes=l3 * KIB,
    )


PORTABLE = "x86-64-v3"
"""The target whose programs run on all processors with AVX2."""

PROCESSORS = MappingProxyType({
    target.name: target
    for target in (
        #          name                 LLVM's name       AVX-512 L1 ways  L2        L3
        _processor(PORTABLE,            "x86-64-v3",      False, 32,  8,  512,   8 << 10),
        _processor("x86-64-v4",         "x86-64-v4",      True,  32,  8, 1024,  16 << 10),
        _processor("haswell",           "haswell",        False, 32,  8,  256,   8 << 10),
        _processor("broadwell-guest",   "broadwell",      False, 32,  8,  256,  55 << 10),
        _processor("alderlake",         "alderlake",      False, 48, 12, 1280,  18 << 10),
        _processor("zen3",              "znver3",         False, 32,  8,  512,  32 << 10),
        _processor("skylake-server",    "skylake-avx512", True,  32,  8, 1024,  28160),
        _processor("skylake-guest",     "skylake-avx512", True,  32,  8, 4096,  16 << 10),
        _processor("cascadelake-server", "cascadelake",   True,  32,  8, 1024,  36608),
        _processor("icelake-server",    "icelake-server", True,  48, 12, 1280,  60 << 10),
        _processor("sapphirerapids",    "sapphirerapids", True,  48, 12, 2048, 105 << 10),
        _processor("graniterapids",     "graniterapids",  True,  48, 12, 2048, 504 << 10),
        _processor("rocketlake-guest",  "rocketlake",     True,  48, 12, 2048, 480 << 10),
        _processor("zen4",              "znver4",         True,  32,  8, 1024,  32 << 10),
        _processor("zen5",              "znver5",         True,  48, 12, 1024,  32 << 10),
    )
})  # fmt: skip
"""Processors that `--target` takes by name.

Sizes of caches are those of the makers' data sheets for the Core i7-4770, Core i5-12400, Ryzen 7
5800X, Xeon Gold 6148, Platinum 8259CL, 8380, 8480+ and 6980P, EPYC 9004 and 9005 (of the
third-level cache the part that one core can fill).  Guests are virtual machines: one core of a Xeon
E5-2699 v4; QEMU's own description of caches, which has a second-level one of 4 MiB; and a Xeon
6972P that is called a Rocket Lake and shows no matrix registers.  The first two are levels of the
x86-64 ABI, all processors with AVX2 and all with AVX-512: their instructions are what these have in
common, their caches what servers have at least.
"""

TARGET_NAMES = ("host", "avx2", *PROCESSORS)
"""The processors to compile for: this one, which is the default, this one without AVX-512, and
those of the table."""
