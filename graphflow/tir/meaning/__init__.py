"""The meaning of kernels: scalar operators, and the reference interpreter."""
