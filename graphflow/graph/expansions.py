"""Other definitions with which a node can compute its output, from other tensors.

In: a graph of fusion groups, and the expansions that rewrites found for its nodes.  Out: once it is
decided which are taken, the equivalent graph with them.  A rewrite adds expansions to those that
are known; it may rewrite the nodes of these, so a node can have several, by one rewrite or by two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from msgspec import Struct, field

from graphflow.graph.operator_graph import Node, OperatorGraph, Removed
from graphflow.kernels.recipes import RefusedVariant


class Expansion(Struct, frozen=True):
    """What can take the place of a node.

    `node` has the same name and outputs.  `through` has the inputs of its kernel that are bound to
    sources of a moved value, by parameter: that value, which is not read itself.  `gone` has the
    tensors inside the node's kernel that the new one does not compute, each with the reason.
    `absorbed` has the values of the graph that its kernel computes for itself.  `because` says in
    words what the new kernel does instead of the old one, empty for the node itself.
    """

    node: Node
    through: Mapping[str, str] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)
    because: str = ""
    absorbed: tuple[str, ...] = ()

    @property
    def sources(self) -> tuple[str, ...]:
        """The values that are read through movement."""
        return tuple(v for name, v in self.node.bound.items() if name in self.through)


class Expansions(Struct, frozen=True):
    """All expansions of a graph.

    `graph` is the graph with the `constants` that expansions read, in the order of making:
    initializers, and values made by a node of the same name.  `of_node` has the expansions by node.
    `origins` has the values that can stay unmoved, each with the values that its elements are moved
    from; there are none for a value between the nodes of one step of movement, which nothing can
    read unmoved.  `refused` has by node the expansions that it might have had, with the reasons.
    """

    graph: OperatorGraph
    constants: tuple[str, ...] = ()
    of_node: Mapping[str, tuple[Expansion, ...]] = field(default_factory=dict)
    origins: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    refused: Mapping[str, tuple[RefusedVariant, ...]] = field(default_factory=dict)

    def definitions(self, node: Node) -> Iterator[Expansion]:
        """The node as it is, and its expansions."""
        yield Expansion(node)
        yield from self.of_node.get(node.name, ())

    def adding(self, found: Mapping[str, Sequence[Expansion]]) -> dict[str, tuple[Expansion, ...]]:
        """The expansions by node, with further ones."""
        names = dict.fromkeys((*self.of_node, *found))
        return {name: (*self.of_node.get(name, ()), *found.get(name, ())) for name in names}

    def take(self, expansions: Iterable[Expansion], unmoved: Set[str]) -> OperatorGraph:
        """The graph with these expansions in place of their nodes, and without the values that stay
        unmoved and the constants, which nothing reads then.
        """
        out = self.graph.copy()
        read_before: dict[str, None] = {}
        absorbed: dict[str, Node] = {}
        for expansion in expansions:
            absorbed.update(dict.fromkeys(expansion.absorbed, expansion.node))
            read_before.update(dict.fromkeys(out.node(expansion.node.name).inputs))
            out.replace(expansion.node.name, expansion.node)
            out.removed.update((name, Removed(why)) for name, why in expansion.gone.items())
        for node in reversed(out.nodes):
            value = node.outputs[0]
            if value in unmoved:
                out.remove(node.name)
                out.remove_value(value)
                reason = f"the readers of {node.op} {node.name} read the tensors that it moved"
                if value in absorbed:
                    continue  # it is inside the kernel of another node
                out.removed[value] = Removed(reason)
        for name in reversed(self.constants):
            if not out.consumers(name) and name not in out.counting:
                if name in out:
                    out.remove(name)
                out.remove_value(name)
        for name in read_before:
            constant = name in out.initializers and name not in (*out.inputs, *out.outputs)
            if constant and not out.consumers(name) and name not in out.counting:
                out.remove_value(name)
                out.removed[name] = Removed("other constants were computed from it")
        return out
