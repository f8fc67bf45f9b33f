"""A node of ONNX while it is imported: what operators' functions read of it and emit for it."""
