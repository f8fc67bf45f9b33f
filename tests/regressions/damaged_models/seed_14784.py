# ruff: noqa
# fmt: off
"""damaged_models, seed 14784: onnx's own InferenceError left import.
"""


CASE = 14784
