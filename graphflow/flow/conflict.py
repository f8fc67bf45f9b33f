"""Explain which pins clash, and at which nodes, with minimal sets of both.

In: a graph and pins that no plan meets.  Out: a `LayoutConflict` with sets of pins that clash.
Each set is minimal: without any one of its pins the rest no longer clash.  For each set the message
names a set of nodes, minimal in the same sense, whose variants cannot take the pins together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import TypeVar

from graphflow.base.errors import LayoutConflict
from graphflow.base.fields import replace
from graphflow.cost import NO_TIMINGS, CostModel
from graphflow.flow.candidates.candidates import Candidates, Unsatisfiable, enumerate_candidates
from graphflow.flow.solve import Problem
from graphflow.graph import Expansions, Node, OperatorGraph
from graphflow.layout import Fact, Layout

MOST_CLASHES = 4
"""The most clashes that one error names; others show once these pins are dropped."""

Item = TypeVar("Item")


def conflict(
    graph: OperatorGraph,
    expansions: Expansions,
    cost: CostModel,
    pins: Mapping[str, Layout],
    facts: Mapping[str, Fact],
) -> LayoutConflict:
    """The error for pins that no plan meets; `facts` are those about the contents of each value."""
    return _Conflict(graph, expansions, cost, pins, facts).error()


class _Conflict:
    def __init__(
        self,
        graph: OperatorGraph,
        expansions: Expansions,
        cost: CostModel,
        pins: Mapping[str, Layout],
        facts: Mapping[str, Fact],
    ) -> None:
        self.pins = pins
        self.expansions = expansions
        self.facts = facts
        self.graph = graph
        # Whether there is a plan does not depend on what was timed.
        self.cost = replace(cost, timings=NO_TIMINGS)

    def error(self) -> LayoutConflict:
        """The error that names the clashes and says which pins to drop."""
        left, clashes = [*self.pins], list[tuple[str, ...]]()
        while len(clashes) < MOST_CLASHES and self._clash(left):
            clashes.append(tuple(minimal(left, self._clash)))
            if not clashes[-1]:
                return LayoutConflict(
                    "no plan meets the constraints of the graph, pins or no pins; this is a bug of "
                    "graphflow, please report it with the model"
                )
            left = [name for name in left if name not in clashes[-1]]
        rules = ". ".join(map(self._rule, clashes))
        drop = "one of these pins" if len(clashes) == 1 else "a pin of each"
        return LayoutConflict(
            f"{rules}. Drop {drop} or choose a layout that the node offers.", clashes
        )

    def _rule(self, clash: Sequence[str]) -> str:
        """The sentence about one clash: which pins meet at which nodes, and what variants these
        have.
        """
        pins = {name: self.pins[name] for name in clash}
        around = [node for node in self.graph.nodes if _touched(node, pins)]
        every = _names(around)
        nodes = minimal(around, lambda some: self._clash(clash, every - _names(some)))
        candidates = self._candidates(pins, every)
        titles = [f"{node.name} ({node.op})" for node in nodes]
        variants = [_variants(candidates, node.name) for node in nodes]
        if len(nodes) == 1:
            pinned = _pinned(nodes[0], pins)
            return f"{titles[0]} has no variant with {pinned}; its variants are: {variants[0]}"
        together = " and ".join(
            f"{name} with {_pinned(node, pins)}" for name, node in zip(titles, nodes, strict=True)
        )
        offered = "; ".join(f"{name}: {some}" for name, some in zip(titles, variants, strict=True))
        return f"no plan has {together}; their variants are: {offered}"

    def _candidates(self, pins: Mapping[str, Layout], relaxed: Set[str]) -> Candidates:
        return enumerate_candidates(
            self.graph,
            self.cost,
            pins,
            relaxed=relaxed,
            facts=self.facts,
            expansions=self.expansions,
        )

    def _clash(self, some: Sequence[str], relaxed: Set[str] = frozenset()) -> bool:
        """Whether it is proven that no plan meets these pins, if the `relaxed` nodes ignore
        them.
        """
        pins = {name: self.pins[name] for name in some}
        try:
            Problem(self.graph, self._candidates(pins, relaxed), self.cost)
        except Unsatisfiable:
            return True
        except LayoutConflict:  # none was found in time, which proves nothing
            return False
        return False


def _variants(candidates: Candidates, node: str) -> str:
    """The variants of a node as text, and those that recipes refused, with the reasons."""
    names = dict.fromkeys(candidate.variant.name for candidate in candidates.of_node[node])
    refused = (
        f"{item.variant} is refused: {item.reason}" for item in candidates.refused.get(node, ())
    )
    return "; ".join((*names, *dict.fromkeys(refused)))


def minimal(items: Sequence[Item], clash: Callable[[Sequence[Item]], bool]) -> list[Item]:
    """A minimal subset of `items` that still clashes, in their order; empty if even no items clash.

    `clash` must be monotone: if it holds for some items, it holds for more.  Bisects (QuickXplain,
    Junker 2004): k clashing items of n take about k·log(n) calls of `clash`.
    """
    if clash([]):
        return []
    return sorted(_needed([], False, list(items), clash), key=list(items).index)


def _needed(
    kept: list[Item],
    changed: bool,
    items: list[Item],
    clash: Callable[[Sequence[Item]], bool],
) -> list[Item]:
    """The fewest of `items` that make `kept` clash; `changed` says that `kept` alone was not
    tried.
    """
    if changed and clash(kept):
        return []
    if len(items) == 1:
        return items
    half = len(items) // 2
    first, second = items[:half], items[half:]
    behind = _needed(kept + first, True, second, clash)
    before = _needed(kept + behind, bool(behind), first, clash)
    return before + behind


def _touched(node: Node, pins: Mapping[str, Layout]) -> list[tuple[str, str, str]]:
    """The pinned values that a node reads or writes: value, `input` or `output`, parameter name."""
    return [
        (value, kind, buffer.name)
        for kind, buffers, values in (
            ("input", node.func.inputs, node.inputs),
            ("output", node.func.outputs, node.outputs),
        )
        for buffer, value in zip(buffers, values, strict=True)
        if value in pins
    ]


def _pinned(node: Node, pins: Mapping[str, Layout]) -> str:
    return ", ".join(
        f"{value} pinned to {pins[value].describe()} ({kind} {buffer})"
        for value, kind, buffer in _touched(node, pins)
    )


def _names(nodes: Sequence[Node]) -> frozenset[str]:
    return frozenset(node.name for node in nodes)
