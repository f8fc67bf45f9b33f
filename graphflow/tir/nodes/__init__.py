"""Nodes of the kernel IR, and their text."""
