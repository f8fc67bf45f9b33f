"""ONNX protos: tensors, types and nodes as they are written, and type inference of single nodes."""
