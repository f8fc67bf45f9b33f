"""Padding that a kernel's own statements leave as its padding stage would write it.

In: a kernel with a stage that writes a constant to the padding of a buffer.  Out: the kernel in
which that stage assumes the constant instead, with a proof that it is there.

The proof compares with a second kernel.  In that one, reductions of neutral elements into padding
are skipped, and stores whose value is known in the padding store it as a literal there; so it
computes the same.  If the dataflow analysis finds the constant in the padding of that kernel, it is
in the padding of the first one too.
"""

from __future__ import annotations

from typing import cast

from graphflow import arith, effects, layout, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.facts.padding import (
    PaddingKind,
    constant_stage,
    fact_at,
    is_padding,
    known_constants,
)
from graphflow.schedule.padding.neutral import NeutralQuery
from graphflow.schedule.places import addresses, obligations, places
from graphflow.schedule.steps.frame import Rewrite


def derive_padding(func: tir.PrimFunc, buffer: str) -> Rewrite:
    """`S; for p: if p is padding: b[p] = c` → `S; for p: assume(unless(p is logical), b[p] == c)`,
    where S leaves c there anyhow.

    The padding stage of `buffer` keeps its name.

    1. *Constant*: the buffer has one padding stage, which stores one constant c.
    2. *Neutral*: what a reduction of S adds to padding is the neutral element of its operator, by
       what is known of the padding that it loads.
    3. *Left there*: with these reductions skipped, each element of the padding is proven to hold c,
       bit for bit, when the stage runs.

    ScheduleError, which names the clause and a point, where one of these is not proven.
    """
    target = places.find_buffer(func, buffer)
    stage, value = constant_stage(func, target)
    if not isinstance(value, tir.Literal):
        raise ScheduleError(f"constant: the stage {stage.name} stores undef, and no constant")
    proofs = _left_there(func, target, stage, value)
    stated = replace(stage, body=tir.map_body(stage.body, _assumed))
    return Rewrite(_replaced(func, stage, stated), proofs)


def require_derived(func: tir.PrimFunc) -> tuple[arith.Proof, ...]:
    """Proofs of what padding stages assume of buffers that the kernel itself writes.

    As `derive_padding` proves it; ScheduleError where it does not.
    """
    proofs: list[arith.Proof] = []
    for stage in derived_stages(func):
        stored = replace(stage, body=tir.map_body(stage.body, _stored))
        proofs += derive_padding(_replaced(func, stage, stored), _padded(stage)).proofs
    return tuple(proofs)


def derived_stages(func: tir.PrimFunc) -> tuple[tir.Block, ...]:
    """The padding stages that assume constants in buffers that the kernel itself writes."""
    blocks = (stmt for stmt in tir.walk(func.body) if isinstance(stmt, tir.Block))
    written = {stmt.buffer.name for stmt in tir.writes_in(func.body)}
    return tuple(
        block
        for block in blocks
        if _padded(block) in written
        and block.note(tir.BlockNote.PADDING) == PaddingKind.VALUE
        and any(isinstance(inner, tir.Assume) for inner in tir.walk((block,)))
    )


def _replaced(func: tir.PrimFunc, stage: tir.Block, new: tir.Block) -> tir.PrimFunc:
    return places.exchange_at(func, stage.name, (new,))


def _padded(stage: tir.Block) -> str:
    """The name of the buffer whose padding a stage is about, or the empty text."""
    return stage.note(tir.BlockNote.PADDING_OF) or ""


def _stored(stmt: tir.Stmt) -> tir.Stmt:
    """The statement of a padding stage that stores what this one assumes."""
    match stmt:
        case tir.Assume(
            claim=tir.Comparison(op="eq", left=tir.Load() as load, right=tir.Literal() as value)
        ):
            store = tir.Store(load.buffer, load.indices, value)
            return store if stmt.unless == arith.FALSE else tir.If(_not(stmt.unless), (store,))
        case tir.Assume():
            raise ScheduleError(f"{tir.stmt_text(stmt)} is no constant in the padding of a buffer")
        case _:
            return stmt


def _not(condition: tir.Expr | arith.Predicate) -> arith.Predicate:
    if not tir.is_predicate(condition):
        raise ScheduleError("a padding stage assumes under a condition on data")
    return arith.negation(cast(arith.Predicate, condition))


def _left_there(
    func: tir.PrimFunc, target: tir.Buffer, stage: tir.Block, value: tir.Literal
) -> tuple[arith.Proof, ...]:
    """Proofs that the stage stores what is there, `value`; `Unproven` else."""
    proofs: list[arith.Proof] = []
    same = _specialized(func, target, stage, proofs)
    stores = [
        path
        for path in effects.paths_below(stage, addresses.path_of(same, stage.name))
        if isinstance(effects.statement_at(same, path), tir.Store)
    ]
    if not stores:
        raise ScheduleError(f"constant: a call in the stage {stage.name} stores the padding")
    claim = f"left there: {target.name} holds {value.value} in its padding before {stage.name}"
    return (*proofs, obligations.require(effects.stores_known_value(same, stores[0]), claim))


def _assumed(stmt: tir.Stmt) -> tir.Stmt:
    """The statement of a padding stage that assumes what this one stores."""
    match stmt:
        case tir.If(then=(tir.Assume() as inner,), orelse=()):
            return replace(inner, unless=_not(stmt.condition))
        case tir.Store():
            load = tir.Load(stmt.buffer, stmt.indices)
            return tir.Assume(arith.FALSE, tir.Comparison("eq", load, stmt.value))
        case _:
            return stmt


def _specialized(
    func: tir.PrimFunc, target: tir.Buffer, stage: tir.Block, proofs: list[arith.Proof]
) -> tir.PrimFunc:
    """A kernel that computes the same, in which what is known in the padding is written as such."""
    for statement in effects.statements_of(func).statements:
        stmt = statement.stmt
        if not isinstance(stmt, tir.Store | tir.Reduce) or stmt.buffer != target:
            continue
        if effects.statement_at(func, statement.path[:1]) is stage:
            continue
        padding = is_padding((stage,), target, stmt.indices)
        inside = statement.domain.given(padding)
        if arith.prove_empty(inside).proven:
            continue
        if isinstance(stmt, tir.Reduce):
            proofs.append(_neutral(func, statement, stmt, inside))
            new: tir.Stmt = tir.If(arith.negation(padding), (stmt,))
        else:
            known = _known_value(func, statement, stmt, inside)
            if known is None:
                continue
            new = tir.If(padding, (replace(stmt, value=known),), (stmt,))
        func = effects.exchange_path(func, statement.path, (new,))
    return func


def _known_value(
    func: tir.PrimFunc, statement: effects.Statement, stmt: tir.Store, inside: arith.Domain
) -> tir.Literal | None:
    """The constant that a store is known to store at the points `inside`, or None."""
    position = statement.path[0][0]
    fact = layout.value_fact(
        stmt.value,
        lambda load: fact_at(func, load, inside, position),
        lambda predicate: arith.holds_throughout(predicate, inside),
        inside.ranges(),
    )
    return fact.literal if isinstance(fact, layout.Constant) else None


def _neutral(
    func: tir.PrimFunc, statement: effects.Statement, stmt: tir.Reduce, inside: arith.Domain
) -> arith.Proof:
    """A proof that a reduction adds neutral elements at the points `inside`; `Unproven` else."""
    position = statement.path[0][0]
    answer = NeutralQuery(func, position).proof(stmt, inside)
    if isinstance(answer, arith.Proof):
        return answer
    title = f"neutral: {answer}"
    for load in (node for node in tir.walk_expr(stmt.value) if isinstance(node, tir.Load)):
        known = known_constants(func, load, position)
        if known != arith.FALSE:
            text = f"{tir.element_text(load.buffer, load.indices)} is known"
            proof = arith.prove(known, inside)
            if not proof.proven:
                raise obligations.Unproven(title, replace(proof, claim=text))
    point = arith.point_in(inside) or {}
    witness = tuple((var.name, at) for var, at in point.items())
    where = ", ".join(f"{name}={at}" for name, at in witness)
    claim = f"{tir.element_text(stmt.buffer, stmt.indices)} stays as it is"
    raise obligations.Unproven(
        title, arith.Proof(arith.Verdict.UNKNOWN, claim, "facts", f"at {where}", witness)
    )
