"""Reductions over axes: sums and extrema, running sums, and normalization by statistics."""
