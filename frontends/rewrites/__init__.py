"""Rewrites: operators, onnxruntime's own among them, become simpler operators of ONNX."""
