"""The cost of a plan as a sum: a price for each node's candidate, and a term for each value.

In: the graph and its candidates.  Out: a `Term` for each value that is read.  The term of a value
is the price of the cheapest set of copies that satisfies the requirements of all its readers, as a
function of the candidates of its producer and its readers.  Candidates with the same production are
one class of the producer, candidates with the same requirements one class of the reader; the term
depends on classes only.  Values with the same productions and requirements share one `Pattern`,
which computes the tables.

A copy is paid for once, however many readers take it.  A fill writes the padding of the value in
place: it needs the value in the same layout, and is excluded where a reader relies on other
padding.  A value is inside the output of at most one reader, and is contiguous where a view of it
needs that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations
from math import comb
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from graphflow.cost import CostModel, Price
from graphflow.flow.candidates import Candidates
from graphflow.flow.copies import (
    Copy,
    copies_for,
    copy_prices,
    directly,
    edge_type_serves,
    relies_on_padding,
)
from graphflow.flow.elimination import Factor
from graphflow.flow.prices import NEVER, Prices, Table, plus
from graphflow.flow.requirements import (
    InputAliasing,
    OperandRequirement,
    OutputAliasing,
    Production,
    output_requirement,
)
from graphflow.graph import OperatorGraph, Value
from graphflow.kernels.recipes import MemoryKey, memory_key
from graphflow.layout import Layout
from graphflow.plan import CopyKind, EdgeType, edge_type_key

MOST_SETS = 1024
"""The most sets of copies of one value for which a table is computed, by trying every set."""

MOST_STATES = 1024
"""The most states of a value for which the value becomes a variable of elimination."""

Item = TypeVar("Item")

Classes: TypeAlias = NDArray[np.intp]
"""For each candidate of a node, the number of its class."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """How a value can be produced and how it is read, with nothing said of which nodes do so.

    `productions` has one entry for each class of the producer (one in all for a graph input).
    `readers` has, for each reader, the requirements of each of its classes.  `output` is the
    requirement of the caller if the value is a graph output, else empty.  `copies` are the copies
    that some requirement could ask for, without prices; `prices[p][c]` is the price of copy `c`
    made from production `p`.
    """

    productions: tuple[Production, ...]
    readers: tuple[tuple[tuple[OperandRequirement, ...], ...], ...]
    output: tuple[OperandRequirement, ...]
    copies: tuple[Copy, ...]
    prices: tuple[tuple[Price, ...], ...]

    def restricted(self, productions: Classes, readers: Sequence[Classes]) -> Pattern:
        """The pattern of these productions, and of these classes of each reader."""
        wanted = tuple(
            tuple(classes[k] for k in used)
            for classes, used in zip(self.readers, readers, strict=True)
        )
        every = [n for classes in wanted for requirements in classes for n in requirements]
        copies = sorted({c for n in (*every, *self.output) for c in self.serving(n)})
        return Pattern(
            tuple(self.productions[p] for p in productions),
            wanted,
            self.output,
            tuple(self.copies[c] for c in copies),
            tuple(tuple(self.prices[p][c] for c in copies) for p in productions),
        )

    def made(self, production: int) -> tuple[Copy, ...]:
        """The copies with their prices, made from production `production`."""
        return tuple(map(Copy.at, self.copies, self.prices[production]))

    def direct(self, requirement: OperandRequirement) -> list[int]:
        """The productions that satisfy a requirement without a copy."""
        output = bool(self.output)
        return [
            g
            for g in self._alike[0].get(memory_key(requirement.layout), ())
            if directly(self.productions[g], requirement, output)
        ]

    def serving(self, requirement: OperandRequirement) -> list[int]:
        """The copies that satisfy a requirement."""
        alike = self._alike[1].get(memory_key(requirement.layout), ())
        return [c for c in alike if self.copies[c].serves(requirement)]

    @cached_property
    def _alike(self) -> tuple[dict[MemoryKey, list[int]], dict[MemoryKey, list[int]]]:
        """Productions and copies by memory key: only an equal key can satisfy a requirement."""
        return (
            _by_memory(production.edge_type for production in self.productions),
            _by_memory(copy.target for copy in self.copies),
        )

    def makes(self, production: int, copy: Copy) -> bool:
        """Whether `copy` can be made from production `production`.

        A conversion can be made of any value that is computed.  A fill works in place, so it needs
        the same layout and memory that is not inside another tensor.
        """
        edge_type, output_aliasing = (
            self.productions[production].edge_type,
            self.productions[production].output_aliasing,
        )
        if copy.kind != CopyKind.FILL:
            return not self.productions[production].unmoved
        free = output_aliasing in (OutputAliasing.FREE, OutputAliasing.CONTIGUOUS)
        return free and memory_key(edge_type.layout) == memory_key(copy.target.layout)

    def disturbing(self, requirement: OperandRequirement) -> list[int]:
        """The fills that overwrite padding on which a reader with this requirement relies."""
        if requirement.position < 0 or not relies_on_padding(requirement):
            return []
        fills = (c for c, copy in enumerate(self.copies) if copy.kind == CopyKind.FILL)
        return [c for c in fills if not edge_type_serves(self.copies[c].target, requirement)]

    @cached_property
    def compared(self) -> bool:
        """Whether the sets of copies are few enough to try them all; else the integer program
        decides.
        """
        return sum(comb(len(self.copies), k) for k in range(self._most + 1)) <= MOST_SETS

    @property
    def _most(self) -> int:
        """The most copies that an optimal set can have: one for each requirement."""
        requirements = sum(max(map(len, classes)) for classes in self.readers) + len(self.output)
        return min(requirements, len(self.copies))

    @cached_property
    def sets(self) -> tuple[tuple[int, ...], ...]:
        """All sets of copies that can be optimal, as ascending copy numbers, small sets first."""
        return tuple(
            chosen
            for size in range(self._most + 1)
            for chosen in combinations(range(len(self.copies)), size)
        )

    @cached_property
    def penalties(self) -> tuple[Table, tuple[Table, ...]]:
        """0 where a set of copies is possible and `NEVER` where it is not.

        The first table, by production and set: the copies can be made and the caller's requirement
        is satisfied.  Then for each reader a table by production, set and class of the reader: its
        requirements are satisfied.
        """
        possible = np.array(
            [[self.makes(g, copy) for copy in self.copies] for g in range(len(self.productions))],
            bool,
        ).reshape(len(self.productions), len(self.copies))
        made = ~(~possible @ self._member)
        made &= self._served((self.output,))[0]
        readers = tuple(
            _penalty(np.stack(self._served(classes), axis=-1)) for classes in self.readers
        )
        return _penalty(made), readers

    @cached_property
    def _member(self) -> NDArray[np.bool_]:
        """By copy and set, whether the copy is in the set."""
        member = np.zeros((len(self.copies), len(self.sets)), bool)
        for position, chosen in enumerate(self.sets):
            member[list(chosen), position] = True
        return member

    def _served(self, classes: Sequence[tuple[OperandRequirement, ...]]) -> list[NDArray[np.bool_]]:
        """For each class, by production and set of copies, whether all its requirements are
        satisfied.
        """
        requirements = [requirement for group in classes for requirement in group]
        direct = np.zeros((len(requirements), len(self.productions)), bool)
        serving = np.zeros((len(requirements), len(self.copies)), bool)
        spoiling = np.zeros_like(serving)
        for number, requirement in enumerate(requirements):
            direct[number, self.direct(requirement)] = True
            serving[number, self.serving(requirement)] = True
            spoiling[number, self.disturbing(requirement)] = True
        each = direct[:, :, None] | (serving @ self._member)[:, None]
        each &= ~(spoiling @ self._member)[:, None]
        ends = list(accumulate(map(len, classes)))
        parts = np.split(each, ends[:-1])
        return [p[0] if len(p) == 1 else np.logical_and.reduce(p) for p in parts]

    def costs(self, prices: Prices) -> Table:
        """The price of each set of copies, by production and set; `NEVER` where it is
        impossible.
        """
        alone = [[prices.copy(price) for price in made] for made in self.prices]
        total = (
            np.array(alone, np.int64).reshape(len(self.productions), len(self.copies))
            @ self._member
        )
        return plus(total, self.penalties[0])

    def table(self, prices: Prices) -> Table:
        """The price of the cheapest set of copies, by production and by the class of each reader.

        Readers with one class have no axis.  `NEVER` where no set satisfies all readers.
        """
        _, readers = self.penalties
        start = self.costs(prices)
        axes = [k for k, classes in enumerate(self.readers) if len(classes) > 1]
        for k, penalty in enumerate(readers):
            if k not in axes:
                start = plus(start, penalty[:, :, 0])
        best = np.full(
            [len(self.productions), *(len(self.readers[k]) for k in axes)], NEVER, np.int64
        )
        for chosen in range(len(self.sets)):
            cost = start[:, chosen].reshape(-1, *(1 for _ in axes))
            for axis, k in enumerate(axes):
                cost = plus(cost, _along(readers[k][:, chosen], axis, len(axes)))
            best = np.minimum(best, cost)
        return np.where(self._clash(axes), NEVER, best)

    def _clash(self, axes: Sequence[int]) -> NDArray[np.bool_]:
        """By the class of each reader, whether the aliasings that readers require exclude each
        other.
        """
        boxes, pieces = (
            self._count(InputAliasing.INSIDE_OUTPUT, axes),
            self._count(InputAliasing.HOLDS_OUTPUT_CONTIGUOUS, axes),
        )
        windows = boxes + self._count(InputAliasing.INSIDE_OUTPUT_CONTIGUOUS, axes)
        return np.asarray((windows > 1) | ((boxes > 0) & (pieces > 0)))

    def _count(self, aliasing: InputAliasing, axes: Sequence[int]) -> NDArray[np.intp]:
        """How many requirements with this aliasing all readers have, by the class of each
        reader.
        """
        total = np.zeros([1] * (len(axes) + 1), np.intp)
        for k, classes in enumerate(self.readers):
            here = np.array(
                [[sum(n.input_aliasing is aliasing for n in needed) for needed in classes]], np.intp
            )
            total = total + (_along(here, axes.index(k), len(axes)) if k in axes else here[0])
        return total

    @cached_property
    def holders(self) -> tuple[tuple[int, InputAliasing] | None, ...]:
        """The possible holders of the value: none, or a reader whose output contains it, and
        how.
        """
        found: dict[tuple[int, InputAliasing] | None, None] = {None: None}
        for k, classes in enumerate(self.readers):
            for requirement in (
                requirement
                for requirements in classes
                for requirement in requirements
                if requirement.input_aliasing.inside_output
            ):
                found[k, requirement.input_aliasing] = None
        return tuple(found)

    @property
    def states(self) -> int:
        """The number of states of the value.

        A state is a production, a set of copies and a holder; they are numbered in this order, the
        holder fastest.
        """
        return len(self.productions) * len(self.sets) * len(self.holders)

    def state_prices(self, prices: Prices) -> Table:
        """The price of each state: its copies; `NEVER` where a reader with one class excludes the
        state.
        """
        total = np.repeat(self.costs(prices).reshape(-1), len(self.holders))
        for k, classes in enumerate(self.readers):
            if len(classes) == 1:
                total = plus(total, self.admitted(k)[0])
        return total

    def admitted(self, reader: int) -> Table:
        """By class of the reader and state, 0 if the state satisfies the reader, else `NEVER`."""
        penalty = self.penalties[1][reader]
        found = []
        for number, requirements in enumerate(self.readers[reader]):
            held = _penalty(
                np.array([_agrees(h, reader, requirements) for h in self.holders], bool)
            )
            found.append(plus(penalty[:, :, number, None], held).reshape(-1))
        return np.stack(found)

    def cheapest(
        self, production: int, reader_classes: Sequence[int], prices: Prices
    ) -> tuple[Copy, ...]:
        """The cheapest copies, priced, for one class of the producer and one of each reader."""
        cost = self.costs(prices)[production]
        for penalty, chosen in zip(self.penalties[1], reader_classes, strict=True):
            cost = plus(cost, penalty[production, :, chosen])
        made = self.sets[int(cost.argmin())]
        return tuple(self.copies[c].at(self.prices[production][c]) for c in made)


def _used(classes: Classes, kept: Classes | None) -> tuple[Classes, Classes]:
    """The classes that the `kept` candidates have, and for each of these the number among them."""
    used, numbers = np.unique(classes if kept is None else classes[kept], return_inverse=True)
    return used, np.asarray(numbers, np.intp)


def _by_memory(edge_types: Iterable[EdgeType]) -> dict[MemoryKey, list[int]]:
    found: dict[MemoryKey, list[int]] = {}
    for number, edge_type in enumerate(edge_types):
        found.setdefault(memory_key(edge_type.layout), []).append(number)
    return found


def _agrees(
    holder: tuple[int, InputAliasing] | None,
    reader: int,
    requirements: Sequence[OperandRequirement],
) -> bool:
    """Whether the aliasings that a reader requires are compatible with the holder of the value."""
    windows = [r.input_aliasing for r in requirements if r.input_aliasing.inside_output]
    if len(windows) > 1 or any(holder != (reader, aliasing) for aliasing in windows):
        return False
    held = any(
        requirement.input_aliasing is InputAliasing.HOLDS_OUTPUT_CONTIGUOUS
        for requirement in requirements
    )
    return not (held and holder is not None and holder[1] is InputAliasing.INSIDE_OUTPUT)


def _factor(scope: tuple[int, int], table: Table) -> Factor:
    return Factor(scope, lambda: table)


def _penalty(allowed: NDArray[np.bool_]) -> Table:
    return np.where(allowed, 0, NEVER).astype(np.int64)


def _along(table: NDArray[np.int64], axis: int, axes: int) -> NDArray[np.int64]:
    """`table` (production × class) with the class on axis `axis` of the `axes` behind the
    production.
    """
    shape = [1] * axes
    shape[axis] = table.shape[1]
    return table.reshape(table.shape[0], *shape)


@dataclass(frozen=True, eq=False)
class Term:
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
        found = [node for node, chooses in zip(self.readers, self.choosing, strict=True) if chooses]
        if self.producer is not None and self.produces_several:
            found.append(self.producer)
        return tuple(sorted(found))

    @property
    def produces_several(self) -> bool:
        """Whether the producer's candidates have more than one class of production."""
        return self.producer is not None and len(self.pattern.productions) > 1

    @property
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
        found = shared[self.pattern]
        nodes, classes = [], []
        if self.producer is not None and self.produces_several:
            nodes.append(self.producer)
            classes.append(self.producer_classes)
        else:
            found = found[0]
        for node, numbers, chooses in zip(
            self.readers, self.reader_classes, self.choosing, strict=True
        ):
            if chooses:
                nodes.append(node)
                classes.append(numbers)
        order = sorted(range(len(nodes)), key=lambda k: nodes[k])
        return np.array(found[np.ix_(*classes)].transpose(order), np.int64)

    @property
    def splittable(self) -> bool:
        """Whether the states of the value are few enough for `split`."""
        return self.pattern.compared and self.pattern.states <= MOST_STATES

    def split(self, variable: int) -> Iterator[Factor]:
        """The term as factors over one node and `variable` each, where `variable` is the state of
        the value.

        The state is the production, the set of copies and the holder; given the state, the nodes
        are independent of each other.  The number `variable` is greater than those of all nodes, so
        that scopes ascend.
        """
        if self.producer is not None and self.produces_several:
            edge_types = len(self.pattern.productions)
            production = np.repeat(np.arange(edge_types), self.pattern.states // edge_types)
            agreeing = self.producer_classes[:, None] == production
            yield _factor((self.producer, variable), _penalty(agreeing))
        for k, (node, classes) in enumerate(zip(self.readers, self.reader_classes, strict=True)):
            if self.choosing[k]:
                yield _factor((node, variable), self.pattern.admitted(k)[classes])

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


def terms_of(graph: OperatorGraph, candidates: Candidates, cost: CostModel) -> list[Term]:
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
