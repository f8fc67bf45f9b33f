"""Primitives on stages: computed inside loops of another one, or lifted out of the kernel."""
