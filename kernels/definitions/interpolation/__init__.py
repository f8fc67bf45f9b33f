"""Interpolation: elements at fractional positions, as weighted means of their neighbours."""
