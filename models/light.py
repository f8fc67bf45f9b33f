"""The light models of the onnx package, with random weights, and other edits of model protos.

In: a name, a seed; or a model.  Out: model protos.  The light models have the structure of
well-known networks, and each weight is filled with a single number, so that all outputs are alike;
`reseed` gives them random weights of the usual scale.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper, shape_inference

from graphflow.base.errors import InvalidModel

_FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def light_names() -> tuple[str, ...]:
    """The names that `light` knows, sorted."""
    return tuple(sorted(path.stem.removeprefix("light_") for path in _FOLDER.glob("*.onnx")))


def light(name: str) -> onnx.ModelProto:
    """The light model `name`, e.g. `squeezenet`, as the installed onnx package ships it."""
    path = _FOLDER / f"light_{name}.onnx"
    if not path.exists():
        known = ", ".join(light_names())
        raise InvalidModel(f"onnx has no light model {name}; it has {known or 'none at all'}")
    return onnx.load(path)


def reseed(model: onnx.ModelProto, seed: int) -> onnx.ModelProto:
    """A copy with random weights in place of the ConstantOfShape nodes that feed weights.

    These are the nodes that feed, directly, a weight or a bias of Conv, Gemm or MatMul, or a
    parameter of BatchNormalization.  Weights have standard deviation sqrt(2 / fan-in).  The
    contents of a tensor depend only on the seed and its name.
    """
    out = onnx.ModelProto()
    out.CopyFrom(model)
    roles = _roles(out.graph)
    shapes = {t.name: numpy_helper.to_array(t) for t in out.graph.initializer if t.dims}
    kept: list[onnx.NodeProto] = []
    for node in out.graph.node:
        known = node.op_type == "ConstantOfShape" and node.input[0] in shapes
        if not known or node.output[0] not in roles:
            kept.append(node)
            continue
        name = node.output[0]
        shape = tuple(int(n) for n in shapes[node.input[0]])
        rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        _add_initializer(out, name, _random(rng, shape, *roles[name]))
    del out.graph.node[:]
    out.graph.node.extend(kept)
    _drop_unread_initializers(out.graph)
    return out


def expose(model: onnx.ModelProto, tensor_names: Iterable[str]) -> onnx.ModelProto:
    """A copy with `tensor_names` as further graph outputs, of their inferred types."""
    out = shape_inference.infer_shapes(model, data_prop=True)
    known = {info.name: info for info in (*out.graph.value_info, *out.graph.input)}
    present = {info.name for info in out.graph.output}
    for name in tensor_names:
        if name in present:
            continue
        if name not in known:
            raise InvalidModel(f"the model has no tensor {name} whose type can be inferred")
        out.graph.output.append(known[name])
        present.add(name)
    return out


_ROLES = {
    ("Conv", 1): "conv",
    ("Conv", 2): "bias",
    ("Gemm", 1): "gemm",
    ("Gemm", 2): "bias",
    ("MatMul", 1): "matmul",
    ("BatchNormalization", 1): "scale",
    ("BatchNormalization", 2): "bias",
    ("BatchNormalization", 3): "bias",
    ("BatchNormalization", 4): "variance",
}


def _roles(graph: onnx.GraphProto) -> dict[str, tuple[str, bool]]:
    """The role of each tensor that feeds a parameter, and whether it is a transposed weight."""
    roles: dict[str, tuple[str, bool]] = {}
    for node in graph.node:
        transposed = any(a.name == "transB" and a.i for a in node.attribute)
        for position, name in enumerate(node.input):
            role = _ROLES.get((node.op_type, position))
            if role is not None:
                roles.setdefault(name, (role, transposed))
    return roles


def _random(
    rng: np.random.Generator, shape: tuple[int, ...], role: str, transposed: bool
) -> NDArray[np.float32]:
    noise = rng.standard_normal(shape)
    if role == "bias":
        return (0.05 * noise).astype(np.float32)
    if role == "scale":
        return (1.0 + 0.1 * noise).astype(np.float32)
    if role == "variance":
        return np.exp(0.2 * noise).astype(np.float32)
    if role == "conv":
        fan_in = int(np.prod(shape[1:]))
    else:
        fan_in = shape[-1] if transposed else shape[-2]
    scaled: NDArray[np.float32] = (np.sqrt(2.0 / max(fan_in, 1)) * noise).astype(np.float32)
    return scaled


def _add_initializer(model: onnx.ModelProto, name: str, array: NDArray[np.float32]) -> None:
    model.graph.initializer.append(numpy_helper.from_array(array, name))
    if model.ir_version < 4:
        # Old files list every initializer among the inputs; the checker insists.
        elem_type = onnx.TensorProto.FLOAT
        model.graph.input.append(helper.make_tensor_value_info(name, elem_type, array.shape))


def _drop_unread_initializers(graph: onnx.GraphProto) -> None:
    read = {name for node in graph.node for name in node.input}
    read.update(info.name for info in graph.output)
    unread = {t.name for t in graph.initializer if t.name not in read}
    initializers = [t for t in graph.initializer if t.name not in unread]
    inputs = [info for info in graph.input if info.name not in unread]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(initializers)
    graph.input.extend(inputs)


def with_open_batch(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """A copy in which the first dimension of all inputs has a symbolic name.

    Stated shapes of outputs and inner tensors go, as they hold for one batch.
    """
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    constants = {tensor.name for tensor in opened.graph.initializer}
    for info in opened.graph.input:
        if info.name not in constants and info.type.tensor_type.shape.dim:
            info.type.tensor_type.shape.dim[0].dim_param = name
    for info in opened.graph.output:
        info.type.tensor_type.ClearField("shape")
    del opened.graph.value_info[:]
    return opened
