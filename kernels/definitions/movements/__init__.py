"""Movements: kernels that only move elements, to and from positions that the shapes decide."""
