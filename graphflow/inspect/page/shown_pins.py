"""What pins would cost, and what they would change elsewhere.

In: a `Compiled` model.  Out: `ShownPin`s by tensor.  What always holds: a pin is priced by planning
again with it.  That takes time, so tensors that are converted come first, and the others are left
out when enough was planned; the page says which pins were.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from math import inf

from graphflow.inspect.diff import Change
from graphflow.inspect.page.page_data import ShownPin
from graphflow.layout import Layout
from graphflow.pipeline.compiler import Compiled
from graphflow.plan import EdgePlan, LayoutPlan

MOST_PLANNED = 1_500
"""The most nodes of all plans together that are made to price pins: two or three seconds."""

LEFT_OUT = "not planned, as the page has enough of them; tensors that are converted come first"
TIMED = "not planned, as end-to-end times chose the plan, and prices do not compare with it"


def shown_pins(compiled: Compiled) -> dict[str, tuple[ShownPin, ...]]:
    """The pins to the other layouts that the writer of each tensor offers, the cheapest first."""
    plan, trials = compiled.plan, compiled.pin_trials
    left = MOST_PLANNED
    found: dict[str, list[ShownPin]] = {}
    for edge, layout in _pins(plan):
        made: LayoutPlan | str = LEFT_OUT
        if plan.end_to_end is not None:
            made = TIMED
        elif trials is not None and left > 0:
            left -= len(trials.graph.nodes)
            made = trials.plan(edge.value, layout)
        found.setdefault(edge.value, []).append(_shown_pin(plan, layout, made))
    return {value: tuple(sorted(pins, key=_price)) for value, pins in found.items()}


def _price(pin: ShownPin) -> float:
    return inf if pin.seconds is None else pin.seconds


def _pins(plan: LayoutPlan) -> list[tuple[EdgePlan, Layout]]:
    """Each tensor with each other layout, in the order in which they are planned: converted tensors
    first, and of each its cheapest layout before the next one of any."""
    moved = {made.value for made in (*plan.conversions, *plan.moves)}
    kept = {pair.value for pair in plan.refused}
    offered: dict[tuple[str, Layout], float] = {}
    for edge in plan.edges.values():
        for other in edge.others:
            if other.edge_type.layout != edge.edge_type.layout:
                extra = inf if other.extra is None else other.extra
                key = edge.value, other.edge_type.layout
                offered[key] = min(extra, offered.get(key, inf))

    cheapest = sorted(offered, key=offered.__getitem__)
    places = Counter[str]()
    order: dict[tuple[str, Layout], tuple[bool, int]] = {}
    for value, layout in cheapest:
        order[value, layout] = (not (value in moved or value in kept), places[value])
        places[value] += 1
    return [
        (plan.edges[value], layout) for value, layout in sorted(cheapest, key=order.__getitem__)
    ]


def _shown_pin(plan: LayoutPlan, layout: Layout, made: LayoutPlan | str) -> ShownPin:
    if isinstance(made, str):
        return ShownPin(layout.describe(), None, made, ())
    return ShownPin(
        layout.describe(), made.seconds - plan.seconds, "", tuple(plan_changes(plan, made))
    )


def plan_changes(before: LayoutPlan, after: LayoutPlan) -> Iterator[Change]:
    """The edge types of tensors, the variants of nodes, and the copies that differ in two plans."""
    yield from _changes("layout", _edge_types(before), _edge_types(after))
    yield from _changes("variant", _variants(before), _variants(after))
    was, now = _copies(before), _copies(after)
    for value, text in (was - now).elements():
        yield Change("copy", value, text, None)
    for value, text in (now - was).elements():
        yield Change("copy", value, None, text)


def _changes(kind: str, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[Change]:
    for name in {**before, **after}:
        if before.get(name) != after.get(name):
            yield Change(kind, name, before.get(name), after.get(name))


def _edge_types(plan: LayoutPlan) -> dict[str, str]:
    return {name: edge.edge_type.describe() for name, edge in plan.edges.items()}


def _variants(plan: LayoutPlan) -> dict[str, str]:
    return {name: choice.variant_name for name, choice in plan.choices.items()}


def _copies(plan: LayoutPlan) -> Counter[tuple[str, str]]:
    """By tensor and what is made of it; a move is a variant of its own node."""
    return Counter(
        (made.value, f"{made.kind}: {made.target.describe()}, {1e6 * made.seconds:.2f} µs")
        for made in plan.conversions
    )
