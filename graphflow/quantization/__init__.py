"""Quantization of float networks by onnxruntime's quantizer; importing this package imports
onnxruntime."""

from graphflow.quantization.calibration import (
    CalibrationData,
    Sample,
    random_samples,
    samples_of,
)
from graphflow.quantization.quantizer import (
    METHODS,
    TYPES,
    WAYS,
    Way,
    prepared_network,
    quantize_prepared,
    quantized_by_onnxruntime,
)
from graphflow.quantization.watched_networks import (
    GIVEN,
    float_operands,
    layers_of,
    made_tensors,
    quantized_node,
    reading,
    returning,
    with_node_names,
)

__all__ = [
    "GIVEN",
    "METHODS",
    "TYPES",
    "WAYS",
    "CalibrationData",
    "Sample",
    "Way",
    "float_operands",
    "layers_of",
    "made_tensors",
    "prepared_network",
    "quantize_prepared",
    "quantized_by_onnxruntime",
    "quantized_node",
    "random_samples",
    "reading",
    "returning",
    "samples_of",
    "with_node_names",
]
