"""Tests of the blocks that repeat: found with their counts, disjoint, and worth a fold."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.inspect.page.page_data import ShownBlock
from graphflow.inspect.page.repeated_blocks import LEAST_FOLDED, repeated_blocks


@pytest.mark.parametrize(
    ("keys", "blocks"),
    [
        ("xabcabcabcy", [ShownBlock(1, 3, 3)]),
        ("ababab", [ShownBlock(0, 2, 3)]),
        ("abab", []),  # too few nodes
        ("aaaaaaaa", [ShownBlock(0, 2, 4)]),
        ("abcdefgh", []),
        ("", []),
        ("xabcabcabcyzdedededez", [ShownBlock(1, 3, 3), ShownBlock(12, 2, 4)]),
        # Seven layers are preferred to two halves with the same pool behind them.
        ("abababababababp" * 2, [ShownBlock(0, 2, 7), ShownBlock(15, 2, 7)]),
    ],
)
def test_blocks_of_keys(keys: str, blocks: list[ShownBlock]) -> None:
    assert list(repeated_blocks(keys)) == blocks


@given(st.text("abc", max_size=60))
def test_blocks_repeat_and_do_not_overlap(keys: str) -> None:
    after = 0
    for block in repeated_blocks(keys):
        assert block.first >= after
        after = block.first + block.period * block.count
        assert after <= len(keys)
        assert block.count >= 2 and block.period * block.count >= LEAST_FOLDED
        part = keys[block.first : block.first + block.period]
        assert keys[block.first : after] == part * block.count
