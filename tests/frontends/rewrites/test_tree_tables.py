"""Tests of the tables of trees: what is shared by a group, and what does not fit together."""

import numpy as np
import pytest

from graphflow.frontends.rewrites.tree_tables import Trees
from graphflow.kernels.definitions.data_dependent.tree_walk import SplitRule


def stump(modes=(0,), branches=((-1, -2),), features=(1,), targets=(0, 0), roots=(0,), tracks=()):
    leaves = [[(target, 1.0 + k)] for k, target in enumerate(targets)]
    tracked = list(tracks) or [False] * len(modes)
    return Trees(features, modes, [0.5] * len(modes), {}, branches, tracked, leaves, roots)


@pytest.mark.parametrize(
    ("modes", "tracks", "rule"),
    [
        ((0,), (), SplitRule.AT_MOST),
        ((1,), (), SplitRule.LESS),
        ((1,), (True,), SplitRule.FLAGGED),
        ((2,), (), SplitRule.FLAGGED),
    ],
)
def test_one_comparison_of_all_nodes_needs_no_flags(modes, tracks, rule):
    tables = stump(modes=modes, tracks=tracks).tables(2, 1, 0.0, "float32")
    assert tables.extents.rule is rule
    nodes, splits, roots, depths, weights = tables.arrays
    assert nodes[:, :3].tolist() == [[1, 1, 2]] and splits.tolist() == [0.5]
    assert (roots.tolist(), depths.tolist()) == ([[0]], [1])
    assert weights.tolist() == [[1.0], [2.0]]


def test_groups_have_equally_many_trees_the_deepest_first():
    """Eleven trees, of which ten are leaves, are two groups of six."""
    trees = stump(targets=(0,) * 12, roots=(*range(-12, -2), 0))
    tables = trees.tables(2, 1, np.inf, "float32")
    assert (tables.extents.groups, tables.extents.together) == (2, 6)
    assert tables.arrays[3].tolist() == [1, 0]
    assert tables.arrays[4][-1].tolist() == [np.inf]


def test_leaves_of_one_target_have_its_number():
    tables = stump(targets=(2, 0)).tables(2, 3, 0.0, "float32")
    assert tables.extents.has_owners and tables.arrays[5].tolist() == [2, 0]
    assert stump(targets=(2, 0)).always_given() == set()


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"features": (2,)}, "feature 2 of 2"),
        ({"targets": (0, 1)}, "target 1 of 1"),
        ({"branches": ((0, -1),)}, "two paths"),
        ({"branches": ((-1, -9),)}, "out of range"),
        ({"modes": (7,)}, "7"),
    ],
)
def test_trees_that_do_not_fit(changed, reason):
    with pytest.raises(LookupError, match=reason):
        stump(**changed).tables(2, 1, 0.0, "float32")
