"""Chains of kernels that a user scheduled for packed layouts."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.base.trace import Trace
from graphflow.codegen import host_target, make_object
from graphflow.convert import apply_plan, poison_padding
from graphflow.graph import Node, OperatorGraph, Value, interpret_graph
from graphflow.layout import Layout, blocked
from graphflow.lower import assemble, lower
from graphflow.models import ModelBuilder
from graphflow.plan import LayoutPlan
from graphflow.runtime import Program
from graphflow.schedule import (
    Schedule,
    cache_read,
    cache_write,
    remove_branching_through_overcompute,
    sequential_buffer_access,
    transform_layout,
)
from graphflow.tir import PrimFunc, parse
from support.placing import interpret_physical

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


def run(graph: OperatorGraph, plan: LayoutPlan, target: Target, **arrays: Any) -> dict[str, Any]:
    """The outputs by the graph's own meaning: so it is interpreted, and natively, poisoned too."""
    expected = interpret_graph(graph, arrays)
    got = interpret_physical(graph, apply_plan(graph, plan), target, arrays)
    for found in (got, *run_natively(graph, plan, **arrays)):
        for name, array in expected.items():
            np.testing.assert_allclose(found[name], array, rtol=1e-6)
    return expected


def run_natively(graph: OperatorGraph, plan: LayoutPlan, **arrays: Any) -> Iterator[dict[str, Any]]:
    """The outputs as the plan is, and with two values in all padding that may hold anything."""
    plain = apply_plan(graph, plan)
    for physical in (plain, poison_padding(graph, plan, plain)):
        lowered = lower(physical, host_target())
        trace = Trace(Options())
        objects = {
            symbol: make_object((kernel.func, symbol, host_target()), trace)
            for symbol, kernel in lowered.kernels.items()
        }
        program = Program(assemble(graph, lowered, objects), 2)
        for poison in (-42, 77) if physical.poisons else (0,):
            yield program.run({**arrays, **{v.name: np.array(poison, v.dtype)
                                            for v in physical.poisons}})  # fmt: skip


GROW = elementwise("grow", "i32(2) * x[i]")


ADDONE = elementwise("addone", "x[i] + i32(1)")


X = np.arange(14, dtype="int32") * 3 - 5


def packed_relu_model() -> onnx.ModelProto:
    """A Relu, of which `offer_packed_relu` offers a schedule, and an Exp."""
    build = ModelBuilder()
    relu = build.node("Relu", [build.input("x", (14,))], ["r"])
    build.output(build.node("Exp", [relu], ["y"]))
    return build.model()


def offer_packed_relu(graph: OperatorGraph) -> None:
    """Offer a schedule over the packed layout, in place of all other variants."""
    (node,) = (n for n in graph.nodes if n.op == "Relu")
    s = Schedule.of(node.func).apply(cache_read, "x", "xc").apply(cache_write, "y", "yc")
    s = s.apply(transform_layout, "xc", PACKED, 0.0)
    graph.offer(node.name, s.apply(transform_layout, "yc", PACKED, 0.0), only=True)
