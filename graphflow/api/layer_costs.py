"""What quantization costs each layer of a network in error, and gains it in time.

In: a float network, the same network quantized, and samples.  Out: `QuantizationCosts`, plain
values.  What always holds: the quantized network is compiled and run by graphflow, as it will be;
the tensors of the float network that it is compared with are onnxruntime's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import inf, sqrt
from typing import Any

import numpy as np
import onnx
from msgspec import Struct
from numpy.typing import NDArray

from graphflow import tir
from graphflow.api.compilation import compile
from graphflow.api.executable import Executable
from graphflow.base.offered_names import PEER_NAMES
from graphflow.base.options import Options
from graphflow.bench import Protocol, load_peer, measure, peer_outputs, planned_steps, step_seconds
from graphflow.graph import Node, OperatorGraph
from graphflow.kernels.definitions.linear_algebra.unscaled_sum import (
    NotUnscalable,
    SumOfProducts,
    sum_of_products,
)
from graphflow.pipeline.compiler import Compiled
from graphflow.quantization import (
    GIVEN,
    Sample,
    float_operands,
    layers_of,
    made_tensors,
    reading,
    returning,
)

FLOAT, QUANTIZED = "float", "quantized"
NOT_QUANTIZED = "the quantizer left its operands as floats"
INTEGERS = ("int32", "uint32")


@dataclass(frozen=True)
class LayerCost:
    """What quantization changed for the product of one node of the float network.

    `error` is ‖quantized − float‖ / ‖float‖ of its result, over all samples, with everything before
    it quantized; `own_error` the same with its quantized operands computed by the float network;
    None where the quantized network has no such tensor.  `why_not` says why it adds up floats.
    Microseconds are those of the steps that compute it; a step that computes several layers counts
    for each with its part.
    """

    node: str
    operator: str
    tensor: str
    integers: bool
    why_not: str
    error: float | None
    own_error: float | None
    float_us: float
    quantized_us: float


@dataclass(frozen=True, slots=True)
class QuantizationCosts:
    """The layers, the relative errors of the network's outputs, and the milliseconds of a run.

    `other_float_us` and `other_quantized_us` are the steps that compute no layer.  `held_out` says
    whether no sample that errors are measured with was calibrated with.
    """

    layers: tuple[LayerCost, ...]
    outputs: Mapping[str, float]
    float_ms: float
    quantized_ms: float
    other_float_us: float
    other_quantized_us: float
    threads: int
    samples: int
    held_out: bool
    random: bool

    @property
    def integer_products(self) -> int:
        """How many products add up integers."""
        return sum(layer.integers for layer in self.layers)

    def report(self) -> dict[str, Any]:
        """The same as plain values, for JSON."""
        return {**asdict(self), "integer_products": self.integer_products}


def quantization_costs(
    floats: onnx.ModelProto,
    quantized: onnx.ModelProto,
    samples: Sequence[Sample],
    *,
    held_out: bool,
    random: bool,
    options: Options,
    protocol: Protocol | None = None,
) -> QuantizationCosts:
    """Compile, run and time both networks."""
    shapes = {name: array.shape for name, array in samples[0].items()}
    build = partial(compile, input_shapes=shapes, options=options)
    exes = {FLOAT: build(floats), QUANTIZED: build(quantized)}
    products = {name: _products(exe.compiled.imported) for name, exe in exes.items()}
    nodes = [node for node in floats.graph.node if node.name in products[FLOAT]]
    layers = layers_of(floats, quantized, nodes, products[QUANTIZED].keys())
    outputs = [info.name for info in floats.graph.output]
    results = {layer.tensor: layer.result for layer in layers if layer.result is not None}
    errors = _errors(floats, quantized, {**{o: o for o in outputs}, **results}, samples, options)
    names = {
        FLOAT: {layer.node.name: layer.node.name for layer in layers},
        QUANTIZED: {layer.product: layer.node.name for layer in layers if layer.product},
    }
    times = {which: _layer_seconds(exe, samples[0], names[which]) for which, exe in exes.items()}
    runs = {which: partial(exe.run, samples[0]) for which, exe in exes.items()}
    whole = measure(runs, Protocol() if protocol is None else protocol)
    reasons = exes[QUANTIZED].compiled.graph.integer_products
    found = []
    for layer in layers:
        name, tensor = layer.node.name, layer.tensor
        product = products[QUANTIZED][layer.product] if layer.product else None
        why_not = _why_not(product, reasons)
        found.append(
            LayerCost(
                node=name,
                operator=layer.node.op_type,
                tensor=tensor,
                integers=not why_not,
                why_not=why_not,
                error=errors.whole.get(tensor),
                own_error=errors.own.get(tensor),
                float_us=1e6 * times[FLOAT].get(name, 0.0),
                quantized_us=1e6 * times[QUANTIZED].get(name, 0.0),
            )
        )
    return QuantizationCosts(
        layers=tuple(found),
        outputs={name: errors.whole[name] for name in outputs},
        float_ms=whole[FLOAT].median_ms,
        quantized_ms=whole[QUANTIZED].median_ms,
        other_float_us=1e6 * times[FLOAT][""],
        other_quantized_us=1e6 * times[QUANTIZED][""],
        threads=exes[QUANTIZED].threads,
        samples=len(samples),
        held_out=held_out,
        random=random,
    )


# Products -----------------------------------------------------------------------------------------


class _Product(Struct, frozen=True):
    """The tensor of a graph that is a sum of products, and the element type of the sum."""

    value: str
    dtype: str


def _products(graph: OperatorGraph) -> dict[str, _Product]:
    """By the name of an ONNX node, the sum of products of two tensors that it computes."""
    found: dict[str, _Product] = {}
    for node in graph.nodes:
        product = _product(node)
        if product is not None and node.origins and not graph.is_constant(node.outputs[0]):
            value = _Product(node.outputs[0], product.target.dtype)
            found.setdefault(node.origins[0], value)
    return found


def _why_not(product: _Product | None, reasons: Mapping[str, str]) -> str:
    """Why a product of the quantized network adds up floats; empty if it adds up integers."""
    if product is not None and product.dtype in INTEGERS:
        return ""
    return NOT_QUANTIZED if product is None else reasons.get(product.value, NOT_QUANTIZED)


def _product(node: Node) -> SumOfProducts | None:
    try:
        product = sum_of_products(node.func) if node.has_definition else None
    except NotUnscalable:
        return None
    if product is None or product.terms == 1:
        return None
    read = [
        {e.buffer for e in tir.walk_expr(operand) if isinstance(e, tir.Load)}
        for operand in product.operands
    ]
    return product if all(read) and read[0] != read[1] else None


def _layer_seconds(exe: Executable, sample: Sample, layers: Mapping[str, str]) -> dict[str, float]:
    """The seconds of the steps of each layer, by its name; those of all other steps under "".

    `layers` has the name of a layer by that of the ONNX node that computes its product.
    """
    own = _layers_of_nodes(exe.compiled, layers)
    found: dict[str, float] = defaultdict(float, {"": 0.0})
    taken = step_seconds(exe.program, {**exe.values, **sample})
    for step, seconds in zip(planned_steps(exe.compiled), taken, strict=True):
        names = own.get(step.name) or ("",)
        for name in names:
            found[name] += seconds / len(names)
    return dict(found)


def _layers_of_nodes(compiled: Compiled, layers: Mapping[str, str]) -> dict[str, list[str]]:
    """The layers that each node of the fused graph computes."""
    return {
        node.name: [layers[origin] for origin in dict.fromkeys(node.origins) if origin in layers]
        for node in compiled.graph.nodes
    }


# Errors -------------------------------------------------------------------------------------------


class _LayerErrors(Struct, frozen=True):
    """Relative errors by tensor: with all before it quantized, and of the tensor's layer alone."""

    whole: Mapping[str, float]
    own: Mapping[str, float]


def _errors(
    floats: onnx.ModelProto,
    quantized: onnx.ModelProto,
    results: Mapping[str, str],
    samples: Sequence[Sample],
    options: Options,
) -> _LayerErrors:
    """The errors of tensors of the float network; `results` has the name of each in the quantized
    one."""
    operands = float_operands(quantized, made_tensors(floats))
    watched = returning(floats, [*results, *operands])
    reference = load_peer(PEER_NAMES[0], watched, options.threads or 0)
    ours = compile(returning(quantized, results.values()), options=options)
    given: Executable | None = None
    whole, own = _Distances(), _Distances()
    for sample in samples:
        expected = peer_outputs(PEER_NAMES[0], reference, sample)
        whole.add(ours.run(sample), expected, results)
        if operands:
            if given is None:
                ranks = {name: expected[name].ndim for name in operands}
                cut = returning(reading(quantized, ranks), results.values())
                given = compile(cut, options=options)
            arrays = {name + GIVEN: expected[name] for name in operands}
            own.add(given.run({**sample, **arrays}), expected, results)
    return _LayerErrors(whole.relative(), own.relative() if operands else whole.relative())


class _Distances:
    """The squared norms of differences and of what is expected, added up over samples."""

    def __init__(self) -> None:
        self._apart: dict[str, float] = defaultdict(float)
        self._norm: dict[str, float] = defaultdict(float)

    def add(
        self,
        found: Mapping[str, NDArray[Any]],
        expected: Mapping[str, NDArray[Any]],
        results: Mapping[str, str],
    ) -> None:
        """Add what one sample shows; `results` has the name in `found` by that in `expected`."""
        for name, result in results.items():
            one = np.asarray(found[result], np.float64).ravel()
            other = np.asarray(expected[name], np.float64).ravel()
            self._apart[name] += float((one - other) @ (one - other))
            self._norm[name] += float(other @ other)

    def relative(self) -> dict[str, float]:
        """‖found − expected‖ / ‖expected‖; where only 0 is expected, 0 or infinity."""
        return {
            name: sqrt(apart / self._norm[name]) if self._norm[name] else (inf if apart else 0.0)
            for name, apart in self._apart.items()
        }
