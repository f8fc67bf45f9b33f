"""Ensembles of decision trees as ONNX's attributes have them, and as the tables of one kernel.

In: the attributes of TreeEnsemble, or those of TreeEnsembleClassifier and TreeEnsembleRegressor.
Out: `Trees`, whatever the operator is, and its `TreeTables`, arrays of the kernel `tree_walk`.
What always holds: each node of a tree is reached on one path, a leaf on any number, and all numbers
are within their tables; attributes of which that is not so raise InvalidModel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from graphflow.frontends.rewrites.rewrites import NodeRewrite
from graphflow.graph import Array
from graphflow.kernels.definitions.data_dependent.tree_walk import (
    EQUAL,
    GREATER,
    LESS,
    MOST_TOGETHER,
    UNORDERED,
    SplitRule,
    TreeExtents,
)

_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(7)
_MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")
_LEAF = "LEAF"

Weights: TypeAlias = list[tuple[int, float]]
"""What a leaf gives: targets with a weight for each."""


class Trees(Struct, frozen=True):
    """An ensemble of trees.  A place is the number of a node, or −1 − the number of a leaf."""

    features: Sequence[int]
    modes: Sequence[int]
    splits: Sequence[float]
    members: dict[int, Sequence[float]]
    """The set of each node that looks for its feature in one."""
    branches: Sequence[tuple[int, ...]]
    """The places that follow where a comparison holds, and where it does not; none of leaves."""
    tracks: Sequence[bool]
    """Whether the comparison of a NaN holds."""
    leaves: Sequence[Weights]
    roots: Sequence[int]

    def always_given(self) -> set[int]:
        """The targets for which all leaves of some tree have weights."""
        found: set[int] = set()
        for root in self.roots:
            pending, common, seen = [root], None, set[int]()
            while pending:
                place = pending.pop()
                if place >= 0:
                    if place not in seen:  # nothing has looked for circles yet
                        pending += self.branches[place]
                    seen.add(place)
                else:
                    given = {target for target, _ in self.leaves[-1 - place]}
                    common = given if common is None else common & given
            found |= common or set()
        return found

    def tables(self, features: int, targets: int, neutral: float, dtype: str) -> TreeTables:
        """The tables of the ensemble; trees of which a group lacks some are leaves that give
        `neutral` to the first target."""
        return _Placing(self, features, targets, neutral).tables(np.dtype(dtype))


class TreeTables(Struct, frozen=True):
    """The parameters of `tree_walk` behind the first one, and its extents."""

    extents: TreeExtents
    arrays: tuple[Array, ...]


def items_of(body: NodeRewrite, name: str) -> list[Any]:
    """The elements of an attribute, which is a list or a tensor; none where it is not given."""
    value = body.attribute(name)
    if isinstance(value, TensorProto):
        return list(numpy_helper.to_array(value).reshape(-1).tolist())
    return [] if value is None else list(value)


def items_or_doubles(body: NodeRewrite, name: str) -> list[Any]:
    """The elements of an attribute, or of the tensor of doubles that may stand for it."""
    doubles = items_of(body, f"{name}_as_tensor")
    return items_of(body, name) or doubles


# The attributes of operators ----------------------------------------------------------------------


def numbered_trees(body: NodeRewrite) -> Trees:
    """The trees of TreeEnsemble, whose nodes and leaves have numbers."""
    children = [items_of(body, f"nodes_{way}nodeids") for way in ("true", "false")]
    are_leaves = [items_of(body, f"nodes_{way}leafs") for way in ("true", "false")]
    branches = [
        (-1 - yes if yes_ends else yes, -1 - no if no_ends else no)
        for yes, no, yes_ends, no_ends in zip(*children, *are_leaves, strict=True)
    ]
    starts, count = items_of(body, "tree_roots"), len(branches)
    if min((n for numbers in (*children, starts) for n in numbers), default=0) < 0:
        raise LookupError("a place below 0")
    modes, tracks = items_of(body, "nodes_modes"), items_of(body, "nodes_missing_value_tracks_true")
    targets, weights = items_of(body, "leaf_targetids"), items_of(body, "leaf_weights")
    roots = [
        # A node that leads to one leaf either way stands for a tree that is this leaf.
        branches[n][0] if branches[n][0] < 0 and branches[n][0] == branches[n][1] else n
        for n in starts
    ]
    return Trees(
        items_of(body, "nodes_featureids"),
        modes,
        items_of(body, "nodes_splits"),
        _member_sets(body, modes),
        branches,
        [bool(n) for n in tracks] or [False] * count,
        [[pair] for pair in zip(targets, weights, strict=True)],
        roots,
    )


def _member_sets(body: NodeRewrite, modes: Sequence[int]) -> dict[int, Sequence[float]]:
    """The sets of nodes that have one, which follow each other, each with a NaN at its end."""
    values = np.array(items_of(body, "membership_values"), np.float64)
    ends = np.flatnonzero(np.isnan(values))
    nodes = [n for n, mode in enumerate(modes) if mode == _MEMBER]
    starts = [0, *(ends[:-1] + 1)] if len(ends) else []
    return {
        n: values[a:b].tolist() for n, a, b in zip(nodes, starts, ends, strict=True)
    }  # a ValueError where there are more or fewer


def named_trees(body: NodeRewrite, of_leaves: str) -> Trees:
    """The trees of the older operators, whose nodes have numbers within a tree and leaves are
    nodes; `of_leaves` begins the names of the attributes about weights."""
    owners = items_of(body, "nodes_treeids")
    keys = list(zip(owners, items_of(body, "nodes_nodeids"), strict=True))
    words = [w.decode() if isinstance(w, bytes) else w for w in items_of(body, "nodes_modes")]
    places: dict[tuple[int, int], int] = {}
    for k, (key, word) in enumerate(zip(keys, words, strict=True)):
        if key in places:
            raise LookupError(f"two nodes {key}")
        places[key] = -1 - k if word == _LEAF else k
    leaves: list[Weights] = [[] for _ in keys]
    parts = ("treeids", "nodeids", "ids")
    numbers = [items_of(body, f"{of_leaves}_{part}") for part in parts]
    for tree, node, target, weight in zip(
        *numbers, items_or_doubles(body, f"{of_leaves}_weights"), strict=True
    ):
        place = places[tree, node]
        if place < 0:  # onnxruntime skips the weights of other nodes, too
            leaves[-1 - place].append((target, weight))
    yes, no = items_of(body, "nodes_truenodeids"), items_of(body, "nodes_falsenodeids")
    branches = [
        () if word == _LEAF else (places[tree, a], places[tree, b])
        for tree, word, a, b in zip(owners, words, yes, no, strict=True)
    ]
    firsts = dict(zip(reversed(owners), reversed(range(len(keys))), strict=True))
    roots = [places[keys[first]] for first in sorted(firsts.values())]
    if not set(roots).isdisjoint(place for both in branches for place in both):
        body.refuse("a tree whose first node follows another one")
    count = len(keys)
    return Trees(
        items_of(body, "nodes_featureids"),
        [_MODES.index(w) if w != _LEAF else _LEQ for w in words],
        items_or_doubles(body, "nodes_values"),
        {},
        branches,
        [bool(n) for n in items_of(body, "nodes_missing_value_tracks_true")] or [False] * count,
        leaves,
        roots,
    )


# Tables -------------------------------------------------------------------------------------------


_HOLDS = {_LEQ: LESS | EQUAL, _LT: LESS, _GTE: EQUAL | GREATER, _GT: GREATER, _EQ: EQUAL,
          _NEQ: LESS | GREATER | UNORDERED, _MEMBER: EQUAL}  # fmt: skip
"""How a feature and a split are related where the comparison holds, by mode."""


@dataclass(slots=True)
class _Placing:
    """The tables of an ensemble while its trees are placed in them."""

    trees: Trees
    features: int
    targets: int
    neutral: float
    nodes: list[list[int]] = field(default_factory=list)
    splits: list[float] = field(default_factory=list)
    leaves: list[Weights] = field(default_factory=list)

    def tables(self, dtype: np.dtype[Any]) -> TreeTables:
        placed = sorted(
            (self._placed(root) for root in self.trees.roots), key=lambda tree: -tree[1]
        )
        groups = -(-len(placed) // MOST_TOGETHER)
        together = -(-len(placed) // groups)
        missing = groups * together - len(placed)
        if missing:
            placed += [(-1 - len(self.leaves), 0)] * missing
            self.leaves.append([(0, self.neutral)])
        roots, depths = (
            np.array(part).reshape(groups, together) for part in zip(*placed, strict=True)
        )
        nodes = np.array(self.nodes or [[0, 0, 0, LESS]], np.int64)
        has_owners = self.targets > 1 and all(len(leaf) == 1 for leaf in self.leaves)
        extents = TreeExtents(
            self.features,
            groups,
            together,
            len(nodes),
            len(self.leaves),
            self.targets,
            max(int(depths.max()), 1),
            _PLAIN.get(frozenset(nodes[:, 3].tolist()), SplitRule.FLAGGED),
            has_owners,
        )
        arrays = (
            _behind(len(nodes), nodes[:, : extents.width]),
            np.array(self.splits or [0], dtype),
            _behind(len(nodes), roots),
            depths.max(axis=1),
            self._weights(has_owners, dtype),
        )
        owners = np.array([leaf[0][0] for leaf in self.leaves if has_owners], np.int32)
        return TreeTables(extents, (*arrays, owners) if has_owners else arrays)

    def _weights(self, has_owners: bool, dtype: np.dtype[Any]) -> Array:
        """The weights of leaves; several for one target are put together."""
        if has_owners:
            return np.array([[leaf[0][1]] for leaf in self.leaves], dtype)
        found = np.full((len(self.leaves), self.targets), self.neutral, dtype)
        join = {0.0: np.add, np.inf: np.minimum, -np.inf: np.maximum}[self.neutral]
        rows = [k for k, leaf in enumerate(self.leaves) for _ in leaf]
        pairs = [pair for leaf in self.leaves for pair in leaf]
        at = np.array(rows, np.int64), np.array([target for target, _ in pairs], np.int64)
        join.at(found, at, np.array([weight for _, weight in pairs], dtype))
        return found

    def _placed(self, root: int) -> tuple[int, int]:
        """The place of a tree in the tables, and the most comparisons on its paths."""
        result, deepest, seen = [0], 0, set()
        pending: list[tuple[int, list[_Slot], int]] = [(root, [(result, 0)], 0)]
        while pending:
            place, slots, depth = pending.pop()
            deepest = max(deepest, depth)
            if place < 0:
                number = -1 - len(self.leaves)
                self.leaves.append(self._checked(self.trees.leaves[-1 - place]))
            else:
                if place in seen:
                    raise LookupError(f"two paths to node {place}")
                seen.add(place)
                number, added = len(self.nodes), self._added(place)
                depth += len(added)
                yes, no = self.trees.branches[place]
                pending.append((no, [(added[-1], 2)], depth))
                pending.append((yes, [(node, 1) for node in added], depth))
            for array, column in slots:
                array[column] = number
        return result[0], deepest

    def _added(self, node: int) -> list[list[int]]:
        """Adds comparisons for a node, each but the last followed by the next one where it fails:
        one for each member of a set, else one."""
        trees, feature = self.trees, self.trees.features[node]
        if not 0 <= feature < self.features:
            raise LookupError(f"feature {feature} of {self.features}")
        holds = _HOLDS[trees.modes[node]] | (UNORDERED if trees.tracks[node] else 0)
        splits = trees.members.get(node, [trees.splits[node]]) or [np.nan]
        first, added = len(self.nodes), []
        for k, split in enumerate(splits, 1):
            if np.isnan(split):
                # No number is related to it, and all of them are where anything but that holds.
                always = trees.modes[node] == _NEQ
                split, flags = 0.0, holds | LESS | EQUAL | GREATER if always else holds & UNORDERED
            else:
                flags = holds
            added.append([feature, 0, first + k, flags])
            self.splits.append(split)
        self.nodes += added
        return added

    def _checked(self, leaf: Weights) -> Weights:
        for target, _ in leaf:
            if not 0 <= target < self.targets:
                raise LookupError(f"target {target} of {self.targets}")
        return leaf


_Slot: TypeAlias = tuple[list[int], int]
"""An element of a list that will hold the number of a place."""

_PLAIN = {frozenset({LESS}): SplitRule.LESS, frozenset({LESS | EQUAL}): SplitRule.AT_MOST}


def _behind(count: int, places: NDArray[np.int64]) -> Array:
    """Places as the kernel numbers them, leaves behind `count` nodes."""
    found: Array = np.where(places < 0, count - 1 - places, places).astype(np.int32)
    return found
