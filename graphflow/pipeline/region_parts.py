"""The parts of control regions are compiled like models of their own, up to their physical graphs.

In: a graph with control regions, and its physical graph.  Out: the same with the physical graph of
each part.  What always holds: nothing is known in a part of the tensors that the region gives it,
and nothing outside of what a part leaves, besides shapes and element types.
"""

from __future__ import annotations

from types import MappingProxyType

from graphflow.base.fields import replace
from graphflow.baselines import plan_groups
from graphflow.convert import apply_plan, poison_padding
from graphflow.cost import Timings
from graphflow.graph import OperatorGraph
from graphflow.physical import PhysicalGraph, StorageSpec
from graphflow.pipeline.grouping import canonical, fusion_groups
from graphflow.pipeline.request import CompileRequest


def with_regions(
    graph: OperatorGraph, physical: PhysicalGraph, request: CompileRequest, timings: Timings
) -> PhysicalGraph:
    """The physical graph of `graph` with those of the parts of its regions.

    It has the inputs of poison mode that any part has.
    """
    called = {node.func.callee for node in graph.nodes if node.func.callee in graph.regions}
    if not called:
        return physical

    def part(body: OperatorGraph) -> PhysicalGraph:
        return _physical(body, request, timings)

    regions = {
        name: region.with_bodies(part) for name, region in graph.regions.items() if name in called
    }
    bodies = [
        part.body
        for region in regions.values()
        for part in region.parts
        if isinstance(part.body, PhysicalGraph)
    ]
    poisons = {value.name: value for body in (physical, *bodies) for value in body.poisons}
    given = physical.inputs[: len(physical.inputs) - len(physical.poisons)]
    storages = {name: StorageSpec(name, "input", v.dtype, 1) for name, v in poisons.items()}
    return replace(
        physical,
        storages={**physical.storages, **storages},
        inputs=(*given, *poisons),
        poisons=tuple(poisons.values()),
        poisoned=physical.poisoned + sum(body.poisoned for body in bodies),
        regions=regions,
    )


def _physical(body: OperatorGraph, request: CompileRequest, timings: Timings) -> PhysicalGraph:
    groups = fusion_groups(canonical(body, request), request)
    graph, plan, _ = plan_groups(
        groups,
        request.target,
        request.threads,
        MappingProxyType({}),
        timings,
        {},
        request.options.winograd,
    )
    physical = apply_plan(graph, plan)
    if request.options.poison:
        physical = poison_padding(graph, plan, physical)
    return with_regions(graph, physical, request, timings)
