"""Sliding windows: convolution, pooling, and the sum of overlapping blocks."""
