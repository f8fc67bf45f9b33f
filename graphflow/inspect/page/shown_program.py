"""The graph of the program that runs: its kernels, copies, views and sections, and what passes
between them.

In: a `Compiled` model.  Out: a `ShownGraph` with the nodes in the order of the run.  What always
holds: each kernel call of a run is one node, but for the calls of one fill, which are one, and
those of poison mode, which are none; constants are no arrows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from graphflow.graph import Node
from graphflow.inspect.moved_elements import movement_kind
from graphflow.inspect.page.page_data import ShownArrow, ShownGraph, ShownNode
from graphflow.inspect.page.shown_layouts import ShownEdgeTypes
from graphflow.inspect.page.shown_tensors import shown_other
from graphflow.inspect.refusals import refusals
from graphflow.kernels.recipes import View
from graphflow.pipeline.compiler import Compiled
from graphflow.plan import Choice, Conversion, CopyKind, EdgeType, padding_regions


def shown_program(compiled: Compiled, edge_types: ShownEdgeTypes) -> ShownGraph:
    """The graph of a run, without its blocks; edge types of arrows are added to `edge_types`."""
    return _GraphBuilder(compiled, edge_types).build()


class _GraphBuilder:
    """The nodes and arrows of one graph while they are collected."""

    def __init__(self, compiled: Compiled, edge_types: ShownEdgeTypes) -> None:
        self.compiled, self.edge_types = compiled, edge_types
        self.graph, self.plan = compiled.graph, compiled.plan
        self.nodes: list[ShownNode] = []
        self.arrows: list[ShownArrow] = []
        self.makers: dict[str, int] = {}
        """The node that writes each tensor, or brings it into the graph."""
        self.copies: dict[int, int] = {}
        """The node of each conversion of the plan, by the conversion's index."""
        self.refused = _refused_by_node(compiled)
        calls = [pair for pair in compiled.lowered.calls if not pair[0].prepare]
        self.symbols = {call.name: step.symbol for call, step in calls if call.variant is not None}
        """The kernel of each node."""
        self.waiting: dict[str, deque[str]] = {}
        """The kernels of copies by their name, in the order of the run."""
        for call, step in calls:
            if call.variant is None:
                self.waiting.setdefault(call.name, deque()).append(step.symbol)
        self.kinds = {
            symbol: movement_kind(kernel.func)
            for symbol, kernel in compiled.lowered.kernels.items()
        }
        self.because = {
            move.consumers[0][0]: move.because for move in self.plan.moves if move.consumers
        }

    def build(self) -> ShownGraph:
        """Show the inputs, the nodes in the order of the graph, each before the copies of its
        outputs, then the outputs."""
        for name in self.graph.inputs:
            self._outer("input", name)
            self._copies_of(name)
        for node in self.graph.nodes:
            choice = self.plan.choices.get(node.name)
            if choice is not None and not all(map(self.graph.is_constant, node.outputs)):
                self._node(node, choice)
        for name in self.graph.outputs:
            source = self._source("", -1, name)
            place = self._outer("output" if name in self.graph.results else "check", name)
            self._arrow(source, place, name, self._edge_type("", -1, name))
        return ShownGraph(tuple(self.nodes), tuple(self.arrows), ())

    def _outer(self, kind: str, name: str) -> int:
        """A node for what the caller gives, takes or checks."""
        given = kind == "input"
        self.nodes.append(
            ShownNode(kind, name, () if given else (("", name),), (name,) if given else ())
        )
        if given:
            self.makers[name] = len(self.nodes) - 1
        return len(self.nodes) - 1

    def _node(self, node: Node, choice: Choice) -> None:
        """The node of a group, the arrows into it, and the copies of its outputs."""
        sources = [
            (value, self._source(node.name, position, value), position)
            for position, value in enumerate(node.inputs)
        ]
        place = len(self.nodes)
        self.nodes.append(self._group(node, choice))
        for value, source, position in sources:
            self._arrow(source, place, value, self._edge_type(node.name, position, value))
        for value in node.outputs:
            self.makers[value] = place
        for value in node.outputs:
            self._copies_of(value)

    def _group(self, node: Node, choice: Choice) -> ShownNode:
        symbol = self.symbols.get(node.name)
        runs = not isinstance(choice.variant.recipe, View)
        pad = choice.pad_value
        return ShownNode(
            kind=self._kind(node, choice),
            name=node.name,
            operators=tuple(node.op.split("+")),
            origins=node.origins,
            variant=choice.variant_name,
            because=self.because.get(node.name, choice.because),
            seconds=choice.seconds if runs else None,
            share=self._share(choice.seconds) if runs else 0.0,
            measured=choice.measured,
            bytes=choice.variant.work.read + choice.variant.work.written if runs else None,
            kernel=symbol if symbol in self.kinds and node.func.callee is None else None,
            inputs=tuple(node.bound.items()),
            outputs=node.outputs,
            others=tuple(shown_other(other.variant, other) for other in choice.others),
            refused=self.refused.get(node.name, ()),
            notes=(
                *(() if pad is None else (f"the epilogue writes {pad} to the padding",)),
                *self._foreign(node),
            ),
        )

    def _kind(self, node: Node, choice: Choice) -> str:
        if node.func.callee in self.graph.sections:
            return "section"
        if node.func.callee is not None:
            return "region"
        if isinstance(choice.variant.recipe, View):
            return "view"
        kind = self.kinds.get(self.symbols.get(node.name, ""), "compute")
        return "kernel" if kind == "compute" else kind

    def _foreign(self, node: Node) -> Iterator[str]:
        """The nodes that a section runs in onnxruntime, with the reasons; or what a run decides of
        a control region."""
        section = self.graph.sections.get(node.func.callee or "")
        yield from () if section is None else map(str, section.nodes)
        region = self.graph.regions.get(node.func.callee or "")
        yield from () if region is None else (region.decided,)

    def _share(self, seconds: float) -> float:
        """The share of the price of a run."""
        return seconds / self.plan.seconds if self.plan.seconds else 0.0

    def _copies_of(self, value: str) -> None:
        """A node for each conversion of a value, and the arrow into it."""
        for index, made in self.plan.conversions_of(value):
            self.copies[index] = len(self.nodes)
            self.nodes.append(self._copy(made))
            self._arrow(self.makers.get(value), self.copies[index], value, made.source)

    def _copy(self, made: Conversion) -> ShownNode:
        """The node of a conversion; a fill has a kernel for each region of the padding."""
        name = f"{made.kind} {made.value}"
        is_fill = made.kind == CopyKind.FILL
        calls = len(padding_regions(made.source.layout)) if is_fill else 1
        symbols = [self.waiting[name].popleft() for _ in range(calls)]
        several = f"{calls} kernels, one for each region of the padding; the first is shown"
        return ShownNode(
            kind=str(made.kind),
            name=name,
            operators=(f"padding = {made.target.constant}",)
            if is_fill
            else (f"{made.source.layout.describe()} → {made.target.layout.describe()}",),
            because=made.because,
            seconds=made.seconds,
            share=self._share(made.seconds),
            measured=made.measured,
            bytes=made.bytes,
            kernel=symbols[0],
            inputs=(("src", made.value),),
            outputs=(made.value,),
            notes=(several,) if calls > 1 else (),
        )

    def _source(self, node: str, position: int, value: str) -> int | None:
        """The node from which an input comes; None for a constant that no run writes.

        A constant that a view or an output contains is copied in each run; such a copy is a node.
        """
        index = self.plan.conversion_for(node, position, value)
        if index is not None:
            return self.copies.get(index)
        if not self.graph.is_constant(value) or not self._is_copied(node):
            return self.makers.get(value)
        name = f"copy {value}"
        self.nodes.append(
            ShownNode("copy", name, inputs=(("src", value),), kernel=self.waiting[name].popleft())
        )
        return len(self.nodes) - 1

    def _is_copied(self, reader: str) -> bool:
        """Whether a constant that this node (the caller: "") reads is copied in each run."""
        if not reader:
            return True
        view = self.plan.choices[reader].variant.recipe
        return isinstance(view, View) and not view.outward

    def _edge_type(self, node: str, position: int, value: str) -> EdgeType | None:
        known = value in self.plan.edges
        return self.plan.source(node, position, value) if known else None

    def _arrow(self, start: int | None, end: int, tensor: str, edge_type: EdgeType | None) -> None:
        if start is not None:
            place = None if edge_type is None else self.edge_types.place(edge_type)
            self.arrows.append(ShownArrow(start, end, tensor, place))


def _refused_by_node(compiled: Compiled) -> dict[str, tuple[tuple[str, str], ...]]:
    """The variants that each node does not have, and the steps that its variant lacks."""
    found: dict[str, tuple[tuple[str, str], ...]] = {}
    for refused in refusals(compiled):
        title = f"a step of {refused.variant}" if refused.chosen else refused.variant
        for node in refused.nodes:
            found[node] = (*found.get(node, ()), (title, refused.reason))
    return found
