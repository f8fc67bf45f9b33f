"""The price of the copies of one value, as a function of how it is produced and read.

In: the classes of productions and requirements of a value, and the copies that these could ask for,
with prices.  Out: a `Pattern`, which computes the price of the cheapest set of copies for every
choice of classes, as a table or as a small network of tables.  What always holds: nothing is said
of which nodes produce and read the value, so values with the same productions and requirements
share one pattern.

A copy is paid for once, however many readers take it.  A fill writes the padding of the value in
place: it needs the value in the same layout, and is excluded where a reader relies on other
padding.  A value is inside the output of at most one reader, and is contiguous where a view of it
needs that.  These rules are in `directly`, `Copy.serves` and `clashing`; here they become tables
over hidden variables.  One is the state of the value: its production, the fills, and its container,
which is the reader inside whose output the value is.  For each layout that conversions could make,
another one is the set of conversions to this layout.  A requirement names one layout, so given the
state, the sets are independent of each other, and the price is a sum over layouts.

For example, a value is produced in NCHW, and has two readers.  The first takes it in NCHW or NHWC,
the second in NHWC or as blocks of 8 with zeros in the padding.  The state is the same whatever is
taken; there are the sets {} and {to NHWC}, and {} and {to blocks}.  The table, in microseconds:

                        second: NHWC    second: blocks
        first: NCHW         2.0              3.0
        first: NHWC         2.0              5.0
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import combinations
from math import prod
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.cost import Price
from graphflow.flow.candidates.copies import (
    Copy,
    clashing,
    directly,
    edge_type_serves,
    relies_on_padding,
)
from graphflow.flow.candidates.requirements import (
    InputAliasing,
    OperandRequirement,
    OutputAliasing,
    Production,
)
from graphflow.flow.elimination.prices import NEVER, Prices, Table, plus
from graphflow.kernels.recipes import MemoryKey, memory_key
from graphflow.plan import CopyKind, EdgeType

Classes: TypeAlias = NDArray[np.intp]
"""For each candidate of a node, the number of its class."""

Copies: TypeAlias = tuple[int, ...]
"""Some copies of a pattern, as ascending numbers."""

Container: TypeAlias = "tuple[int, InputAliasing] | None"
"""The number of the reader inside whose output a value is, and how; None for memory of its own."""


class ValueState(Struct, frozen=True):
    """How a value is in memory before conversions: the number of its production, the fills that
    write its padding, and its container."""

    production: int
    fills: Copies
    container: Container


class HiddenPrices(Struct, frozen=True):
    """The price of each state, and for each layout that of each set of conversions by state.

    `NEVER` where a set cannot be made, or where a reader without a choice excludes it.
    """

    states: Table
    sets: tuple[Table, ...]


class _Rules(Struct, frozen=True):
    """The requirements of all readers, one after another: the reader, the number of its class, and
    the number of the layout that conversions could make for it, -1 if none could.

    By requirement and state, whether the state satisfies it without conversions, and whether a fill
    of the state excludes it; by requirement and copy, whether the copy satisfies it.
    """

    reader: NDArray[np.intp]
    number: NDArray[np.intp]
    layout: NDArray[np.intp]
    by_state: NDArray[np.bool_]
    excluded: NDArray[np.bool_]
    by_copy: NDArray[np.bool_]


class Pattern(Struct, frozen=True, eq=False, dict=True):
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
        """The pattern of these productions, and of these classes of each reader: one object for
        equal arguments, as equal layers of a network ask for the same."""
        asked = productions.tobytes(), *(used.tobytes() for used in readers)
        if asked not in self._restricted:
            self._restricted[asked] = self._restriction(productions, readers)
        return self._restricted[asked]

    @cached_property
    def _restricted(self) -> dict[tuple[bytes, ...], Pattern]:
        return {}

    def _restriction(self, productions: Classes, readers: Sequence[Classes]) -> Pattern:
        wanted = tuple(
            tuple(classes[k] for k in used)
            for classes, used in zip(self.readers, readers, strict=True)
        )
        every = [n for classes in wanted for requirements in classes for n in requirements]
        copies = sorted({c for n in (*every, *self.output) for c in self.copies_for(n)})
        return Pattern(
            tuple(self.productions[p] for p in productions),
            wanted,
            self.output,
            tuple(self.copies[c] for c in copies),
            tuple(tuple(self.prices[p][c] for c in copies) for p in productions),
        )

    def productions_for(self, requirement: OperandRequirement) -> list[int]:
        """The productions that satisfy a requirement without a copy."""
        output = bool(self.output)
        return [
            g
            for g in self._alike[0].get(memory_key(requirement.layout), ())
            if directly(self.productions[g], requirement, output)
        ]

    def copies_for(self, requirement: OperandRequirement) -> list[int]:
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

    def can_make(self, production: int, copy: Copy) -> bool:
        """Whether `copy` can be made from production `production`.

        A conversion can be made of any value that is computed.  A fill works in place, so it needs
        the same layout and memory that is not inside another tensor.
        """
        source = self.productions[production]
        if copy.kind != CopyKind.FILL:
            return not source.unmoved
        free = source.output_aliasing in (OutputAliasing.FREE, OutputAliasing.CONTIGUOUS)
        return free and memory_key(source.edge_type.layout) == memory_key(copy.target.layout)

    def excluded_fills(self, requirement: OperandRequirement) -> list[int]:
        """The fills that overwrite padding on which a reader with this requirement relies."""
        if requirement.position < 0 or not relies_on_padding(requirement):
            return []
        fills = (c for c, copy in enumerate(self.copies) if copy.kind == CopyKind.FILL)
        return [c for c in fills if not edge_type_serves(self.copies[c].target, requirement)]

    # The hidden variables ------------------------------------------------------------------------

    @cached_property
    def states(self) -> tuple[ValueState, ...]:
        """The values of the first hidden variable, by production."""
        known = [c for c, copy in enumerate(self.copies) if copy.kind == CopyKind.FILL]
        return tuple(
            ValueState(production, fills, container)
            for production in range(len(self.productions))
            for fills in _subsets([c for c in known if self.can_make(production, self.copies[c])])
            for container in self.containers
        )

    @cached_property
    def containers(self) -> tuple[Container, ...]:
        """The possible containers of the value."""
        containers: dict[Container, None] = {None: None}
        for k, classes in enumerate(self.readers):
            for requirement in (r for requirements in classes for r in requirements):
                if requirement.input_aliasing.inside_output:
                    containers[k, requirement.input_aliasing] = None
        return tuple(containers)

    @cached_property
    def conversions(self) -> tuple[Copies, ...]:
        """For each layout that conversions could make, these conversions."""
        converting = (
            tuple(c for c in copies if self.copies[c].kind == CopyKind.CONVERT)
            for copies in self._alike[1].values()
        )
        return tuple(filter(None, converting))

    @cached_property
    def sets(self) -> tuple[tuple[Copies, ...], ...]:
        """For each layout the sets of conversions to it that can be optimal, small ones first.

        No more conversions are needed than there are requirements of the layout.
        """
        sets = []
        for conversions in self.conversions:
            memory = memory_key(self.copies[conversions[0]].target.layout)
            most = sum(
                max(sum(memory_key(r.layout) == memory for r in group) for group in classes)
                for classes in self._readers
            )
            sets.append(tuple(_subsets(conversions, most)))
        return tuple(sets)

    @property
    def combinations(self) -> int:
        """How many choices of a state and of sets there are."""
        return len(self.states) * prod(map(len, self.sets))

    @property
    def _readers(self) -> tuple[tuple[tuple[OperandRequirement, ...], ...], ...]:
        """All readers, and the caller as the last one."""
        return *self.readers, (self.output,)

    @property
    def choosing(self) -> list[int]:
        """The readers with more than one class, which are the axes of tables."""
        return [k for k, classes in enumerate(self.readers) if len(classes) > 1]

    # Tables over them ----------------------------------------------------------------------------

    @cached_property
    def _rules(self) -> _Rules:
        """Which requirements a state satisfies or excludes, and which copies satisfy them."""
        wanted = [
            (reader, number, requirement)
            for reader, classes in enumerate(self._readers)
            for number, requirements in enumerate(classes)
            for requirement in requirements
        ]
        by_production = np.zeros((len(wanted), len(self.productions)), bool)
        by_copy = np.zeros((len(wanted), len(self.copies)), bool)
        by_fill = np.zeros_like(by_copy)
        for k, (_, _, requirement) in enumerate(wanted):
            by_production[k, self.productions_for(requirement)] = True
            by_copy[k, self.copies_for(requirement)] = True
            by_fill[k, self.excluded_fills(requirement)] = True
        filled = np.zeros((len(self.copies), len(self.states)), bool)
        for number, state in enumerate(self.states):
            filled[list(state.fills), number] = True
        layouts = np.full(len(wanted), -1)
        for layout, conversions in enumerate(self.conversions):
            layouts[by_copy[:, conversions].any(1)] = layout
        return _Rules(
            np.array([reader for reader, _, _ in wanted], np.intp),
            np.array([number for _, number, _ in wanted], np.intp),
            layouts,
            by_production[:, self._productions] | (by_copy @ filled),
            by_fill @ filled,
            by_copy,
        )

    @cached_property
    def state_penalties(self) -> tuple[Table, ...]:
        """For each reader, and the caller last: 0 where a state admits a class, by state and class,
        else `NEVER`.

        Requirements that conversions could satisfy are left to `conversion_penalties`.
        """
        rules = self._rules
        each = ~rules.excluded & (rules.by_state | (rules.layout >= 0)[:, None])
        penalties = []
        for k, classes in enumerate(self._readers):
            holds = [[_holds(c, k, group) for group in classes] for c in self.containers]
            allowed = np.tile(np.array(holds, bool), (len(self.states) // len(holds), 1))
            for r in np.flatnonzero(rules.reader == k):
                allowed[:, rules.number[r]] &= each[r]
            penalties.append(penalty_table(allowed))
        return tuple(penalties)

    @cached_property
    def conversion_penalties(self) -> tuple[dict[int, Table], ...]:
        """For each reader, and the caller last, by the number of each layout that it may want
        converted: 0 where the conversions satisfy what the state does not, by state, set and class,
        else `NEVER`.
        """
        rules = self._rules
        penalties: list[dict[int, Table]] = [{} for _ in self._readers]
        for layout, sets in enumerate(self.sets):
            member = self._member(layout)
            for k in np.unique(rules.reader[rules.layout == layout]):
                met = np.ones((len(self.states), len(sets), len(self._readers[k])), bool)
                for r in np.flatnonzero((rules.reader == k) & (rules.layout == layout)):
                    converted = rules.by_copy[r] @ member
                    met[:, :, rules.number[r]] &= rules.by_state[r][:, None] | converted
                penalties[k][layout] = penalty_table(met)
        return tuple(penalties)

    def _member(self, layout: int) -> NDArray[np.bool_]:
        """By copy and set of conversions to a layout, whether the copy is in the set."""
        member = np.zeros((len(self.copies), len(self.sets[layout])), bool)
        for position, chosen in enumerate(self.sets[layout]):
            member[list(chosen), position] = True
        return member

    def priced(self, prices: Prices) -> HiddenPrices:
        """The prices of the hidden variables' values, computed once."""
        if prices not in self._priced:
            alone = [[prices.copy(price) for price in copies] for copies in self.prices]
            shape = len(self.productions), len(self.copies)
            costs = np.array(alone, np.int64).reshape(shape)
            layouts = range(len(self.sets))
            sets = tuple(self._set_prices(layout, costs) for layout in layouts)
            self._priced[prices] = HiddenPrices(self._state_prices(costs), sets)
        return self._priced[prices]

    @cached_property
    def _priced(self) -> dict[Prices, HiddenPrices]:
        return {}

    def _state_prices(self, costs: Table) -> Table:
        fills = [costs[state.production, list(state.fills)].sum() for state in self.states]
        total = np.array(fills, np.int64)
        for k in self._fixed:
            total = plus(total, self.state_penalties[k][:, 0])
        return total

    def _set_prices(self, layout: int, costs: Table) -> Table:
        copies = list(self.conversions[layout])
        by_production = costs[:, copies] @ self._member(layout)[copies].astype(np.int64)
        by_production[[production.unmoved for production in self.productions], 1:] = NEVER
        total = np.asarray(by_production[self._productions], np.int64)
        for k in self._fixed:
            if layout in self.conversion_penalties[k]:
                total = plus(total, self.conversion_penalties[k][layout][:, :, 0])
        return total

    @property
    def _fixed(self) -> list[int]:
        return [k for k, classes in enumerate(self._readers) if len(classes) == 1]

    def table(self, prices: Prices) -> Table:
        """The price of the cheapest set of copies, by production and by the class of each reader.

        Readers with one class have no axis.  `NEVER` where no set satisfies all readers.
        """
        axes = self.choosing
        hidden = self.priced(prices)
        total = hidden.states.reshape(-1, *(1 for _ in axes))
        for axis, k in enumerate(axes):
            total = plus(total, _along(self.state_penalties[k], axis, len(axes)))
        for layout, sets in enumerate(self.sets):
            costs = hidden.sets[layout]
            least: Table | None = None
            for chosen in range(len(sets)):
                cost = costs[:, chosen].reshape(-1, *(1 for _ in axes))
                for axis, k in enumerate(axes):
                    if layout in self.conversion_penalties[k]:
                        penalty = self.conversion_penalties[k][layout][:, chosen]
                        cost = plus(cost, _along(penalty, axis, len(axes)))
                least = cost if least is None else np.minimum(least, cost)
            if least is not None:
                total = plus(total, least)
        shape = len(self.states), *(len(self.readers[k]) for k in axes)
        starts = np.searchsorted(self._productions, np.arange(len(self.productions)))
        return np.asarray(np.minimum.reduceat(np.broadcast_to(total, shape), starts, 0), np.int64)

    @cached_property
    def _productions(self) -> Classes:
        """The production of each state; ascending."""
        return np.array([state.production for state in self.states], np.intp)

    def cheapest(
        self, production: int, reader_classes: Sequence[int], prices: Prices
    ) -> tuple[Copy, ...]:
        """The cheapest copies, priced, for one class of the producer and one of each reader."""
        hidden = self.priced(prices)
        total = hidden.states
        for k in self.choosing:
            total = plus(total, self.state_penalties[k][:, reader_classes[k]])
        costs = []
        for layout, cost in enumerate(hidden.sets):
            for k in self.choosing:
                if layout in self.conversion_penalties[k]:
                    cost = plus(cost, self.conversion_penalties[k][layout][:, :, reader_classes[k]])
            total = plus(total, cost.min(1))
            costs.append(cost)
        total = np.where(self._productions == production, total, NEVER)
        best = int(total.argmin())
        chosen = [*self.states[best].fills]
        for sets, cost in zip(self.sets, costs, strict=True):
            chosen += sets[int(cost[best].argmin())]
        return tuple(self.copies[c].at(self.prices[production][c]) for c in sorted(chosen))


def _subsets(items: Sequence[int], most: int | None = None) -> Iterator[Copies]:
    """All subsets of at most `most` items, small ones first."""
    for size in range(min(len(items), len(items) if most is None else most) + 1):
        yield from combinations(items, size)


def _by_memory(edge_types: Iterable[EdgeType]) -> dict[MemoryKey, list[int]]:
    numbers: dict[MemoryKey, list[int]] = {}
    for number, edge_type in enumerate(edge_types):
        numbers.setdefault(memory_key(edge_type.layout), []).append(number)
    return numbers


def _holds(container: Container, reader: int, requirements: Sequence[OperandRequirement]) -> bool:
    """Whether a reader's requirements are compatible with the container of the value."""
    windows = [r.input_aliasing for r in requirements if r.input_aliasing.inside_output]
    if container is None or container[0] != reader:
        around = [] if container is None else [container[1]]
        return not windows and not clashing([*around, *(r.input_aliasing for r in requirements)])
    return windows == [container[1]] and not clashing(r.input_aliasing for r in requirements)


def penalty_table(allowed: Sequence[Sequence[bool]] | NDArray[np.bool_]) -> Table:
    """0 where a choice is allowed, else `NEVER`."""
    return np.where(np.asarray(allowed, bool), 0, NEVER).astype(np.int64)


def _along(table: Table, axis: int, axes: int) -> Table:
    """`table` (state × class) with the class on axis `axis` of the `axes` behind the state."""
    shape = [1] * axes
    shape[axis] = table.shape[1]
    return table.reshape(table.shape[0], *shape)
