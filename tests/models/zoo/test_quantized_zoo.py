"""Tests of the networks that onnxruntime's quantizer writes: bytes between their kernels, and their
results.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import graphflow as gf
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, fuse_groups
from graphflow.models.zoo.exported import Feeds
from graphflow.models.zoo.mobilenet import V2_STAGES, mobilenet_v2
from graphflow.models.zoo.quantized_zoo import NETWORKS, QUANTIZED
from graphflow.models.zoo.sequences.bert import bert
from graphflow.quantization import WAYS, quantized_by_onnxruntime
from support.fuzz.quantized_fuzz import GIVEN, every_layer

SMALL = 64
"""Height and width of images, in tests of graphs alone."""


def image(seed: int) -> Feeds:
    values = np.random.default_rng(seed).standard_normal((1, 3, SMALL, SMALL))
    return {"input": values.astype(np.float32)}


def text(seed: int) -> Feeds:
    return {name: array[:, :16] for name, array in NETWORKS["bert_mini"].feeds(seed).items()}


def groups(model: onnx.ModelProto, feeds: Callable[[int], Feeds]) -> OperatorGraph:
    shapes = {name: array.shape for name, array in feeds(0).items()}
    return fuse_groups(canonicalize(import_model(model, shapes)))


def stored_floats(graph: OperatorGraph) -> int:
    """The elements of tensors of floats that a run stores."""
    made = (v for node in graph.nodes for v in node.outputs if not graph.is_constant(v))
    return sum(graph.values[v].size for v in made if graph.values[v].dtype == "float32")


@pytest.mark.parametrize("way", ["u8s8", "s8s8_tensor", "qlinear"])
def test_a_network_of_images_stores_bytes_between_its_kernels(way: str) -> None:
    """Linear bottlenecks with zero points, depthwise layers and sums, of MobileNetV2."""
    network = partial(mobilenet_v2, size=SMALL, width=0.35, stages=V2_STAGES[:3])
    graph = groups(quantized_by_onnxruntime(network(0), map(image, range(2)), WAYS[way]), image)
    assert stored_floats(graph) == 1000  # the logits
    assert not any(graph.integer_products.values())


def test_products_of_dynamically_quantized_tensors_read_bytes() -> None:
    network = partial(bert, layers=1, width=32, heads=2)
    graph = groups(quantized_by_onnxruntime(network(0), (), WAYS["dynamic"]), text)
    products = [n for n in graph.nodes if n.op.startswith("MatMulInteger")]
    assert len(products) == 7
    for node in products:
        data, weight = (b for b in node.func.inputs if len(b.shape) > 1 and b.dtype[-2:] != "32")
        assert {data.dtype, weight.dtype} == {"uint8", "int8"}


def test_the_zoo_has_each_network_in_each_way() -> None:
    assert len(QUANTIZED) == len(NETWORKS) * len(WAYS)
    model = QUANTIZED["ssd_u8s8_tensor"].build(0)
    assert {info.name for info in model.graph.input} == set(QUANTIZED["ssd_u8s8"].feeds(0))


DRIFT = {"bert_mini": 0.08}
"""How far results may be from those of onnxruntime, relatively; 0.02 for other networks.  A step
in a score changes what Softmax makes of a row, and so all layers behind it: onnxruntime itself is
0.053 from its results without optimizations."""


@pytest.mark.slow
@pytest.mark.parametrize("name", QUANTIZED)
def test_results_are_near_those_of_onnxruntime(name: str) -> None:
    """Steps differ where a number is half-way between two, and layers behind them, too."""
    model, feeds = QUANTIZED[name].build(0), QUANTIZED[name].feeds(1)
    wanted = plain_session(model).run(None, feeds)
    found = gf.compile(model, options=gf.Options(fallback=None)).run(feeds)
    most = next((drift for network, drift in DRIFT.items() if name.startswith(network)), 0.02)
    for one, other in zip(found.values(), wanted, strict=True):
        assert np.linalg.norm(one - other) <= most * np.linalg.norm(other)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["u8s8", "s8s8_tensor"])
def test_each_layer_of_bert_is_a_step_from_that_of_onnxruntime(way: str) -> None:
    """Both compute it from the integers that graphflow has."""
    exported = QUANTIZED[f"bert_mini_{way}"]
    whole, cut = every_layer(exported.build(0))
    feeds = exported.feeds(1)
    own = gf.compile(whole, options=gf.Options(fallback=None)).run(feeds)
    given = {f"{name}{GIVEN}": array for name, array in own.items()}
    read = {info.name for info in cut.graph.input}
    feeds = {**feeds, **{name: array for name, array in given.items() if name in read}}
    wanted = dict(zip(own, plain_session(cut).run([*own], feeds), strict=True))
    names = [name for name, array in own.items() if array.dtype.kind in "iu"]
    apart = [np.abs(own[name].astype(int) - wanted[name].astype(int)) for name in names]
    assert len(names) > 100 and max(steps.max() for steps in apart) <= 1
    assert sum(steps.sum() for steps in apart) < 1e-4 * sum(steps.size for steps in apart)


def plain_session(model: onnx.ModelProto) -> ort.InferenceSession:
    """onnxruntime with exact sums of bytes and without optimizations."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.x64quantprecision", "1")
    return ort.InferenceSession(model.SerializeToString(), options)
