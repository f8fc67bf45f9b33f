"""Kernels that a user scheduled, in a graph: stages lifted out, reflowed, cancelled, and run."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from placing import interpret_physical

from graphflow.codegen import host_target, make_object
from graphflow.convert import apply_plan, poison_padding
from graphflow.flow import LayoutPlan, plan_layouts
from graphflow.graph import Node, OperatorGraph, Value, fuse, interpret_graph
from graphflow.layout import Layout, blocked
from graphflow.lower import assemble, lower
from graphflow.options import Options
from graphflow.runtime import Program
from graphflow.schedule import (
    Schedule,
    cache_read,
    cache_write,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    state_padding,
    transform_layout,
)
from graphflow.target import Target
from graphflow.tir import PrimFunc, parse
from graphflow.trace import Trace

Golden = Callable[[str, str], None]
TARGET = Target("eight lanes", "", "", vector_bytes=32, vector_registers=16)
"""Its own data alone: plans do not depend on the machine that runs the tests."""
PACKED = blocked((14,), 0, 4)
"""[14] as [4, 4]: two padding elements at the end."""


def elementwise(name: str, value: str, dtype: str = "i32") -> PrimFunc:
    return parse(
        f"""
        @primfunc
        def {name}(x: {dtype}[14], y: out[{dtype}[14]]):
            with block("compute"):
                for i in serial(0, 14):
                    y[i] = {value}
        """
    )


def packed(
    func: PrimFunc, pad_in: Any, pad_out: Any, over: bool = True, layout: Layout = PACKED
) -> Schedule:
    """Input and output cached, the caches packed and padded; if `over`, computed over all of it."""
    s = Schedule.of(func).apply(cache_read, "x", "xc").apply(cache_write, "y", "yc")
    s = s.apply(transform_layout, "xc", layout, pad_in)
    s = s.apply(transform_layout, "yc", layout, pad_out)
    if over:
        s = s.apply(sequential_buffer_access, "compute", "yc", ("io", "ii"))
        s = s.apply(remove_branching_through_overcompute, "compute")
    return s


def chain(dtype: str, *kernels: PrimFunc) -> OperatorGraph:
    """x → kernels one after the other → y; between them v0, v1 …; nodes by their position."""
    graph = OperatorGraph()
    shape = kernels[0].inputs[0].shape
    graph.add_value(Value("x", dtype, shape))
    graph.set_inputs(["x"])
    last = "x"
    for k, func in enumerate(kernels):
        name = "y" if k + 1 == len(kernels) else f"v{k}"
        graph.add(Node(f"{func.name}{k}", func.name, func, (last,), (name,)))
        last = name
    graph.set_outputs(["y"])
    return graph


def describe(plan: LayoutPlan) -> str:
    """Everything that was decided, without prices."""
    lines = [
        f"{c.node}: {c.alternative.name}"
        + ("" if c.pad_value is None else f", padding written as {c.pad_value}")
        for c in plan.choices.values()
    ]
    lines += [f"  {name} = {edge.label.describe()}" for name, edge in plan.edges.items()]
    for made in plan.conversions:
        readers = ", ".join(f"{node or 'output'}.{k}" for node, k in made.consumers)
        lines.append(
            f"{made.kind} {made.value}: {made.source.describe()} -> {made.target.describe()} "
            f"for {readers}"
        )
    lines += [f"cancelled on {c.value} to {c.consumer}" for c in plan.cancelled]
    lines += [f"refused on {r.value} to {r.consumer}: {r.reason}; {r.repair}" for r in plan.refused]
    return "\n".join(lines) + "\n"


def run(graph: OperatorGraph, plan: LayoutPlan, target: Target, **arrays: Any) -> dict[str, Any]:
    """The outputs: natively, as is and poisoned, interpreted, and by the graph's own meaning."""
    physical = apply_plan(graph, plan)
    expected = interpret_graph(graph, arrays)
    poisoned = poison_padding(graph, plan, physical)
    for found in (physical, poisoned):
        for poison in (-42, 77) if found is poisoned else (0,):
            poisons = {v.name: np.array(poison, v.dtype) for v in found.poisons}
            given = {**arrays, **poisons}
            got = interpret_physical(graph, found, target, given)
            assert_same(got, expected)
            lowered = lower(found, host_target())
            trace = Trace(Options())
            objects = {
                symbol: make_object((kernel.func, symbol, host_target()), trace)
                for symbol, kernel in lowered.kernels.items()
            }
            program = Program(assemble(graph, lowered, objects), 2)
            assert_same(program.run(given), expected)
    return expected


def assert_same(got: Any, expected: Any) -> None:
    for name, array in expected.items():
        np.testing.assert_allclose(got[name], array, rtol=1e-6)


GROW = elementwise("grow", "i32(2) * x[i]")
ADDONE = elementwise("addone", "x[i] + i32(1)")
X = np.arange(14, dtype="int32") * 3 - 5


# D1: lifting, reflowing, and only the padding is fixed ------------------------------------------


def growing(middle: PrimFunc, dtype: str = "i32") -> OperatorGraph:
    """grow → middle → grow, where grow can only be taken as it was scheduled."""
    grow = elementwise("grow", f"{dtype}(2{'' if dtype == 'i32' else '.0'}) * x[i]", dtype)
    graph = chain({"i32": "int32", "f32": "float32"}[dtype], grow, middle, grow)
    zero = 0 if dtype == "i32" else 0.0
    for name in ("grow0", "grow2"):
        graph.offer(name, packed(grow, zero, "undef").apply(state_padding, "y", zero), only=True)
    return fuse(graph)


@pytest.mark.parametrize(
    ("name", "middle"),
    [("addone", ADDONE), ("exp", elementwise("exp", "exp(x[i])", "f32"))],
)
def test_the_inner_pair_goes_and_only_the_padding_is_fixed(
    name: str, middle: PrimFunc, golden: Golden
) -> None:
    dtype = "i32" if name == "addone" else "f32"
    graph = growing(middle, dtype)
    plan = plan_layouts(graph, TARGET, 1)
    golden(f"rfc_grow_{name}", describe(plan))
    assert [c.value for c in plan.conversions] == ["x", "y"]
    x = X if dtype == "i32" else (X / 8).astype("float32")
    run(graph, plan, TARGET, x=x)


# D2: six forms of one kernel, and which pairs of neighbours cancel for each ----------------------

ONE = 1
FORMS = {
    "1 no stages": Schedule.of(ADDONE),
    "2 padded, padding untouched": packed(ADDONE, None, None, over=False),
    "3 known pad in, padding of the output untouched": packed(ADDONE, 0, None, over=False),
    "4 undef in and out": packed(ADDONE, "undef", "undef"),
    "5 known pad in, derived fact out": packed(ADDONE, 0, "undef").apply(state_padding, "y", ONE),
    "6 known pad in, no fact out": packed(ADDONE, 0, "undef"),
}
BEFORE = {
    "leaves 0": packed(GROW, 0, "undef").apply(state_padding, "y", 0),
    "leaves undef": packed(GROW, 0, "undef"),
}
AFTER = {
    "wants 0": packed(GROW, 0, "undef"),
    "wants 1": packed(GROW, ONE, "undef"),
    "wants nothing": packed(GROW, "undef", "undef"),
}


def between(before: Schedule, after: Schedule, *forms: Schedule, only: bool) -> OperatorGraph:
    graph = chain("int32", GROW, ADDONE, GROW)
    graph.offer("grow0", before, only=True)
    graph.offer("addone1", *forms, only=only)
    graph.offer("grow2", after, only=True)
    return graph


def pair(plan: LayoutPlan, value: str, consumer: str) -> str:
    """What became of the crop and the pad that meet on an edge, and why."""
    made = [c for c in plan.conversions if c.value == value]
    (maker,) = [c for c in plan.choices.values() if plan.edges[value].decided_by.startswith(c.node)]
    if maker.pad_value is not None:
        text = f"cancelled, because {maker.node} also writes {maker.pad_value}"
    elif made:
        text = f"{made[0].kind} to {made[0].target.describe()}"
    else:
        text = "cancelled"
    reasons = [r.reason for r in plan.refused if (r.value, r.consumer) == (value, consumer)]
    text = "; ".join([text, *(f"refused as it is: {reason}" for reason in reasons)])
    return text.replace(PACKED.describe(), "[4, 4]")


def test_each_form_of_six_cancels_other_pairs(golden: Golden) -> None:
    lines = []
    for form, schedule in FORMS.items():
        lines.append(form)
        for (before, first), (after, last) in itertools.product(BEFORE.items(), AFTER.items()):
            plan = plan_layouts(between(first, last, schedule, only=True), TARGET, 1)
            lines.append(f"    before it {before}, behind it {after}:")
            lines.append(f"        {pair(plan, 'v0', 'addone1')}")
            lines.append(f"        {pair(plan, 'v1', 'grow2')}")
    golden("rfc_six_forms", "\n".join(lines) + "\n")


@pytest.mark.parametrize("form", FORMS)
def test_each_form_computes_the_same(form: str) -> None:
    graph = between(BEFORE["leaves 0"], AFTER["wants 0"], FORMS[form], only=True)
    run(graph, plan_layouts(graph, TARGET, 1), TARGET, x=X)


def test_the_solver_chooses_among_the_forms() -> None:
    """Where nobody behind wants anything, one that need not be told what the padding is."""
    for (before, first), (after, last) in itertools.product(BEFORE.items(), AFTER.items()):
        seconds = {}
        for name, schedule in FORMS.items():
            graph = between(first, last, schedule, only=True)
            seconds[name] = plan_layouts(graph, TARGET, 1).seconds
        best = plan_layouts(between(first, last, *FORMS.values(), only=True), TARGET, 1)
        assert best.seconds == pytest.approx(min(seconds.values())), (before, after, seconds)
        assert len(best.choices["addone1"].others) >= len(FORMS) - 1
