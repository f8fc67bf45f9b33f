"""Candidates that cannot be in the cheapest plan, found by comparing them pair by pair.

In: a part of the graph as prices of candidates and terms.  Out: the candidates that are left.  A
candidate is dominated by another one of the same node if, whatever the neighbours take, the other
is not dearer: what it saves itself is at least what any term around it can cost more.  Each term is
compared by itself, so that this takes no table over several terms.  See Goldstein, "Efficient
rotamer elimination applied to protein side-chains and related spin glasses" (1994).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np

from graphflow.flow.elimination.prices import NEVER, Prices, Table
from graphflow.flow.objective.patterns import Classes, Pattern
from graphflow.flow.objective.terms import Term

COMPARED_TABLE = 1 << 16
"""The most entries of the table of a term in which candidates are compared."""

MOST_ROUNDS = 8
"""With fewer candidates around it more of a node's candidates may be dominated."""


def undominated(
    own: Mapping[int, Table], terms: Sequence[Term], prices: Prices
) -> dict[int, Classes]:
    """The numbers of the candidates of each node that no other one dominates, ascending.

    Of candidates that dominate each other the first is left.
    """
    kept = {node: np.flatnonzero(table < NEVER) for node, table in own.items()}
    current = [term.restricted(kept) for term in terms]
    around: dict[int, list[int]] = {node: [] for node in own}
    for number, term in enumerate(current):
        for node in term.scope:
            around[node].append(number)
    shared: dict[Pattern, Table] = {}
    pending = set(own)
    for _ in range(MOST_ROUNDS):
        changed = set()
        for node in sorted(pending):
            here = [current[n] for n in around[node] if node in current[n].scope]
            left = _left(own[node][kept[node]], node, here, prices, shared)
            if len(left) < len(kept[node]):
                kept[node] = kept[node][left]
                changed.add(node)
        if not changed:
            break
        touched = {number for node in changed for number in around[node]}
        for number in touched:
            current[number] = terms[number].restricted(kept)
        pending = {node for number in touched for node in current[number].scope}
    return kept


def _left(
    own: Table,
    node: int,
    terms: Sequence[Term],
    prices: Prices,
    shared: dict[Pattern, Table],
) -> Classes:
    """The positions in `own` of the candidates of a node that are left."""
    saved = own[:, None] - own[None, :]
    for term in terms:
        classes, saving = _savings(term, node, prices, shared)
        saved = np.clip(saved + saving[np.ix_(classes, classes)], -NEVER, NEVER)
    left = list(range(len(own)))
    for option in reversed(range(len(own))):
        better = (b for b in left if b != option)
        if any(saved[option, b] > 0 or (saved[option, b] == 0 and b < option) for b in better):
            left.remove(option)
    return np.array(left, np.intp)


def _savings(
    term: Term, node: int, prices: Prices, shared: dict[Pattern, Table]
) -> tuple[Classes, Table]:
    """The class of each candidate of a node in a term, and by two classes the least price that the
    second saves in the term, whatever the other nodes take; below zero where it may cost more.
    """
    pattern = term.pattern
    chooses = [k for k, several in enumerate(term.choosing) if several]
    if node == term.producer:
        classes, axis, count = term.producer_classes, 0, len(pattern.productions)
    else:
        reader = term.readers.index(node)
        classes, axis = term.reader_classes[reader], 1 + chooses.index(reader)
        count = len(pattern.readers[reader])
    entries = len(pattern.productions) * prod(len(pattern.readers[k]) for k in chooses)
    if entries > COMPARED_TABLE:
        return classes, np.where(np.eye(count, dtype=bool), 0, -NEVER)
    if pattern not in shared:
        shared[pattern] = pattern.table(prices)
    rows = np.moveaxis(shared[pattern], axis, 0).reshape(count, -1)
    found = np.empty((count, count), np.int64)
    for number, row in enumerate(rows):
        difference = np.where(row >= NEVER, NEVER, row - rows)
        found[number] = difference.min(axis=1)
    return classes, found
