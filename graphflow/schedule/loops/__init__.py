"""Primitives on loops: their shape, order and kind, and how often their bodies run."""
