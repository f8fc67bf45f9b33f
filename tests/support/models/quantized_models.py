"""Random small quantized models in QDQ format.

In: a seed.  Out: a model of convolutions, matrix products, pools, sums, joins, resizes and pads
between DequantizeLinear and QuantizeLinear, and the step of each of its outputs.  Zero points lie
at both ends of their types and beside them, scales are so small at times that elements saturate at
one end or at both, and channels fill no vector evenly.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray

from graphflow.models.builder import ModelBuilder

ZEROS = {"uint8": (0, 0, 1, 127, 128, 128, 255), "int8": (0, 0, 0, -128, -1, 1, 127)}
STEPS = (2, 6)
"""The fewest and, plus one, the most layers of a model."""


@dataclass(frozen=True)
class QuantizedModel:
    """A model, and how far apart two quantized numbers of each output are; 0 for one of floats."""

    model: onnx.ModelProto
    steps: dict[str, float]


@dataclass(frozen=True)
class _Tensor:
    """A quantized tensor: its integers, the dequantized numbers, their shape, step and size."""

    stored: str
    real: str
    shape: tuple[int, int, int, int]
    parameters: tuple[str, str]
    step: float
    dtype: str
    spread: float
    """About the standard deviation of its numbers."""


def random_quantized_model(seed: int) -> QuantizedModel:
    """The model of a seed."""
    return _Maker(seed).model()


@dataclass
class _Maker:
    seed: int
    tensors: list[_Tensor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng((self.seed, 23))
        self.b = ModelBuilder(self.seed, opset=17, name="quantized")
        self.dtype = str(self.rng.choice(("uint8", "uint8", "int8")))

    def model(self) -> QuantizedModel:
        side, batch = int(self.rng.choice((1, 2, 5, 6, 8))), int(self.rng.choice((1, 1, 2)))
        shape = (batch, int(self.rng.integers(1, 35)), side, side)
        self._quantized(self.b.input("x", shape), shape, 1.0)
        kinds: list[tuple[float, Callable[[_Tensor], None]]] = [
            (4, self._conv), (2, self._matmul), (2, self._sum), (1.5, self._join),
            (1, self._max_pool), (1, self._mean_pool), (1, self._pad), (1, self._resize),
            (1, self._moved), (0.7, self._activation), (0.5, self._product),
        ]  # fmt: skip
        chances = np.array([chance for chance, _ in kinds])
        for _ in range(int(self.rng.integers(*STEPS))):
            step = kinds[int(self.rng.choice(len(kinds), p=chances / chances.sum()))][1]
            step(self._any())
        return self._with_outputs()

    def _with_outputs(self) -> QuantizedModel:
        steps = {}
        last = self.tensors[-1]
        for tensor in dict.fromkeys(t.stored for t in self.tensors[1:] or self.tensors):
            known = next(t for t in self.tensors if t.stored == tensor)
            if known is not last and self._chance(0.75):
                continue
            if self._chance(0.5):
                self.b.output(known.stored, dtype=known.dtype, shape=known.shape)
                steps[known.stored] = 1.0
            else:
                self.b.output(known.real, shape=known.shape)
                steps[known.real] = known.step
        return QuantizedModel(self.b.model(), steps)

    def _chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def _any(self) -> _Tensor:
        """A tensor, mostly the last one, often dequantized once more, as quantizers do."""
        tensor = self.tensors[
            -1 if self._chance(0.7) else int(self.rng.integers(len(self.tensors)))
        ]
        if self._chance(0.3):
            return tensor
        real = self.b.node("DequantizeLinear", [tensor.stored, *tensor.parameters])
        return _Tensor(
            tensor.stored, real, tensor.shape, tensor.parameters, tensor.step, tensor.dtype,
            tensor.spread,
        )  # fmt: skip

    def _quantized(
        self, x: str, shape: tuple[int, int, int, int], spread: float, like: _Tensor | None = None
    ) -> None:
        """Quantize `x` and dequantize it, at times with the scale and zero point of `like`."""
        if like is not None and self._chance(0.6):
            parameters, step = like.parameters, like.step
        else:
            step = spread * float(self.rng.choice((0.3, 1, 3, 3, 6))) / 128
            zero = int(self.rng.choice(ZEROS[self.dtype]))
            parameters = (
                self.b.constant(np.array(step, np.float32)),
                self.b.constant(np.array(zero, self.dtype)),
            )
        stored = self.b.node("QuantizeLinear", [x, *parameters])
        real = self.b.node("DequantizeLinear", [stored, *parameters])
        self.tensors.append(_Tensor(stored, real, shape, parameters, step, self.dtype, spread))

    def _weight(self, values: NDArray[np.float64], axis: int) -> tuple[str, NDArray[np.float32]]:
        """A quantized weight, and its scale, one or one for each channel."""
        dtype = str(self.rng.choice(("int8", "int8", "int8", "uint8")))
        along = self._chance(0.5)
        others = tuple(k for k in range(values.ndim) if k != axis)
        most = np.abs(values).max(others if along else None)
        scale = (np.maximum(most, 1e-3) / 127).astype(np.float32)
        zeros = np.zeros(scale.shape, dtype)
        if dtype == "uint8":
            zeros += 128
        elif self._chance(0.25):
            zeros = self.rng.integers(-128, 128, scale.shape).astype(dtype)
        spread = [-1 if k == axis else 1 for k in range(values.ndim)]
        wide = scale.reshape(spread) if along else scale
        moved = np.rint(values / wide) + (zeros.reshape(spread) if along else zeros)
        limits = np.iinfo(dtype)
        stored = self.b.constant(np.clip(moved, limits.min, limits.max).astype(dtype))
        inputs = [stored, self.b.constant(scale), self.b.constant(zeros)]
        if along:
            return self.b.node("DequantizeLinear", inputs, axis=axis), scale
        return self.b.node("DequantizeLinear", inputs), scale

    def _bias(self, x: _Tensor, scale: NDArray[np.float32], size: int) -> list[str]:
        """Nothing, a bias in units of both scales, or one in float32."""
        kind = int(self.rng.integers(4))
        values = 0.3 * x.spread * self.rng.standard_normal(size)
        if kind == 0:
            return []
        if kind == 1:
            return [self.b.constant(values.astype(np.float32))]
        product = np.broadcast_to(np.float32(x.step) * scale, (size,)).astype(np.float32)
        stored = self.b.constant(np.rint(values / product).astype(np.int32))
        return [self.b.node("DequantizeLinear", [stored, self.b.constant(product)], axis=0)]

    def _conv(self, x: _Tensor) -> None:
        batch, channels, height, width = x.shape
        groups = int(self.rng.choice([g for g in (1, 1, 2, channels) if channels % g == 0]))
        outputs = groups * int(self.rng.integers(1, 1 + max(1, 36 // groups)))
        kernel = int(self.rng.choice((1, 3, 3) if min(height, width) > 1 else (1, 3)))
        pads = [int(p) for p in self.rng.integers(0, 2 + (kernel > 1), 4)]
        stride = int(self.rng.choice((1, 1, 2)))
        sides = [
            (n + pads[k] + pads[k + 2] - kernel) // stride + 1
            for k, n in enumerate((height, width))
        ]
        if min(sides) < 1:
            return
        shape = (outputs, channels // groups, kernel, kernel)
        values = self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))
        weight, scale = self._weight(values, 0)
        operands = [x.real, weight, *self._bias(x, scale, outputs)]
        y = self.b.node("Conv", operands, pads=pads, strides=[stride] * 2, group=groups)
        if self._chance(0.5):
            y = self.b.relu(y)
        self._quantized(y, (batch, outputs, sides[0], sides[1]), x.spread)

    def _matmul(self, x: _Tensor) -> None:
        depth, columns = x.shape[3], int(self.rng.integers(1, 20))
        if self._chance(0.3) and x.shape[2] == depth:  # of two activations
            y = self.b.node("MatMul", [x.real, self._any_of(x.shape).real])
            self._quantized(y, x.shape, x.spread**2 * np.sqrt(depth))
            return
        values = self.rng.standard_normal((depth, columns)) / np.sqrt(depth)
        weight, _ = self._weight(values, 1)
        self._quantized(self.b.node("MatMul", [x.real, weight]), (*x.shape[:3], columns), x.spread)

    def _any_of(self, shape: tuple[int, ...]) -> _Tensor:
        return next(t for t in reversed(self.tensors) if t.shape == shape)

    def _sum(self, x: _Tensor) -> None:
        y = self._any_of(x.shape)
        self._quantized(self.b.add(x.real, y.real), x.shape, x.spread + y.spread, like=x)

    def _product(self, x: _Tensor) -> None:
        y = self._any_of(x.shape)
        self._quantized(self.b.node("Mul", [x.real, y.real]), x.shape, x.spread * y.spread)

    def _join(self, x: _Tensor) -> None:
        others = [
            t for t in self.tensors if t.shape[2:] == x.shape[2:] and t.shape[0] == x.shape[0]
        ]
        y = others[int(self.rng.integers(len(others)))]
        channels = x.shape[1] + y.shape[1]
        if channels > 80:
            return
        joined = self.b.node("Concat", [x.real, y.real], axis=1)
        self._quantized(joined, (x.shape[0], channels, *x.shape[2:]), x.spread, like=x)

    def _max_pool(self, x: _Tensor) -> None:
        self._pool(x, "MaxPool")

    def _mean_pool(self, x: _Tensor) -> None:
        if self._chance(0.3):
            y = self.b.node("GlobalAveragePool", [x.real])
            self._quantized(y, (*x.shape[:2], 1, 1), x.spread, like=x)
            return
        self._pool(x, "AveragePool", count_include_pad=int(self.rng.integers(2)))

    def _pool(self, x: _Tensor, op: str, **more: int) -> None:
        if min(x.shape[2:]) < 2:
            return
        stride, pad = int(self.rng.integers(1, 3)), int(self.rng.integers(2))
        sides = [(n + 2 * pad - 2) // stride + 1 for n in x.shape[2:]]
        y = self.b.node(
            op, [x.real], kernel_shape=[2, 2], strides=[stride] * 2, pads=[pad] * 4, **more
        )
        self._quantized(y, (*x.shape[:2], sides[0], sides[1]), x.spread, like=x)

    def _pad(self, x: _Tensor) -> None:
        begin, end = (int(n) for n in self.rng.integers(0, 3, 2))
        pads = self.b.constant(np.array([0, 0, begin, 0, 0, 0, 0, end], np.int64))
        value = float(self.rng.choice((0.0, 0.0, 0.4, -1.1)))
        given = [x.real, pads, self.b.constant(np.array(value, np.float32))]
        shape = (*x.shape[:2], x.shape[2] + begin, x.shape[3] + end)
        self._quantized(self.b.node("Pad", given), shape, x.spread, like=x)

    def _resize(self, x: _Tensor) -> None:
        if max(x.shape[2:]) > 12:
            return
        scales = self.b.constant(np.array([1, 1, 2, 2], np.float32))
        mode = str(self.rng.choice(("nearest", "linear")))
        y = self.b.node("Resize", [x.real, "", scales], mode=mode)
        self._quantized(y, (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3]), x.spread, like=x)

    def _moved(self, x: _Tensor) -> None:
        batch, channels, height, width = x.shape
        if self._chance(0.5):
            y = self.b.node("Transpose", [x.real], perm=[0, 1, 3, 2])
            self._quantized(y, (batch, channels, width, height), x.spread, like=x)
            return
        shape = (batch, channels, height * width, 1)
        target = self.b.constant(np.array(shape, np.int64))
        self._quantized(self.b.node("Reshape", [x.real, target]), shape, x.spread, like=x)

    def _activation(self, x: _Tensor) -> None:
        op = str(self.rng.choice(("Relu", "Sigmoid", "LeakyRelu", "Tanh")))
        self._quantized(self.b.node(op, [x.real]), x.shape, x.spread)
