"""Traversal of kernels: visits, rewriting, accesses, unification, and what calls perform."""
