"""Facts of a kernel that primitives rest on: padding, dependences, bounds, values, soundness."""
