"""Primitives on buffers: their memory, layout and axes, and copies of windows of them."""
