"""Primitives on statements and values: bound, merged, repeated, rewritten, specialized."""
