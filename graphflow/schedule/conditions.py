"""Primitives about conditions: moving them out, taking them away, and plain simplification."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import cast

from graphflow.arith import (
    ANYWHERE,
    FALSE,
    TRUE,
    Domain,
    IndexExpr,
    Predicate,
    Proof,
    Var,
    bounds,
    conjunction,
    conjuncts,
    const,
    equal,
    joined,
    negation,
    predicate_variables,
    prove,
    prove_empty,
    simplify,
    simplify_predicate,
    substitute,
    substitute_in,
    within,
)
from graphflow.errors import ScheduleError
from graphflow.schedule.frame import Rewrite, require, structural
from graphflow.schedule.places import find, rewrite_at
from graphflow.tir import (
    Access,
    Allocate,
    Assume,
    Block,
    Body,
    Buffer,
    For,
    If,
    PrimFunc,
    Reduce,
    Stmt,
    Store,
    accesses,
    is_predicate,
    map_indices,
    sites,
    substitute_body,
    walk,
)


def simplify_kernel(func: PrimFunc) -> Rewrite:
    """Arithmetic simplification of the whole kernel, and conditions that are always or never true.

    Every index and predicate is simplified with the ranges of the loops around it; an `if` whose
    condition is decided becomes its branch; a loop that runs once becomes its body; one that never
    runs goes.  Nothing else moves.
    """
    body = _simplify_body(func.body, ANYWHERE)
    proofs = (structural("indices and conditions are equal over the ranges of the loops"),)
    return Rewrite(func if body is func.body else replace(func, body=body), proofs)


def _simplify_body(body: Body, domain: Domain) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        out += _simplify_stmt(stmt, domain)
    if len(out) == len(body) and all(a is b for a, b in zip(out, body, strict=True)):
        return body
    return tuple(out)


def _simplify_stmt(stmt: Stmt, domain: Domain) -> Body:
    ranges = domain.ranges()
    match stmt:
        case For():
            return _simplify_loop(stmt, domain)
        case If():
            return _simplify_if(stmt, domain)
        case Block():
            body = _simplify_body(stmt.body, domain)
            return (stmt if body is stmt.body else replace(stmt, body=body),)
        case _:
            return map_indices(
                (stmt,), lambda e: simplify(e, ranges), lambda p: simplify_predicate(p, ranges)
            )


def _simplify_loop(stmt: For, domain: Domain) -> Body:
    ranges = domain.ranges()
    start, stop = simplify(stmt.start, ranges), simplify(stmt.stop, ranges)
    if bounds(stop - start, ranges)[1] in (0, -1):
        return ()
    if (stop - start) is const(1):
        return _simplify_body(substitute_body(stmt.body, {stmt.var: start}), domain)
    body = _simplify_body(stmt.body, domain.inside(stmt.var, start, stop))
    if not body:
        return ()
    if body is stmt.body and start is stmt.start and stop is stmt.stop:
        return (stmt,)
    return (replace(stmt, start=start, stop=stop, body=body),)


def _simplify_if(stmt: If, domain: Domain) -> Body:
    if not is_predicate(stmt.condition):
        then, orelse = _simplify_body(stmt.then, domain), _simplify_body(stmt.orelse, domain)
        return (If(stmt.condition, then, orelse),)
    condition = simplify_predicate(cast(Predicate, stmt.condition), domain.ranges())
    if condition == TRUE:
        return _simplify_body(stmt.then, domain)
    if condition == FALSE:
        return _simplify_body(stmt.orelse, domain)
    then = _simplify_body(stmt.then, domain.given(condition))
    orelse = _simplify_body(stmt.orelse, domain.given(negation(condition)))
    if not then and not orelse:
        return ()
    if condition is stmt.condition and then is stmt.then and orelse is stmt.orelse:
        return (stmt,)
    return (If(condition, then, orelse),)


def eliminate_dead_code(func: PrimFunc, place: str | None = None) -> Rewrite:
    """Loops that never run, branches never taken, and allocations never loaded from, with stores.

    With a place only that loop or block is looked at.  A condition that intervals leave open is put
    to the integer sets; what is not decided stays.
    """
    proofs: list[Proof] = []

    def change(stmt: Stmt, domain: Domain) -> Body:
        return _live((stmt,), domain, proofs)

    if place is not None:
        new = rewrite_at(func, place, change)
    else:
        body = _without_unread(_live(func.body, ANYWHERE, proofs), func)
        new = func if body is func.body else replace(func, body=body)
    return Rewrite(new, tuple(proofs))


def _live(body: Body, domain: Domain, proofs: list[Proof]) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        out += _live_stmt(stmt, domain, proofs)
    same = len(out) == len(body) and all(a is b for a, b in zip(out, body, strict=True))
    return body if same else tuple(out)


def _live_stmt(stmt: Stmt, domain: Domain, proofs: list[Proof]) -> Body:
    match stmt:
        case For():
            inside = domain.inside(stmt.var, stmt.start, stmt.stop)
            body = _live(stmt.body, inside, proofs)
            if not body:
                return ()
            return (stmt if body is stmt.body else replace(stmt, body=body),)
        case Block():
            body = _live(stmt.body, domain, proofs)
            return (stmt if body is stmt.body else replace(stmt, body=body),)
        case If() if is_predicate(stmt.condition):
            return _live_if(stmt, domain, proofs)
        case _:
            return (stmt,)


def _live_if(stmt: If, domain: Domain, proofs: list[Proof]) -> Body:
    condition = cast(Predicate, stmt.condition)
    always = prove(condition, domain)
    if always.proven:
        proofs.append(always)
        return _live(stmt.then, domain, proofs)
    never = prove(negation(condition), domain)
    if never.proven:
        proofs.append(never)
        return _live(stmt.orelse, domain, proofs)
    then = _live(stmt.then, domain.given(condition), proofs)
    orelse = _live(stmt.orelse, domain.given(negation(condition)), proofs)
    if then is stmt.then and orelse is stmt.orelse:
        return (stmt,)
    return (replace(stmt, then=then, orelse=orelse),) if then or orelse else ()


def _without_unread(body: Body, func: PrimFunc) -> Body:
    """Drops allocated buffers that nothing loads, and the stores into them."""
    read = {access.buffer for access in accesses(body) if access.kind == "read"}
    dead = {s.buffer for s in walk(body) if isinstance(s, Allocate) and s.buffer not in read}
    return _dropped(body, dead) if dead else body


def _dropped(body: Body, dead: set[Buffer]) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        match stmt:
            case Allocate() | Store() | Reduce():
                if stmt.buffer not in dead:
                    out.append(stmt)
            case For() | Block():
                inner = _dropped(stmt.body, dead)
                if inner:
                    out.append(replace(stmt, body=inner))
            case If():
                then, orelse = _dropped(stmt.then, dead), _dropped(stmt.orelse, dead)
                if then or orelse:
                    out.append(replace(stmt, then=then, orelse=orelse))
            case Assume():
                out.append(stmt)
    return tuple(out)


def lift_conditions(func: PrimFunc, place: str) -> Rewrite:
    """`for i: if c: S` → `if c: for i: S`, as far out as c allows, inside the loop `place`.

    Each member of a conjunction moves by itself.  An `if` moves out of a loop only where it is the
    loop's whole body, has no else, and does not mention the loop's variable: then evaluating it
    once is evaluating it in each iteration.
    """

    def change(stmt: Stmt, _: Domain) -> Body:
        assert isinstance(stmt, For)
        return (replace(stmt, body=_lifted(stmt.body)),)

    new = rewrite_at(func, place, change)
    proof = structural("a condition free of a loop's variable is the same in each iteration")
    return Rewrite(new, (proof,))


def _lifted(body: Body) -> Body:
    out: list[Stmt] = []
    for stmt in body:
        if isinstance(stmt, For | Block):
            stmt = replace(stmt, body=_lifted(stmt.body))
        if isinstance(stmt, If):
            stmt = replace(stmt, then=_lifted(stmt.then), orelse=_lifted(stmt.orelse))
            inner = stmt.then[0] if len(stmt.then) == 1 else None
            if _plain(stmt) and isinstance(inner, If) and _plain(inner):
                both = conjunction((_predicate(stmt), _predicate(inner)))
                stmt = If(both, inner.then)
        out.append(_pulled(stmt) if isinstance(stmt, For) else stmt)
    return tuple(out)


def _plain(stmt: If) -> bool:
    return is_predicate(stmt.condition) and not stmt.orelse


def _predicate(stmt: If) -> Predicate:
    return cast(Predicate, stmt.condition)


def _pulled(stmt: For) -> Stmt:
    inner = stmt.body[0] if len(stmt.body) == 1 else None
    if not isinstance(inner, If) or not _plain(inner):
        return stmt
    members = conjuncts(_predicate(inner))
    free = [m for m in members if stmt.var not in predicate_variables(m)]
    bound = [m for m in members if stmt.var in predicate_variables(m)]
    if not free:
        return stmt
    body = (If(conjunction(bound), inner.then),) if bound else inner.then
    return If(conjunction(free), (replace(stmt, body=body),))


def remove_branching_through_overcompute(
    func: PrimFunc, place: str, about: str | None = None
) -> Rewrite:
    """`if c: S` → `S`, for the index conditions in the loop or block `place`.

    With `about`, only the conditions that mention that loop's variable are looked at.

    What S does where c fails must be a no-op for everybody else: it may write only elements that no
    load ever reads, of buffers that are allocated in the kernel, or padding of an output that a
    later stage writes or leaves undefined; and every load of S stays inside its buffer and away
    from padding that may not be read.  An access that would leave its buffer
    makes the rewrite refuse.  Conditions for which this is not proven make it refuse as well.
    """
    stmt, _ = find(func, place)
    proofs: list[Proof] = []
    guarded = [
        site
        for site in sites((stmt,), find(func, place)[1])
        if isinstance(site.stmt, If) and _is_about(site.stmt, about)
    ]
    if not guarded:
        raise ScheduleError(f"there is no index condition in {place} on {about or 'anything'}")
    for site in guarded:
        assert isinstance(site.stmt, If)
        condition = _predicate(site.stmt)
        if site.stmt.orelse:
            raise ScheduleError(f"the condition {condition} has an else branch")
        outside = site.domain.given(negation(condition))
        for access in accesses(site.stmt.then, outside):
            proofs += _harmless(func, access)

    def freed(body: Body) -> Body:
        out: list[Stmt] = []
        for inner in body:
            if isinstance(inner, If) and _is_about(inner, about):
                out += freed(inner.then)
            elif isinstance(inner, If):
                out.append(replace(inner, then=freed(inner.then), orelse=freed(inner.orelse)))
            elif isinstance(inner, For | Block):
                out.append(replace(inner, body=freed(inner.body)))
            else:
                out.append(inner)
        return tuple(out)

    new = rewrite_at(func, place, lambda s, _d: freed((s,)))
    return Rewrite(new, tuple(dict.fromkeys(proofs)))


def _is_about(stmt: If, loop: str | None) -> bool:
    if not is_predicate(stmt.condition):
        return False
    return loop is None or Var(loop) in predicate_variables(_predicate(stmt))


def _harmless(func: PrimFunc, access: Access) -> Iterator[Proof]:
    shape = access.buffer.shape
    inside = conjunction(within(e, 0, n) for e, n in zip(access.indices, shape, strict=True))
    where = f"{access.buffer.name}[{', '.join(map(str, access.indices))}]"
    yield require(prove(inside, access.domain), f"the overcomputed access {where} stays in bounds")
    if access.kind == "read":
        yield from _readable(func, access, where)
        return
    stage = _padding_stage_of(func, access.buffer)
    if access.buffer in {p.buffer for p in func.params}:
        yield _overwritten_later(stage, access, where)
    for other in accesses(func.body):
        if other.kind == "read" and other.buffer == access.buffer:
            yield _never_reads(func, other, access, where)


def _never_reads(func: PrimFunc, load: Access, write: Access, where: str) -> Proof:
    copy, fresh = write.domain.renamed("'")
    same = [
        equal(a, substitute(b, fresh)) for a, b in zip(load.indices, write.indices, strict=True)
    ]
    around = _axes_around(func, write.buffer)
    one_instance = [equal(var, fresh[var]) for var in around]
    both = joined(load.domain, copy).given(conjunction((*same, *one_instance)))
    return require(
        prove_empty(both, f"no load reads what overcompute writes to {where}"),
        f"what overcompute writes to {where} is never read",
    )


def _axes_around(func: PrimFunc, buffer: Buffer) -> list[Var]:
    """The loops around the allocation: each iteration of them has an instance of its own."""
    for site in sites(func.body):
        if isinstance(site.stmt, Allocate) and site.stmt.buffer == buffer:
            return [axis.var for axis in site.domain.axes]
    return []


def _padding_stage_of(func: PrimFunc, buffer: Buffer) -> Block | None:
    for site in sites(func.body):
        stmt = site.stmt
        if isinstance(stmt, Block) and ("padding_of", buffer.name) in stmt.annotations:
            return stmt
    return None


def _readable(func: PrimFunc, access: Access, where: str) -> Iterator[Proof]:
    stage = _padding_stage_of(func, access.buffer)
    if stage is None:
        yield structural(f"{access.buffer.name} has no padding")
    elif dict(stage.annotations)["padding"] == "none":
        logical = _logical_at(stage, access)
        yield require(prove(logical, access.domain), f"{where} stays away from forbidden padding")
    else:
        yield structural(f"the padding of {access.buffer.name} is stated to be readable")


def _overwritten_later(stage: Block | None, access: Access, where: str) -> Proof:
    """A parameter may be overwritten only in padding that a later stage writes or leaves open."""
    if stage is None or dict(stage.annotations)["padding"] == "none":
        raise ScheduleError(
            f"overcompute would write {where}, a parameter without padding that may be written"
        )
    padding = negation(_logical_at(stage, access))
    return require(prove(padding, access.domain), f"{where} lies in padding written later")


def _logical_at(stage: Block, access: Access) -> Predicate:
    """The predicate under which the access is to the logical part of its buffer."""
    for site in sites(stage.body):
        values: dict[Var, IndexExpr] = {
            axis.var: index for axis, index in zip(site.domain.axes, access.indices, strict=False)
        }
        if isinstance(site.stmt, Assume) and is_predicate(site.stmt.unless):
            return substitute_in(cast(Predicate, site.stmt.unless), values)
        if isinstance(site.stmt, If) and is_predicate(site.stmt.condition):
            return negation(substitute_in(_predicate(site.stmt), values))
    raise ScheduleError(f"the stage {stage.name} does not say where the padding lies")
