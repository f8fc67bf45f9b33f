"""Poison mode: padding without a known fact is overwritten with a value given at run time.

In: a physical graph and its plan.  Out: the same graph with a fill behind each call that leaves a
padding region Undefined, and one more scalar input for each element type.  What always holds:
outputs do not depend on the poison, or the plan is wrong; tests run with NaN and with −42 to check
that.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from graphflow.base.fields import replace
from graphflow.graph import OperatorGraph, Value
from graphflow.kernels.conversion import fill_region
from graphflow.kernels.recipes import Staged
from graphflow.layout import LOGICAL, Region, Undefined, row_major
from graphflow.physical import PhysicalCall, PhysicalGraph, Placement, StorageSpec
from graphflow.plan import EdgeType, LayoutPlan
from graphflow.tir import Buffer

POISON_INPUT = "graphflow.poison"
"""The name of the extra input; other element types than float32 are appended to it."""


def poison_input(dtype: str) -> str:
    """The name of the scalar input that gives the poison of one element type."""
    return POISON_INPUT if dtype == "float32" else f"{POISON_INPUT}.{dtype}"


def poison_padding(
    graph: OperatorGraph, plan: LayoutPlan, physical: PhysicalGraph
) -> PhysicalGraph:
    """The graph with poisoned padding.

    Of the result, `poisons` are the extra inputs and `poisoned` is the number of elements that they
    overwrite in a run.
    """
    inputs: dict[str, Value] = {}
    calls: list[PhysicalCall] = []
    poisoned = 0
    for call in physical.calls:
        calls.append(call)
        for place, edge_type, dtype in _written(graph, plan, call):
            regions = list(_undefined(edge_type))
            if regions:
                name = poison_input(dtype)
                inputs[name] = Value(name, dtype, ())
                calls += _fills(call, place, edge_type, dtype)
                poisoned += sum(_elements(region) for region in regions)
    storages = dict(physical.storages)
    for name, value in inputs.items():
        storages[name] = StorageSpec(name, "input", value.dtype, 1)
    return replace(
        physical,
        storages=storages,
        calls=tuple(calls),
        inputs=(*physical.inputs, *inputs),
        poisons=tuple(inputs.values()),
        poisoned=poisoned,
    )


def _written(
    graph: OperatorGraph, plan: LayoutPlan, call: PhysicalCall
) -> Iterator[tuple[Placement, EdgeType, str]]:
    """The tensors that a call of the run writes, with their edge types and element types.

    A view makes no call; memory around a tensor inside another one is not its padding.
    """
    if call.prepare:
        return
    if call.variant is not None:
        node = graph.node(call.name)
        for buffer, value in zip(node.func.outputs, node.outputs, strict=True):
            yield call.placements[buffer.name], plan.edges[value].edge_type, buffer.dtype
        return
    for made in plan.conversions:
        if call.name == f"{made.kind} {made.value}" and "dst" in call.placements:
            place = call.placements["dst"]
            if place.layout == made.target.layout:
                yield place, made.target, graph.values[made.value].dtype


def _fills(
    call: PhysicalCall, place: Placement, edge_type: EdgeType, dtype: str
) -> Iterator[PhysicalCall]:
    source = Buffer("poison", (), dtype)
    scalar = Placement(poison_input(dtype), row_major(()))
    for region in _undefined(edge_type):
        definition = fill_region(edge_type.layout, region, dtype, source)
        placements = {"poison": scalar, "dst": place}
        yield PhysicalCall(f"poison {call.name}", definition, placements, Staged(), moves=True)


def _undefined(edge_type: EdgeType) -> Iterator[Region]:
    known = dict(edge_type.facts)
    for region in edge_type.layout.regions():
        if region.name != LOGICAL and known.get(region.name) == Undefined():
            yield region


def _elements(region: Region) -> int:
    grid = np.indices(region.shape).reshape(len(region.shape), -1).T
    return sum(region.contains(point.tolist()) for point in grid)
