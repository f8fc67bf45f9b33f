"""Tensors that repeat elements along an axis, and products that read each element once."""

from graphflow.graph.repeats.repeated_axes import read_unrepeated

__all__ = ["read_unrepeated"]
