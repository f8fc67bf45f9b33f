"""Quantized models with open sizes, beside onnxruntime.

In: a model whose dimensions have names, the bounds of these, and extents of runs.  Out: what is
wrong with the runs of the one program, bit for bit, and its report.  Before each run the room
behind its elements is filled by a run of the largest extents.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

import graphflow as gf
from graphflow.base.target import Target
from support.models.quantized_layers import QuantizedLayers
from support.models.sized_runs import OPTIONS, peer_of, sized_feeds

Weight = NDArray[np.int8]


def unlike_peer(
    model: onnx.ModelProto,
    sizes: Mapping[str, tuple[int, int]],
    runs: Iterable[Mapping[str, int]],
    target: Target,
    most: int = 3,
) -> tuple[list[str], dict[str, Any]]:
    """What is wrong with runs of these extents, and the report of the program that serves all.

    Integers of inputs are below `most`.
    """
    exe, peer = gf.compile(model, sizes=sizes, target=target, options=OPTIONS), peer_of(model)
    why_not = next(iter(exe.report()["sizes"].values()))["why_not"]
    if why_not:
        return [f"no program serves all sizes: {why_not}"], {}
    wrong, largest = list[str](), {name: hi for name, (_, hi) in sizes.items()}
    for seed, extents in enumerate(runs):
        feeds = sized_feeds(exe, extents, seed, most)
        wanted = peer.run(None, feeds)
        exe.run(sized_feeds(exe, largest, seed, most, poison=True))
        found = exe.run(feeds)
        for (name, mine), array in zip(found.items(), wanted, strict=True):
            if mine.shape != array.shape or not np.array_equal(mine, array):
                wrong.append(f"{dict(extents)}: elements of {name} are not onnxruntime's")
    (program,) = exe.specializations
    return wrong, program.report()


class OpenLayers(QuantizedLayers):
    """Layers of random bytes, each quantized, whose zero points are no zeros.

    Scales are powers of two, with which floats are exact: so results depend on no order of sums,
    and on no contraction of a product and a sum.
    """

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.rng = np.random.default_rng(seed)

    def image(self, *shape: int | str) -> str:
        """The input `x` of floats, quantized and dequantized."""
        return self.stepped(self.input("x", shape))

    def stepped(self, x: str, scale: float = 2**-5, zero: int = 117) -> str:
        """A tensor quantized and dequantized."""
        return self.dequantized(self.quantized(x, scale, zero), scale, zero)

    def bytes_of(self, *shape: int) -> Weight:
        """Random weights of int8."""
        return self.rng.integers(-128, 128, shape, np.int8)

    def conv(
        self, x: str, outputs: int, inputs: int, kernel: int = 3, zero: int = 0, **more: Any
    ) -> str:
        """A convolution with weights of one scale for each output, quantized."""
        weight = self.bytes_of(outputs, inputs, kernel, kernel)
        scale = _near(self.rng.uniform(0.5, 1, outputs) / np.sqrt(inputs * kernel**2))
        real = self.weight_of(weight, scale, zero, axis=0)
        more = {"pads": [kernel // 2] * 4, **more}
        return self.stepped(self.relu(self.node("Conv", [x, real], **more)), 2**-6, 3)

    def product(self, x: str, inputs: int, outputs: int, zero: int = 0) -> str:
        """A matrix product with constant weights, quantized."""
        real = self.weight_of(self.bytes_of(inputs, outputs), _near(1 / np.sqrt(inputs)), zero)
        return self.stepped(self.node("MatMul", [x, real]), 2**-6, 90)

    def open_model(self, *outputs: str, dtype: str = "float32") -> onnx.ModelProto:
        """The model, whose outputs have no shapes."""
        for name in outputs:
            self.output(name, dtype=dtype)
        model = self.model()
        for info in model.graph.output:
            info.type.tensor_type.ClearField("shape")
        return model


def _near(scale: float | NDArray[np.float64]) -> NDArray[np.float32]:
    """The powers of two near a fiftieth of each number."""
    return np.exp2(np.rint(np.log2(np.asarray(scale) / 50))).astype(np.float32)
