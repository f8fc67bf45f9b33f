"""Models of a single node, one for each operator, element type and version of the operator.

In: an operator's schema and an element type for each of its type variables.  Out: a model that uses
nothing but the operator, so that importing it shows whether these types are supported.  `PROBES`
says what a node needs besides its operator: ranks, constant inputs, attributes.  A named value
there becomes an input or an attribute, whichever the version of the operator has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from msgspec import Struct
from onnx import TensorProto, defs, helper, numpy_helper

from graphflow.graph import Array

_FLOATS = ("FLOAT16", "BFLOAT16", "FLOAT", "DOUBLE")
_BYTES = ("UINT8", "INT8")
_SHORTS = (*_BYTES, "UINT16", "INT16", "INT32")


class ElementType(Struct, frozen=True):
    """An attribute whose value is the element type of a type variable."""

    variable: str


class Filling(Struct, frozen=True):
    """An attribute whose value is a tensor of one element, of the element type of a type
    variable."""

    variable: str


class Typed(Struct, frozen=True):
    """An input of a com.microsoft operator whose element type does not vary."""

    item: Any
    element: int


class Probe:
    """The inputs of a probe's node by position, then inputs or attributes by name.

    A tuple is the shape of an input that a run gives; a number or a list is the contents of a
    constant input.  `rank_of_results` is the rank of outputs for which ONNX infers none; by default
    that of the first input that a run gives.  `element_of_results` is their element type; by
    default the one that varies, which is one of `elements`.
    """

    def __init__(
        self,
        *inputs: Any,
        rank_of_results: int | None = None,
        element_of_results: int | None = None,
        elements: Sequence[str] = _FLOATS,
        **named: Any,
    ) -> None:
        self.inputs, self.named = inputs, named
        self.element_of_results, self.elements = element_of_results, elements
        shapes = [item for item in inputs if isinstance(item, tuple)]
        self.rank = len(shapes[0]) if shapes else 0
        if rank_of_results is not None:
            self.rank = rank_of_results


PLAIN = (2, 3)
"""The shape of every required input of an operator that is not in `PROBES`."""

_IMAGE, _FILTER = (1, 2, 5, 5), (3, 2, 3, 3)
_REDUCTION = Probe(PLAIN, axes=[1])
_SCATTER = Probe(PLAIN, (1, 3), (1, 3))
_BLOCKS = Probe((1, 4, 2, 2), blocksize=2)
_POOL = Probe(_IMAGE, kernel_shape=[2, 2])
_WINDOW = Probe(4, output_datatype=ElementType("T2"))
_LOSS = Probe(PLAIN, (2,))

PROBES: dict[str, Probe] = {
    **dict.fromkeys(
        (
            "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean",
            "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
        ),
        _REDUCTION,
    ),
    "AffineGrid": Probe((1, 2, 3), [1, 1, 2, 3]),
    "Attention": Probe(*[(1, 2, 3, 4)] * 3),
    "AveragePool": _POOL,
    "BatchNormalization": Probe(PLAIN, *[(3,)] * 4),
    "BitCast": Probe(PLAIN, to=ElementType("T1")),
    "BitShift": Probe(PLAIN, PLAIN, direction="LEFT"),
    "BlackmanWindow": _WINDOW,
    "Cast": Probe(PLAIN, to=ElementType("T2")),
    "CausalConvWithState": Probe((1, 2, 5), (2, 1, 3)),
    "CenterCropPad": Probe((4, 4), [2, 3]),
    "Col2Im": Probe((1, 4, 4), [3, 3], [2, 2]),
    "Compress": Probe((4, 3), (4,), axis=0),
    "Concat": Probe(PLAIN, PLAIN, axis=0),
    "Constant": Probe(value=Filling("T")),
    "ConstantOfShape": Probe([40, 40], value=Filling("T2")),
    "Conv": Probe(_IMAGE, _FILTER),
    "ConvInteger": Probe(_IMAGE, _FILTER),
    "ConvTranspose": Probe(_IMAGE, (2, 3, 3, 3)),
    "CumProd": Probe(PLAIN, 1),
    "CumSum": Probe(PLAIN, 1),
    "DFT": Probe((1, 4, 1)),
    "DeformConv": Probe((1, 1, 3, 3), (1, 1, 2, 2), (1, 8, 2, 2)),
    "DepthToSpace": _BLOCKS,
    "DequantizeLinear": Probe(PLAIN, ()),
    "Det": Probe((2, 2)),
    "Einsum": Probe((2, 3), (3, 2), equation="ij,jk->ik"),
    "Expand": Probe((1, 3), [2, 3]),
    "EyeLike": Probe(PLAIN, dtype=ElementType("T2")),
    "GRU": Probe((2, 1, 3), (1, 6, 3), (1, 6, 2), hidden_size=2),
    "Gather": Probe(PLAIN, (2,)),
    "GatherND": Probe(PLAIN, (2, 1)),
    "Gemm": Probe((2, 3), (3, 2), (2,)),
    "GlobalAveragePool": Probe((1, 2, 3, 3)),
    "GlobalLpPool": Probe((1, 2, 3, 3)),
    "GlobalMaxPool": Probe((1, 2, 3, 3)),
    "GridSample": Probe((1, 1, 3, 3), (1, 2, 2, 2)),
    "GroupNormalization": Probe((1, 4, 3), (4,), (4,), num_groups=4),
    "HammingWindow": _WINDOW,
    "HannWindow": _WINDOW,
    "InstanceNormalization": Probe((1, 2, 3), (2,), (2,)),
    "LRN": Probe((1, 3, 2, 2), size=3),
    "LSTM": Probe((2, 1, 3), (1, 8, 3), (1, 8, 2), hidden_size=2),
    "LayerNormalization": Probe(PLAIN, (3,)),
    "LinearAttention": Probe(
        *[(1, 2, 4)] * 3, update_rule="linear", q_num_heads=2, kv_num_heads=2
    ),
    "LpPool": _POOL,
    "MatMul": Probe((2, 3), (3, 2)),
    "MatMulInteger": Probe((2, 3), (3, 2)),
    "MaxPool": _POOL,
    "MelWeightMatrix": Probe(4, 16, 8000, 0, 4000, output_datatype=ElementType("T3")),
    "MaxUnpool": Probe((1, 1, 2, 2), (1, 1, 2, 2), kernel_shape=[2, 2], strides=[2, 2]),
    "MeanVarianceNormalization": Probe((1, 2, 3, 3)),
    "Mod": Probe(PLAIN, PLAIN, fmod=1),
    "NegativeLogLikelihoodLoss": _LOSS,
    "NonMaxSuppression": Probe(
        (1, 3, 4), (1, 1, 3), [2], [0.5], [0.0], rank_of_results=2
    ),
    "OneHot": Probe((2,), 3, (2,)),
    "PRelu": Probe(PLAIN, (3,)),
    "Pad": Probe(PLAIN, pads=[0, 1, 0, 1], axes=[0, 1]),
    "QLinearConv": Probe((1, 1, 3, 3), 0.1, 0, (1, 1, 2, 2), 0.1, 0, 0.2, 0),
    "QLinearMatMul": Probe((2, 3), 0.1, 0, (3, 2), 0.1, 0, 0.2, 0),
    "QuantizeLinear": Probe(PLAIN, (), 0),
    "RMSNormalization": Probe(PLAIN, (3,)),
    "RNN": Probe((2, 1, 3), (1, 2, 3), (1, 2, 2), hidden_size=2),
    "Range": Probe(0, 2000, 1),
    "Reshape": Probe(PLAIN, [3, 2]),
    "Resize": Probe((1, 1, 2, 2), scales=[1, 1, 2, 2], roi=[]),
    "ReverseSequence": Probe((3, 2), (2,)),
    "RoiAlign": Probe((1, 1, 4, 4), (2, 4), (2,)),
    "RotaryEmbedding": Probe((1, 2, 3, 4), (5, 2), (5, 2), (1, 3)),
    "STFT": Probe((1, 8, 1), 2, (4,)),
    "Scatter": _SCATTER,
    "ScatterElements": _SCATTER,
    "ScatterND": Probe((3, 2), (1, 1), (1, 2)),
    "Slice": Probe(PLAIN, starts=[0], ends=[1], axes=[1], steps=[1]),
    "SoftmaxCrossEntropyLoss": _LOSS,
    "SpaceToDepth": _BLOCKS,
    "Split": Probe((4, 3), split=[4]),
    "Squeeze": Probe((2, 1, 3), axes=[1]),
    "TensorScatter": Probe((1, 2, 3, 4), (1, 2, 1, 4), (1,)),
    "TfIdfVectorizer": Probe(
        (6,), max_gram_length=2, max_skip_count=0, min_gram_length=1, mode="TF",
        ngram_counts=[0, 2], ngram_indexes=[0, 1, 2], pool_int64s=[2, 3, 5, 4],
    ),
    "Tile": Probe(PLAIN, [1, 2]),
    "TopK": Probe(PLAIN, K=[2], k=2),
    "Unsqueeze": Probe(PLAIN, axes=[1]),
    "Upsample": Probe((1, 1, 2, 2), scales=[1.0, 1.0, 2.0, 2.0]),
}  # fmt: skip
"""Probes of operators of the standard domain."""

_X, _ROW = (1, 2, 4), (4,)
_FLOAT = TensorProto.FLOAT
_SCALE, _HALF = Typed(0.1, _FLOAT), Typed(0.5, _FLOAT)
_QUANTIZED = (_SCALE, 0)
"""The scale and the zero point of a quantized tensor."""


def _quantized(*inputs: Any, **more: Any) -> Probe:
    """A probe of an operator on quantized tensors, whose integers are of the type that varies."""
    return Probe(*inputs, elements=_BYTES, **more)


CONTRIB_PROBES: dict[str, Probe] = {
    "Attention": Probe(_X, (4, 12), (12,), num_heads=2),
    "BiasGelu": Probe(_X, _ROW),
    "CausalConvWithState": Probe((1, 4, 5), (4, 1, 3), _ROW, (1, 4, 2), rank_of_results=3),
    "DequantizeLinear": Probe(PLAIN, _SCALE, 0, elements=_SHORTS, element_of_results=_FLOAT),
    "DynamicQuantizeLSTM": _quantized(
        Typed((2, 1, 3), _FLOAT), (1, 3, 8), (1, 2, 8), *[None] * 5, Typed([0.1], _FLOAT), [0],
        Typed([0.1], _FLOAT), [0], hidden_size=2, rank_of_results=4, element_of_results=_FLOAT,
    ),
    "DynamicQuantizeMatMul": _quantized(
        Typed((2, 3), _FLOAT), (3, 2), _SCALE, 0, Typed((2,), _FLOAT), rank_of_results=2,
        element_of_results=_FLOAT,
    ),
    "EmbedLayerNormalization": Probe(
        Typed([[0, 1]], TensorProto.INT32), None, (5, 4), (3, 4), None, _ROW, _ROW,
        rank_of_results=3,
    ),
    "FastGelu": Probe(_X),
    "FusedConv": Probe(_IMAGE, _FILTER, activation="Relu"),
    "FusedGemm": Probe((2, 3), (3, 2), (2,), activation="Relu"),
    "FusedMatMul": Probe((2, 3), (3, 2)),
    "GatedRMSNorm": Probe(_X, _ROW, _X),
    "GatherBlockQuantized": Probe(
        Typed((5, 16), TensorProto.UINT8), Typed([0, 1], TensorProto.INT64), (5, 1),
        block_size=32, rank_of_results=2,
    ),
    "Gelu": Probe(_X),
    "GroupQueryAttention": Probe(
        (1, 2, 32), (1, 2, 16), (1, 2, 16), None, None, Typed([1], TensorProto.INT32),
        Typed([2], TensorProto.INT32), num_heads=2, kv_num_heads=1, rank_of_results=3,
    ),
    "Inverse": Probe((2, 3, 3)),
    "LayerNormalization": Probe(_X, _ROW),
    "LinearAttention": Probe(
        *[(1, 2, 4)] * 3, None, (1, 2, 2), (1, 2, 2), q_num_heads=2, kv_num_heads=2,
        rank_of_results=3,
    ),
    "LinearAttentionGate": Probe(_X, Typed(_ROW, _FLOAT), Typed(_ROW, _FLOAT)),
    "MatMulIntegerToFloat": _quantized(
        (2, 3), (3, 2), _SCALE, _SCALE, 0, 0, Typed((2,), _FLOAT), element_of_results=_FLOAT
    ),
    "MatMulNBits": Probe(
        (2, 32), Typed((3, 1, 16), TensorProto.UINT8), (3, 1), K=32, N=3, block_size=32
    ),
    "MultiHeadAttention": Probe(_X, _X, _X, num_heads=2),
    "QAttention": _quantized(
        _X, (4, 12), Typed((12,), _FLOAT), _SCALE, _SCALE, None, 0, 0, num_heads=2,
        element_of_results=_FLOAT,
    ),
    "QGemm": _quantized(
        (2, 3), *_QUANTIZED, (3, 2), *_QUANTIZED, Typed((2,), TensorProto.INT32), _HALF, 0
    ),
    "QLinearAdd": _quantized(PLAIN, *_QUANTIZED, PLAIN, *_QUANTIZED, _HALF, 0),
    "QLinearAveragePool": _quantized(_IMAGE, *_QUANTIZED, _HALF, 0, kernel_shape=[2, 2]),
    "QLinearConcat": _quantized(_HALF, 0, PLAIN, *_QUANTIZED, PLAIN, *_QUANTIZED, axis=0),
    "QLinearConv": _quantized(_IMAGE, *_QUANTIZED, _FILTER, *_QUANTIZED, _HALF, 0),
    "QLinearGlobalAveragePool": _quantized(_IMAGE, *_QUANTIZED, _HALF, 0),
    "QLinearLeakyRelu": _quantized(PLAIN, *_QUANTIZED, _HALF, 0),
    "QLinearMul": _quantized(PLAIN, *_QUANTIZED, PLAIN, *_QUANTIZED, _HALF, 0),
    "QLinearSigmoid": _quantized(PLAIN, *_QUANTIZED, _HALF, 0),
    "QLinearSoftmax": _quantized(PLAIN, *_QUANTIZED, _HALF, 0, opset=13),
    "QLinearWhere": _quantized(
        Typed(PLAIN, TensorProto.BOOL), PLAIN, *_QUANTIZED, PLAIN, *_QUANTIZED, _HALF, 0,
        rank_of_results=2,
    ),
    "QuantizeLinear": Probe(
        Typed(PLAIN, _FLOAT), _SCALE, 0, elements=_SHORTS[:-1], rank_of_results=2
    ),
    "QuickGelu": Probe(_X),
    "RotaryEmbedding": Probe(_X, Typed([[0, 1]], TensorProto.INT64), (5, 1), (5, 1), num_heads=2),
    "SimplifiedLayerNormalization": Probe(_X, _ROW),
    "SkipLayerNormalization": Probe(_X, _X, _ROW),
    "SkipSimplifiedLayerNormalization": Probe(_X, _X, _ROW),
    "TransposeMatMul": Probe((2, 3), (3, 2)),
}  # fmt: skip
"""Probes of operators of com.microsoft, which have no schemas here; None is an absent input."""


def schema_model(schema: defs.OpSchema, opset: int, types: Mapping[str, int]) -> onnx.ModelProto:
    """A model of one node of a standard operator; the ranks of its outputs are left to inference.

    `types` gives the ONNX element type of each type variable.
    """
    probe = PROBES.get(schema.name, Probe(*_required(schema)))
    formals = _formals(schema, max(len(probe.inputs), len(schema.inputs)))
    items: list[Any] = [*probe.inputs, *[None] * (len(formals) - len(probe.inputs))]
    attributes: dict[str, Any] = {}
    positions = {formal.name: k for k, formal in enumerate(schema.inputs)}
    for name, value in probe.named.items():
        if name in positions:
            items[positions[name]] = value
        elif name in schema.attributes:
            attributes[name] = _attribute(value, types)
    elements = [formal_element(formal.type_str, types) for formal in formals]
    outputs = [f"o{k}" for k in range(max(schema.min_output, 1))]
    given = list(zip(items, elements, strict=True))
    inferred = (elements[0] if elements else TensorProto.FLOAT, probe.rank)
    return _model(schema.name, "", given, attributes, outputs, {"": opset}, inferred)


def contrib_model(op: str, opset: int, element: int) -> onnx.ModelProto:
    """A model of one node of a com.microsoft operator, with inputs of type `element`."""
    probe = CONTRIB_PROBES[op]
    items = [
        (item.item, item.element) if isinstance(item, Typed) else (item, element)
        for item in probe.inputs
    ]
    opsets = {"": opset, "com.microsoft": 1}
    result = element if probe.element_of_results is None else probe.element_of_results
    return _model(op, "com.microsoft", items, probe.named, ["o0"], opsets, (result, probe.rank))


def formal_element(type_str: str, types: Mapping[str, int]) -> int:
    """The element type of a formal parameter: that of its type variable, or its only type."""
    return types[type_str] if type_str in types else tensor_element(type_str)


def tensor_element(type_str: str) -> int:
    """The ONNX element type of `tensor(…)`; 0 if `type_str` is no tensor type."""
    if not type_str.startswith("tensor("):
        return 0
    element: int = TensorProto.DataType.Value(type_str.removeprefix("tensor(")[:-1].upper())
    return element


def _required(schema: defs.OpSchema) -> list[tuple[int, ...]]:
    options = defs.OpSchema.FormalParameterOption
    needed = [formal for formal in schema.inputs if formal.option != options.Optional]
    return [PLAIN] * max(len(needed), schema.min_input)


def _formals(schema: defs.OpSchema, count: int) -> Sequence[defs.OpSchema.FormalParameter]:
    """The formal parameter of each of `count` inputs; the last one may be variadic."""
    formals = list(schema.inputs)
    return formals + formals[-1:] * (count - len(formals))


def _attribute(value: Any, types: Mapping[str, int]) -> Any:
    if isinstance(value, ElementType):
        return types[value.variable]
    if isinstance(value, Filling):
        return numpy_helper.from_array(_array([1], types[value.variable]), "value")
    return value


def _array(contents: Any, element: int) -> Array:
    wanted = helper.tensor_dtype_to_np_dtype(element)
    if wanted.kind == "O":
        return np.full(np.shape(contents), "", wanted)
    array: Array = np.asarray(contents).astype(wanted)
    return array


def _model(
    op: str,
    domain: str,
    items: Sequence[tuple[Any, int]],
    attributes: Mapping[str, Any],
    outputs: Sequence[str],
    opsets: Mapping[str, int],
    inferred: tuple[int, int],
) -> onnx.ModelProto:
    """A model of one node; `inferred` is the type and rank of outputs that ONNX does not infer."""
    while items and items[-1][0] is None:
        items = items[:-1]
    names, infos, tensors = [], [], []
    for position, (item, kind) in enumerate(items):
        names.append("" if item is None else f"i{position}")
        if isinstance(item, tuple):
            infos.append(helper.make_tensor_value_info(names[-1], kind, item))
        elif item is not None:
            tensors.append(numpy_helper.from_array(_array(item, kind), names[-1]))
    node = helper.make_node(op, names, outputs, name=op, domain=domain, **attributes)
    made = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "probe", infos, made, tensors)
    imports = [helper.make_opsetid(name, version) for name, version in opsets.items()]
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    typed = onnx.shape_inference.infer_shapes(model, data_prop=True)
    for info in typed.graph.output:
        # The checker wants a type and a shape on each output, be it a symbolic one.
        tensor = info.type.tensor_type
        kind, rank = tensor.elem_type or inferred[0], inferred[1]
        if tensor.HasField("shape"):
            rank = len(tensor.shape.dim)
        shape = [f"{info.name}_{axis}" for axis in range(rank)]
        info.CopyFrom(helper.make_tensor_value_info(info.name, kind, shape))
    return typed
