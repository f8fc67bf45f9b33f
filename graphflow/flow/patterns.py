"""The price of the copies of one value, as a function of how it is produced and read.

In: the classes of productions and requirements of a value, and the copies that these could ask for,
with prices.  Out: a `Pattern`, which computes the price of the cheapest set of copies for every
choice of classes, as a table or as factors of elimination.  What always holds: nothing is said of
which nodes produce and read the value, so values with the same productions and requirements share
one pattern.

A copy is paid for once, however many readers take it.  A fill writes the padding of the value in
place: it needs the value in the same layout, and is excluded where a reader relies on other
padding.  A value is inside the output of at most one reader, and is contiguous where a view of it
needs that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations
from math import comb
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from graphflow.cost import Price
from graphflow.flow.copies import Copy, directly, edge_type_serves, relies_on_padding
from graphflow.flow.prices import NEVER, Prices, Table, plus
from graphflow.flow.requirements import (
    InputAliasing,
    OperandRequirement,
    OutputAliasing,
    Production,
)
from graphflow.kernels.recipes import MemoryKey, memory_key
from graphflow.plan import CopyKind, EdgeType

MOST_SETS = 1024
"""The most sets of copies of one value for which a table is computed, by trying every set."""

MOST_STATES = 1024
"""The most states of a value for which the value becomes a variable of elimination."""

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
            penalty_table(np.stack(self._served(classes), axis=-1)) for classes in self.readers
        )
        return penalty_table(made), readers

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
        boxes = self._count(lambda aliasing: aliasing is InputAliasing.INSIDE_OUTPUT, axes)
        pieces = self._count(lambda aliasing: aliasing.contiguous, axes)
        windows = self._count(lambda aliasing: aliasing.inside_output, axes)
        return np.asarray((windows > 1) | ((boxes > 0) & (pieces > 0)))

    def _count(
        self, counted: Callable[[InputAliasing], bool], axes: Sequence[int]
    ) -> NDArray[np.intp]:
        """How many requirements with such an aliasing all readers have, by the class of each
        reader.
        """
        total = np.zeros([1] * (len(axes) + 1), np.intp)
        for k, classes in enumerate(self.readers):
            here = np.array(
                [[sum(counted(n.input_aliasing) for n in needed) for needed in classes]], np.intp
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
            held = penalty_table(
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
    pieces = any(requirement.input_aliasing.contiguous for requirement in requirements)
    return not (pieces and holder is not None and holder[1] is InputAliasing.INSIDE_OUTPUT)


def penalty_table(allowed: NDArray[np.bool_]) -> Table:
    """0 where a choice is allowed, else `NEVER`."""
    return np.where(allowed, 0, NEVER).astype(np.int64)


def _along(table: NDArray[np.int64], axis: int, axes: int) -> NDArray[np.int64]:
    """`table` (production × class) with the class on axis `axis` of the `axes` behind the
    production.
    """
    shape = [1] * axes
    shape[axis] = table.shape[1]
    return table.reshape(table.shape[0], *shape)
