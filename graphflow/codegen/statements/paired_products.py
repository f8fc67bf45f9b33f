"""Products of integers in lanes that are added to the same sums, two in one multiplication.

In: the calls of an unrolled nest that adds products of 16-bit integers, or of bytes and those, to
sums in registers.  Out: their instructions.  A product in lanes multiplies pairs of 16-bit integers
(vpmaddwd) of which one term is 0, as each lane has one.  Two products of a sum put their numbers
next to each other instead, so that half of the multiplications and of the additions are left:

    before:  c += pairs(a0 0, w0 0); c += pairs(a1 0, w1 0)
    after:   c += pairs(a0 a1, w0 w1)

Neighbouring sums meet the numbers of the same places: over windows whose rows are all in the nest,
numbers one row below the other are a pair for as many sums as a window has columns.  Weights are
paired alike for all sums, so that few pairs of weights are made.  What a sum has left, by itself,
meets a pair that is there, with a weight of 0 beside its own.

What always holds: sums of integers do not depend on the order of their terms, and wrap around.  The
calls of a nest write whole vectors of sums in registers, at places known beforehand, which no call
of it reads as an operand; so all operands may be loaded before any sum is stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.codegen.call_operands import CallOperands
from graphflow.codegen.memory import Address, Memory
from graphflow.codegen.statements.lane_products import adds_products
from graphflow.codegen.x86_instructions import add_word_pairs, in_words
from graphflow.llvm import IrBuilder, IrValue

MOST_TOGETHER = 256
"""The most products whose code is written out for one nest: 9 taps of 28 sums."""

Places = tuple[Address, Address]
"""Where two vectors begin, of which each lane multiplies or adds a number."""


Products = dict[Address, dict[Address, CallOperands]]
"""The products of each sum, by where their weights lie."""


def product_to_pair(body: tir.Body, products: Sequence[tir.PrimFunc]) -> tir.PrimFunc | None:
    """The product of `products` that an unrolled body adds to sums in registers, and nothing else;
    None for any other body."""
    found = (one for one in products if body and all(adds_products(stmt, one) for stmt in body))
    in_registers = all(c.windows[0].buffer.scope == "register" for c in tir.calls_in(body))
    return next(found, None) if in_registers else None


def may_be_paired(calls: Sequence[CallOperands]) -> bool:
    """Whether some sum of a nest has two products, no two of them with the same weights, and all
    write sums that nothing else meets."""
    sums = {call.call.windows[0].buffer for call in calls}
    read = {window.buffer for call in calls for window in call.call.windows[1:]}
    alone = all(_keeps_sums(call) for call in calls) and sums.isdisjoint(read)
    places = {call.addresses["c"] for call in calls}
    if not alone or not len(places) < len(calls) <= MOST_TOGETHER:
        return False
    return len({(call.addresses["c"], call.addresses["b"]) for call in calls}) == len(calls)


def _keeps_sums(call: CallOperands) -> bool:
    """Whether a call writes a whole row of a buffer in registers, at a place known beforehand."""
    window, address = call.call.windows[0], call.addresses["c"]
    lanes = call.call.definition.param("c").size
    known = not address.terms and window.buffer.scope == "register"
    return known and window.buffer.shape[-1] == lanes == address.place.row


def emit_in_pairs(
    calls: Sequence[CallOperands], builder: IrBuilder, memory: Memory
) -> list[CallOperands]:
    """Emit the products that are multiplied together; what is left are products to be emitted
    alone."""
    lanes = calls[0].call.definition.param("c").size
    products = _by_sum_and_weights(calls)
    found: list[tuple[CallOperands, Places, Places | tuple[Address, None]]] = []
    for first, second in _paired_weights(products):
        for of_sum in products.values():
            if first in of_sum and second in of_sum:
                call, other = of_sum.pop(first), of_sum.pop(second)
                found.append((call, _data_of(call, other), (first, second)))
    with_place: dict[Address, Places] = {}
    for _, places, _ in found:
        with_place.setdefault(places[0], places)
    alone: list[CallOperands] = []
    for call in (call for of_sum in products.values() for call in of_sum.values()):
        begin_of = with_place.get(call.addresses["a"])
        if begin_of is None:
            alone.append(call)
        else:
            found.append((call, begin_of, (call.addresses["b"], None)))
    data = _DataPairs({places for _, places, _ in found}, lanes, builder, memory)
    for call, places, weights in found:
        factors = _side_by_side([_window(at, lanes, memory) for at in weights], builder)
        add_word_pairs(call, lanes, *(in_words(call, x, lanes) for x in (data.at(places), factors)))
    return alone


def _data_of(first: CallOperands, second: CallOperands) -> Places:
    return first.addresses["a"], second.addresses["a"]


class _DataPairs:
    """Pairs of data, made where they are first met: two at once where the second one begins behind
    both vectors of the first, so that each of two loads serves both."""

    def __init__(self, wanted: set[Places], lanes: int, builder: IrBuilder, memory: Memory) -> None:
        self._wanted, self._lanes = wanted, lanes
        self._builder, self._memory = builder, memory
        self._made: dict[Places, IrValue] = {}

    def at(self, places: Places) -> IrValue:
        """The numbers from two places on, as `_side_by_side` puts them."""
        if places not in self._made:
            for begin in (places, self._behind(places, -1)):
                follows = self._behind(begin, 1)
                if all(one in self._wanted and one not in self._made for one in (begin, follows)):
                    self._make(begin, follows)
                    break
            else:
                self._make(places)
        return self._made[places]

    def _behind(self, places: Places, vectors: int) -> Places:
        """The places so many vectors behind others."""
        step = vectors * self._lanes
        first, second = (replace(at, constant=at.constant + step) for at in places)
        return first, second

    def _make(self, *neighbours: Places) -> None:
        lanes, b = self._lanes, self._builder
        size = lanes * len(neighbours)
        loaded = [self._memory.load_window(at, size) for at in neighbours[0]]
        for number, places in enumerate(neighbours):
            begin = number * lanes
            own = [x if size == lanes else b.part(x, begin, lanes) for x in loaded]
            self._made[places] = _side_by_side(own, b)


def _by_sum_and_weights(
    calls: Iterable[CallOperands],
) -> dict[Address, dict[Address, CallOperands]]:
    """The products of each sum, by where their weights lie."""
    found: Products = {}
    for call in calls:
        found.setdefault(call.addresses["c"], {})[call.addresses["b"]] = call
    return found


def _paired_weights(products: Products) -> list[Places]:
    """Which weights are multiplied together, the same for each sum, so that few pairs of weights
    are made: always those that need the fewest new pairs of data for each sum, of as many those
    whose data most sums could meet, of as many the first."""
    left = [{b: call.addresses["a"] for b, call in of.items()} for of in products.values()]
    met = Counter(data for of_sum in left for data in combinations(of_sum.values(), 2))
    made: set[Places] = set()
    chosen: list[Places] = []

    def price(data: Sequence[Places]) -> tuple[float, int]:
        return len({*data} - made) / len(data), -sum(met[one] for one in data)

    while True:
        found: dict[Places, list[Places]] = {}
        for of_sum in left:
            for weights in combinations(of_sum, 2):
                found.setdefault(weights, []).append((of_sum[weights[0]], of_sum[weights[1]]))
        if not found:
            return chosen
        pair = min(found, key=lambda weights: price(found[weights]))
        chosen.append(pair)
        made.update(found[pair])
        left = [_without(pair, of_sum) for of_sum in left]


def _without(pair: Places, of_sum: Mapping[Address, Address]) -> dict[Address, Address]:
    """The products of a sum by their weights, less those of a pair if it has both."""
    both = of_sum.keys() >= {*pair}
    return {b: a for b, a in of_sum.items() if not both or b not in pair}


def _window(at: Address | None, lanes: int, memory: Memory) -> IrValue | None:
    return None if at is None else memory.load_window(at, lanes)


def _side_by_side(parts: Sequence[IrValue | None], builder: IrBuilder) -> IrValue:
    """The numbers of two vectors as 16-bit integers, those of a lane next to each other; 0 for
    None."""
    known = next(part for part in parts if part is not None)
    lanes, none = known.lanes, IrValue("zeroinitializer", known.element, known.lanes)
    low, high = (none if part is None else part for part in parts)
    order = [number for lane in range(lanes) for number in (lane, lanes + lane)]
    together = builder.shuffled(low, high, order)
    return together if known.element == "i16" else builder.convert("zext", together, "i16")
