"""Ensembles of decision trees: each row walks every tree from its root to a leaf.

In: the extents of the tables that hold the trees.  Out: a PrimFunc.  Nodes that compare have the
numbers from 0 on, leaves those behind them.  `nodes[n]` has the feature that node n compares with
`splits[n]`, the place that follows where the comparison holds, and the one where it does not; in
flagged ensembles also with which relations of the two it holds.  Roots are in groups of
trees whose walks wait for memory together, and `depths` has the most steps of each group.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct

from graphflow import tir
from graphflow.arith import Var, const
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.data_dependent.indexing import as_int64
from graphflow.kernels.definitions.scalar_functions import compared, is_nan, subtract

MOST_TOGETHER = 8
"""Trees of a group: as many walks hide most of the time in which one waits for its next node."""

LESS, EQUAL, GREATER, UNORDERED = 1, 2, 4, 8
"""Flags for how a feature and a split are related; a NaN is unordered."""


class SplitRule(Enum):
    """What holds in all nodes of an ensemble: less than the split, at most that, or what the flags
    of each node say."""

    LESS = "lt"
    AT_MOST = "le"
    FLAGGED = "flagged"


class TreeExtents(Struct, frozen=True):
    """The extents of an ensemble.  `weights` has a row of `targets` numbers for each leaf; if
    `has_owners`, one number, which belongs to the target that `owners` has."""

    features: int
    groups: int
    together: int
    """Trees of a group."""
    nodes: int
    leaves: int
    targets: int
    deepest: int
    """The most comparisons on a path."""
    rule: SplitRule
    has_owners: bool

    @property
    def width(self) -> int:
        """The numbers that a node has."""
        return 4 if self.rule is SplitRule.FLAGGED else 3


def tree_walk(
    rows: int,
    extents: TreeExtents,
    combine: tir.ReduceOp = tir.ReduceOp.ADD,
    dtype: str = "float32",
) -> tir.PrimFunc:
    """`y[r, c]` combines what the leaves that row r reaches have for target c."""
    x = tir.Buffer("x", (rows, extents.features), dtype)
    y = tir.Buffer("y", (rows, extents.targets), dtype)
    tables, row = _Tables(extents, dtype), Var("row")
    at = tir.Buffer("at", (extents.together,), "int32")
    depth = tir.Buffer("depth", (), "int64")
    group, start, step, cleared = map(Var, ("group", "start", "step", "cleared"))
    root = tir.Store(at, (start,), tir.Load(tables.roots, (group, start)))
    goes_on = tir.If(tir.below_count(step, depth), tables.advanced(x, row, at))
    zero = tir.Store(y, (row, cleared), stages.neutral(combine, dtype))
    walks = (
        tir.Store(depth, (), tir.Load(tables.depths, (group,))),
        *tir.nest(((start, extents.together),), (root,)),
        *tir.nest(((step, extents.deepest),), (goes_on,)),
        *tables.combined(combine, y, row, at),
    )
    body = (
        *map(tir.Allocate, (at, tables.here, depth)),
        *tir.nest(((cleared, extents.targets),), (zero,)),
        *tir.nest(((group, extents.groups),), walks),
    )
    return stages.nest_kernel("tree_walk", (x, *tables.inputs), y, ((row, rows),), body)


class _Tables:
    """The tables of an ensemble, and the statements that read them."""

    def __init__(self, extents: TreeExtents, dtype: str) -> None:
        self.extents = extents
        owned = 1 if extents.has_owners else extents.targets
        self.nodes = tir.Buffer("nodes", (extents.nodes, extents.width), "int32")
        self.splits = tir.Buffer("splits", (extents.nodes,), dtype)
        self.roots = tir.Buffer("roots", (extents.groups, extents.together), "int32")
        self.depths = tir.Buffer("depths", (extents.groups,), "int64")
        self.weights = tir.Buffer("weights", (extents.leaves, owned), dtype)
        self.owners = tir.Buffer("owners", (extents.leaves,), "int32")
        self.here = tir.Buffer("here", (), "int32")
        """The place of one walk: a matched loop writes nothing of what finds its position."""

    @property
    def inputs(self) -> tuple[tir.Buffer, ...]:
        """The parameters, in order."""
        owners = (self.owners,) if self.extents.has_owners else ()
        return (self.nodes, self.splits, self.roots, self.depths, self.weights, *owners)

    def advanced(self, x: tir.Buffer, row: Var, at: tir.Buffer) -> tir.Body:
        """Each walk of a group takes one step, unless it is at a leaf."""
        walk, node, feature = map(Var, ("walk", "node", "feature"))
        holds = self._holds(tir.Load(x, (row, feature)), node)
        yes, no = (tir.Load(self.nodes, (node, const(column))) for column in (1, 2))
        step = tir.Store(at, (walk,), tir.Select(holds, yes, no))
        compare = stages.matched(
            feature,
            self.extents.features,
            as_int64(tir.Load(self.nodes, (node, const(0)))),
            (step,),
        )
        found = stages.matched(
            node, self.extents.nodes, as_int64(tir.Load(self.here, ())), (compare,)
        )
        body = (tir.Store(self.here, (), tir.Load(at, (walk,))), found)
        return tir.nest(((walk, self.extents.together),), body)

    def _holds(self, read: tir.Expr, node: Var) -> tir.Expr:
        """Whether the comparison of a node holds for what was read."""
        split, rule = tir.Load(self.splits, (node,)), self.extents.rule
        if rule is not SplitRule.FLAGGED:
            op: tir.ComparisonOp = "lt" if rule is SplitRule.LESS else "le"
            return tir.Comparison(op, read, split)
        relation: tir.Expr = tir.Select(is_nan(read), _flag(UNORDERED), _flag(0))
        of_relations: tuple[tuple[tir.ComparisonOp, int], ...] = (
            ("gt", GREATER),
            ("eq", EQUAL),
            ("lt", LESS),
        )
        for test, flag in of_relations:
            relation = tir.Select(tir.Comparison(test, read, split), _flag(flag), relation)
        return compared(
            "ne", tir.Binary("and", relation, tir.Load(self.nodes, (node, const(3)))), 0
        )

    def combined(self, op: tir.ReduceOp, y: tir.Buffer, row: Var, at: tir.Buffer) -> tir.Body:
        """Combines a row of y with what the leaves have that a group has reached."""
        end, leaf, target = map(Var, ("end", "leaf", "target"))
        column = const(0) if self.extents.has_owners else target
        update = tir.Reduce(op, y, (row, target), tir.Load(self.weights, (leaf, column)))
        if self.extents.has_owners:
            owner = as_int64(tir.Load(self.owners, (leaf,)))
            body: tir.Body = (stages.matched(target, self.extents.targets, owner, (update,)),)
        else:
            body = tir.nest(((target, self.extents.targets),), (update,))
        place = subtract(as_int64(tir.Load(at, (end,))), self.extents.nodes)
        reached = stages.matched(leaf, self.extents.leaves, place, body)
        return tir.nest(((end, self.extents.together),), (reached,))


def _flag(number: int) -> tir.Literal:
    return tir.Literal(number, "int32")
