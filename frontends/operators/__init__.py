"""Operators with kernels: each node of ONNX becomes kernels of `graphflow.kernels.definitions`."""
