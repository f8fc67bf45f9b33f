# ruff: noqa
# fmt: off
"""damaged_models, seed 18792: onnx's own InferenceError left import.
"""


CASE = 18792
