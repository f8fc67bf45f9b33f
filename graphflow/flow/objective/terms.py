"""The cost of a plan as a sum: a price for each node's candidate, and a term for each value.

In: the graph and its candidates.  Out: a `Term` for each value that is read: a cost function of a
weighted constraint network, whose variables are the nodes and whose values are their candidates.
The term of a value is the price of the cheapest set of copies that satisfies the requirements of
all its readers, as a function of the candidates of its producer and its readers.  Candidates with
the same production are one class of the producer, candidates with the same requirements one class
of the reader; the term depends on classes only.  Values with the same productions and requirements
share one `Pattern`, which computes the tables.

For example, node 3 writes `y`, and nodes 4 and 7 read it.  Node 3 has five candidates, of which the
first three leave `y` in NCHW and the others in NHWC; node 7 has two, both of which read NHWC:

    producer         3      producer_classes  [0, 0, 0, 1, 1]
    readers          4, 7   reader_classes    [0, 1, 1], [0, 0]
    scope            3, 4   (node 7 has one class)
    pattern.table    2 x 2  by production and class of node 4
    table            5 x 3  by candidate of node 3 and of node 4
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
from msgspec import Struct

from graphflow.base.fields import replace
from graphflow.cost import CostModel
from graphflow.flow.candidates.candidates import Candidates
from graphflow.flow.candidates.copies import Copy, copies_for, copy_prices
from graphflow.flow.candidates.requirements import (
    OperandRequirement,
    Production,
    output_requirement,
)
from graphflow.flow.elimination.elimination import Factor
from graphflow.flow.elimination.prices import Prices, Table
from graphflow.flow.objective.patterns import Classes, Pattern, penalty_table
from graphflow.graph import OperatorGraph, Value
from graphflow.kernels.recipes import MemoryKey, memory_key
from graphflow.layout import Layout
from graphflow.plan import edge_type_key

Item = TypeVar("Item")


class Term(Struct, frozen=True, eq=False, dict=True):
    """The copies of one value: a pattern, and the nodes that produce and read the value.

    Nodes are numbers in the order of the candidates.  `producer_classes` has the class of each
    candidate of the producer, `reader_classes` for each reader the class of each of its candidates.
    """

    value: str
    pattern: Pattern
    producer: int | None
    producer_classes: Classes
    readers: tuple[int, ...]
    reader_classes: tuple[Classes, ...]

    @cached_property
    def scope(self) -> tuple[int, ...]:
        """The nodes on whose candidate the term depends, ascending."""
        nodes = [node for node, chooses in zip(self.readers, self.choosing, strict=True) if chooses]
        if self.producer is not None and self.produces_several:
            nodes.append(self.producer)
        return tuple(sorted(nodes))

    @cached_property
    def nodes(self) -> frozenset[int]:
        """The producer and the readers."""
        return frozenset(self.readers) | ({self.producer} if self.producer is not None else set())

    @property
    def produces_several(self) -> bool:
        """Whether the producer's candidates have more than one class of production."""
        return self.producer is not None and len(self.pattern.productions) > 1

    @cached_property
    def choosing(self) -> tuple[bool, ...]:
        """For each reader, whether its candidates have more than one class of requirements."""
        return tuple(len(classes) > 1 for classes in self.pattern.readers)

    def restricted(self, kept: Mapping[int, Classes]) -> Term:
        """The term for the candidates that are `kept` of each node, in their order.

        Nodes that are not in `kept` keep all.  Its pattern has only what these candidates produce
        and require, and the copies that satisfy some of that.
        """
        produced = None if self.producer is None else kept.get(self.producer)
        productions, producer_classes = _used(self.producer_classes, produced)
        readers = [
            _used(classes, kept.get(node))
            for node, classes in zip(self.readers, self.reader_classes, strict=True)
        ]
        wanted = [used for used, _ in readers]
        pattern = self.pattern.restricted(productions, wanted)
        classes = tuple(classes for _, classes in readers)
        return replace(
            self, pattern=pattern, producer_classes=producer_classes, reader_classes=classes
        )

    def table(self, prices: Prices, shared: dict[Pattern, Table]) -> Table:
        """The price of the copies, by the candidate of each node in `scope`.

        `shared` caches the tables of patterns.
        """
        if self.pattern not in shared:
            shared[self.pattern] = self.pattern.table(prices)
        table = shared[self.pattern]
        nodes, classes = [], []
        if self.producer is not None and self.produces_several:
            nodes.append(self.producer)
            classes.append(self.producer_classes)
        else:
            table = table[0]
        for node, numbers, chooses in zip(
            self.readers, self.reader_classes, self.choosing, strict=True
        ):
            if chooses:
                nodes.append(node)
                classes.append(numbers)
        order = sorted(range(len(nodes)), key=lambda k: nodes[k])
        return np.array(table[np.ix_(*classes)].transpose(order), np.int64)

    def split(self, first: int, prices: Prices) -> tuple[list[Table], list[Factor]]:
        """The term as a network over its nodes and the hidden variables of its pattern, which are
        numbered from `first`: the prices of their values, and the factors.

        Given the hidden variables, the nodes are independent of each other.  `first` is greater
        than the numbers of all nodes, so that scopes ascend.
        """
        pattern = self.pattern
        hidden = pattern.priced(prices)
        own = [hidden.states]
        own += [np.zeros(len(sets), np.int64) for sets in pattern.sets]
        factors = [
            _factor((first, first + 1 + layout), by_state)
            for layout, by_state in enumerate(hidden.sets)
        ]
        if self.producer is not None and self.produces_several:
            produced = [state.production for state in pattern.states]
            agreeing = self.producer_classes[:, None] == np.array(produced, np.intp)
            factors.append(_factor((self.producer, first), penalty_table(agreeing)))
        for k in pattern.choosing:
            node, classes = self.readers[k], self.reader_classes[k]
            factors.append(_factor((node, first), pattern.state_penalties[k].T[classes]))
            for layout, penalties in pattern.conversion_penalties[k].items():
                table = np.moveaxis(penalties, 2, 0)[classes]
                factors.append(_factor((node, first, first + 1 + layout), table))
        return own, factors

    def production(self, chosen: Mapping[int, int] | Sequence[int]) -> int:
        """The class of the production, where `chosen` has the candidate of each node.

        The producer may be missing in `chosen` if all its candidates have one class.
        """
        if self.producer is None or not self.produces_several:
            return 0
        return int(self.producer_classes[chosen[self.producer]])

    def copies(self, chosen: Sequence[int], prices: Prices) -> tuple[Copy, ...]:
        """The cheapest copies, where `chosen` has the candidate of each node."""
        production = self.production(chosen)
        classes = [
            int(c[chosen[k]]) for k, c in zip(self.readers, self.reader_classes, strict=True)
        ]
        return self.pattern.cheapest(production, classes, prices)


def _factor(scope: tuple[int, ...], table: Table) -> Factor:
    return Factor(scope, lambda: table)


def _used(classes: Classes, kept: Classes | None) -> tuple[Classes, Classes]:
    """The classes that the `kept` candidates have, and for each of these the number among them."""
    used, numbers = np.unique(classes if kept is None else classes[kept], return_inverse=True)
    return used, np.asarray(numbers, np.intp)


def price_terms(graph: OperatorGraph, candidates: Candidates, cost: CostModel) -> list[Term]:
    """The terms of all values that are read, in the order of their first readers; outputs last."""
    return list(_Terms(graph, candidates, cost).terms())


class _Terms:
    """Sorts the candidates into classes and builds the terms; equal patterns are built once."""

    def __init__(self, graph: OperatorGraph, candidates: Candidates, cost: CostModel) -> None:
        self.graph, self.candidates, self.cost = graph, candidates, cost
        self._patterns: dict[object, Pattern] = {}
        self._memory: dict[int, MemoryKey] = {}
        self._numbers: dict[MemoryKey, int] = {}

    def terms(self) -> Iterator[Term]:
        """The terms in the order in which values are first read; outputs that no node reads come
        last.
        """
        produced: dict[str, tuple[int, list[Production]]] = {}
        requirements: dict[str, dict[int, list[list[OperandRequirement]]]] = {}
        for node, options in enumerate(self.candidates.of_node.values()):
            for k, candidate in enumerate(options):
                for value, production in candidate.productions():
                    produced.setdefault(value, (node, []))[1].append(production)
                for requirement in candidate.requirements:
                    found = requirements.setdefault(requirement.value, {})
                    if node not in found:
                        found[node] = [[] for _ in options]
                    found[node][k].append(requirement)
        outputs = [v for v in self.graph.outputs if not self.graph.is_constant(v)]
        for value in dict.fromkeys((*requirements, *outputs)):
            yield self._term(
                value, produced.get(value), requirements.get(value, {}), value in outputs
            )

    def _term(
        self,
        value: str,
        produced: tuple[int, list[Production]] | None,
        requirements: dict[int, list[list[OperandRequirement]]],
        output: bool,
    ) -> Term:
        if value in self.graph.inputs or produced is None:
            producer, made = (
                None,
                [Production(edge_type) for edge_type in self.candidates.edge_types[value][:1]],
            )
        else:
            producer, made = produced
        productions, producer_classes = _classes(made, [self._production_key(g) for g in made])
        readers, reader_classes = [], []
        for options in requirements.values():
            wanted, classes = _classes(options, [self._requirements_key(o) for o in options])
            readers.append(tuple(map(tuple, wanted)))
            reader_classes.append(classes)
        pattern = self._pattern(
            self.graph.values[value], tuple(productions), tuple(readers), output
        )
        return Term(
            value, pattern, producer, producer_classes, tuple(requirements), tuple(reader_classes)
        )

    def _number(self, layout: Layout) -> int:
        """The same number for layouts of the same memory.

        Looked up by `id`, as comparing layouts is slow; the candidates keep their layouts alive.
        """
        key = self._memory.get(id(layout))
        if key is None:
            key = self._memory[id(layout)] = memory_key(layout)
        return self._numbers.setdefault(key, len(self._numbers))

    def _production_key(self, production: Production) -> object:
        return (
            self._number(production.edge_type.layout),
            production.edge_type.facts,
            production.output_aliasing,
            production.family,
        )

    def _requirements_key(self, requirements: list[OperandRequirement]) -> object:
        return tuple(
            (self._number(n.layout), n.demand, n.facts, n.input_aliasing, n.family)
            for n in requirements
        )

    def _pattern(
        self,
        tensor: Value,
        productions: tuple[Production, ...],
        readers: tuple[tuple[tuple[OperandRequirement, ...], ...], ...],
        output: bool,
    ) -> Pattern:
        # Layouts by identity: those that are the same memory may still be described differently.
        key = (
            tensor.dtype, tensor.shape, output,
            tuple(
                (id(g.edge_type.layout), g.edge_type.facts, g.output_aliasing, g.family)
                for g in productions
            ),
            tuple(
                tuple(
                    tuple([
                        (id(n.layout), n.demand, n.facts, n.input_aliasing, n.family)
                        for n in requirements
                    ])
                    for requirements in classes
                )
                for classes in readers
            ),
        )  # fmt: skip
        found = self._patterns.get(key)
        if found is None:
            wanted: tuple[OperandRequirement, ...] = ()
            if output:
                wanted = (output_requirement(tensor),)
            every = [
                requirement
                for classes in readers
                for requirements in classes
                for requirement in requirements
            ]
            copies = _copies(tensor, [*every, *wanted])
            edge_types = [g.edge_type for g in productions]
            prices = copy_prices(tensor, copies, edge_types, self.cost)
            found = self._patterns[key] = Pattern(productions, readers, wanted, copies, prices)
        return found


def _copies(tensor: Value, requirements: list[OperandRequirement]) -> tuple[Copy, ...]:
    found: dict[object, Copy] = {}
    distinct: dict[object, OperandRequirement] = {}
    for requirement in requirements:
        distinct.setdefault(
            (
                id(requirement.layout),
                requirement.demand,
                requirement.facts,
                requirement.input_aliasing,
            ),
            requirement,
        )
    for requirement in distinct.values():
        for copy in copies_for(tensor, requirement):
            found.setdefault(copy_key(copy), copy)
    return tuple(found.values())


def copy_key(copy: Copy) -> object:
    """A key by which the copies of one value differ: target edge type, kind, window."""
    return edge_type_key(copy.target), copy.kind, copy.window


def _classes(items: list[Item], keys: list[object]) -> tuple[list[Item], Classes]:
    """The first item of each class of equal keys, and for each item the number of its class."""
    numbers: dict[object, int] = {}
    first: list[Item] = []
    classes = []
    for item, key in zip(items, keys, strict=True):
        number = numbers.setdefault(key, len(first))
        if number == len(first):
            first.append(item)
        classes.append(number)
    return first, np.array(classes, np.intp)
