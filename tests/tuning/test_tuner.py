"""Tests of tuning: the file of the timing table, its keys, and its effect on plans."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.errors import CodegenError, InvalidModel, InvalidTimings
from graphflow.base.fields import replace
from graphflow.base.options import default_timings
from graphflow.base.target import Target
from graphflow.base.trace import Trace
from graphflow.baselines import baseline_plans, end_to_end_keys, inner_values, plan_groups
from graphflow.bench import Protocol
from graphflow.cli import main
from graphflow.codegen import host_target
from graphflow.cost import CostModel, Timing, Timings, TimingTable
from graphflow.flow import find_plan, plan_layouts, variants_of
from graphflow.flow.candidates.pricing import CopyPrices, VariantPrices
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, fuse_groups
from graphflow.kernels.recipes import (
    KernelVariant,
    View,
    conversion_key,
    definition_key,
    fill_key,
    memory_key,
    variant_key,
)
from graphflow.layout import Family, fact_of, families, row_major
from graphflow.models import ModelBuilder
from graphflow.plan import LayoutPlan, edge_type_of
from graphflow.processes.workers import Workers
from graphflow.tir import Literal
from graphflow.tuning import Tuned, harness, tuner
from graphflow.tuning.measurement_candidates import CopyToTime
from graphflow.tuning.subjects import subjects
from support.paths import TESTS

TARGET = host_target()
SECONDS = 1e-4


def model() -> onnx.ModelProto:
    """Two convolutions with something between them that both could have otherwise."""
    build = ModelBuilder(seed=3)
    x = build.relu(build.conv(build.input("x", (1, 10, 9, 9)), 13, 3, pads=[1, 1, 1, 1]))
    build.output(build.conv(build.node("MaxPool", [x], kernel_shape=[2, 2]), 10, 1))
    return build.model()


def graph() -> OperatorGraph:
    return fuse_groups(canonicalize(import_model(model())))


def kernels(found: OperatorGraph) -> Iterator[tuple[str, KernelVariant, str]]:
    """Every executed variant of every node, with its key."""
    for name, variants in variants_of(found, TARGET).of_node.items():
        definition = definition_key(found.node(name).func)
        for variant in variants:
            if not isinstance(variant.recipe, View):
                yield name, variant, variant_key(definition, variant, None)


def conversions() -> list[str]:
    """The keys of conversions between all layouts of one tensor."""
    layouts = [family.instantiate((1, 10, 4, 4)) for family in families(4, TARGET.lanes("float32"))]
    return [
        conversion_key(a, b, "float32", fill)
        for a in layouts
        for b in layouts
        for fill in (None, Literal(0.0, "float32"))
        if a is not None and b is not None
    ]


@pytest.fixture
def table(tmp_path: Path) -> TimingTable:
    return TimingTable(tmp_path / "new" / "timings.jsonl", TARGET, 2)


# Keys -------------------------------------------------------------------------------------------


def test_keys_are_the_same_in_every_process() -> None:
    keys = [key for _, _, key in kernels(graph())]
    keys += conversions()
    code = "import tuning.test_tuner as t\n"
    code += "print(*(k for _, _, k in t.kernels(t.graph())), *t.conversions())"
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONHASHSEED": "1", "PYTHONPATH": path}
    command = [sys.executable, "-c", code]
    assert subprocess.check_output(command, env=environment, text=True).split() == keys


def test_keys_tell_variants_apart_and_names_do_not_matter() -> None:
    found = graph()
    keys = [(name, key) for name, _, key in kernels(found)]
    assert len(set(keys)) == len(keys)
    node = found.nodes[0]
    assert definition_key(node.func) == definition_key(replace(node.func, name="another"))
    variant = next(variant for name, variant, _ in kernels(found) if name == node.name)
    definition = definition_key(node.func)
    pads = (None, 0.0, -0.0, float("-inf"))
    assert len({variant_key(definition, variant, pad) for pad in pads}) == len(pads)


# The file ---------------------------------------------------------------------------------------


def test_what_is_added_is_there_again(table: TimingTable) -> None:
    table.add([Timing("a", 1e-6, 1e-3, "one")])
    table.add([Timing("b", 2e-6, 1e-3, 'two "µs"'), Timing("a", 3e-6, 1e-3, "one again")])
    again = TimingTable(table.path, TARGET, 2)
    assert again.known == table.known == {"a": 2e-6, "b": 2e-6}  # of two, the one between them
    assert again.timed_less(2) == {"b"} and not again.timed_less(1)
    table.add([Timing("a", 9e-6, 1e-3, "disturbed"), Timing("a", 3e-6, 1e-3, "as before")])
    assert table.known["a"] == 3e-6
    lines = table.path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["what"] for line in lines[:3]] == ["one", 'two "µs"', "one again"]


def test_what_was_measured_while_the_reference_was_slow_counts_less(table: TimingTable) -> None:
    table.add([Timing("a", 4e-6, 2e-3, "one"), Timing("b", 3e-6, 1e-3, "two")])
    assert TimingTable(table.path, TARGET, 2).timings().known == {"a": 2e-6, "b": 3e-6}


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_line_that_was_cut_off_is_dropped(table: TimingTable, cut: int) -> None:
    table.add([Timing("a", 1e-6, 1e-3, "one"), Timing("b", 2e-6, 1e-3, "two")])
    whole = table.path.read_bytes()
    table.path.write_bytes(whole[:-cut])
    again = TimingTable(table.path, TARGET, 2)
    assert again.known == {"a": 1e-6}
    again.add([Timing("c", 3e-6, 1e-3, "three")])
    assert TimingTable(table.path, TARGET, 2).known == {"a": 1e-6, "c": 3e-6}


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line.replace(b"1e-06", b"1e-07"),
        lambda line: line[:40] + line[50:],
        lambda line: b"\x00\xff" + line,
        lambda line: b"",
        lambda line: b"[]",
        lambda line: line.replace(b'"format":1', b'"format":2'),
    ],
)
def test_a_damaged_line_is_refused(table: TimingTable, damage: object) -> None:
    assert callable(damage)
    table.add([Timing("a", 1e-6, 1e-3, "one"), Timing("b", 2e-6, 1e-3, "two")])
    first, rest = table.path.read_bytes().split(b"\n", 1)
    table.path.write_bytes(damage(first) + b"\n" + rest)
    with pytest.raises(InvalidTimings, match=r"line 1 of the timing table .* damaged: .* delete"):
        TimingTable(table.path, TARGET, 2)


def test_a_folder_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(InvalidTimings, match="cannot read timings"):
        TimingTable(tmp_path, TARGET, 2)
    (tmp_path / "file").touch()
    with pytest.raises(InvalidTimings, match="cannot read timings"):
        TimingTable(tmp_path / "file" / "timings.jsonl", TARGET, 2)
    (tmp_path / "closed").mkdir(mode=0o500)
    if os.geteuid():  # root may write anywhere
        with pytest.raises(InvalidTimings, match="cannot write timings"):
            TimingTable(tmp_path / "closed" / "t", TARGET, 2).add([Timing("a", 1.0, 1e-3, "")])


WRITE_MANY = """
import sys
from graphflow.cost import Timing, TimingTable
from graphflow.base.target import Target
table = TimingTable(sys.argv[1], Target("a", "a", "", 32, 16), 2)
for k in range(100):
    table.add([Timing(f"{sys.argv[2]}{k}", 1e-6 * (k + 1), 1e-3, "x" * 500)])
"""


def test_processes_do_not_disturb_each_other(table: TimingTable) -> None:
    command = [sys.executable, "-c", WRITE_MANY, str(table.path)]
    writers = [subprocess.Popen([*command, name]) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert len(TimingTable(table.path, Target("a", "a", "", 32, 16), 2).known) == 200


def test_timings_of_another_processor_are_not_used(table: TimingTable) -> None:
    table.add([Timing("a", 1e-6, 1e-3, "one")])
    for target, threads in ((replace(TARGET, cpu="another"), 2), (TARGET, 3)):
        other = TimingTable(table.path, target, threads)
        assert not other.known
        with pytest.raises(InvalidTimings, match=r"no timings for .* its 1 timings are for others"):
            other.timings()


def test_the_default_table_is_in_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    assert default_timings() == "/somewhere/graphflow/timings.jsonl"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert default_timings() == "/home/me/.cache/graphflow/timings.jsonl"


# Prices -----------------------------------------------------------------------------------------


def test_estimates_are_scaled_by_what_was_measured() -> None:
    found = graph()
    node = found.nodes[0].name
    variants = [variant for name, variant, _ in kernels(found) if name == node]
    keys = [key for name, _, key in kernels(found) if name == node]
    cost = CostModel(TARGET, 2)
    estimates = [cost.kernel_seconds(variant.work) for variant in variants]
    func = found.node(node).func
    plain = VariantPrices(func, variants, (0.0,), cost)
    assert [plain.price(variant, None).seconds for variant in variants] == estimates
    timings = Timings({keys[0]: 3 * estimates[0]})
    prices = VariantPrices(func, variants, (0.0,), replace(cost, timings=timings))
    assert prices.price(variants[0], None) == replace(
        prices.price(variants[0], None), measured=True
    )
    assert prices.price(variants[0], None).seconds == 3 * estimates[0]
    scaled = prices.price(variants[1], None)
    assert not scaled.measured and scaled.seconds == pytest.approx(3 * estimates[1])
    optimist = replace(cost, timings=replace(timings, optimism=2.0))
    hopeful = VariantPrices(func, variants, (0.0,), optimist)
    assert hopeful.price(variants[1], None).seconds == pytest.approx(1.5 * estimates[1])
    assert hopeful.price(variants[0], None).seconds == 3 * estimates[0]
    padded = prices.price(variants[0], 0.0)  # follows the same variant without the constant
    assert not padded.measured and padded.seconds == pytest.approx(3 * estimates[0], rel=0.05)


def test_what_a_conversion_costs_depends_on_where_it_starts() -> None:
    layouts = [f.instantiate((1, 10, 4, 4)) for f in families(4, TARGET.lanes("float32"))]
    a, b, c = [layout for layout in layouts if layout is not None][:3]
    timings = Timings({conversion_key(a, c, "float32", None): SECONDS})
    prices = CopyPrices("float32", (a, b), ((c, None), (a, None)), CostModel(TARGET, 2, timings))
    plain = CopyPrices("float32", (a, b), ((c, None), (a, None)), CostModel(TARGET, 2))
    assert prices.conversion(a, c, None).seconds == SECONDS
    assert prices.conversion(a, c, None).measured
    assert not prices.conversion(b, c, None).measured
    ratio = SECONDS / plain.conversion(a, c, None).seconds
    scaled = ratio * plain.conversion(b, a, None).seconds
    assert prices.conversion(b, a, None).seconds == pytest.approx(scaled)


# Plans ------------------------------------------------------------------------------------------


def against(found: OperatorGraph, plan: LayoutPlan) -> Timings:
    """All variants measured, those of a plan as slow."""
    chosen = {name: choice.variant.name for name, choice in plan.choices.items()}
    return Timings(
        {
            key: SECONDS * (1 + (variant.name == chosen[name]))
            for name, variant, key in kernels(found)
        }
    )


def test_measured_prices_override_estimates_and_change_the_plan() -> None:
    found = graph()
    plain = plan_layouts(found, TARGET, 2)
    assert plain.measured_prices == 0 and plain.estimated_prices > 0
    assert all("estimated" in choice.because for choice in plain.choices.values())
    timings = against(found, plain)
    plan = plan_layouts(found, TARGET, 2, timings=timings)
    for name, choice in plan.choices.items():
        assert choice.measured and "as measured" in choice.because
        assert choice.seconds == pytest.approx(SECONDS, rel=0.02)
        assert choice.variant.name != plain.choices[name].variant.name
    assert plan.measured_prices == len(plan.choices)
    again = plan_layouts(found, TARGET, 2, timings=timings)
    assert [c.variant.name for c in again.choices.values()] == [
        c.variant.name for c in plan.choices.values()
    ]
    assert again.seconds == plan.seconds


# Plans as a whole -------------------------------------------------------------------------------

FAMILIES = families(4, TARGET.lanes("float32"))


def whole_prices(faster: Family, by: float) -> dict[str, float]:
    """That the plan with a family took `by` of what the plan took whose parts take least."""
    own, others = end_to_end_keys(find_plan(graph(), CostModel(TARGET, 2)))
    return {own: SECONDS, others[faster]: by * SECONDS}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_plan_that_was_faster_as_a_whole_is_taken(family: Family) -> None:
    free = plan_groups(graph(), TARGET, 2).plan
    rival = dict(baseline_plans(find_plan(graph(), CostModel(TARGET, 2)), graph())).get(family)
    found, plan, _ = plan_groups(graph(), TARGET, 2, timings=Timings(whole_prices(family, 0.8)))
    assert plan.end_to_end is not None and plan.pinned == () and plan.unpinned is None
    assert (plan.end_to_end.family, plan.end_to_end.parts) == (family.name, free.seconds)
    assert plan.end_to_end.seconds / plan.end_to_end.instead == pytest.approx(0.8)
    assert "20.0 % less" in str(plan.end_to_end)
    for value in inner_values(found, 4):
        wanted = family.instantiate(found.values[value].shape)
        assert wanted is not None
        assert memory_key(plan.edges[value].edge_type.layout) == memory_key(wanted)
    if rival is not None:
        assert rival.plan().choices == plan.choices


def test_whole_plans_are_compared_by_the_clock_only_where_the_table_says_so() -> None:
    free = plan_groups(graph(), TARGET, 2).plan
    family = FAMILIES[0]
    assert memory_key(free.edges[inner_values(graph(), 4)[0]].edge_type.layout) != memory_key(
        row_major(graph().values[inner_values(graph(), 4)[0]].shape)
    )
    slower = Timings(whole_prices(family, 1.1))
    assert plan_groups(graph(), TARGET, 2, timings=slower).plan == free
    stale = {key: s for key, s in whole_prices(family, 0.8).items() if s != SECONDS}
    assert plan_groups(graph(), TARGET, 2, timings=Timings(stale)).plan == free
    pins = {inner_values(graph(), 4)[0]: FAMILIES[1].name}
    faster = Timings(whole_prices(family, 0.8))
    assert plan_groups(graph(), TARGET, 2, pins, faster).plan.end_to_end is None


def test_the_reason_of_a_whole_plan_is_told(table: TimingTable) -> None:
    for key, seconds in whole_prices(FAMILIES[0], 0.8).items():
        table.add([Timing(key, seconds, SECONDS, "a plan")])
    exe = gf.compile(model(), options=gf.Options(threads=2, timings=str(table.path)))
    whole = exe.report()["whole"]
    assert whole["family"] == FAMILIES[0].name and "20.0 % less" in whole["because"]
    assert whole["because"] in exe.explain(exe.outputs[0].name)
    assert gf.compile(model(), threads=2).report()["whole"] is None


def test_rivals_decide_otherwise_and_each_once() -> None:
    found = find_plan(graph(), CostModel(TARGET, 2))
    plans = [found, *(planned for _, planned in baseline_plans(found, graph()))]
    chosen = [[c.variant for c in p.problem.best.candidates.values()] for p in plans]
    assert len(plans) > 1 and all(chosen.count(taken) == 1 for taken in chosen)
    own, others = end_to_end_keys(found)
    assert len({own, *others.values()}) == 1 + len(FAMILIES)
    assert end_to_end_keys(plans[1])[0] != own


def test_a_compile_uses_the_table_that_it_is_given(table: TimingTable) -> None:
    with pytest.raises(InvalidTimings, match="graphflow tune"):
        gf.compile(model(), threads=2, options=gf.Options(timings=str(table.path)))
    found = graph()
    known = against(found, plan_layouts(found, TARGET, 2)).known
    table.add(Timing(key, seconds, 1e-3, "invented") for key, seconds in known.items())
    exe = gf.compile(model(), threads=2, options=gf.Options(timings=str(table.path)))
    plain = gf.compile(model(), threads=2)
    assert exe.report()["summary"]["measured_prices"] == 2
    assert plain.report()["summary"]["measured_prices"] == 0
    assert "of" in exe.decisions().summary and "prices measured" in exe.decisions().summary
    assert "prices measured" not in plain.decisions().summary
    output = exe.outputs[0].name
    assert "as measured" in exe.explain(output) and "as estimated" in plain.explain(output)
    array = np.random.default_rng(0).standard_normal((1, 10, 9, 9)).astype(np.float32)
    np.testing.assert_allclose(exe(array), plain(array), rtol=1e-4, atol=1e-5)


# Tuning -----------------------------------------------------------------------------------------

QUICK = Protocol(blocks=1, idle=0.0, discarded=0.0, measured=0.0)
"""What is measured does not matter here."""


def quick(path: Path, **arguments: Any) -> Tuned:
    return gf.tune(model(), threads=2, timings=str(path), protocol=QUICK, **arguments)


def test_tuning_leaves_nothing_that_matters_to_estimates(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    found = quick(path)
    assert found.settled and found.path == path and found.known == 0
    lines = path.read_text().splitlines()
    assert found.timed == len(lines) > 3
    named = [what for line in lines if (what := json.loads(line)["what"]).startswith("the plan")]
    assert named[0] == "the plan with the least sum of prices" and len(named) > 1
    options = gf.Options(threads=2, timings=str(path))
    first, second = (gf.compile(model(), options=options) for _ in range(2))
    assert first.report() == second.report()
    summary = first.report()["summary"]
    # Three nodes run; whether conversions do depends on what was measured.
    assert summary["estimated_prices"] == 0 and summary["measured_prices"] >= 3
    assert first.compiled.plan.seconds == pytest.approx(found.seconds)


def test_what_is_in_the_table_is_not_timed_again(tmp_path: Path) -> None:
    path = tmp_path / "timings.jsonl"
    found = quick(path)
    before = path.read_bytes()
    again = quick(path)
    assert again.timed == 0 and again.rounds == 0 and again.settled
    assert again.known == len(TimingTable(path, TARGET, 2).known) and again.seconds == found.seconds
    assert path.read_bytes() == before
    assert f"{again.known} were known" in str(again)


def test_an_interrupted_tuning_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "timings.jsonl"
    monkeypatch.setattr(harness, "BATCH", 2)

    def interrupt(done: int, total: int) -> None:
        if said[-1].endswith("timing"):
            raise KeyboardInterrupt

    said: list[str] = []
    with pytest.raises(KeyboardInterrupt):
        quick(path, progress=said.append, counting=interrupt)
    assert len(TimingTable(path, TARGET, 2).known) == 2
    found = quick(path)
    assert found.settled and found.known == 2 and found.timed > 2


def test_rounds_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuner, "MOST_ROUNDS", 1)
    monkeypatch.setattr(tuner, "MOST_A_ROUND", 3)
    found = quick(tmp_path / "timings.jsonl")
    assert (found.timed, found.rounds, found.settled) == (3, 1, False)
    assert "tune again" in str(found)


def test_only_what_this_processor_runs_is_timed(tmp_path: Path) -> None:
    foreign = replace(TARGET, features=TARGET.features + ",+nosuchthing")
    with pytest.raises(CodegenError, match="nosuchthing"):
        quick(tmp_path / "timings.jsonl", target=foreign)
    assert not list(tmp_path.iterdir())


def test_shapes_have_to_be_known(tmp_path: Path) -> None:
    build = ModelBuilder(seed=1)
    build.output(build.relu(build.input("x", ("N", 4))))
    with pytest.raises(InvalidModel, match="x are symbolic"):
        gf.tune(build.model(), timings=str(tmp_path / "t"), protocol=QUICK)
    found = gf.tune(
        build.model(), input_shapes={"x": (2, 4)}, timings=str(tmp_path / "t"), protocol=QUICK
    )
    assert found.settled and found.timed > 0


def test_constants_integers_and_fills_can_be_timed(tmp_path: Path) -> None:
    """Whatever a plan may hold: here a table look-up by integers and an intermediate in memory."""
    build = ModelBuilder(seed=1)
    x = build.input("x", (1, 12, 5, 5))
    indices = build.node("ArgMax", [x], axis=1, keepdims=1)
    softmax = build.node("Softmax", [x], axis=1)
    build.output(build.node("Add", [softmax, build.node("Cast", [indices], to=1)]))
    path = tmp_path / "t"
    assert gf.tune(build.model(), timings=str(path), protocol=QUICK).settled
    graph = fuse_groups(canonicalize(import_model(build.model())))
    layout = next(
        layout
        for family in families(4, TARGET.lanes("float32"))
        if (layout := family.instantiate((1, 12, 5, 5))) is not None and layout.is_padded
    )
    edge_type = edge_type_of(layout, fact_of(0.0, "float32"))
    fill = CopyToTime("x", edge_type_of(layout), edge_type, "fill", 1e-6)
    (subject,) = subjects(graph, [fill]).values()
    place = harness.Harness(TARGET, 2, QUICK)
    with Workers() as workers:
        kernels = place.compiled([subject], Trace(gf.Options()), workers)
    ((timing,),) = place.times([subject], kernels)
    assert timing.key == fill_key(layout, "float32", Literal(0.0, "float32"))
    assert timing.seconds > 0 and timing.reference > 0


def test_the_command_tunes_and_the_others_use_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(tuner, "PROTOCOL", QUICK)
    path = str(tmp_path / "small.onnx")
    onnx.save(model(), path)
    assert main(["inspect", path, "--timings"]) == 1
    assert "graphflow tune" in capsys.readouterr().err
    assert main(["tune", path]) == 0
    printed = capsys.readouterr().out
    assert "timings in" in printed and default_timings() in printed
    assert main(["inspect", path, "--json", "--timings"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"]["estimated_prices"] == 0
    saved = str(tmp_path / "small.gfx")
    assert main(["compile", path, "-o", saved, "--timings", default_timings()]) == 0
    capsys.readouterr()
    assert main(["explain", saved, gf.load(saved).outputs[0].name]) == 0
    assert "measured" in capsys.readouterr().out
    assert main(["run", saved, "--timings"]) == 1
    assert "--timings decides how a model is compiled" in capsys.readouterr().err
