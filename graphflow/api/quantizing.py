"""`gf.quantize`: a float network becomes a quantized one, with what that costs each layer.

In: an ONNX model and samples.  Out: a `Quantization`.  onnxruntime's quantizer chooses scales and
zero points; graphflow compiles the result and measures it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import version_converter

from graphflow.api.layer_costs import QuantizationCosts, quantization_costs
from graphflow.base.arguments import Shapes, chosen_options
from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.base.offered_names import CALIBRATION_SAMPLES
from graphflow.base.options import Options
from graphflow.bench import Protocol
from graphflow.frontends import OnnxModel, read_model, signature
from graphflow.program import OpenTensor
from graphflow.quantization import (
    METHODS,
    TYPES,
    CalibrationData,
    Sample,
    Way,
    prepared_network,
    quantize_prepared,
    quantized_node,
    random_samples,
    samples_of,
    with_node_names,
)
from graphflow.runtime import replace_file

MEASURED = 16
"""The most samples that errors are measured with."""

HELD_OUT = 5
"""One of so many samples is held out of the calibration; none of fewer."""

LEAST_OPSET = 13
"""The first opset whose QuantizeLinear has scales along an axis."""

MOST_BYTES = (1 << 31) - 1
"""The largest proto that onnxruntime's quantizer reads and writes in one file."""


@dataclass(frozen=True)
class Quantization:
    """A quantized network, the float one that it was made of, and the samples.

    `floats` is the network as onnxruntime prepared it: its nodes are those that were quantized.
    """

    model: onnx.ModelProto
    floats: onnx.ModelProto
    calibrated: int
    measured: Sequence[Sample]
    held_out: bool
    random: bool

    def save(self, path: str | Path) -> None:
        """Write the quantized network; the file is replaced whole.  GraphflowError if it cannot be
        written."""
        content = self.model.SerializeToString()
        try:
            replace_file(str(path), lambda file: file.writelines([content]))
        except OSError as error:
            raise GraphflowError(f"cannot write {path}: {error.strerror or error}") from None

    def costs(
        self,
        *,
        threads: int | None = None,
        options: Options | None = None,
        protocol: Protocol | None = None,
    ) -> QuantizationCosts:
        """What each layer lost in accuracy and gained in time: both networks are compiled, and run
        on the samples.  InvalidModel where there are none."""
        if not self.measured:
            raise InvalidModel("there are no samples to measure with; quantize with data")
        return quantization_costs(
            self.floats,
            self.model,
            self.measured,
            held_out=self.held_out,
            random=self.random,
            options=chosen_options(options, threads),
            protocol=protocol,
        )


def quantize(
    model: OnnxModel,
    data: CalibrationData | None = None,
    *,
    random_data: int = 0,
    dynamic: bool = False,
    activations: str = "u8",
    weights: str = "s8",
    per_channel: bool = True,
    symmetric: bool = False,
    method: str = "minmax",
    exclude: Collection[str] = (),
    exclude_operators: Collection[str] = (),
    limit: int = CALIBRATION_SAMPLES,
    seed: int = 0,
    input_shapes: Shapes | None = None,
) -> Quantization:
    """Quantize a float network: products read bytes, which scales and zero points stand for.

    `data` are samples of the inputs: files `.npy` and `.npz`, folders of them, or mappings from
    names to arrays, of which `limit` are used.  Ranges of activations are measured with them, by
    `method` (minmax, entropy or percentile); one of five is held out to measure errors with.
    `random_data` makes so many random samples instead, whose ranges say nothing of real inputs.
    With `dynamic`, each run measures ranges, and data, if given, serves to measure errors.

    `activations` and `weights` are u8 or s8; weights have a scale for each channel unless
    `per_channel` is False; `symmetric` keeps 0 in the middle of the ranges of activations.  Nodes
    of the names in `exclude`, and of the operators in `exclude_operators`, stay as they are.
    `input_shapes` gives shapes of inputs with symbolic dimensions, for random samples.

    Raises InvalidModel for a model that is quantized already, or too large, and for data that does
    not fit it; GraphflowError where the quantizer fails.
    """
    way = _way(dynamic, activations, weights, per_channel, symmetric, method)
    proto = _float_network(model, way)
    inputs = _inputs(proto, input_shapes or {})
    samples = _samples(data, random_data, dynamic, inputs, limit, seed)
    held = 0 if dynamic else len(samples) // HELD_OUT
    ranges, measured = samples[held:], samples[: held or len(samples)]
    prepared = with_node_names(prepared_network(proto))
    excluded = _excluded(prepared, exclude, exclude_operators)
    made = quantize_prepared(prepared, ranges, way, excluded)
    if quantized_node(made) is None:
        raise GraphflowError(
            "onnxruntime's quantizer quantized no node: it knows none of the operators, or all "
            "nodes are excluded"
        )
    return Quantization(
        made,
        prepared,
        0 if dynamic else len(ranges),
        measured[:MEASURED],
        held_out=dynamic or held > 0,
        random=data is None,
    )


def _samples(
    data: CalibrationData | None,
    random_data: int,
    dynamic: bool,
    inputs: Sequence[OpenTensor],
    limit: int,
    seed: int,
) -> list[Sample]:
    """The samples that the caller gives or asks for; none only where scales are dynamic."""
    if limit < 1 or random_data < 0:
        raise InvalidModel(f"limit is {limit}, random_data {random_data}; give positive numbers")
    if data is not None and random_data:
        raise InvalidModel("give either data or a number of random samples, and not both")
    if data is not None:
        return samples_of(data, inputs, limit, seed)
    if random_data or dynamic:
        return random_samples(inputs, random_data, seed)
    raise InvalidModel(
        "quantizing needs samples of the inputs: files .npy or .npz, folders of them, or arrays; "
        "or random_data, a number of random samples, whose ranges say nothing of real inputs; or "
        "dynamic=True, with which scales are those of each run"
    )


def _way(
    dynamic: bool,
    activations: str,
    weights: str,
    per_channel: bool,
    symmetric: bool,
    method: str,
) -> Way:
    for what, value, known in (
        ("activations", activations, TYPES),
        ("weights", weights, TYPES),
        ("method", method, METHODS),
    ):
        if value not in known:
            raise InvalidModel(f"{what} is {value!r}; give one of {', '.join(known)}")
    return Way(
        activations=TYPES[activations],
        weights=TYPES[weights],
        per_channel=per_channel,
        dynamic=dynamic,
        symmetric=symmetric,
        method=METHODS[method],
    )


def _float_network(model: OnnxModel, way: Way) -> onnx.ModelProto:
    """The proto of a float network, of an opset that has the scales of a way."""
    proto = read_model(model)
    node = quantized_node(proto)
    if node is not None:
        raise InvalidModel(
            f"the model is quantized already: node {node.name or node.output[0]} is a "
            f"{node.op_type}; give the float model that it was made of"
        )
    held = sum(tensor.ByteSize() for tensor in proto.graph.initializer)
    if held > MOST_BYTES:
        raise InvalidModel(
            f"the weights have {held} bytes, and onnxruntime's quantizer takes at most "
            f"{MOST_BYTES} as one file; quantize the parts of the model one by one"
        )
    opset = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=0)
    if not way.per_channel or opset >= LEAST_OPSET:
        return proto
    try:
        return version_converter.convert_version(proto, LEAST_OPSET)
    except Exception as error:  # the converter's errors are of several classes
        raise InvalidModel(
            f"the model has opset {opset}, in which no scale belongs to a channel, and onnx "
            f"cannot convert it to {LEAST_OPSET}: {error}; export it anew, or use one scale for "
            "each weight (per_channel=False)"
        ) from error


def _inputs(proto: onnx.ModelProto, shapes: Shapes) -> list[OpenTensor]:
    """The inputs that samples have, with the shapes that are given."""
    inputs = [OpenTensor(*declared) for declared in signature(proto)[0]]
    unknown = shapes.keys() - {tensor.name for tensor in inputs}
    if unknown:
        raise InvalidModel(
            f"there is no input {', '.join(sorted(unknown))}; the inputs are "
            f"{', '.join(tensor.name for tensor in inputs)}"
        )
    return [
        OpenTensor(tensor.name, tensor.dtype, tuple(shapes[tensor.name]))
        if tensor.name in shapes
        else tensor
        for tensor in inputs
    ]


def _excluded(
    prepared: onnx.ModelProto, names: Collection[str], operators: Collection[str]
) -> list[str]:
    """The nodes of the prepared network that stay floats; InvalidModel for a name that none has."""
    nodes = prepared.graph.node
    known = [node.name for node in nodes]
    found = [node.name for node in nodes if node.op_type in operators]
    for name in names:
        # A node that the preparation joined with another one has the name of the first in its own.
        own = [other for other in known if other == name or other.startswith(f"{name}/")]
        if not own:
            close = ", ".join(difflib.get_close_matches(name, known)) or ", ".join(known[:5])
            raise InvalidModel(
                f"the prepared network has no node {name!r} to exclude; it has {close}, …"
            )
        found += own
    missing = set(operators) - {node.op_type for node in nodes}
    if missing:
        raise InvalidModel(
            f"the prepared network has no {', '.join(sorted(missing))} to exclude; its operators "
            f"are {', '.join(sorted({node.op_type for node in nodes}))}"
        )
    return list(dict.fromkeys(found))
