"""Primitives on calls: of kernels and instructions, of configuration state, and prefetches."""
