"""Connected components of a hypergraph.

In: members, and groups of members; the members of a group are connected.  Out: the components as
sets, in the order of their first members.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

Member = TypeVar("Member", bound=Hashable)


def connected(
    members: Iterable[Member], groups: Iterable[Iterable[Member]]
) -> list[frozenset[Member]]:
    """The components of the hypergraph with these `members` and with `groups` as its edges.

    Members that occur only in a group are added.
    """
    parent = {member: member for member in members}

    def root(member: Member) -> Member:
        parent.setdefault(member, member)
        while parent[member] != member:
            parent[member] = member = parent[parent[member]]  # halves the way for the next call
        return member

    for group in groups:
        roots = [root(member) for member in group]
        for other in roots[1:]:
            parent[root(other)] = root(roots[0])
    found: dict[Member, list[Member]] = {}
    for member in parent:
        found.setdefault(root(member), []).append(member)
    return [frozenset(part) for part in found.values()]
