"""Kernels that threads may run beside each other, instead of sharing each of them.

In: the nodes of a graph in order, and their variants.  Out: for each node whose kernel threads
share in phases or not at all, how many such kernels they may run at once, with its own.

Steps of one iteration that follow each other and touch no memory in common run concurrently
(`graphflow/program/concurrent_steps.py`): so the directions of a recurrent layer, without a meeting
in each time step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphflow.cost import CostModel
from graphflow.graph import Node
from graphflow.kernels.recipes import KernelVariant


def side_by_side(
    nodes: Sequence[Node], variants: Mapping[str, Sequence[KernelVariant]]
) -> dict[str, int]:
    """How many kernels may run at once with that of each node, itself included; only of nodes with
    a variant in phases."""
    groups = _groups((node for node in nodes if node.name in variants), variants)
    return {node.name: len(group) for group in groups for node in group}


def _groups(
    nodes: Iterator[Node], variants: Mapping[str, Sequence[KernelVariant]]
) -> Iterator[list[Node]]:
    """Neighbours that have variants in phases, of which none reads what another one writes."""
    group: list[Node] = []
    for node in nodes:
        phases = any(variant.work.meetings for variant in variants[node.name])
        written = {value for other in group for value in other.outputs}
        if phases and written.isdisjoint(node.inputs):
            group.append(node)
            continue
        yield group
        group = [node] if phases else []
    yield group


def without_sharing(variant: KernelVariant, kernels: int, cost: CostModel) -> float:
    """The factor on the price of a variant that one thread executes, while others execute those of
    so many `kernels` in all."""
    return 1 / min(cost.threads, kernels) if variant.work.rows == 1 else 1.0
