"""Values that iterations of a loop hand on to later ones.

In: a kernel and the path of a loop.  Out: a proof that no iteration reads what an earlier one
wrote.  Then the iterations of a body that does not use the loop's variable all read, compute and
write the same, so that one of them is as good as all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import islpy as isl

from graphflow import arith, tir
from graphflow.effects.dataflow import flow_to_reads, sees_values
from graphflow.effects.paths import Path
from graphflow.effects.questions import METHOD, first_pair, point_text
from graphflow.effects.relations import Relations, answered, relations_of
from graphflow.effects.statements import Statement, StatementAccess

_IN, _OUT = isl.dim_type.in_, isl.dim_type.out


def no_carried_flow(func: tir.PrimFunc, path: Path) -> arith.Proof:
    """Whether no iteration of the loop at `path` reads a value that an earlier one wrote.

    A reduction reads the element that it adds to, and an assumption the element that it is about.
    Iterations are those of one execution of the loop.  ValueError if it is no loop.
    """
    relations = relations_of(func)
    loop = relations.model.at(path)
    if not isinstance(loop.stmt, tir.For):
        raise ValueError(f"statement {loop.number} of {func.name} is no loop")
    claim = f"no iteration of {loop.stmt.var} reads what an earlier one wrote"
    return answered(claim, lambda context: _carried(relations, context, loop, claim))


def _carried(relations: Relations, context: Any, loop: Statement, claim: str) -> arith.Proof:
    own = [a for a in relations.model.accesses if loop.holds(a.statement)]
    level = len(loop.loops)
    reason = ""
    for buffer in dict.fromkeys(a.access.buffer for a in own if a.access.writes):
        relations.limited(buffer)
        if not _meet(relations, context, [a for a in own if a.access.buffer == buffer], level):
            continue  # without the last writers, which cost most
        flows = [
            flow
            for reader, flow in flow_to_reads(relations, context, buffer)
            if loop.holds(reader.statement)
        ]
        edges = (
            (edge, must)
            for must in (True, False)
            for flow in flows
            for edge in (flow.must if must else flow.may)
        )
        for edge, must in edges:
            if not loop.holds(edge.source.statement):
                continue
            pairs = _across(edge.pairs, level)
            if pairs.is_empty():
                continue
            assert edge.reader is not None
            values = first_pair(pairs)
            count = len(edge.source.domain.axes)
            names = (
                *(axis.var.name for axis in edge.source.domain.axes),
                *(f"{axis.var.name}'" for axis in edge.reader.domain.axes),
            )
            witness = tuple(zip(names, values, strict=True))
            here, there = point_text(witness[:count]), point_text(witness[count:])
            text = f"what {edge.source} at {here} holds is read by {edge.reader} at {there}"
            if must and edge.source.access.certain and edge.reader.access.certain:
                return arith.Proof(arith.Verdict.REFUTED, claim, METHOD, text, witness)
            reason = reason or f"where data decide, {text}"
    verdict = arith.Verdict.UNKNOWN if reason else arith.Verdict.PROVEN
    return arith.Proof(verdict, claim, METHOD, reason)


def _meet(relations: Relations, context: Any, own: Sequence[StatementAccess], level: int) -> bool:
    """Whether an iteration reads an element that an earlier one wrote, whoever wrote it last."""
    for source in own:
        for reader in own:
            if not source.access.writes or not sees_values(reader):
                continue
            written = relations.elements(context, source)
            pairs = written.apply_range(relations.elements(context, reader).reverse())
            if not _across(pairs, level).is_empty():
                return True
    return False


def _across(pairs: Any, level: int) -> Any:
    """Of pairs of a write and a later read, those that the loop at this depth tells apart."""
    for axis in range(level):
        pairs = pairs.equate(_IN, axis, _OUT, axis)
    return pairs.order_lt(_IN, level, _OUT, level)
