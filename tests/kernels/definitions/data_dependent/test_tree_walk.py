"""Tests of walks through trees, native on both vector widths, against a loop in Python."""

import numpy as np
import pytest

import graphflow as gf
from graphflow.kernels.definitions.data_dependent.tree_walk import (
    EQUAL,
    GREATER,
    UNORDERED,
    SplitRule,
    TreeExtents,
    tree_walk,
)
from graphflow.tir import ReduceOp

NODES = np.array([[0, 2, 1, EQUAL | UNORDERED], [1, 3, 4, GREATER], [1, 5, 6, GREATER]], np.int32)
"""A root that compares column 0, and one more comparison of column 1 on the second way, and one
that is a tree of its own; places from 3 on are leaves."""

FEATURES = np.array([[1, 0], [np.nan, 3], [2, 5], [2, -1], [0, np.nan]], np.float32)


def places(row):
    """The leaves that a row reaches, of both trees."""
    first = 2 if row[0] == 1 or np.isnan(row[0]) else 1
    return [(3, 4)[not row[1] > 0] if first == 1 else (5, 6)[not row[1] > 0],
            (5, 6)[not row[1] > 0]]  # fmt: skip


@pytest.mark.parametrize("target", [None, "avx2"])
@pytest.mark.parametrize("op", [ReduceOp.ADD, ReduceOp.MAX])
def test_walks(target, op):
    extents = TreeExtents(2, 1, 2, 3, 4, 1, 2, SplitRule.FLAGGED, False)
    walk = tree_walk(len(FEATURES), extents, op)
    weights = np.array([[1.0], [2.0], [4.0], [8.0]], np.float32)
    feeds = {
        "x": FEATURES,
        "nodes": NODES,
        "splits": np.array([1.0, 0.0, 0.0], np.float32),
        "roots": np.array([[0, 2]], np.int32),
        "depths": np.array([2]),
        "weights": weights,
    }
    exe = gf.build(walk, target=target, options=gf.Options(workers=0))
    join = sum if op is ReduceOp.ADD else max
    expected = [[join(weights[p - 3, 0] for p in places(row))] for row in FEATURES]
    assert exe.run(feeds)["y"].tolist() == expected
