"""`PROCESSOR_TABLE`: the processors that graphflow knows by name, a row each.

What always holds: plain values, so that the command line has the names before it imports numpy.
"""

from __future__ import annotations

from typing import NamedTuple


class ProcessorRow(NamedTuple):
    """A processor: its name, LLVM's name, whether it has AVX-512, and its caches."""

    name: str
    cpu: str
    wide: bool
    l1_kib: int
    l1_ways: int
    l2_kib: int
    l3_kib: int


PROCESSOR_TABLE = (
    #            name                 LLVM's name       AVX-512 L1 ways  L2        L3
    ProcessorRow("haswell",           "haswell",        False, 32,  8,  256,   8 << 10),
    ProcessorRow("broadwell-guest",   "broadwell",      False, 32,  8,  256,  55 << 10),
    ProcessorRow("alderlake",         "alderlake",      False, 48, 12, 1280,  18 << 10),
    ProcessorRow("zen3",              "znver3",         False, 32,  8,  512,  32 << 10),
    ProcessorRow("skylake-server",    "skylake-avx512", True,  32,  8, 1024,  28160),
    ProcessorRow("skylake-guest",     "skylake-avx512", True,  32,  8, 4096,  16 << 10),
    ProcessorRow("icelake-server",    "icelake-server", True,  48, 12, 1280,  60 << 10),
    ProcessorRow("sapphirerapids",    "sapphirerapids", True,  48, 12, 2048, 105 << 10),
    ProcessorRow("graniterapids",     "graniterapids",  True,  48, 12, 2048, 504 << 10),
    ProcessorRow("rocketlake-guest",  "rocketlake",     True,  48, 12, 2048, 480 << 10),
    ProcessorRow("zen4",              "znver4",         True,  32,  8, 1024,  32 << 10),
    ProcessorRow("zen5",              "znver5",         True,  48, 12, 1024,  32 << 10),
)  # fmt: skip
"""Sizes of caches are those of the makers' data sheets for the Core i7-4770, Core i5-12400, Ryzen 7
5800X, Xeon Gold 6148, 8380, 8480+ and 6980P, EPYC 9004 and 9005 (of the third-level cache the part
that one core can fill).  Guests are virtual machines: one core of a Xeon E5-2699 v4; QEMU's own
description of caches, which has a second-level one of 4 MiB; and a Xeon 6972P that LLVM takes for a
Rocket Lake.
"""
