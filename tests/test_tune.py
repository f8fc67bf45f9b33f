"""The timing table: its file, its keys, and what it changes in a plan."""

from __future__ import annotations

import json
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.codegen import host_target
from graphflow.cost import (
    NO_TIMINGS,
    CopyPrices,
    FormPrices,
    Timing,
    Timings,
    TimingTable,
    conversion_key,
    definition_key,
    form_key,
    kernel_seconds,
)
from graphflow.errors import InvalidTimings
from graphflow.flow import LayoutPlan, forms_of, plan_layouts
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, fuse
from graphflow.kernels.recipes import Alternative, View
from graphflow.layout import families
from graphflow.models import Builder
from graphflow.options import default_timings
from graphflow.tir import Literal

TARGET = host_target()
SECONDS = 1e-4


def model() -> onnx.ModelProto:
    """Two convolutions with something between them that both could have otherwise."""
    build = Builder(seed=3)
    x = build.relu(build.conv(build.input("x", (1, 10, 9, 9)), 13, 3, pads=[1, 1, 1, 1]))
    build.output(build.conv(build.node("MaxPool", [x], kernel_shape=[2, 2]), 10, 1))
    return build.model()


def graph() -> OperatorGraph:
    return fuse(canonicalize(import_model(model())))


def kernels(found: OperatorGraph) -> Iterator[tuple[str, Alternative, str]]:
    """Every executed form of every node, with its key."""
    for name, forms in forms_of(found, TARGET).of_node.items():
        definition = definition_key(found.node(name).func)
        for form in forms:
            if not isinstance(form.recipe, View):
                yield name, form, form_key(definition, form, None)


def conversions() -> list[str]:
    """The keys of conversions between all layouts of one tensor."""
    layouts = [family.instantiate((1, 10, 4, 4)) for family in families(4, TARGET.lanes())]
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
    code = "import test_tune as t;print(*(k for _, _, k in t.kernels(t.graph())), *t.conversions())"
    for seed in ("1", "2"):
        path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": path}
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.split() == keys


def test_keys_tell_forms_apart_and_names_do_not_matter() -> None:
    found = graph()
    keys = [(name, key) for name, _, key in kernels(found)]
    assert len(set(keys)) == len(keys)
    node = found.nodes[0]
    assert definition_key(node.func) == definition_key(replace(node.func, name="another"))
    form = next(form for name, form, _ in kernels(found) if name == node.name)
    definition = definition_key(node.func)
    pads = (None, 0.0, -0.0, float("-inf"))
    assert len({form_key(definition, form, pad) for pad in pads}) == len(pads)


# The file ---------------------------------------------------------------------------------------


def test_what_is_added_is_there_again(table: TimingTable) -> None:
    table.add([Timing("a", 1e-6, 1e-3, "one")])
    table.add([Timing("b", 2e-6, 1e-3, 'two "µs"'), Timing("a", 3e-6, 1e-3, "one again")])
    again = TimingTable(table.path, TARGET, 2)
    assert again.known == table.known == {"a": 3e-6, "b": 2e-6}
    lines = table.path.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["what"] for line in lines] == ["one", 'two "µs"', "one again"]


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


def write_many(path: Path, name: str) -> None:
    table = TimingTable(path, TARGET, 2)
    for k in range(50):
        table.add([Timing(f"{name}{k}", 1e-6 * (k + 1), 1e-3, "x" * 500)])


def test_processes_do_not_disturb_each_other(table: TimingTable) -> None:
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=write_many, args=(table.path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert len(TimingTable(table.path, TARGET, 2).known) == 100


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
    forms = [form for name, form, _ in kernels(found) if name == node]
    keys = [key for name, _, key in kernels(found) if name == node]
    estimates = [kernel_seconds(form.work, TARGET, 2) for form in forms]
    func = found.node(node).func
    plain = FormPrices(func, forms, (0.0,), TARGET, 2, NO_TIMINGS)
    assert [plain.price(form, None).seconds for form in forms] == estimates
    timings = Timings({keys[0]: 3 * estimates[0]})
    prices = FormPrices(func, forms, (0.0,), TARGET, 2, timings)
    assert prices.price(forms[0], None) == replace(prices.price(forms[0], None), measured=True)
    assert prices.price(forms[0], None).seconds == 3 * estimates[0]
    scaled = prices.price(forms[1], None)
    assert not scaled.measured and scaled.seconds == pytest.approx(3 * estimates[1])
    hopeful = FormPrices(func, forms, (0.0,), TARGET, 2, replace(timings, optimism=2.0))
    assert hopeful.price(forms[1], None).seconds == pytest.approx(1.5 * estimates[1])
    assert hopeful.price(forms[0], None).seconds == 3 * estimates[0]
    padded = prices.price(forms[0], 0.0)  # follows the same form without the constant
    assert not padded.measured and padded.seconds == pytest.approx(3 * estimates[0], rel=0.05)


def test_what_a_conversion_costs_depends_on_where_it_starts() -> None:
    layouts = [f.instantiate((1, 10, 4, 4)) for f in families(4, TARGET.lanes())]
    a, b, c = [layout for layout in layouts if layout is not None][:3]
    timings = Timings({conversion_key(a, c, "float32", None): SECONDS})
    prices = CopyPrices("float32", (a, b), ((c, None), (a, None)), TARGET, 2, timings)
    plain = CopyPrices("float32", (a, b), ((c, None), (a, None)), TARGET, 2, NO_TIMINGS)
    assert prices.conversion(a, c, None).seconds == SECONDS
    assert prices.conversion(a, c, None).measured
    assert not prices.conversion(b, c, None).measured
    ratio = SECONDS / plain.conversion(a, c, None).seconds
    scaled = ratio * plain.conversion(b, a, None).seconds
    assert prices.conversion(b, a, None).seconds == pytest.approx(scaled)


# Plans ------------------------------------------------------------------------------------------


def against(found: OperatorGraph, plan: LayoutPlan) -> Timings:
    """All forms measured, those of a plan as slow."""
    chosen = {name: choice.alternative.name for name, choice in plan.choices.items()}
    return Timings(
        {key: SECONDS * (1 + (form.name == chosen[name])) for name, form, key in kernels(found)}
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
        assert choice.alternative.name != plain.choices[name].alternative.name
    assert plan.measured_prices == len(plan.choices)
    again = plan_layouts(found, TARGET, 2, timings=timings)
    assert [c.alternative.name for c in again.choices.values()] == [
        c.alternative.name for c in plan.choices.values()
    ]
    assert again.seconds == plan.seconds


def test_a_compile_uses_the_table_that_it_is_given(table: TimingTable) -> None:
    with pytest.raises(InvalidTimings, match="graphflow tune"):
        gf.compile(model(), threads=2, options=gf.Options(timings=str(table.path)))
    found = graph()
    known = against(found, plan_layouts(found, TARGET, 2)).known
    table.add(Timing(key, seconds, 1e-3, "invented") for key, seconds in known.items())
    exe = gf.compile(model(), threads=2, options=gf.Options(timings=str(table.path)))
    plain = gf.compile(model(), threads=2)
    assert exe.report()["summary"]["measured_prices"] == 3
    assert plain.report()["summary"]["measured_prices"] == 0
    assert "of" in exe.decisions().summary and "prices measured" in exe.decisions().summary
    assert "prices measured" not in plain.decisions().summary
    output = exe.outputs[0].name
    assert "as measured" in exe.explain(output) and "as estimated" in plain.explain(output)
    array = np.random.default_rng(0).standard_normal((1, 10, 9, 9)).astype(np.float32)
    np.testing.assert_allclose(exe(array), plain(array), rtol=1e-4, atol=1e-5)
