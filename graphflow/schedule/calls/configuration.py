"""Primitives on configuration state: writes of a field put in, taken out, and made for a reader.

In: a kernel, a place, and a field of a `Config`.  Out: the kernel with the write, or without it.
What always holds: every read of a field sees the value that it saw before, and outputs are the
same.  What a field holds after the kernel may differ; `Rewrite.fields` tells callers which do.
"""

from __future__ import annotations

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.base.fields import replace
from graphflow.schedule.buffers.relocation import still_at_once
from graphflow.schedule.facts.padding import may_load
from graphflow.schedule.places import addresses, obligations, places
from graphflow.schedule.places.step_arguments import ExprGiven, value_of
from graphflow.schedule.statements.expressions import bound_value
from graphflow.schedule.steps.frame import Rewrite


def write_config(
    func: tir.PrimFunc,
    gap: str,
    field: tir.Buffer,
    value: ExprGiven | int,
    after: bool = False,
) -> Rewrite:
    """`S` → `mode.act = e; S`, or with `after` `S; mode.act = e`, for the statement S at `gap`.

    1. *field*: it is a field of configuration state, and `e` has its type.
    2. *scope*: `e` uses only loops around S and buffers that exist there.
    3. *memory*: what `e` loads is in bounds and no padding that nothing may access.
    4. *unread*: no code that runs afterwards reads the field before it is written again, or the
       field holds the value of `e` already.
    5. *threads*: iterations of a loop that run at once do not share the write.

    Where 4 does not hold of code behind the kernel, `Rewrite.fields` has the field.
    """
    expr = tir.Literal(value, field.dtype) if isinstance(value, int) else value_of(func, value)
    _require_field(field, expr)
    write = tir.Store(field, (), expr)
    *around, (position, _) = addresses.path_of(func, gap)
    at = position + after
    path = (*around, (at, False))
    new = places.rewrite_around(func, gap, lambda body, _p, _d: (*body[:at], write, *body[at:]))
    _require_legal(new, func)
    proofs = list(_loaded(func, new, path))
    proofs += [_seen_by_nobody(new, path, f"unread: nothing reads {field.name} afterwards")]
    proofs += _still_at_once(new)
    fields = _differing(new, path)
    return Rewrite(new, (*dict.fromkeys(proofs), *_told(fields)), fields=fields)


def delete_config(func: tir.PrimFunc, place: str) -> Rewrite:
    """`mode.act = e` → nothing, also for a block or a call of an instruction that does no more.

    1. *write*: the statement writes fields of configuration state, and nothing else.
    2. *unread*: no code that runs afterwards reads the field before it is written again, or the
       field holds the value of `e` already.

    Where 2 does not hold of code behind the kernel, `Rewrite.fields` has the field.
    """
    path = addresses.path_of(func, place)
    stmt = effects.statement_at(func, path)
    written = tuple(tir.writes_in((stmt,)))
    other = next((write for write in written if not write.buffer.is_field), None)
    if other is not None or not written:
        text = tir.stmt_text(other or stmt).splitlines()[0]
        raise ScheduleError(f"write: `{text}` writes no configuration state")
    names = ", ".join(dict.fromkeys(write.buffer.name for write in written))
    proof = _seen_by_nobody(func, path, f"unread: nothing reads {names} afterwards")
    fields = _differing(func, path)
    new = effects.rewrite_path(func, path, lambda body, k, _d: (*body[:k], *body[k + 1 :]))
    return Rewrite(new, (proof, *_told(fields)), fields=fields)


def bind_config(func: tir.PrimFunc, place: str, expr: ExprGiven, field: tir.Buffer) -> Rewrite:
    """`S[e]` → `mode.act = e; S[mode.act]`, for all expressions in S that are equal to `e`.

    In a loop or block S is its body, and the field is written at its head; any other statement is
    S itself.  The expression is given as in `bind_expr`.

    1. *field*: it is a field of configuration state, and `e` has its type.
    2. *found*, *scope*, *unchanged*, *memory*, *lanes*: as of `bind_expr`.
    3. *free*: S does not read or write the field.
    4. *unread*: nothing behind S reads the field before it is written again.
    5. *threads*: iterations of a loop that run at once do not share the write.

    Where 4 does not hold of code behind the kernel, `Rewrite.fields` has the field.
    """
    _require_field(field)
    path = addresses.path_of(func, place)
    stmt = effects.statement_at(func, path)
    for access in tir.accesses((stmt,), effects.domain_at(func, path)):
        if access.buffer.name == field.name:
            raise ScheduleError(f"free: {place} accesses {field.name} already")
    value, body, proofs = bound_value(func, place, expr, lambda value: field, _written)
    _require_field(field, value)
    if isinstance(stmt, tir.For | tir.Block):
        probe = new = places.exchange_at(func, place, body)
    else:
        new = places.exchange_at(func, place, body)
        held = tir.Block("bound by bind_config", body)
        probe = places.exchange_at(func, place, (held,))
    _require_legal(new, func)
    condition = f"unread: nothing behind {place} reads {field.name}"
    proofs += [
        obligations.require(effects.state_unread(probe, path, after_kernel=False), condition)
    ]
    proofs += _still_at_once(new)
    unseen = effects.state_unread(probe, path, after_kernel=True).proven
    fields = () if unseen else (field.name,)
    return Rewrite(new, (*dict.fromkeys(proofs), *_told(fields)), fields=fields)


def _written(field: tir.Buffer, value: tir.Expr, used: tir.Body) -> tir.Body:
    return (tir.Store(field, (), value), *used)


def _require_field(field: tir.Buffer, value: tir.Expr | None = None) -> None:
    if not field.is_field:
        raise ScheduleError(f"field: {field.name} is no field of configuration state")
    if value is not None and value.dtype != field.dtype:
        raise ScheduleError(
            f"field: {field.name} is {field.dtype}, and {tir.expr_text(value)} is {value.dtype}"
        )


def _require_legal(new: tir.PrimFunc, func: tir.PrimFunc) -> None:
    try:
        tir.verify(new, "scheduled")
    except VerifyError as error:
        reason = str(error).splitlines()[0].removeprefix(f"{func.name} is not a scheduled kernel: ")
        raise ScheduleError(f"scope: {reason}") from None


def _still_at_once(new: tir.PrimFunc) -> tuple[arith.Proof, ...]:
    try:
        return still_at_once(new)
    except obligations.Unproven as error:
        raise obligations.Unproven(f"threads: {error.reason}", error.proof) from None


def _loaded(func: tir.PrimFunc, new: tir.PrimFunc, path: effects.Path) -> tuple[arith.Proof, ...]:
    """Proofs that what the new write loads may be loaded."""
    found = tir.accesses((effects.statement_at(new, path),), effects.domain_at(new, path))
    loads = [access for access in found if not access.writes and not access.buffer.is_field]
    texts = [f"memory: {one.buffer.name}[{', '.join(map(str, one.indices))}]" for one in loads]
    pairs = zip(loads, texts, strict=True)
    return tuple(p for one, text in pairs for p in may_load(func, one, f"{text} is in bounds"))


def _seen_by_nobody(func: tir.PrimFunc, path: effects.Path, condition: str) -> arith.Proof:
    """The proof that no read in the kernel sees what the statement at a path writes."""
    unseen = effects.state_unread(func, path, after_kernel=False)
    if unseen.proven:
        return unseen
    known = _known(func, path)
    if known.proven:
        return known
    reason = "; ".join(filter(None, (unseen.reason, known.reason)))
    raise obligations.Unproven(f"{condition}: that is not proven", replace(unseen, reason=reason))


def _known(func: tir.PrimFunc, path: effects.Path) -> arith.Proof:
    """Whether each store in the statement at a path stores what its element holds already."""
    model = effects.statements_of(func)
    inside = model.inside(model.at(path))
    proofs = [
        effects.stores_known_value(func, one.path)
        for one in inside
        if isinstance(one.stmt, tir.Store)
    ]
    return next((proof for proof in proofs if not proof.proven), proofs[0])


def _left_as_it_was(func: tir.PrimFunc, path: effects.Path) -> bool:
    return effects.state_unread(func, path, after_kernel=True).proven or _known(func, path).proven


def _differing(func: tir.PrimFunc, path: effects.Path) -> tuple[str, ...]:
    """The fields that may hold something else after the kernel without the statement at a path."""
    if _left_as_it_was(func, path):
        return ()
    fields = (write.buffer.name for write in tir.writes_in((effects.statement_at(func, path),)))
    return tuple(dict.fromkeys(fields))


def _told(fields: tuple[str, ...]) -> tuple[arith.Proof, ...]:
    """What callers must know, as a line of the trace."""
    return tuple(obligations.structural(f"{field} may differ after the kernel") for field in fields)
