"""Tests of a network that onnxruntime's quantizer has quantized in each of its ways.

Results differ from onnxruntime's by a step of the last quantization at most, where onnxruntime does
not saturate sums of two products.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

import graphflow as gf
from graphflow.models.builder import ModelBuilder

SHAPE = (1, 3, 16, 16)
EXACT = "session.x64quantprecision"
"""Makes onnxruntime compute exactly where a processor has no dot products of bytes."""


class Images(CalibrationDataReader):  # type: ignore[misc]
    """Two images to calibrate with."""

    def __init__(self) -> None:
        self.left = [{"x": image(seed)} for seed in (1, 2)]

    def get_next(self) -> Any:
        return self.left.pop() if self.left else None


def image(seed: int) -> Any:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32)


def network() -> onnx.ModelProto:
    b = ModelBuilder(0, opset=17, name="small")
    x = b.node("Relu", [b.conv(b.input("x", SHAPE), 16, 3, pads=[1, 1, 1, 1])])
    y = b.conv(b.node("Relu", [b.conv(x, 16, 3, pads=[1, 1, 1, 1])]), 16, 3, pads=[1, 1, 1, 1])
    x = b.node("Relu", [b.add(x, y)])
    x = b.node("Flatten", [b.node("GlobalAveragePool", [b.conv(x, 32, 1)])])
    matrix = np.random.default_rng(0).standard_normal((32, 10)) / 6
    b.output(b.node("Gemm", [x, b.constant(matrix.astype(np.float32))]))
    return b.model()


def static(layout: QuantFormat, kind: QuantType, **more: Any) -> Any:
    def quantize(source: str, target: str) -> None:
        quantize_static(source, target, Images(), quant_format=layout, weight_type=kind, **more)

    return quantize


WAYS = {
    "QDQ, int8 weights": static(QuantFormat.QDQ, QuantType.QInt8, per_channel=True),
    "QDQ, uint8": static(QuantFormat.QDQ, QuantType.QUInt8, activation_type=QuantType.QUInt8),
    "operators, uint8": static(
        QuantFormat.QOperator, QuantType.QUInt8, activation_type=QuantType.QUInt8
    ),
    "dynamic": lambda source, target: quantize_dynamic(
        source, target, weight_type=QuantType.QUInt8
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_quantized_network_gives_what_onnxruntime_gives(way: str, tmp_path: Path) -> None:
    source, target = tmp_path / "float.onnx", tmp_path / "quantized.onnx"
    onnx.save(network(), source)
    WAYS[way](str(source), str(target))
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry(EXACT, "1")
    session = ort.InferenceSession(str(target), options, providers=["CPUExecutionProvider"])
    exe = gf.compile(target, threads=1, options=gf.Options(workers=0, fallback=None))
    feeds = {"x": image(3)}
    (found,), (wanted,) = exe.run(feeds).values(), session.run(None, feeds)
    # 255 steps cover the results; saturation would change them by a quarter of their range.
    assert np.abs(found - wanted).max() <= (wanted.max() - wanted.min()) / 200
