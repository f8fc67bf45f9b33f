"""Names that the command line offers: of targets, peers and prefixes of models.

What always holds: they are known without importing what they name, so that the command line parses
its arguments, and prints its help, before it imports the compiler or another runtime.
"""

from __future__ import annotations

LIGHT = "light:"
"""Begins the names of the models that the onnx package ships."""

ZOO_PREFIX = "zoo:"
"""Begins the names of graphflow's own networks."""

TARGET_NAMES = (
    "host",
    "avx2",
    "haswell",
    "broadwell-guest",
    "alderlake",
    "zen3",
    "skylake-server",
    "skylake-guest",
    "icelake-server",
    "sapphirerapids",
    "graniterapids",
    "rocketlake-guest",
    "zen4",
    "zen5",
)
"""The processors to compile for: this one, which is the default, this one without AVX-512, and
those of `base.processors`."""

PEER_NAMES = ("onnxruntime", "openvino")
"""The runtimes that `graphflow bench` compares with; the first is the reference of accuracy."""
