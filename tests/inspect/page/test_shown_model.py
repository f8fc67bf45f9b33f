"""Tests of what the page shows: it equals what the report and the explanations say."""

import json
from collections import Counter
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np
import onnx
import pytest
from msgspec import to_builtins

from graphflow.base.options import Options
from graphflow.base.processors import PROCESSORS
from graphflow.inspect import report
from graphflow.inspect.page import shown_kernels, shown_model
from graphflow.inspect.page.page_data import ShownModel, ShownTensor
from graphflow.models import ModelBuilder
from graphflow.models.zoo import zoo_model
from graphflow.pipeline.compiler import Compiled, compile_graph
from graphflow.pipeline.request import CompileRequest
from support.control_flow import loop_of_onnxruntime
from support.models.compiled_networks import compiled_model
from support.planning.nets import Net, favour, over_padding, padded, two_demands
from support.targets import USUAL

pytestmark = pytest.mark.usefixtures("code_is_left_out")


def odd_channels() -> onnx.ModelProto:
    """Channels that fill no vector, a pool that needs known padding, and a concat of a constant."""
    build = ModelBuilder(seed=3)
    x = build.input("x", (1, 18, 14, 14))
    y = build.relu(build.conv(x, 22, 3, pads=[1, 1, 1, 1]))
    y = build.node("MaxPool", [y], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2])
    z = build.node("Concat", [y, build.constant(np.ones((1, 3, 7, 7), np.float32))], axis=1)
    build.output(build.node("Softmax", [z], axis=1))
    return build.model()


MODELS = {
    "section": loop_of_onnxruntime,
    "odd": odd_channels,
    "concat": lambda: zoo_model("probe:concat:58", 0),
    "shuffle": lambda: zoo_model("probe:shuffle:58", 0),
    "residual": lambda: zoo_model("probe:residual:20", 0),
    "shufflenet": lambda: zoo_model("shufflenet_v2", 0),
}

NAMES = [
    *(name for name in MODELS if name != "shufflenet"),
    pytest.param("shufflenet", marks=pytest.mark.slow),
]


def compile_for(name: str) -> Compiled:
    target, options = PROCESSORS[USUAL], Options(threads=1)
    return compile_graph(CompileRequest(MODELS[name](), target=target, options=options))


@cache
def compiled(name: str) -> Compiled:
    return compile_for(name)


@cache
def shown(name: str) -> ShownModel:
    return without_texts(compiled(name))


def without_texts(found: Compiled) -> ShownModel:
    """What the page shows, without the long texts of kernels, which other tests are about."""
    with patch.multiple(shown_kernels, STEP_CHARACTERS=0, CODE_CHARACTERS=0):
        return shown_model(found)


@cache
def reported(name: str) -> dict[str, Any]:
    return report(compiled(name))


def tensors(name: str) -> dict[str, ShownTensor]:
    return {tensor.name: tensor for tensor in shown(name).tensors}


@pytest.mark.parametrize("name", NAMES)
def test_tensors_are_as_in_the_report(name: str) -> None:
    model, found = shown(name), tensors(name)
    for edge in reported(name)["edges"]:
        tensor = found[edge["name"]]
        for field in ("dtype", "where", "decided_by", "reason", "producer"):
            assert getattr(tensor, field) == edge[field]
        assert [*tensor.logical_shape] == edge["logical_shape"]
        assert [*tensor.consumers] == edge["consumers"]
        if tensor.edge_type is None:
            assert edge["layout"] is None
            continue
        edge_type = model.edge_types[tensor.edge_type]
        layout = model.layouts[edge_type.layout]
        assert layout.name == edge["layout"]
        assert [*layout.physical_shape] == edge["physical_shape"]
        regions = {known["region"]: known["fact"] for known in edge["regions"]}
        assert dict(edge_type.facts) == regions
        asked = ("consumer", "layout", "demand", "conversion", "proofs")
        assert [
            {key: _plain(to_builtins(use)[key]) for key in asked} for use in tensor.readings
        ] == edge["demands"]
        assert [(o.name, o.variant, o.extra, o.price) for o in tensor.others] == [
            (o["edge_type"], o["variant"], o["extra_seconds"], o["price"]) for o in edge["others"]
        ]


def _plain(value: Any) -> Any:
    return [*value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", NAMES)
def test_pairs_are_as_in_the_report(name: str) -> None:
    kept = reported(name)
    cancelled = [
        {"edge": tensor.name, "proof": "; ".join(pair.proofs)}
        for tensor in shown(name).tensors
        for pair in tensor.pairs
        if pair.reason is None
    ]
    refused = [
        {"edge": tensor.name, "reason": pair.reason, "repair": pair.repair}
        for tensor in shown(name).tensors
        for pair in tensor.pairs
        if pair.reason is not None
    ]
    assert _counted(cancelled) == _counted(kept["cancelled"])
    assert _counted(refused) == _counted(kept["refused"])


def _counted(records: list[dict[str, Any]]) -> Counter[str]:
    return Counter(json.dumps(record, sort_keys=True) for record in records)


@pytest.mark.parametrize("name", NAMES)
def test_nodes_are_the_steps_of_a_run(name: str) -> None:
    model, kept = shown(name), reported(name)
    kinds = Counter(node.kind for node in model.program.nodes)
    moves = kinds["move"] + kinds["convert"] + kinds["copy"]
    assert moves == kept["summary"]["conversions"]
    assert kinds["fill"] == kept["summary"]["fills"]
    lowered = compiled(name).lowered
    steps = Counter(
        step.symbol
        for call, step in lowered.calls
        if not call.prepare and step.symbol in lowered.kernels
    )
    assert kinds["section"] == kept["summary"]["sections"]
    assert Counter(node.kernel for node in model.program.nodes if node.kernel) == steps
    assert set(model.kernels) == set(steps)
    seconds = sum(node.seconds or 0.0 for node in model.program.nodes)
    assert seconds == pytest.approx(kept["seconds"])
    assert sum(node.share for node in model.program.nodes) == pytest.approx(1.0)


@pytest.mark.parametrize("name", NAMES)
def test_conversions_have_the_reasons_of_the_report(name: str) -> None:
    wanted = {
        (made["kind"], edge["name"], made["because"])
        for edge in reported(name)["edges"]
        for made in edge["conversions"]
        if made["kind"] != "move"
    }
    assert wanted == {
        (node.kind, node.outputs[0], node.because)
        for node in shown(name).program.nodes
        if node.kind in ("convert", "fill")
    }


@pytest.mark.parametrize("name", NAMES)
def test_arrows_go_down_and_have_the_edge_types_that_readers_take(name: str) -> None:
    model, plan = shown(name), compiled(name).plan
    for arrow in model.program.arrows:
        assert arrow.start < arrow.end
        reader = model.program.nodes[arrow.end]
        if arrow.edge_type is None or reader.kind in ("convert", "copy", "fill"):
            continue
        inputs = [value for _, value in reader.inputs]
        outer = reader.kind in ("output", "check")
        node, position = ("", -1) if outer else (reader.name, inputs.index(arrow.tensor))
        wanted = plan.source(node, position, arrow.tensor).describe()
        assert model.edge_types[arrow.edge_type].name == wanted


def test_kernels_name_their_variants_and_refusals() -> None:
    name = "odd"
    choices = compiled(name).plan.choices
    for node in shown(name).program.nodes:
        if node.kind not in ("kernel", "view", "move"):
            continue
        choice = choices[node.name]
        assert node.variant == choice.variant_name
        assert [(o.variant, o.seconds, o.price) for o in node.others] == [
            (o.variant, o.seconds, o.price()) for o in choice.others
        ]
        refused = [
            (record["variant"], record["reason"])
            for record in reported(name)["refusals"]
            if node.name in record["nodes"]
        ]
        assert [(title.removeprefix("a step of "), why) for title, why in node.refused] == refused
        origins = compiled(name).graph.node(node.name).origins
        assert node.origins == origins and len(node.operators) >= 1


@pytest.mark.parametrize("name", NAMES)
def test_operators_of_the_model_lead_to_what_runs_for_them(name: str) -> None:
    model, imported = shown(name), compiled(name).imported
    operators = [node for node in model.imported.nodes if node.kind == "operator"]
    assert [node.name for node in operators] == [
        node.name
        for node in imported.topological()
        if not all(map(imported.is_constant, node.outputs))
    ]
    for operator in operators:
        assert bool(operator.became) != bool(operator.because)
        for place in operator.became:
            made = model.program.nodes[place]
            resolved = map(compiled(name).graph.resolved, operator.outputs)
            assert {*made.origins} & {*operator.origins} or {*made.outputs} & {*resolved}
    working = {place for operator in operators for place in operator.became}
    assert {place for place, node in enumerate(model.program.nodes) if node.origins} <= working
    for arrow in model.imported.arrows:
        assert arrow.start < arrow.end
        assert arrow.tensor in model.imported.nodes[arrow.start].outputs
        edge_type = tensors(name)[arrow.tensor].edge_type if arrow.tensor in tensors(name) else None
        assert arrow.edge_type == edge_type


def test_a_section_names_the_nodes_that_onnxruntime_runs() -> None:
    [section] = [node for node in shown("section").program.nodes if node.kind == "section"]
    foreign = reported("section")["foreign"]
    assert section.notes == tuple(f"{n['op']} {n['node']}: {n['reason']}" for n in foreign)
    assert section.kernel is None and section.operators == ("Loop, Relu",)


def test_a_fill_is_a_node_between_the_writer_and_the_reader(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    net = Net(x=(1, 6, 8, 8))
    graph = net.done(net.over_channels("s", "sum", net.unary("a", "exp", "x")))
    natural = lambda c: c.node == "n_a" and padded(c) and c.pad_value is None  # noqa: E731
    favour(monkeypatch, lambda c: over_padding(c) or natural(c))
    program = shown_model(compiled_model(graph)).program
    [place] = [place for place, node in enumerate(program.nodes) if node.kind == "fill"]
    assert program.nodes[place].kernel is not None and program.nodes[place].because
    before = [program.nodes[a.start].name for a in program.arrows if a.end == place]
    after = [program.nodes[a.end].name for a in program.arrows if a.start == place]
    assert (before, after) == (["n_a"], ["n_s"])


def test_each_of_several_copies_of_a_tensor_has_its_own_kernel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    favour(monkeypatch, lambda c: over_padding(c) or (c.node == "n_a" and padded(c)))
    found = compiled_model(two_demands())
    calls = [(call.name, step.symbol) for call, step in found.lowered.calls if not call.prepare]
    copies = [(name, symbol) for name, symbol in calls if name.endswith(" a")]
    nodes = [node for node in shown_model(found).program.nodes if node.name.endswith(" a")]
    assert [(node.name, node.kernel) for node in nodes] == copies
    assert max(Counter(name for name, _ in copies).values()) > 1
    assert len(set(copies)) == len(copies)


def test_a_constant_inside_a_concat_is_a_copy() -> None:
    model = shown("odd")
    copies = [place for place, node in enumerate(model.program.nodes) if node.kind == "copy"]
    for place in copies:
        readers = [
            model.program.nodes[a.end].kind for a in model.program.arrows if a.start == place
        ]
        assert readers == ["view"]


def test_the_values_are_plain_and_the_same_each_time() -> None:
    once = json.dumps(to_builtins(shown("shuffle")))
    assert json.dumps(to_builtins(without_texts(compile_for("shuffle")))) == once
