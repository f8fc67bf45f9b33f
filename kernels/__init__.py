"""Kernels: compute definitions, the recipes of their variants, and the lowering of one kernel."""
