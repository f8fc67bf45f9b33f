"""Tests of the blocks that repeat: found with their counts, disjoint, and worth a fold; and of what
they became in the program."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.inspect.page.page_data import ShownBlock
from graphflow.inspect.page.repeated_blocks import (
    LEAST_FOLDED,
    blocks_of_program,
    repeated_blocks,
    widths_before,
)


def block(first: int, period: int, count: int) -> ShownBlock:
    after = first + period * count
    return ShownBlock(tuple(range(first, after, period)), after)


@pytest.mark.parametrize(
    ("keys", "blocks"),
    [
        ("xabcabcabcy", [block(1, 3, 3)]),
        ("ababab", [block(0, 2, 3)]),
        ("abab", []),  # too few nodes
        ("aaaaaaaa", [block(0, 2, 4)]),
        ("abcdefgh", []),
        ("", []),
        ("xabcabcabcyzdedededez", [block(1, 3, 3), block(12, 2, 4)]),
        # Seven layers are preferred to two halves with the same pool behind them.
        ("abababababababp" * 2, [block(0, 2, 7), block(15, 2, 7)]),
    ],
)
def test_blocks_of_keys(keys: str, blocks: list[ShownBlock]) -> None:
    assert list(repeated_blocks(keys, [1] * len(keys))) == blocks


def test_repetitions_begin_where_the_fewest_tensors_pass() -> None:
    keys = "xcabcabcabcay"  # nine nodes from place 1, 2, or 3 on are three repetitions
    for start in (1, 2, 3):
        widths = [1 if (place - start) % 3 == 0 else 2 for place in range(len(keys))]
        assert repeated_blocks(keys, widths) == (block(start, 3, 3),)
    assert repeated_blocks(keys, [1] * len(keys)) == (block(3, 3, 3),)


def test_a_tensor_passes_up_to_its_last_reader() -> None:
    arrows = [(0, 1, "x"), (1, 2, "y"), (1, 4, "y"), (2, 4, "z")]
    assert widths_before(arrows, 5) == [0, 1, 1, 2, 2]


@given(st.text("abc", max_size=60))
def test_blocks_repeat_and_do_not_overlap(keys: str) -> None:
    after = 0
    for found in repeated_blocks(keys, [1] * len(keys)):
        assert found.starts[0] >= after
        after = found.after
        assert after <= len(keys)
        assert len(found.starts) >= 2 and after - found.starts[0] >= LEAST_FOLDED
        parts = {keys[a:b] for a, b in pairwise([*found.starts, after])}
        assert len(parts) == 1


@pytest.mark.parametrize(
    ("became", "blocks"),
    [
        # The second repetition has a copy, node 4, that no node of the model became.
        ([[0], [1], [2], [3], [5], [6], [7], [8]], (ShownBlock((1, 3, 6), 8),)),
        # Nodes 2 and 3 of the model became one, which counts for the later repetition.
        ([[0], [1], [2], [2], [3], [4], [5, 6], [7]], (ShownBlock((1, 2, 4), 7),)),
        ([[0], [1], [4], [3], [2], [5], [6], [7]], ()),  # mixed
        ([[0], [1], [2], [], [], [3], [4], [5]], ()),  # nothing runs for the second
        ([[0], [1], [], [2], [], [3], [], [4]], ()),  # one kernel each
    ],
)
def test_blocks_of_the_program_are_what_those_of_the_model_became(
    became: list[list[int]], blocks: tuple[ShownBlock, ...]
) -> None:
    assert blocks_of_program([block(1, 2, 3)], became, 9) == blocks
