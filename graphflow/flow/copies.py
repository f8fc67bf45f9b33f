"""Copies of values: which ones a reader could want, whom they serve, and what they cost.

A conversion gives another tensor; a fill writes constants to the padding of the value itself, so it
starts from a label with the same layout.  What a conversion costs may depend on the layout that it
starts from: so it is where it was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from graphflow.cost import CostModel, Price
from graphflow.flow.candidates import Lies, Need, Place
from graphflow.flow.labels import accepts, label_of
from graphflow.flow.plan import Label
from graphflow.flow.pricing import CopyPrices
from graphflow.graph import Value
from graphflow.kernels.recipes import moved_bytes
from graphflow.layout import Equal, Layout, Undefined, fact_of, serves
from graphflow.tir import DTYPES


@dataclass(frozen=True)
class Copy:
    """A possible copy of `value`; a fill starts from a label with the same layout.

    A copy in a `window` lies inside another tensor: anyone may read it there, but it is no output.
    Its price is known when it is known of what it is made: see `copy_prices`.
    """

    value: str
    target: Label
    kind: str
    bytes: int
    window: bool = False
    seconds: float = 0.0
    measured: bool = False

    def at(self, price: Price) -> Copy:
        """This copy, made of something that gives it this price."""
        return replace(self, seconds=price.seconds, measured=price.measured)

    def serves(self, need: Need) -> bool:
        """Whether a reader may take this copy."""
        place = need.place
        if place.held or (place.window != self.window and (place.window or place is Place.OWN)):
            return False
        return label_serves(self.target, need)


def label_serves(label: Label, need: Need) -> bool:
    """Whether `label` is what a reader wants, and holds what the reader's own claims rest on."""
    if not accepts(label, need.layout, need.demand):
        return False
    known = dict(label.facts) if need.facts else {}
    return all(known.get(region) == fact for region, fact in need.facts if fact != Undefined())


def directly(label: Label, lies: Lies | None, need: Need, output: bool) -> bool:
    """Whether a value serves a reader without a copy.

    A graph input `lies` nowhere else (None); a graph `output` has a storage of its own.
    """
    match need.place:
        case Place.OWN:
            fits = lies in (Lies.FREE, Lies.PIECE)
        case Place.WINDOW:
            fits = lies is Lies.FREE and not output
        case Place.WINDOW_PIECE:
            fits = lies in (Lies.FREE, Lies.PIECE) and not output
        case Place.HELD_PIECE:
            fits = lies is not Lies.INSIDE
        case _:
            fits = True
    return fits and label_serves(label, need)


def clashing(needs: Iterable[Need]) -> bool:
    """Whether readers of one value exclude each other.

    It lies in at most one window, and in one piece of it if something that lies in the value needs
    one piece.
    """
    places = [need.place for need in needs]
    windows = sum(place.window for place in places)
    return windows > 1 or (Place.WINDOW in places and Place.HELD_PIECE in places)


def relies_on_padding(need: Need) -> bool:
    """Whether a reader is not content with padding that holds anything."""
    return not label_serves(label_of(need.layout), need)


def copies_for(tensor: Value, need: Need) -> Iterator[Copy]:
    """The copies that this reader alone would want: a conversion, and a fill if that can help."""
    if need.place.held:
        return
    label, window = _wanted_label(need), need.place.window
    yield Copy(tensor.name, label, "convert", moved_bytes(label.layout, tensor.dtype), window)
    if label.facts and not serves(Undefined(), need.demand):
        written = label.layout.padding_elements * DTYPES[tensor.dtype].itemsize
        yield Copy(tensor.name, label, "fill", written, window)


def copy_prices(
    tensor: Value,
    copies: Sequence[Copy],
    sources: Sequence[Label],
    cost: CostModel,
) -> tuple[tuple[Price, ...], ...]:
    """For each label that a value is given in, the price of each copy if made of it."""
    wanted = [(copy.target.layout, copy.target.constant) for copy in copies]
    layouts = [label.layout for label in sources]
    prices = CopyPrices(tensor.dtype, layouts, wanted, cost)
    return tuple(tuple(_price(copy, source, prices) for copy in copies) for source in layouts)


def _price(copy: Copy, source: Layout, prices: CopyPrices) -> Price:
    layout, constant = copy.target.layout, copy.target.constant
    if copy.kind == "fill":
        assert constant is not None, "a fill writes a constant"
        return prices.fill(layout, constant)
    return prices.conversion(source, layout, constant)


def _wanted_label(need: Need) -> Label:
    if any(fact != Undefined() for _, fact in need.facts):
        return Label(need.layout, need.facts)
    if isinstance(need.demand, Equal):
        literal = need.demand.literal
        return label_of(need.layout, fact_of(literal.value, literal.dtype))
    return label_of(need.layout)
