"""The compiler as a list of stages, the text dump of each stage, and the cache of kernels.

Each module is imported by itself.
"""
