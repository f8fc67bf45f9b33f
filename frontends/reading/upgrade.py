"""Conversion of opsets 1 to 6 by onnx's version converter.

In: a model whose input shapes are known; large initializers may be declared as inputs.  Out: the
same model in a supported opset.  In the old opsets operators broadcast only if an attribute says
so, and carry attributes that only training needs.  What the converter refuses is `UnsupportedOp`.
"""

from __future__ import annotations

import onnx
from onnx import helper, shape_inference, version_converter

from graphflow.base.errors import UnsupportedOp

OLDEST_OPSET = 7
"""The first opset in which operators broadcast as they do today."""

TARGET_OPSET = 9
"""The opset to which old models are converted.

The converter makes integer constants, which opset 7 does not have.
"""

_REFUSALS = (RuntimeError, version_converter.ConvertError)


def upgraded(proto: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """`proto` itself if its opset is supported, else a converted copy.

    Raises `UnsupportedOp`, which names the node that cannot be converted.
    """
    if opset >= OLDEST_OPSET:
        return proto
    typed = _with_axes_behind(proto)
    try:
        return _converted(typed)
    except _REFUSALS as error:
        raise UnsupportedOp(
            f"opset {opset} is older than {OLDEST_OPSET}, the first one that is built, and "
            f"{_culprit(typed)} cannot be converted: {_reason(error)}. Export the model in opset "
            f"{OLDEST_OPSET} or later"
        ) from None


def _converted(proto: onnx.ModelProto) -> onnx.ModelProto:
    return version_converter.convert_version(proto, TARGET_OPSET)


def _reason(error: Exception) -> str:
    """The converter's message without the location in its source file."""
    return str(error).split("failed: ")[-1].strip()


def _culprit(typed: onnx.ModelProto) -> str:
    """The first node that cannot be converted on its own, as text."""
    infos = {info.name: info for info in (*typed.graph.input, *typed.graph.value_info)}
    tensors = {tensor.name: tensor for tensor in typed.graph.initializer}
    for index, node in enumerate(typed.graph.node):
        graph = onnx.GraphProto(name="graph", node=[node])
        for name in dict.fromkeys(name for name in node.input if name):
            if name in tensors:
                graph.initializer.append(tensors[name])
            else:
                graph.input.append(infos.get(name, onnx.ValueInfoProto(name=name)))
        graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
        alone = onnx.ModelProto(ir_version=typed.ir_version, graph=graph)
        alone.opset_import.extend(typed.opset_import)
        try:
            _converted(alone)
        except _REFUSALS:
            return f"{node.op_type} node {node.name or index} ({', '.join(node.output)})"
    return "its graph as a whole"


# Broadcasting along an axis ---------------------------------------------------------------------


def _with_axes_behind(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which operands that are broadcast along `axis` have trailing axes of extent 1.

        Add(x[n, c, h, w], b[c], axis=1)  →  Add(x, Unsqueeze(b, axes=[1, 2]))

    The converter accepts only operands that broadcast in later opsets too.  Ranks come from
    inference in `TARGET_OPSET`, as operators of the first opset have none; each round of inference
    sees the results of operands that the round before has changed.
    """
    typed = onnx.ModelProto()
    typed.CopyFrom(proto)
    while any(_axis(node) is not None for node in typed.graph.node):
        if not _unsqueeze_operands(typed.graph, _ranks(typed)):
            break  # the converter says why
    if any(node.op_type == "PRelu" for node in typed.graph.node):
        _unsqueeze_slopes(typed.graph, _ranks(typed))
    return typed


def _axis(node: onnx.NodeProto) -> onnx.AttributeProto | None:
    """The attribute that says along which axis the second operand is broadcast, if there is one."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    broadcast = "broadcast" in attributes and attributes["broadcast"].i
    return attributes.get("axis") if broadcast and len(node.input) == 2 else None


def _ranks(proto: onnx.ModelProto) -> dict[str, int]:
    newer = onnx.ModelProto()
    newer.CopyFrom(proto)
    del newer.opset_import[:]
    newer.opset_import.add(domain="", version=TARGET_OPSET)
    graph = shape_inference.infer_shapes(newer).graph
    infos = (*graph.input, *graph.value_info, *graph.output)
    ranks = {
        info.name: len(info.type.tensor_type.shape.dim)
        for info in infos
        if info.type.tensor_type.HasField("shape")
    }
    return ranks | {tensor.name: len(tensor.dims) for tensor in graph.initializer}


def _unsqueeze_operands(graph: onnx.GraphProto, ranks: dict[str, int]) -> bool:
    """Unsqueeze the operands whose ranks are known; returns whether there was one."""
    changed = False
    # From the back, as nodes are inserted in front of the one at `index`.
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        axis = _axis(node)
        if axis is None or not all(name in ranks for name in node.input):
            continue
        first, second = (ranks[name] for name in node.input)
        behind = first - (axis.i + first if axis.i < 0 else axis.i) - second
        if behind < 0:
            continue
        changed = True
        node.attribute.remove(axis)
        if behind:
            _unsqueeze(graph, index, second, behind)
    return changed


def _unsqueeze_slopes(graph: onnx.GraphProto, ranks: dict[str, int]) -> None:
    """Unsqueeze the slopes of PRelu, one for each channel, as later opsets broadcast them."""
    for index in reversed(range(len(graph.node))):
        node = graph.node[index]
        if node.op_type != "PRelu" or not all(name in ranks for name in node.input):
            continue
        first, second = (ranks[name] for name in node.input)
        if second == 1 and first > 2:
            _unsqueeze(graph, index, second, first - 2)


def _unsqueeze(graph: onnx.GraphProto, index: int, rank: int, behind: int) -> None:
    """Give the second operand of a node trailing axes of extent 1."""
    node = graph.node[index]
    name = _fresh(f"{node.input[1]}_unsqueezed_{index}", graph)
    axes = list(range(rank, rank + behind))
    unsqueeze = helper.make_node("Unsqueeze", [node.input[1]], [name], axes=axes)
    node.input[1] = name
    graph.node.insert(index, unsqueeze)


def _fresh(wanted: str, graph: onnx.GraphProto) -> str:
    taken = {name for node in graph.node for name in (*node.input, *node.output)}
    taken |= {info.name for info in (*graph.input, *graph.output)}
    while wanted in taken:
        wanted += "_"
    return wanted
