"""Names that the command line offers: of the default target, of peers, of assumptions about inputs,
of filters and orders of its table, and prefixes of models.

What always holds: they are known without importing what they name, so that the command line parses
its arguments, and prints its help, before it imports the compiler or another runtime.
"""

from __future__ import annotations

LIGHT = "light:"
"""Begins the names of the models that the onnx package ships."""

ZOO_PREFIX = "zoo:"
"""Begins the names of graphflow's own networks."""

HOST = "host"
"""The default target, this processor; the names of all targets are in `base.processors`."""

PEER_NAMES = ("onnxruntime", "openvino")
"""The runtimes that `graphflow bench` compares with; the first is the reference of accuracy."""

ASSUMPTION_NAMES = FINITE, NONNEGATIVE = ("finite", "nonnegative")
"""What can be assumed of an input by a name; `base.assumed` says what they mean."""

ROW_FILTER_NAMES = CONVERSIONS, PADDING, FOREIGN = ("conversions", "padding", "foreign")
"""Which tensors `graphflow inspect --only` shows."""

BY_TIME, BY_BYTES = "time", "bytes"

ROW_ORDER_NAMES = (BY_TIME, BY_BYTES, "price")
"""By what `graphflow inspect --sort` orders tensors."""

BYTE_TYPE_NAMES = ("u8", "s8")
"""The types that `graphflow quantize` makes of activations and weights."""

CALIBRATION_METHOD_NAMES = ("minmax", "entropy", "percentile")
"""How `graphflow quantize` makes ranges of the values of activations."""

CALIBRATION_SAMPLES = 128
"""Samples that `graphflow quantize` uses where there are more."""
