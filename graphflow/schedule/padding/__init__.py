"""Primitives on padding: assumed, absorbed, derived, computed over, and left out of memory."""
