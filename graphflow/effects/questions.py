"""Questions about the effects of a kernel, each answered by a proof with one of three verdicts.

In: a kernel, and the path of a statement, a buffer or a region.  Out: a `Proof`: PROVEN for all
data; REFUTED with a witness that fails for all data; UNKNOWN with the reason, where data decide,
where a buffer has too many accesses, or where isl's operation limit is reached.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import islpy as isl

from graphflow.arith import (
    Domain,
    Predicate,
    Proof,
    Var,
    Verdict,
    Witness,
    box,
    isl_constraints,
    isl_name,
)
from graphflow.effects.dataflow import FlowEdge, ReaderKind, flow_of
from graphflow.effects.relations import Relations, answered, relations_of
from graphflow.effects.statements import Path, Statement, StatementAccess
from graphflow.tir import Buffer, PrimFunc

METHOD = "dataflow"


def overwritten_unread(func: PrimFunc, path: Path) -> Proof:
    """Whether nothing sees what the statement at `path`, with all inside it, writes.

    Then the kernel computes the same without it.  What it reads of its own writes does not count;
    an assumption about a written element does, and so does the end of the kernel for outputs.
    """
    relations = relations_of(func)
    statement = relations.model.at(path)
    claim = f"nothing sees what statement {statement.number} writes"
    return answered(claim, lambda context: _unseen(relations, context, statement, claim))


def _unseen(relations: Relations, context: Any, statement: Statement, claim: str) -> Proof:
    own = [a for a in relations.model.accesses if statement.holds(a.statement)]
    buffers = dict.fromkeys(a.access.buffer for a in own if a.access.writes)
    open_reason = ""
    for buffer in buffers:
        flow = flow_of(relations, context, buffer)
        certain = {_ends(edge): edge for edge in flow.must}
        for edge in flow.may:
            if not _leaves(edge, statement):
                continue
            sure = certain.get(_ends(edge))
            happens = edge.source.access.certain and (
                edge.reader is None or edge.reader.access.certain
            )
            if sure is not None and happens:
                text, witness = _seen(sure)
                return Proof(Verdict.REFUTED, claim, METHOD, text, witness)
            open_reason = open_reason or f"where data decide, {_seen(edge)[0]}"
    if open_reason:
        return Proof(Verdict.UNKNOWN, claim, METHOD, open_reason)
    return Proof(Verdict.PROVEN, claim, METHOD)


def _ends(edge: FlowEdge) -> tuple[int, ReaderKind, int]:
    return edge.source.number, edge.kind, -1 if edge.reader is None else edge.reader.number


def _leaves(edge: FlowEdge, statement: Statement) -> bool:
    """Whether a value is written inside a statement and read outside of it."""
    if not statement.holds(edge.source.statement) or edge.kind is ReaderKind.OVERWRITE:
        return False
    return edge.reader is None or not statement.holds(edge.reader.statement)


def _seen(edge: FlowEdge) -> tuple[str, Witness]:
    """One pair of an edge, as text and as a point: variables of the reader are primed."""
    values = point_of(edge.pairs)
    source = tuple(axis.var.name for axis in edge.source.domain.axes)
    if edge.reader is None:
        reader = tuple(f"{edge.source.access.buffer.name}.{n}" for n in range(len(values)))
        reader = reader[: len(values) - len(source)]
        seen = "is left in the output"
    else:
        reader = tuple(f"{axis.var.name}'" for axis in edge.reader.domain.axes)
        seen = f"is read by {edge.reader}"
    witness = tuple(zip((*source, *reader), values, strict=True))
    here, there = witness[: len(source)], witness[len(source) :]
    return f"{edge.source} at {point_text(here)} {seen} at {point_text(there)}", witness


def never_touched(func: PrimFunc, buffer: Buffer, names: Sequence[Var], region: Predicate) -> Proof:
    """Whether no statement reads or writes an element of `buffer` in a region.

    `region` is a condition on `names`, the index along each axis.  For a buffer that is allocated
    inside of loops, it means every copy.  Claims of assumptions are no accesses here.
    """
    relations = relations_of(func)
    claim = f"nothing touches {buffer.name}[{', '.join(map(str, names))}] where {region}"
    where = box(names, buffer.shape).given(region)

    def ask(context: Any) -> Proof:
        reason = ""
        for access in relations.limited(buffer):
            if access.is_claim:
                continue
            met = _in_region(relations, context, access, where)
            if met.is_empty():
                continue
            values = point_of(met)
            axes = tuple(axis.var.name for axis in access.domain.axes)
            elements = (*(f"{v}'" for v in access.copies), *(str(v) for v in names))
            witness = tuple(zip((*axes, *elements), values, strict=True))
            text = f"{access} at {point_text(witness[: len(axes)])} touches it"
            if access.access.certain:
                return Proof(Verdict.REFUTED, claim, METHOD, text, witness)
            reason = reason or f"where data decide, {text}"
        verdict = Verdict.UNKNOWN if reason else Verdict.PROVEN
        return Proof(verdict, claim, METHOD, reason)

    return answered(claim, ask)


def _in_region(relations: Relations, context: Any, access: StatementAccess, where: Domain) -> Any:
    """The relation from instances to the elements they access, inside a region of the buffer."""
    copies = [f"c{n}" for n in range(len(access.copies))]
    parts = ", ".join((*copies, *(isl_name(axis.var) for axis in where.axes)))
    region = isl.Set.read_from_str(context, f"{{ B[{parts}] : {isl_constraints(where)} }}")
    return relations.elements(context, access).intersect_range(region)


def point_of(pairs: Any) -> tuple[int, ...]:
    """The coordinates of one pair of a map: those of its source, then those of its target."""
    point = pairs.wrap().sample_point()
    count = pairs.dim(isl.dim_type.in_) + pairs.dim(isl.dim_type.out)
    kind = isl.dim_type.set
    return tuple(point.get_coordinate_val(kind, n).to_python() for n in range(count))


def point_text(witness: Witness) -> str:
    """`i=3, j=5`; `()` for a statement outside of all loops."""
    return ", ".join(f"{name}={value}" for name, value in witness) or "()"
