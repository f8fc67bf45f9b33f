"""Primitives on conditions: simplified, moved, removed, or turned into bounds of loops."""
