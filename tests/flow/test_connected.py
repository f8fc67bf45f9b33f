"""Tests of connected components against networkx."""

from __future__ import annotations

import networkx as nx
from hypothesis import given
from hypothesis import strategies as st

from graphflow.flow.connected import connected


def test_parts_stand_in_the_order_of_their_first_members() -> None:
    assert connected("abcd", ["db", "e"]) == [{"a"}, {"b", "d"}, {"c"}, {"e"}]
    assert connected("", ["", "x"]) == [{"x"}]


@given(st.lists(st.lists(st.integers(0, 12), max_size=4), max_size=8))
def test_what_is_connected_is_what_groups_join(groups: list[list[int]]) -> None:
    links = nx.Graph()
    links.add_nodes_from(range(6))
    for group in groups:
        nx.add_path(links, group)
    expected = [frozenset(part) for part in nx.connected_components(links)]
    found = connected(range(6), groups)
    assert sorted(map(sorted, found)) == sorted(map(sorted, expected))
