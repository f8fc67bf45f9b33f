"""Checks of kernels: types, well-formedness, and what is legal at each stage of lowering."""
