"""A builder of quantized layers for tests, and the results of their graphs.

In: calls that add layers.  Out: the graph with its quantized tensors, beside the one that was
imported, and whether both give the same.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, interpret_graph
from graphflow.models.builder import ModelBuilder


class QuantizedLayers(ModelBuilder):
    """Layers between `quantized` and `dequantized`."""

    def __init__(self, opset: int = 21) -> None:
        super().__init__(0, opset)

    def parameters(self, scale: ArrayLike, zero: ArrayLike, dtype: str = "uint8") -> list[str]:
        """A scale and a zero point."""
        return [
            self.constant(np.asarray(scale, np.float32)),
            self.constant(np.asarray(zero).astype(dtype)),
        ]

    def stored(self, shape: Sequence[int], dtype: str = "uint8", name: str = "q") -> str:
        """A graph input of integers."""
        return self.input(name, shape, dtype)

    def dequantized(self, x: str, scale: ArrayLike = 0.1, zero: int = 3, **more: int) -> str:
        """The numbers that a tensor of uint8 stands for."""
        return self.node("DequantizeLinear", [x, *self.parameters(scale, zero)], **more)

    def quantized(self, x: str, scale: float = 0.1, zero: int = 3) -> str:
        """A tensor as uint8."""
        return self.node("QuantizeLinear", [x, *self.parameters(scale, zero)])

    def weight_of(
        self, array: ArrayLike, scale: ArrayLike = 0.02, zero: ArrayLike = 0, axis: int = 1
    ) -> str:
        """A constant of int8, dequantized; the scale and the zero point may lie along an axis."""
        values = self.constant(np.asarray(array, np.int8))
        zeros = np.broadcast_to(zero, np.shape(scale))
        parameters = self.parameters(scale, zeros, "int8")
        return self.node("DequantizeLinear", [values, *parameters], axis=axis)

    def graphs(self, *outputs: str, scaled: bool = True) -> tuple[OperatorGraph, OperatorGraph]:
        """The graph as it is imported, and in canonical form."""
        for name in outputs:
            self.output(name)
        imported = import_model(self.model(), {})
        return imported, canonicalize(imported, scaled)


def results(graph: OperatorGraph, seed: int = 0) -> dict[str, NDArray[np.generic]]:
    """The outputs of a graph for random inputs: all integers of their types, or small floats."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for name in graph.inputs:
        value = graph.values[name]
        if value.dtype == "float32":
            arrays[name] = rng.standard_normal(value.shape).astype(np.float32)
        else:
            limits = np.iinfo(value.dtype)
            arrays[name] = rng.integers(limits.min, limits.max + 1, value.shape, value.dtype)
    return interpret_graph(graph, arrays)


def same_bits(*graphs: OperatorGraph) -> bool:
    """Whether graphs give the same outputs."""
    first, *others = (results(graph) for graph in graphs)
    return all(first[n].tobytes() == other[n].tobytes() for other in others for n in first)


def operators(graph: OperatorGraph) -> list[str]:
    """The operators of the nodes that a run computes."""
    return [node.op for node in graph.nodes if not graph.is_constant(node.outputs[0])]
