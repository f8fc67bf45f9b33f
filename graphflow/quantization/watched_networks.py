"""Networks that also return what their layers compute, so that a quantized one can be compared.

In: the proto of a float network, and of the same network quantized by onnxruntime.  Out: copies
that return more tensors, or that read some from the caller; the products of the float network in
the quantized one.  What always holds: a network given is not edited.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import onnx
from msgspec import Struct
from onnx import helper, shape_inference

GIVEN = ".given"
"""Ends the names of tensors that the caller gives instead of the network."""

QUANTIZERS = ("QuantizeLinear", "DynamicQuantizeLinear")
"""What makes integers of a tensor in networks of onnxruntime's quantizer."""

QUANTIZED = (
    *QUANTIZERS,
    "DequantizeLinear",
    "ConvInteger",
    "MatMulInteger",
    "QLinearConv",
    "QLinearMatMul",
)
"""Operators by which a network is known to be quantized."""


def quantized_node(model: onnx.ModelProto) -> onnx.NodeProto | None:
    """A node that only quantized networks have; None for a float network."""
    return next((node for node in model.graph.node if node.op_type in QUANTIZED), None)


def with_node_names(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network with a unique name for each node, by which the quantizer and reports know it."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    taken: set[str] = set()
    for number, node in enumerate(out.graph.node):
        wanted = node.name or f"{node.op_type}_{number}"
        name, count = wanted, 1
        while name in taken:
            name, count = f"{wanted}_{count}", count + 1
        node.name = name
        taken.add(name)
    return out


def made_tensors(model: onnx.ModelProto) -> set[str]:
    """The tensors that nodes of a network compute."""
    return {name for node in model.graph.node for name in node.output if name}


def float_operands(quantized: onnx.ModelProto, known: Collection[str]) -> list[str]:
    """The tensors of the float network that the quantized one quantizes, without its inputs."""
    read = (node.input[0] for node in quantized.graph.node if node.op_type in QUANTIZERS)
    return list(dict.fromkeys(name for name in read if name in known))


def returning(model: onnx.ModelProto, tensors: Iterable[str]) -> onnx.ModelProto:
    """The network with these tensors among its outputs."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    types = _element_types(model)
    there = {info.name for info in out.graph.output}
    for name in tensors:
        if name not in there:
            element = types.get(name, onnx.TensorProto.FLOAT)
            out.graph.output.append(helper.make_tensor_value_info(name, element, None))
    return out


def reading(model: onnx.ModelProto, ranks: Mapping[str, int]) -> onnx.ModelProto:
    """The quantized network that quantizes tensors which the caller gives, of these ranks, instead
    of those that it computes: each product then has the error of its own operands alone."""
    out = onnx.ModelProto()
    out.CopyFrom(model)
    types = _element_types(model)
    for name, rank in ranks.items():
        element = types.get(name, onnx.TensorProto.FLOAT)
        extents = [f"{name}.{axis}" for axis in range(rank)]
        out.graph.input.append(helper.make_tensor_value_info(name + GIVEN, element, extents))
    for node in out.graph.node:
        if node.op_type in QUANTIZERS and node.input[0] in ranks:
            node.input[0] += GIVEN
    return out


def _element_types(model: onnx.ModelProto) -> dict[str, int]:
    """The element types of tensors, as far as they are known."""
    graph = shape_inference.infer_shapes(model).graph
    return {
        info.name: info.type.tensor_type.elem_type
        for info in (*graph.input, *graph.value_info, *graph.output)
        if info.type.tensor_type.elem_type
    }


class Layer(Struct, frozen=True):
    """A product of the float network in the quantized one.

    `tensor` is its result in the float network, `result` the same in the quantized one as its
    readers get it: dequantized, where it is quantized.  `product` is the node that adds up.  None
    where the quantized network has none.
    """

    node: onnx.NodeProto
    tensor: str
    product: str | None
    result: str | None


def layers_of(
    floats: onnx.ModelProto,
    quantized: onnx.ModelProto,
    nodes: Iterable[onnx.NodeProto],
    products: Collection[str],
) -> list[Layer]:
    """The layers of these nodes of `floats`; `products` are the names of the nodes of `quantized`
    that add up products."""
    known, search = made_tensors(floats), _LayerSearch(floats, quantized, products)
    found = []
    for node in nodes:
        tensor = node.output[0]
        product = search.product_of(node)
        if tensor not in search.makers and product is not None:
            # The quantizer removes a Relu that saturation stands for, and the product takes its
            # output's name, or is dequantized to it.
            own = search.nodes[product].output[0]
            names = (name for name in (own, search.dequantized(own)) if name in known)
            tensor = next(names, tensor)
        result = search.dequantized(tensor) if tensor in search.makers else None
        found.append(Layer(node, tensor, product, result))
    return found


class _LayerSearch:
    """The nodes of a quantized network, by name and by what they make."""

    def __init__(
        self, floats: onnx.ModelProto, quantized: onnx.ModelProto, products: Collection[str]
    ) -> None:
        self._products = products
        self._floats = {node.name for node in floats.graph.node}
        self.nodes = {node.name: node for node in quantized.graph.node}
        self.makers = {name: node for node in quantized.graph.node for name in node.output}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in quantized.graph.node:
            for name in node.input:
                self._readers.setdefault(name, []).append(node)

    def product_of(self, node: onnx.NodeProto) -> str | None:
        """The name of the node that computes a product of the float network: that of the same name,
        else the nearest one before its result that is reached over nodes of the quantizer alone."""
        if node.name in self._products:
            return str(node.name)
        nodes = self._before(node.output[:1])
        seen: set[str] = set()
        while nodes:
            for before in nodes:
                if before.name in self._products:
                    return str(before.name)
            seen |= {before.name for before in nodes}
            own = (before for before in nodes if before.name not in self._floats)
            names = [name for before in own for name in before.input]
            nodes = [before for before in self._before(names) if before.name not in seen]
        return None

    def dequantized(self, tensor: str) -> str:
        """What readers of a tensor get that is quantized; the tensor itself where it is not."""
        for node in self._readers.get(tensor, ()):
            if node.op_type == "QuantizeLinear":
                for reader in self._readers.get(node.output[0], ()):
                    if reader.op_type == "DequantizeLinear":
                        return str(reader.output[0])
        return tensor

    def _before(self, tensors: Sequence[str]) -> list[onnx.NodeProto]:
        return [self.makers[name] for name in tensors if name in self.makers]
