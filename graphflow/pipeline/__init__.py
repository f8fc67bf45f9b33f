"""The compiler as one list of stages, the texts that it dumps, and the cache of its kernels.

Each module is imported by itself.
"""
