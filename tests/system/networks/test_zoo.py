"""Tests of networks as exporters write them, compiled and run natively, against onnxruntime."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from math import prod
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest

import graphflow
from graphflow.base.fields import replace
from graphflow.base.options import Options, assumed_host
from graphflow.baselines import plan_groups
from graphflow.codegen import host_target
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse_groups
from graphflow.models import EXPORTED
from graphflow.models.zoo import zoo_model
from graphflow.models.zoo.convnext import convnext
from graphflow.models.zoo.efficientnet import BLOCKS, efficientnet
from graphflow.models.zoo.exported import FULL_SIZE, bert_feeds, gpt_feeds, tagger_feeds
from graphflow.models.zoo.mobilevit import STAGES, mobilevit
from graphflow.models.zoo.segformer import B0, segformer
from support.targets import USUAL

Array = np.ndarray[Any, Any]
STRICT = Options(threads=2, fallback=None, workers=0)
"""Without processes that would each import the compiler and make kernels anew that networks share.
"""
TOLERANCES = {"half": 1e-2, "qdq": 8 / 255}
"""Largest difference where it is not 1e-4; for `qdq` one step of its last quantization."""

FLOAT = onnx.TensorProto.FLOAT
WEIGHTS = {"convnext_tiny": 28.59e6, "mobilevit_xxs": 1.27e6, "segformer_b0": 3.75e6}
"""Of the published networks, BatchNormalization folded."""

CONVERSIONS = {"convnext": 0, "mobilevit": 3, "segformer": 2}
"""The most inner conversions: unfolded patches, and a few tensors of small maps."""

SHORTER: dict[str, Callable[[int], onnx.ModelProto]] = {
    "convnext": partial(convnext, stages=((40, 1), (80, 2))),
    "efficientnet": partial(
        efficientnet, stages=[*BLOCKS[:2], *((*stage[:-1], 1) for stage in BLOCKS[2:])]
    ),
    "mobilevit": partial(mobilevit, stages=STAGES[:2]),
    "segformer": partial(segformer, stages=B0[1::2]),
}
"""Networks of fewer stages or blocks, for the ordinary run: those left out are like the others."""

WHOLE = {f"{name}, whole": EXPORTED[name] for name in SHORTER}
NETWORKS = {
    name: replace(network, build=SHORTER.get(name, network.build))
    for name, network in EXPORTED.items()
} | WHOLE

COMPILED = [pytest.param(n, marks=[pytest.mark.slow] * (n in WHOLE)) for n in NETWORKS]
"""The names of networks for tests that compile them; whole ones are slow."""

DECIDED = (
    [n for n in COMPILED if n.values[0].removesuffix(", whole") in CONVERSIONS]
    if assumed_host() == USUAL
    else [f"{name}, whole" for name in CONVERSIONS]
)
"""Those of which conversions are counted; for other processors whole ones, which are only planned.
"""

MORE_ON = {("segformer", "zen5"): 1, ("segformer", "graniterapids"): 4}
"""Where a processor's rates ask for more: with the caches of Zen 5, a transposition of 80 kB before
the last norm makes 0.2 % of the network's price less than reading its columns in place.  A plan of
segformer with six conversions takes 0.90 of the time of one with two on a Granite Rapids."""


@cache
def built(name: str) -> onnx.ModelProto:
    return NETWORKS[name].build(0)


@cache
def peer(name: str) -> ort.InferenceSession:
    return session(built(name))


def session(model: onnx.ModelProto) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    # Without VNNI, products of uint8 and int8 saturate in 16 bits otherwise (docs/semantics.md).
    options.add_session_config_entry("session.x64quantprecision", "1")
    providers = ["CPUExecutionProvider"]
    return ort.InferenceSession(model.SerializeToString(), options, providers=providers)


@cache
def compiled(name: str) -> graphflow.Executable:
    """Once in each process: tests of one network follow each other, by the scope of its name, so
    that few are in another process than the others."""
    return graphflow.compile(built(name), options=STRICT)


def check(name: str, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Compares each output with onnxruntime's, and gives them."""
    got = compiled(name).run(feeds)
    runner = peer(name)
    outputs = [output.name for output in runner.get_outputs()]
    want = dict(zip(outputs, runner.run(None, dict(feeds)), strict=True))
    assert list(got) == list(want)
    for output, array in want.items():
        assert got[output].shape == array.shape, output
        assert got[output].dtype == array.dtype, output
        bound = 0 if array.dtype.kind == "i" else TOLERANCES.get(name, 1e-4) * (1 + 1e-5)
        np.testing.assert_allclose(got[output], array, rtol=0, atol=bound, err_msg=output)
    return got


@pytest.mark.parametrize("name", COMPILED, scope="module")
def test_each_kernel_is_made_by_the_recipe_that_the_plan_priced(name: str) -> None:
    inputs = built(name).graph.input
    open_shapes = {x.name for x in inputs if any(d.dim_param for d in x.type.tensor_type.shape.dim)}
    shapes = {n: x.shape for n, x in NETWORKS[name].feeds(0).items() if n in open_shapes}
    if shapes:
        compiled(name).precompile(shapes)
    if name == "gpt":
        token = gpt_feeds(0, 2, 1, past=4)
        compiled(name).precompile({n: x.shape for n, x in token.items()})
    made = compiled(name).specializations
    assert made
    kernels = [kernel for one in made for kernel in one.compiled.lowered.kernels.values()]
    assert {k.symbol: k.instead_of for k in kernels if k.instead_of is not None} == {}


@pytest.mark.parametrize("name", NETWORKS, scope="module")
def test_the_network_is_valid_and_its_outputs_depend_on_its_inputs(name: str) -> None:
    model = built(name)
    onnx.checker.check_model(model, full_check=True)
    assert {info.name for info in model.graph.input} == set(NETWORKS[name].feeds(0))
    first, second = (peer(name).run(None, NETWORKS[name].feeds(seed)) for seed in (1, 2))
    for a, b in zip(first, second, strict=True):
        assert np.isfinite(a).all()
        assert a.std() > 1e-2
        assert a.shape != b.shape or not np.allclose(a, b, atol=1e-3)


@pytest.mark.parametrize("name", NETWORKS, scope="module")
def test_bytes_depend_on_the_seed_alone(name: str) -> None:
    first = built(name).SerializeToString(deterministic=True)
    assert NETWORKS[name].build(0).SerializeToString(deterministic=True) == first
    assert NETWORKS[name].build(1).SerializeToString(deterministic=True) != first


LARGE = {"convnext_tiny"}
"""Takes seconds to build."""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LARGE)) for n in FULL_SIZE]
)
def test_networks_of_full_size_have_the_published_number_of_weights(name: str) -> None:
    initializers = zoo_model(name).graph.initializer
    count = sum(prod(tensor.dims) for tensor in initializers if tensor.data_type == FLOAT)
    assert count == pytest.approx(WEIGHTS[name], rel=0.01)


@pytest.mark.parametrize("name", COMPILED, scope="module")
def test_results_are_those_of_onnxruntime(name: str) -> None:
    for seed in (1, 2):
        check(name, NETWORKS[name].feeds(seed))


@pytest.mark.decisions
@pytest.mark.parametrize("name", DECIDED, scope="module")
def test_few_conversions_are_left_inside(name: str) -> None:
    """Of the programs that other tests run; where `.ci/run` asks for other processors, for which
    nothing runs them, of plans of the whole networks."""
    published = name.removesuffix(", whole")
    most = CONVERSIONS[published] + MORE_ON.get((published, assumed_host()), 0)
    assert decided(name) <= most


def decided(name: str) -> int:
    """How many inner conversions a network has."""
    if assumed_host() == USUAL:
        summary = compiled(name).report()["summary"]
        found: int = summary["inner_conversions"]
        return found
    graph = fuse_groups(canonicalize(import_model(built(name))))
    _, plan, _ = plan_groups(graph, host_target(), STRICT.threads)
    ends = {*graph.inputs, *graph.outputs}
    return len(plan.moves) + sum(made.value not in ends for made in plan.conversions)


def test_the_detector_gives_as_many_boxes_as_suppression_keeps() -> None:
    counts = {len(check("detector", NETWORKS["detector"].feeds(seed))["boxes"]) for seed in (1, 2)}
    assert len(counts) == 2, "suppression keeps as many boxes of both images"


@pytest.mark.parametrize(("batch", "length"), [(1, 1), (3, 16)])
def test_bert_takes_other_batches_and_lengths(batch: int, length: int) -> None:
    feeds = bert_feeds(3, batch, length)
    if length == 1:
        feeds["attention_mask"][:] = 1
    check("bert", feeds)


def test_what_bert_does_not_attend_to_does_not_count() -> None:
    feeds = bert_feeds(3)
    before = compiled("bert").run(feeds)["pooler_output"]
    changed = {**feeds, "input_ids": feeds["input_ids"].copy()}
    changed["input_ids"][0, -3:] = (changed["input_ids"][0, -3:] + 1) % 1000
    np.testing.assert_array_equal(compiled("bert").run(changed)["pooler_output"], before)


def test_the_tagger_takes_one_word() -> None:
    check("tagger", tagger_feeds(1, batch=1, length=1))


def test_gpt_grows_its_cache_from_nothing_token_by_token() -> None:
    """A prompt, one of two with padding in front, then tokens that the logits choose."""
    batch, length = 2, 4
    feeds = gpt_feeds(5, batch, length, past=0)
    feeds["attention_mask"][0, :2] = 0
    results = check("gpt", feeds)
    for step in range(2):
        chosen = results["logits"][:, -1].argmax(-1)[:, None]
        past = {name.replace("present", "past_key_values"): results[name] for name in results}
        del past["logits"]
        mask = np.concatenate([feeds["attention_mask"], np.ones((batch, 1), np.int64)], axis=1)
        feeds = {"input_ids": chosen, "attention_mask": mask, **past}
        results = check("gpt", feeds)
        assert results["present.0.key"].shape[2] == length + step + 1


@pytest.mark.slow
def test_gpt_with_a_cache_says_what_it_says_without() -> None:
    """The logits of the last token do not depend on how the tokens before it came in: follows from
    the test above, where onnxruntime says the same of both."""
    whole = gpt_feeds(6, 2, 5, past=0)
    want = compiled("gpt").run(whole)["logits"][:, -1]
    first = {**whole, "input_ids": whole["input_ids"][:, :4]}
    first["attention_mask"] = whole["attention_mask"][:, :4]
    results = compiled("gpt").run(first)
    past = {name.replace("present", "past_key_values"): results[name] for name in results}
    del past["logits"]
    last = {"input_ids": whole["input_ids"][:, 4:], "attention_mask": whole["attention_mask"]}
    got = compiled("gpt").run({**last, **past})["logits"][:, -1]
    np.testing.assert_allclose(got, want, atol=1e-4)
