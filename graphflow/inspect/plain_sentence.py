"""The decision about a tensor in one plain sentence, with which `explain` begins.

In: a `TensorDecision`.  Out: a sentence.  What always holds: it says nothing that the lines of
`explain` below it do not say in detail.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite, prod

from graphflow.base.decisions import CONSTANT, REGISTER, REMOVED, microseconds
from graphflow.inspect.tensor_decisions import GRAPH_OUTPUT, Reading, TensorDecision
from graphflow.layout import LOGICAL, Layout

MOST_NAMED = 3
"""The most readers that the sentence names."""


def plain_sentence(edge: TensorDecision) -> str:
    """Where the tensor is and in which layout, what its padding holds, who reads it how, and what
    the next best layout would cost."""
    if edge.where == REGISTER:
        return f"{edge.name} is never in memory: {edge.reason}."
    if edge.where == REMOVED or edge.layout is None:
        return f"{edge.name} is not computed: {edge.reason}."
    place = f"{edge.layout.describe()}{_padding(edge, edge.layout)}"
    if edge.where == CONSTANT:
        return f"{edge.name} is a constant in {place}; {edge.reason}."
    pinned = "" if edge.pinned is None else ", to which it is pinned"
    clauses = [f"{edge.name} is stored as {place}{pinned}", *_readers(edge), *_next_best(edge)]
    return f"{'; '.join(clauses)}."


def _padding(edge: TensorDecision, layout: Layout) -> str:
    """The share of the padding in the box, and what it holds."""
    if not layout.is_padded:
        return " without padding"
    share = 100 * layout.padding_elements / prod(layout.physical_shape)
    facts = {known.fact for known in edge.regions if known.region != LOGICAL}
    holds = "different things"
    if len(facts) == 1:
        holds = "anything" if facts == {"undef"} else facts.pop()
    return f", {share:.2g} % of it padding that holds {holds}"


def _readers(edge: TensorDecision) -> Iterator[str]:
    """Who reads it as it is, and who reads a copy in which layout."""
    direct = [use for use in edge.readings if use.conversion is None]
    if direct:
        yield f"{_names(direct)} {_verb(direct)} it as it is"
    copied: dict[str, list[Reading]] = {}
    for use in edge.readings:
        if use.conversion is not None:
            copied.setdefault(use.layout, []).append(use)
    for layout, uses in copied.items():
        yield f"{_names(uses)} {_verb(uses)} a copy in {layout}"
    if not edge.readings:
        yield "nothing reads it"


def _names(uses: Sequence[Reading]) -> str:
    names = [*dict.fromkeys(use.consumer for use in uses)]
    named = ["the graph output" if name == GRAPH_OUTPUT else name for name in names[:MOST_NAMED]]
    if names[MOST_NAMED:]:
        named.append(f"{len(names) - MOST_NAMED} more")
    return named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"


def _verb(uses: Sequence[Reading]) -> str:
    return "reads" if len({use.consumer for use in uses}) == 1 else "read"


def _next_best(edge: TensorDecision) -> Iterator[str]:
    """What the cheapest plan with another layout of it would cost, if that is known."""
    priced = [other for other in edge.others if other.extra is not None and isfinite(other.extra)]
    if priced:
        best = min(priced, key=lambda other: other.extra or 0.0)
        other, extra = best.edge_type.layout.describe(), best.extra or 0.0
        if edge.layout is not None and other == edge.layout.describe():
            other = best.edge_type.describe()  # the same layout, and other facts about its padding
        yield f"with {other} a run would take {microseconds(extra)} more"
