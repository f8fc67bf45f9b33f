"""Primitives on calls: instructions put in place of statements, and calls put in and taken out.

In: a kernel, the name of a loop, block or call, and a definition.  Out: the kernel with a call, or
without it.  What always holds: a call performs the statements that it stands for, up to the names
of loops, blocks and local buffers in them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.base.fields import replace as replaced
from graphflow.schedule.facts import dependence, known_state
from graphflow.schedule.places import addresses, obligations, place_names
from graphflow.schedule.places.places import (
    exchange_at,
    find,
    first_in_lanes,
    rewrite_around,
    stmt_at,
)
from graphflow.schedule.steps.base_schedule import BaseSchedule
from graphflow.schedule.steps.frame import Rewrite


def replace(func: tir.PrimFunc, place: str, definition: tir.PrimFunc) -> Rewrite:
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
    body = stmt.body if isinstance(stmt, tir.Block) else (stmt,)
    inside = set(place_names.declared_names((stmt,)))
    others = set(place_names.names_of_places(func)) - inside

    def is_taken(name: str) -> bool:
        return name in others or any(other.startswith(f"{name}.") for other in others)

    name = place_names.fresh_name(definition.name, is_taken)
    try:
        call, state = known_state.unify_in_state(func, place, definition, body, name)
    except tir.NotUnifiable as error:
        raise ScheduleError(f"{place} does not unify with {definition.name}: {error}") from None
    unified = obligations.structural(f"{place} is {definition.name}, with the arguments put in")
    kinds = [[loop.kind for loop in tir.loops_of(b)] for b in (body, tir.performed(call))]
    # Unified, so what the loops run over is the same too.
    safe = _safe_kinds(func, place, call, domain) if kinds[0] != kinds[1] else ()
    proofs = (unified, *state, *safe)
    new = exchange_at(func, place, (call,))
    places = {old: () for old in inside if old not in place_names.declared_names((call,))}
    return Rewrite(new, proofs, {**places, place: (name,)}, {"call": (name,)})


def require_definition(func: tir.PrimFunc, definition: tir.PrimFunc) -> None:
    """ScheduleError where a kernel cannot call a definition: it is not well formed, or the kernel
    calls another one of that name already."""
    try:
        tir.verify(definition, "scheduled")
    except VerifyError as error:
        raise ScheduleError(f"{definition.name} cannot be called: {error}") from None
    for stmt in tir.walk(func.body):
        if not isinstance(stmt, tir.Call) or stmt.definition.name != definition.name:
            continue
        if stmt.definition != definition:
            raise ScheduleError(f"{func.name} calls another kernel {definition.name} already")
    if definition.name == func.name:
        raise ScheduleError(f"{func.name} cannot call a kernel of its own name")


def _safe_kinds(
    func: tir.PrimFunc, place: str, call: tir.Call, domain: arith.Domain
) -> tuple[arith.Proof, ...]:
    """Proofs that loops which run at once in a call have independent iterations."""
    proofs: tuple[arith.Proof, ...] = ()
    for site in tir.sites(tir.performed(call), domain):
        loop = site.stmt
        if isinstance(loop, tir.For) and loop.kind in tir.AT_ONCE:
            lanes = first_in_lanes(func, place, (axis.var for axis in domain.axes))
            if lanes is not None:
                raise ScheduleError(f"{place} stands inside {lanes}, whose iterations are lanes")
            proofs += dependence.independent(loop, site.domain)
    return proofs


def find_call(func: tir.PrimFunc, name: str) -> tuple[tir.Call, arith.Domain]:
    """The call `name`, and the domain around it; else ScheduleError."""
    stmt, domain = find(func, name)
    if not isinstance(stmt, tir.Call):
        raise ScheduleError(f"{name} is a loop or a block, and a call is needed")
    return stmt, domain


def inline(func: tir.PrimFunc, call: str) -> Rewrite:
    """`f(a[…], …)` → the statements of f with the arguments put in.

    Always safe: these statements are the meaning of the call.  Loops, blocks and buffers in them
    are named `call.name`.
    """
    stmt, _ = find_call(func, call)
    body = tir.performed(stmt)
    new = exchange_at(func, call, body)
    first = place_names.declared_names(body)[:1]
    return Rewrite(
        new, (obligations.structural(f"{call} performs these statements"),), {call: first}
    )


def extract_subproc(func: tir.PrimFunc, place: str, name: str) -> Rewrite:
    """`S` → `name(a[…], …, i, …)`, a call of a new kernel `name` with the body S.

    Its parameters are the buffers that S names and does not allocate, whole, without fields of
    configuration state, and the variables of loops around S that it uses.  Everything else is in
    the new kernel as it was.

    1. S, the loop or block `place`, holds no parallel loop, which has to be the outermost of its
       kernel, and is no call already, nor an allocation: what follows uses the buffer.

    Makes the call in the role `call`.
    """
    place_names.require_names(name)
    if "." in name:
        raise ScheduleError(f"{name!r} has a dot, which the name of a kernel cannot have")
    place_names.require_fresh(func, name)
    stmt = stmt_at(func, place)
    if any(loop.kind is tir.LoopKind.PARALLEL for loop in tir.loops_of((stmt,))):
        raise ScheduleError(f"{place} holds a parallel loop; make it serial first")
    if isinstance(stmt, tir.Call):
        raise ScheduleError(f"{place} is a call already")
    if isinstance(stmt, tir.Allocate):
        raise ScheduleError(
            f"{place} allocates {stmt.buffer.name}, which the statements behind it use; extract a "
            "loop or a block"
        )
    call = _extracted(stmt, name)
    require_definition(func, call.definition)
    place_names.require_fresh(func, *place_names.declared_names(tir.performed(call)))
    new = exchange_at(func, place, (call,))
    proof = obligations.structural(f"{name} performs what {place} did")
    places: dict[str, tuple[str, ...]] = dict.fromkeys(place_names.declared_names((stmt,)), ())
    return Rewrite(new, (proof,), {**places, place: (name,)}, {"call": (name,)})


def _extracted(stmt: tir.Stmt, name: str) -> tir.Call:
    body: tir.Body = (stmt,)
    allocated = {s.buffer for s in tir.walk(body) if isinstance(s, tir.Allocate)}
    written = {write.buffer for write in tir.writes_in(body)}
    used = dict.fromkeys(
        (
            *(load.buffer for load in tir.loads_in(body)),
            *(write.buffer for write in tir.writes_in(body)),
            *(window.buffer for window in tir.windows_in(body)),
        )
    )
    outer = [buffer for buffer in used if buffer not in allocated and not buffer.is_field]
    inner = {
        buffer: replaced(buffer, name=buffer.name.replace(".", "_"), scope="global")
        for buffer in outer
    }
    if len({buffer.name for buffer in inner.values()}) < len(inner):
        raise ScheduleError(f"two buffers in {name} would get one name; rename them first")
    params = tuple(
        tir.Param(inner[b], tir.Role.INOUT if b in written else tir.Role.INPUT) for b in outer
    )
    free = tuple(sorted(_free_variables(body), key=str))
    plain = {var: arith.Var(var.name.replace(".", "_")) for var in free}
    own = {loop.var for loop in tir.loops_of(body)}
    if len(own | set(plain.values())) < len(own) + len(free):
        raise ScheduleError(f"two variables in {name} would get one name; rename a loop first")
    body = tir.substitute_body(tir.rename_buffers(body, inner), dict(plain))
    definition = tir.PrimFunc(name, params, body, scalars=tuple(plain[var] for var in free))
    windows = tuple(_whole(buffer) for buffer in outer)
    return tir.Call(name, definition, windows, free)


def _whole(buffer: tir.Buffer) -> tir.BufferWindow:
    rank = len(buffer.shape)
    return tir.BufferWindow(buffer, (arith.const(0),) * rank, tuple(range(rank)))


def _free_variables(body: tir.Body) -> set[arith.Var]:
    """The variables that statements use and no loop in them binds."""
    used: set[arith.Var] = set()
    for stmt in tir.walk(body):
        for expr in tir.expressions_of(stmt):
            used |= tir.expression_variables(expr)
        indices: tuple[arith.IndexExpr, ...] = ()
        match stmt:
            case tir.Store() | tir.Reduce():
                indices = stmt.indices
            case tir.For():
                indices = (stmt.start, stmt.stop)
            case tir.If() if tir.is_predicate(stmt.condition):
                used |= arith.predicate_variables(cast(arith.Predicate, stmt.condition))
            case tir.Assume() if tir.is_predicate(stmt.unless):
                used |= arith.predicate_variables(cast(arith.Predicate, stmt.unless))
            case tir.Call():
                indices = (*stmt.scalars, *(i for w in stmt.windows for i in w.starts))
            case _:
                pass
        used.update(var for index in indices for var in arith.variables(index))
    return used - {loop.var for loop in tir.loops_of(body)}


def call_eqv(func: tir.PrimFunc, call: str, schedule: BaseSchedule) -> Rewrite:
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
        if param.role is not tir.Role.INPUT and buffers.count(window.buffer) > 1:
            raise ScheduleError(
                f"{call} gets {window.buffer.name} twice and writes it; the schedule was proven "
                "for parameters that do not overlap"
            )
    new_call = replaced(stmt, definition=other)
    old_names = place_names.declared_names(tir.performed(stmt))
    place_names.require_fresh(
        func,
        *(n for n in place_names.declared_names(tir.performed(new_call)) if n not in old_names),
    )
    proofs = [
        obligations.structural(
            f"{other.name} and {stmt.definition.name} are two ends of a schedule"
        )
    ]
    proofs += _same_writes(stmt.definition, other)
    proofs += _safe_kinds(func, call, new_call, domain)
    new = exchange_at(func, call, (new_call,))
    fields: list[str] = []
    for field in (*tir.fields_of(ends[0]), *tir.fields_of(ends[1])):
        if field.name in schedule.fields and field.name not in fields:
            unread, after_kernel = _unread_behind(func, call, field)
            proofs.append(
                obligations.require(unread, f"state: nothing behind {call} reads {field.name}")
            )
            fields += [] if after_kernel.proven else [field.name]
    return Rewrite(new, tuple(proofs), fields=tuple(fields))


def _unread_behind(
    func: tir.PrimFunc, call: str, field: tir.Buffer
) -> tuple[arith.Proof, arith.Proof]:
    """Whether nothing reads a field behind a call before it is written; also after the kernel."""
    write = tir.Store(field, (), tir.Undef(field.dtype))
    *around, (position, _) = addresses.path_of(func, call)
    probe = rewrite_around(
        func, call, lambda body, at, _d: (*body[: at + 1], write, *body[at + 1 :])
    )
    path = (*around, (position + 1, False))
    return effects.state_unread(probe, path, after_kernel=False), effects.state_unread(
        probe, path, True
    )


def _taken(func: tir.PrimFunc) -> tuple[object, ...]:
    """What a kernel is given: a parameter may be a window in one and dense in the other."""
    return (*((param.buffer, param.role) for param in func.params), *func.scalars)


def _renamed(func: tir.PrimFunc, other: tir.PrimFunc) -> tir.PrimFunc:
    return replaced(func, name=other.name)


def _free_name(func: tir.PrimFunc, call: tir.Call, other: tir.PrimFunc) -> str:
    """A name for the kernel `other`: its own, unless another call uses that for another kernel."""
    taken = {
        stmt.definition.name
        for stmt in tir.walk(func.body)
        if isinstance(stmt, tir.Call)
        and stmt.name != call.name
        and replaced(stmt.definition, name=other.name) != other
    }
    return place_names.fresh_name(other.name, (taken | {func.name}).__contains__)


def _same_writes(old: tir.PrimFunc, new: tir.PrimFunc) -> Iterator[arith.Proof]:
    """Proofs that `new` writes no element of a parameter that `old` leaves."""
    for param in new.params:
        if param.role is tir.Role.INPUT:
            continue
        buffer = param.buffer
        with arith.IslBudget() as context:
            try:
                most = _written(new, buffer, context, certain=False)
                least = _written(old, buffer, context, certain=True)
                extra = None if most is None else most if least is None else most.subtract(least)
                witness = None if extra is None or extra.is_empty() else str(extra.sample_point())
            except Exception as error:
                if not arith.out_of_budget(error):
                    raise
                raise ScheduleError(f"what {new.name} writes is too large to decide") from None
        if witness is not None:
            raise ScheduleError(
                f"{new.name} writes an element of {buffer.name} that {old.name} does not write "
                f"for sure: {witness}"
            )
        yield obligations.structural(f"{new.name} writes no more of {buffer.name} than {old.name}")


def _written(func: tir.PrimFunc, buffer: tir.Buffer, context: object, certain: bool) -> Any:
    """The elements of a buffer that a kernel writes, or certainly writes, as a set; or None."""
    relations = effects.relations_of(func)
    found = None
    for access in effects.statements_of(func).of(buffer):
        if access.access.writes and (access.access.certain or not certain):
            elements = relations.elements(context, access).range()
            found = elements if found is None else found.union(elements)
    return found
