"""Primitives on calls: instructions put in place of statements, and calls put in and taken out.

In: a kernel, the name of a loop, block or call, and a definition.  Out: the kernel with a call, or
without it.  What always holds: a call performs the statements that it stands for, up to the names
of loops, blocks and local buffers in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace as replaced
from typing import Any, cast

from graphflow.arith import (
    Domain,
    IndexExpr,
    IslBudget,
    Predicate,
    Proof,
    Var,
    const,
    out_of_budget,
    predicate_variables,
    variables,
)
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.effects import relations_of, state_unread, statements_of
from graphflow.schedule.addresses import path_of
from graphflow.schedule.base_schedule import BaseSchedule
from graphflow.schedule.dependence import independent
from graphflow.schedule.frame import Rewrite
from graphflow.schedule.known_state import unify_in_state
from graphflow.schedule.obligations import require, structural
from graphflow.schedule.place_names import (
    fresh_name,
    names_in,
    place_names,
    require_fresh,
    require_names,
)
from graphflow.schedule.places import find, first_in_lanes, rewrite_around, rewrite_at
from graphflow.tir import (
    AT_ONCE,
    Allocate,
    Assume,
    Block,
    Body,
    Buffer,
    BufferWindow,
    Call,
    For,
    If,
    LoopKind,
    NotUnifiable,
    Param,
    PrimFunc,
    Reduce,
    Role,
    Stmt,
    Store,
    Undef,
    expression_variables,
    expressions_of,
    fields_of,
    is_predicate,
    loads_in,
    loops_of,
    performed,
    rename_buffers,
    sites,
    substitute_body,
    verify,
    walk,
    windows_in,
    writes_in,
)


def replace(func: PrimFunc, place: str, definition: PrimFunc) -> Rewrite:
    """`for i: S` → `instruction(a[i:i + 8], …)`, a call that performs the same.

    Windows, offsets and scalars are inferred.  Safe where

    1. the loop, or the body of the block, unifies with the body of the definition: they are equal
       but for names, kinds of loops, and the arguments put in;
    2. loops that the definition marks parallel or vectorized have independent iterations here,
       where two windows may be of one buffer, and stand in no vectorized loop, unless the kernel
       has loops of the same kinds here already;
    3. *state*: where the definition reads fields of configuration state that S does not, it is
       equal to S for the values that these fields are proven to hold there.

    A refusal of 1 shows the first difference, one of 2 the iterations that meet, one of 3 the
    field, the value that the definition needs, and the one that it has.

    Makes the call in the role `call`.
    """
    stmt, domain = find(func, place)
    require_definition(func, definition)
    body = stmt.body if isinstance(stmt, Block) else (stmt,)
    inside = set(names_in((stmt,)))
    others = set(place_names(func)) - inside

    def is_taken(name: str) -> bool:
        return name in others or any(other.startswith(f"{name}.") for other in others)

    name = fresh_name(definition.name, is_taken)
    try:
        call, state = unify_in_state(func, place, definition, body, name)
    except NotUnifiable as error:
        raise ScheduleError(f"{place} does not unify with {definition.name}: {error}") from None
    unified = structural(f"{place} is {definition.name}, with the arguments put in")
    kinds = [[loop.kind for loop in loops_of(b)] for b in (body, performed(call))]
    # Unified, so what the loops run over is the same too.
    safe = _safe_kinds(func, place, call, domain) if kinds[0] != kinds[1] else ()
    proofs = (unified, *state, *safe)
    new = rewrite_at(func, place, lambda _s, _d: (call,))
    places = {old: () for old in inside if old not in names_in((call,))}
    return Rewrite(new, proofs, {**places, place: (name,)}, {"call": (name,)})


def require_definition(func: PrimFunc, definition: PrimFunc) -> None:
    """ScheduleError where a kernel cannot call a definition: it is not well formed, or the kernel
    calls another one of that name already."""
    try:
        verify(definition, "scheduled")
    except VerifyError as error:
        raise ScheduleError(f"{definition.name} cannot be called: {error}") from None
    for stmt in walk(func.body):
        if not isinstance(stmt, Call) or stmt.definition.name != definition.name:
            continue
        if stmt.definition != definition:
            raise ScheduleError(f"{func.name} calls another kernel {definition.name} already")
    if definition.name == func.name:
        raise ScheduleError(f"{func.name} cannot call a kernel of its own name")


def _safe_kinds(func: PrimFunc, place: str, call: Call, domain: Domain) -> tuple[Proof, ...]:
    """Proofs that loops which run at once in a call have independent iterations."""
    proofs: tuple[Proof, ...] = ()
    for site in sites(performed(call), domain):
        loop = site.stmt
        if isinstance(loop, For) and loop.kind in AT_ONCE:
            lanes = first_in_lanes(func, place, (axis.var for axis in domain.axes))
            if lanes is not None:
                raise ScheduleError(f"{place} stands inside {lanes}, whose iterations are lanes")
            proofs += independent(loop, site.domain)
    return proofs


def find_call(func: PrimFunc, name: str) -> tuple[Call, Domain]:
    """The call `name`, and the domain around it; else ScheduleError."""
    stmt, domain = find(func, name)
    if not isinstance(stmt, Call):
        raise ScheduleError(f"{name} is a loop or a block, and a call is needed")
    return stmt, domain


def inline(func: PrimFunc, call: str) -> Rewrite:
    """`f(a[…], …)` → the statements of f with the arguments put in.

    Always safe: these statements are the meaning of the call.  Loops, blocks and buffers in them
    are named `call.name`.
    """
    stmt, _ = find_call(func, call)
    body = performed(stmt)
    new = rewrite_at(func, call, lambda _s, _d: body)
    first = names_in(body)[:1]
    return Rewrite(new, (structural(f"{call} performs these statements"),), {call: first})


def extract_subproc(func: PrimFunc, place: str, name: str) -> Rewrite:
    """`S` → `name(a[…], …, i, …)`, a call of a new kernel `name` with the body S.

    Its parameters are the buffers that S names and does not allocate, whole, without fields of
    configuration state, and the variables of loops around S that it uses.  Everything else is in
    the new kernel as it was.

    1. S, the loop or block `place`, holds no parallel loop, which has to be the outermost of its
       kernel, and is no call already, nor an allocation: what follows uses the buffer.

    Makes the call in the role `call`.
    """
    require_names(name)
    if "." in name:
        raise ScheduleError(f"{name!r} has a dot, which the name of a kernel cannot have")
    require_fresh(func, name)
    stmt, _ = find(func, place)
    if any(loop.kind is LoopKind.PARALLEL for loop in loops_of((stmt,))):
        raise ScheduleError(f"{place} holds a parallel loop; make it serial first")
    if isinstance(stmt, Call):
        raise ScheduleError(f"{place} is a call already")
    if isinstance(stmt, Allocate):
        raise ScheduleError(
            f"{place} allocates {stmt.buffer.name}, which the statements behind it use; extract a "
            "loop or a block"
        )
    call = _extracted(stmt, name)
    require_definition(func, call.definition)
    require_fresh(func, *names_in(performed(call)))
    new = rewrite_at(func, place, lambda _s, _d: (call,))
    proof = structural(f"{name} performs what {place} did")
    places: dict[str, tuple[str, ...]] = dict.fromkeys(names_in((stmt,)), ())
    return Rewrite(new, (proof,), {**places, place: (name,)}, {"call": (name,)})


def _extracted(stmt: Stmt, name: str) -> Call:
    body: Body = (stmt,)
    allocated = {s.buffer for s in walk(body) if isinstance(s, Allocate)}
    written = {write.buffer for write in writes_in(body)}
    used = dict.fromkeys(
        (
            *(load.buffer for load in loads_in(body)),
            *(write.buffer for write in writes_in(body)),
            *(window.buffer for window in windows_in(body)),
        )
    )
    outer = [buffer for buffer in used if buffer not in allocated and not buffer.is_field]
    inner = {
        buffer: replaced(buffer, name=buffer.name.replace(".", "_"), scope="global")
        for buffer in outer
    }
    if len({buffer.name for buffer in inner.values()}) < len(inner):
        raise ScheduleError(f"two buffers in {name} would get one name; rename them first")
    params = tuple(Param(inner[b], Role.INOUT if b in written else Role.INPUT) for b in outer)
    free = tuple(sorted(_free_variables(body), key=str))
    plain = {var: Var(var.name.replace(".", "_")) for var in free}
    own = {loop.var for loop in loops_of(body)}
    if len(own | set(plain.values())) < len(own) + len(free):
        raise ScheduleError(f"two variables in {name} would get one name; rename a loop first")
    body = substitute_body(rename_buffers(body, inner), dict(plain))
    definition = PrimFunc(name, params, body, scalars=tuple(plain[var] for var in free))
    windows = tuple(_whole(buffer) for buffer in outer)
    return Call(name, definition, windows, free)


def _whole(buffer: Buffer) -> BufferWindow:
    rank = len(buffer.shape)
    return BufferWindow(buffer, (const(0),) * rank, tuple(range(rank)))


def _free_variables(body: Body) -> set[Var]:
    """The variables that statements use and no loop in them binds."""
    used: set[Var] = set()
    for stmt in walk(body):
        for expr in expressions_of(stmt):
            used |= expression_variables(expr)
        indices: tuple[IndexExpr, ...] = ()
        match stmt:
            case Store() | Reduce():
                indices = stmt.indices
            case For():
                indices = (stmt.start, stmt.stop)
            case If() if is_predicate(stmt.condition):
                used |= predicate_variables(cast(Predicate, stmt.condition))
            case Assume() if is_predicate(stmt.unless):
                used |= predicate_variables(cast(Predicate, stmt.unless))
            case Call():
                indices = (*stmt.scalars, *(i for w in stmt.windows for i in w.starts))
            case _:
                pass
        used.update(var for index in indices for var in variables(index))
    return used - {loop.var for loop in loops_of(body)}


def call_eqv(func: PrimFunc, call: str, schedule: BaseSchedule) -> Rewrite:
    """`f(a[…], …)` → `g(a[…], …)`, where g is what a schedule made of f, or f of g.

    Safe where

    1. f is the definition of the schedule and g its kernel, or the other way round, so that each
       step between them is proven;
    2. f and g have the same parameters;
    3. no buffer that the call writes is handed to it twice: the proofs are about kernels whose
       parameters do not overlap;
    4. g writes only elements that f certainly writes: for a kernel, what it leaves of an output is
       undefined, but not for its caller;
    5. as 2 of `replace`;
    6. *state*: nothing behind the call reads a field of configuration state that f and g may leave
       with different values.

    Where 6 does not hold of code behind the kernel, `Rewrite.fields` has the field.
    """
    stmt, domain = find_call(func, call)
    ends = (schedule.definition, schedule.func)
    own = next((end for end in ends if _renamed(end, stmt.definition) == stmt.definition), None)
    if own is None:
        raise ScheduleError(
            f"{call} calls {stmt.definition.name}, which is neither the definition nor the result "
            "of the schedule: they are not proven to be equivalent"
        )
    other = ends[1] if own is ends[0] else ends[0]
    if _taken(other) != _taken(stmt.definition):
        raise ScheduleError(
            f"{stmt.definition.name} and {other.name} do not have the same parameters"
        )
    other = replaced(other, name=_free_name(func, stmt, other))
    buffers = [window.buffer for window in stmt.windows]
    for param, window in zip(other.params, stmt.windows, strict=True):
        if param.role is not Role.INPUT and buffers.count(window.buffer) > 1:
            raise ScheduleError(
                f"{call} gets {window.buffer.name} twice and writes it; the schedule was proven "
                "for parameters that do not overlap"
            )
    new_call = replaced(stmt, definition=other)
    old_names = names_in(performed(stmt))
    require_fresh(func, *(n for n in names_in(performed(new_call)) if n not in old_names))
    proofs = [structural(f"{other.name} and {stmt.definition.name} are two ends of a schedule")]
    proofs += _same_writes(stmt.definition, other)
    proofs += _safe_kinds(func, call, new_call, domain)
    new = rewrite_at(func, call, lambda _s, _d: (new_call,))
    fields: list[str] = []
    for field in (*fields_of(ends[0]), *fields_of(ends[1])):
        if field.name in schedule.fields and field.name not in fields:
            unread, after_kernel = _unread_behind(func, call, field)
            proofs.append(require(unread, f"state: nothing behind {call} reads {field.name}"))
            fields += [] if after_kernel.proven else [field.name]
    return Rewrite(new, tuple(proofs), fields=tuple(fields))


def _unread_behind(func: PrimFunc, call: str, field: Buffer) -> tuple[Proof, Proof]:
    """Whether nothing reads a field behind a call before it is written; also after the kernel."""
    write = Store(field, (), Undef(field.dtype))
    *around, (position, _) = path_of(func, call)
    probe = rewrite_around(
        func, call, lambda body, at, _d: (*body[: at + 1], write, *body[at + 1 :])
    )
    path = (*around, (position + 1, False))
    return state_unread(probe, path, after_kernel=False), state_unread(probe, path, True)


def _taken(func: PrimFunc) -> tuple[object, ...]:
    """What a kernel is given: a parameter may be a window in one and dense in the other."""
    return (*((param.buffer, param.role) for param in func.params), *func.scalars)


def _renamed(func: PrimFunc, other: PrimFunc) -> PrimFunc:
    return replaced(func, name=other.name)


def _free_name(func: PrimFunc, call: Call, other: PrimFunc) -> str:
    """A name for the kernel `other`: its own, unless another call uses that for another kernel."""
    taken = {
        stmt.definition.name
        for stmt in walk(func.body)
        if isinstance(stmt, Call)
        and stmt.name != call.name
        and replaced(stmt.definition, name=other.name) != other
    }
    return fresh_name(other.name, (taken | {func.name}).__contains__)


def _same_writes(old: PrimFunc, new: PrimFunc) -> Iterator[Proof]:
    """Proofs that `new` writes no element of a parameter that `old` leaves."""
    for param in new.params:
        if param.role is Role.INPUT:
            continue
        buffer = param.buffer
        with IslBudget() as context:
            try:
                most = _written(new, buffer, context, certain=False)
                least = _written(old, buffer, context, certain=True)
                extra = None if most is None else most if least is None else most.subtract(least)
                witness = None if extra is None or extra.is_empty() else str(extra.sample_point())
            except Exception as error:
                if not out_of_budget(error):
                    raise
                raise ScheduleError(f"what {new.name} writes is too large to decide") from None
        if witness is not None:
            raise ScheduleError(
                f"{new.name} writes an element of {buffer.name} that {old.name} does not write "
                f"for sure: {witness}"
            )
        yield structural(f"{new.name} writes no more of {buffer.name} than {old.name}")


def _written(func: PrimFunc, buffer: Buffer, context: object, certain: bool) -> Any:
    """The elements of a buffer that a kernel writes, or certainly writes, as a set; or None."""
    relations = relations_of(func)
    found = None
    for access in statements_of(func).of(buffer):
        if access.access.writes and (access.access.certain or not certain):
            elements = relations.elements(context, access).range()
            found = elements if found is None else found.union(elements)
    return found
