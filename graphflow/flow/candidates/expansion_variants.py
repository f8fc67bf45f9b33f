"""Variants of expansions, and what they require of values that stay unmoved.

In: the expansions of a graph, pins, the target.  Out: `ExpansionVariants`: the variants of each
expansion; for a variant the requirements in terms of the values of the graph; and the ways in which
a moved value can stay unmoved.  A variant that reads sources of a moved value requires that value
unmoved, with its elements in layouts of one family; the value requires the same of what it is moved
from, up to the sources, which have to be computed in layouts of that family.  So whether movement
is executed is decided between neighbours, as layouts are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import TypeAlias

from graphflow.base.assumed import Assumed
from graphflow.base.target import Target
from graphflow.flow.candidates.requirements import (
    UNUSED,
    InputAliasing,
    OperandRequirement,
    unmoved_requirement,
)
from graphflow.flow.candidates.variants import (
    EdgeTypes,
    context_of,
    node_variants,
    offers_of,
    respects,
)
from graphflow.graph import (
    Expansion,
    Expansions,
    Node,
    OperatorGraph,
    constant_inputs,
    contents,
    ending_at_counts,
    filtering_convolutions,
    folding_constants,
    in_one_pass,
    moved_channels,
    reading_through,
    reducing_at_once,
    shuffled,
)
from graphflow.kernels.recipes import (
    KernelVariant,
    Offers,
    RefusedVariant,
    View,
    memory_key,
    refused_variants,
)
from graphflow.layout import Fact, Family, Layout, Undefined, Unused, families
from graphflow.tir import Buffer

Requirements: TypeAlias = tuple[OperandRequirement, ...]


def expansions_of(
    graph: OperatorGraph, target: Target, assumed: Sequence[Assumed] = (), winograd: bool = True
) -> Expansions:
    """The expansions that are searched: of sums that constants scale, reading through movement that
    cannot all be views, two products in one pass, whole reductions at once, and with `winograd`
    convolutions in transformed tiles, whose channels fill whole vectors of `target`.

    `assumed` is what the user states about graph inputs.
    """
    moves = moved_channels(graph)
    known = reading_through(folding_constants(graph), moves, shuffled(moves))
    known = in_one_pass(ending_at_counts(known))
    known = reducing_at_once(known)
    if not winograd:
        return known
    return filtering_convolutions(known, contents(known.graph, assumed), target)


class ExpansionVariants:
    """The variants of the expansions of a graph; `of_node` has them by node.

    Pinned values are computed, in the layout of their pins.
    """

    def __init__(
        self,
        expansions: Expansions,
        pins: Mapping[str, Layout],
        target: Target,
        facts: Mapping[str, Fact],
    ) -> None:
        self.expansions, self._pins, self._target = expansions, pins, target
        self._facts = facts
        self.of_node: dict[str, list[tuple[Expansion, list[KernelVariant]]]] = {}
        self._families: dict[str, dict[Family, None]] = {}
        graph = expansions.graph
        for name, found in expansions.of_node.items():
            for expansion in found:
                options = self._variants(expansion, ())
                self.of_node.setdefault(name, []).append((expansion, options))
                self._want(expansion, options)
        for node in reversed(graph.nodes):  # readers before what they read
            for value in node.outputs:
                for origin in expansions.origins.get(value, ()):
                    self._families.setdefault(origin, {}).update(self._families.get(value, {}))

    def _variants(self, expansion: Expansion, offered: Offers) -> list[KernelVariant]:
        """The variants of an expansion that its graph's pins allow."""
        made = node_variants(
            self.expansions.graph, expansion.node, self._target, self._facts, offered
        )
        return [
            variant
            for variant in made
            if not isinstance(variant.recipe, View)
            and respects(expansion.node, variant, self._pins)
        ]

    def options(
        self, node: Node, edge_types: EdgeTypes
    ) -> Iterator[tuple[Expansion, list[KernelVariant]]]:
        """The expansions of a node with their variants.

        Those that absorb values read their inputs also in the layouts of no family in which these
        can be had, as `edge_types` says.  None where one of the values is pinned.
        """
        for expansion, options in self.of_node.get(node.name, ()):
            if not expansion.absorbed:
                yield expansion, options
            elif not any(value in self._pins for value in expansion.absorbed):
                graph = self.expansions.graph
                offered = offers_of(graph, expansion.node, edge_types, {}, self._target)
                yield expansion, self._variants(expansion, offered) if offered else options

    def refused(self, node: Node) -> tuple[RefusedVariant, ...]:
        """The expansions that a node might have had, and the variants that expansions lack which
        absorb values or have no variant, with the reasons."""
        graph, found = self.expansions.graph, [*self.expansions.refused.get(node.name, ())]
        for expansion, options in self.of_node.get(node.name, ()):
            if expansion.absorbed or not options:
                constants = constant_inputs(graph, expansion.node)
                context = context_of(graph, expansion.node, self._facts)
                found += refused_variants(expansion.node.func, constants, self._target, context)
        return tuple(dict.fromkeys(found))

    def through(self, expansion: Expansion, requirements: Requirements) -> Iterator[Requirements]:
        """What a variant of an expansion requires of the values of the graph, where `requirements`
        are those on the inputs of its kernel; one for each choice of families.

        Nothing where it needs more of a source than its layout.
        """
        names = [buffer.name for buffer in expansion.node.func.inputs]
        direct = tuple(r for r in requirements if names[r.position] not in expansion.through)
        read: dict[str, list[OperandRequirement]] = {}
        for requirement in requirements:
            value = expansion.through.get(names[requirement.position])
            if value is not None:
                if not _for_layout_alone(requirement):
                    return
                read.setdefault(value, []).append(requirement)
        graph = self.expansions.graph
        choices = [
            self._of_layouts([r.layout for r in found], graph.values[value].dtype)
            for value, found in read.items()
        ]
        for chosen in product(*choices):
            asked = (
                unmoved_requirement(found[0].position, graph.values[value], family)
                for (value, found), family in zip(read.items(), chosen, strict=True)
            )
            absorbed = (
                unmoved_requirement(0, graph.values[value], None) for value in expansion.absorbed
            )
            yield (*direct, *asked, *absorbed)

    def unmoved(self, node: Node) -> Iterator[tuple[str, Family | None, Requirements]]:
        """The ways in which the output of a node can stay unmoved: the value, the family of the
        layouts in which its elements are read, and what that requires of other values.

        A value between two nodes of one step of movement is read in no layout.
        """
        value = node.outputs[0]
        origins = self.expansions.origins.get(value)
        if origins is None or value in self._pins:
            return
        if not origins:
            yield value, None, ()
            return
        for family in self._families.get(value, ()):
            requirements = self._of_origins(origins, family)
            if requirements is not None:
                yield value, family, requirements

    def _of_origins(self, origins: Sequence[str], family: Family) -> Requirements | None:
        """That these values are computed in layouts of a family, or stay unmoved with elements that
        are; None where the family has no layout for one.
        """
        graph, found = self.expansions.graph, []
        for position, origin in enumerate(origins):
            value = graph.values[origin]
            if origin in self.expansions.origins:
                found.append(unmoved_requirement(position, value, family))
            elif not graph.is_constant(origin):
                layout = family.instantiate(value.shape)
                if layout is None:
                    return None
                found.append(OperandRequirement(position, origin, layout, UNUSED))
        return tuple(found)

    def _want(self, expansion: Expansion, options: Sequence[KernelVariant]) -> None:
        """Note the families in which variants read the sources of each value."""
        read: dict[str, list[Buffer]] = {}
        for buffer in expansion.node.func.inputs:
            if buffer.name in expansion.through:
                read.setdefault(expansion.through[buffer.name], []).append(buffer)
        for variant in options:
            for value, buffers in read.items():
                layouts = [variant.layouts[buffer.name] for buffer in buffers]
                wanted = self._families.setdefault(value, {})
                wanted.update(dict.fromkeys(self._of_layouts(layouts, buffers[0].dtype)))

    def _of_layouts(self, layouts: Sequence[Layout], dtype: str) -> list[Family]:
        """The families that have all these layouts of tensors with elements of type `dtype`."""
        lanes = self._target.computed_lanes(dtype)
        return [
            family
            for family in families(len(layouts[0].logical_shape), lanes, self._target)
            if all(_is_of(layout, family) for layout in layouts)
        ]


def _is_of(layout: Layout, family: Family) -> bool:
    found = family.instantiate(layout.logical_shape)
    return found is not None and memory_key(found) == memory_key(layout)


def _for_layout_alone(requirement: OperandRequirement) -> bool:
    """Whether a requirement asks for a layout, and for nothing of padding or memory."""
    return (
        isinstance(requirement.demand, Unused)
        and requirement.input_aliasing is InputAliasing.ANYWHERE
        and all(fact == Undefined() for _, fact in requirement.facts)
    )
