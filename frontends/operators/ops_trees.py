"""Walks through decision trees, into which the operators on ensembles of trees are rewritten."""

from __future__ import annotations

from graphflow.frontends.nodes.call import Emitters, NodeCall
from graphflow.kernels.definitions.data_dependent.tree_walk import (
    SplitRule,
    TreeExtents,
    tree_walk,
)
from graphflow.tir import ReduceOp

_COMBINED = {"SUM": ReduceOp.ADD, "MIN": ReduceOp.MIN, "MAX": ReduceOp.MAX}


def _tree_walk(call: NodeCall) -> None:
    """Inputs are rows of features and the tables of the trees, which fit together."""
    rows, features = call.shape(0)
    extents = TreeExtents(
        features=features,
        groups=call.shape(3)[0],
        together=call.shape(3)[1],
        nodes=call.shape(1)[0],
        leaves=call.shape(5)[0],
        targets=int(call.required("targets")),
        deepest=int(call.required("deepest")),
        rule=SplitRule(call.required("rule")),
        has_owners=call.has(6),
    )
    combine = _COMBINED[call.choice("aggregate", _COMBINED)]
    call.emit(tree_walk(rows, extents, combine, call.dtype()))


OPERATORS: Emitters = {"graphflow.TreeWalk": _tree_walk}
"""The function of each operator."""
