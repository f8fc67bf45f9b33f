"""Small operator graphs for tests of the planner, and the interpretation of their plans."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import graphflow.flow.planner as planner
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.convert import apply_plan
from graphflow.flow.candidates.candidates import Candidate, Candidates, enumerate_candidates
from graphflow.frontends import import_model
from graphflow.graph import Node, OperatorGraph, Value, canonicalize, fuse_groups, interpret_graph
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.movements import movement
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.recipes import View
from graphflow.layout import Equal
from graphflow.models import ModelBuilder
from graphflow.plan import LayoutPlan
from graphflow.tir import PrimFunc
from support.placing import interpret_physical

TARGET = Target("eight lanes", "", "", 32, 16, clock_ghz=6.25)
"""Its own data alone: plans do not depend on the machine that runs the tests."""


SHORT = Target("four lanes", "", "", 16, 8, clock_ghz=12.5)


def graph_of(builder: ModelBuilder) -> OperatorGraph:
    return fuse_groups(canonicalize(import_model(builder.model())))


class Net:
    """A graph written down kernel by kernel; nothing is fused."""

    def __init__(self, **inputs: tuple[int, ...]) -> None:
        self.graph = OperatorGraph()
        for name, shape in inputs.items():
            self.graph.add_value(Value(name, "float32", shape))
        self.graph.set_inputs(inputs)

    def add(self, name: str, func: PrimFunc, *inputs: str) -> str:
        self.graph.add(Node(f"n_{name}", func.name, func, inputs, (name,), (name,)))
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.values[name].shape

    def conv(self, name: str, x: str, channels: int, kernel: int = 1) -> str:
        depth = self.shape(x)[1]
        rng = np.random.default_rng(len(self.graph.values))
        weights = rng.standard_normal((channels, depth, kernel, kernel)).astype(np.float32)
        weights /= np.float32(np.sqrt(depth) * kernel)
        self.graph.add_initializer(f"{name}_w", weights)
        pads = (kernel // 2,) * 4
        return self.add(
            name,
            convolution.convolution(
                self.shape(x), weights.shape, Window.of(weights.shape[2:], pads=pads)
            ),
            x,
            f"{name}_w",
        )

    def unary(self, name: str, op: str, x: str) -> str:
        return self.add(name, elementwise.unary(op, self.shape(x)), x)

    def sum(self, name: str, a: str, b: str) -> str:
        return self.add(name, elementwise.binary("add", self.shape(a), self.shape(b)), a, b)

    def concat(self, name: str, *parts: str, axis: int = 1) -> str:
        return self.add(name, movement.concat([self.shape(p) for p in parts], axis), *parts)

    def over_channels(self, name: str, kind: str, x: str) -> str:
        return self.add(name, reduction.reduce(kind, self.shape(x), (1,)), x)

    def done(self, *outputs: str) -> OperatorGraph:
        self.graph.set_outputs(outputs)
        self.graph.validate()
        return self.graph


def describe(plan: LayoutPlan) -> str:
    """Everything that was decided, without prices."""
    lines = [f"{c.node}: {c.variant.name}"
             + ("" if c.pad_value is None else f", padding written as {c.pad_value}")
             for c in plan.choices.values()]  # fmt: skip
    lines += [f"  {name} = {edge.edge_type.describe()}" for name, edge in plan.edges.items()]
    for made in plan.conversions:
        readers = ", ".join(f"{node or 'output'}.{k}" for node, k in made.consumers)
        lines.append(
            f"{made.kind} {made.value}: {made.source.describe()} -> {made.target.describe()} "
            f"for {readers}"
        )
    lines += [f"cancelled on {c.value} to {c.consumer}: {c.layout.describe()}"
              for c in plan.cancelled]  # fmt: skip
    lines += [f"refused on {r.value} to {r.consumer}: {r.reason}; {r.repair}"
              for r in plan.refused]  # fmt: skip
    return "\n".join(lines) + "\n"


def chain(side: int = 14) -> OperatorGraph:
    b = ModelBuilder()
    x = b.input("x", (1, 16, side, side))
    for _ in range(3):
        x = b.relu(b.conv(x, 32, 3, pads=[1, 1, 1, 1]))
    b.output(x)
    return graph_of(b)


def residual() -> OperatorGraph:
    b = ModelBuilder()
    x = b.relu(b.conv(b.input("x", (1, 16, 14, 14)), 32, 3, pads=[1, 1, 1, 1]))
    y = b.conv(b.relu(b.conv(x, 32, 3, pads=[1, 1, 1, 1])), 32, 1)
    b.output(b.relu(b.add(y, x)))
    return graph_of(b)


def joined() -> OperatorGraph:
    b = ModelBuilder()
    x = b.relu(b.conv(b.input("x", (1, 16, 14, 14)), 16, 1))
    left, right = b.relu(b.conv(x, 24, 1)), b.relu(b.conv(x, 40, 3, pads=[1, 1, 1, 1]))
    b.output(b.conv(b.node("Concat", [left, right], axis=1), 16, 1, in_channels=64))
    return graph_of(b)


def pooled() -> OperatorGraph:
    b = ModelBuilder()
    x = b.relu(b.conv(b.input("x", (1, 3, 28, 28)), 32, 3))
    x = b.node("MaxPool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = b.relu(b.conv(x, 48, 3, in_channels=32))
    b.output(b.node("GlobalAveragePool", [x]))
    return graph_of(b)


def odd() -> OperatorGraph:
    b = ModelBuilder()
    x = b.relu(b.conv(b.input("x", (1, 3, 12, 12)), 17, 3))
    b.output(b.relu(b.conv(b.relu(b.conv(x, 18, 3)), 5, 1)))
    return graph_of(b)


def middle(graph: OperatorGraph) -> str:
    return graph.nodes[0].outputs[0]


def views(graph: OperatorGraph, plan: LayoutPlan) -> list[str]:
    return [n for n, c in plan.choices.items() if isinstance(c.variant.recipe, View)]


def check_meaning(graph: OperatorGraph, plan: LayoutPlan, target: Target = SHORT) -> None:
    """The plan's physical graph computes what the graph means."""
    rng = np.random.default_rng(0)
    arrays = {n: rng.standard_normal(graph.values[n].shape).astype(np.float32)
              for n in graph.inputs}  # fmt: skip
    got = interpret_physical(graph, apply_plan(graph, plan), target, arrays)
    for name, want in interpret_graph(graph, arrays).items():
        np.testing.assert_allclose(got[name], want, rtol=2e-5, atol=2e-5, err_msg=name)


def two_demands() -> OperatorGraph:
    """A sum and a maximum over the same padded channels need different padding."""
    net = Net(x=(1, 6, 8, 8))
    a = net.unary("a", "exp", "x")
    return net.done(
        net.over_channels("s", "sum", a), net.over_channels("m", "max", a),
        net.over_channels("p", "prod", a), net.unary("y", "neg", a),
    )  # fmt: skip


def over_padding(candidate: Candidate) -> bool:
    return any(isinstance(n.demand, Equal) for n in candidate.requirements)


def padded(candidate: Candidate) -> bool:
    return any(edge_type.facts for _, edge_type in candidate.gives)


def favour(monkeypatch: pytest.MonkeyPatch, wanted: Callable[[Candidate], bool]) -> None:
    """Makes the candidates that are not wanted expensive, so that the plan takes the others."""

    def enumerated(*arguments: Any, **named: Any) -> Candidates:
        found = enumerate_candidates(*arguments, **named)
        priced = {
            node: tuple(replace(c, seconds=c.seconds + (0 if wanted(c) else 1e-2)) for c in options)
            for node, options in found.of_node.items()
        }
        return Candidates(priced, found.edge_types)

    monkeypatch.setattr(planner, "enumerate_candidates", enumerated)
