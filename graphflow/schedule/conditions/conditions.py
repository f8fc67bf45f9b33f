"""Primitives that simplify conditions and move them outward, and remove code that never runs.

In: a kernel.  Out: a kernel that writes the same values.  What always holds: only what follows
from the ranges of loops and from conditions around is removed; nothing is computed more often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import assert_never, cast

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.schedule.places import addresses, obligations, places
from graphflow.schedule.steps.frame import Rewrite


def simplify(func: tir.PrimFunc) -> Rewrite:
    """A kernel → the same with simplified indices and conditions, decided conditions resolved.

    Every index and predicate is simplified under the ranges of the loops around it.  An `if` whose
    condition is decided becomes its branch, a loop that runs once becomes its body, one that never
    runs goes.  Nothing else moves.
    """
    body = _simplify_body(func.body, arith.ANYWHERE)
    proofs = (
        obligations.structural("indices and conditions are equal over the ranges of the loops"),
    )
    return Rewrite(func.around(body), proofs)


def _simplify_body(body: tir.Body, domain: arith.Domain) -> tir.Body:
    out: list[tir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tir.For | tir.If | tir.Block):
            changed = _changed_inside(stmt, domain)
            out += (stmt,) if changed is None else changed
        else:
            out += _simplify_indices(stmt, domain.ranges())
    if len(out) == len(body) and all(a is b for a, b in zip(out, body, strict=True)):
        return body
    return tuple(out)


@tir.kept_at_place
def _changed_inside(stmt: tir.For | tir.If | tir.Block, domain: arith.Domain) -> tir.Body | None:
    """What becomes of a statement; None where it stays, as one that had itself among its findings
    would be freed by the garbage collector alone."""
    made = _simplify_inside(stmt, domain)
    return None if len(made) == 1 and made[0] is stmt else made


def _simplify_inside(stmt: tir.For | tir.If | tir.Block, domain: arith.Domain) -> tir.Body:
    match stmt:
        case tir.For():
            return _simplify_loop(stmt, domain)
        case tir.If():
            return _simplify_if(stmt, domain)
        case tir.Block():
            return (stmt.around(_simplify_body(stmt.body, domain)),)
    assert_never(stmt)


def _simplify_loop(stmt: tir.For, domain: arith.Domain) -> tir.Body:
    ranges = domain.ranges()
    start, stop = arith.simplify_index(stmt.start, ranges), arith.simplify_index(stmt.stop, ranges)
    most = arith.bounds(stop - start, ranges)[1]
    if most is not None and most <= 0:
        return ()
    if (stop - start) is arith.const(1):
        return _simplify_body(tir.substitute_body(stmt.body, {stmt.var: start}), domain)
    body = _simplify_body(stmt.body, domain.inside(stmt.var, start, stop))
    if not body:
        return ()
    if body is stmt.body and start is stmt.start and stop is stmt.stop:
        return (stmt,)
    return (replace(stmt, start=start, stop=stop, body=body),)


def _simplify_if(stmt: tir.If, domain: arith.Domain) -> tir.Body:
    if not tir.is_predicate(stmt.condition):
        return _simplify_data_if(stmt, domain)
    condition = arith.simplify_predicate(cast(arith.Predicate, stmt.condition), domain.ranges())
    if condition == arith.TRUE:
        return _simplify_body(stmt.then, domain)
    if condition == arith.FALSE:
        return _simplify_body(stmt.orelse, domain)
    then = _simplify_body(stmt.then, domain.given(condition))
    orelse = _simplify_body(stmt.orelse, domain.given(arith.negation(condition)))
    if not then and not orelse:
        return ()
    if condition == stmt.condition and then is stmt.then and orelse is stmt.orelse:
        return (stmt,)
    return (replace(stmt, condition=condition, then=then, orelse=orelse),)


def _simplify_indices(stmt: tir.Stmt, ranges: arith.Ranges) -> tir.Body:
    """A statement without bodies, with simplified indices and predicates."""
    return tir.map_indices((stmt,), lambda e: arith.simplify_index(e, ranges), _simplified(ranges))


def _simplified(ranges: arith.Ranges) -> Callable[[arith.Predicate], arith.Predicate]:
    """A function that simplifies a predicate, and returns the same object where nothing changes."""

    def change(predicate: arith.Predicate) -> arith.Predicate:
        new = arith.simplify_predicate(predicate, ranges)
        return predicate if new == predicate else new

    return change


def _simplify_data_if(stmt: tir.If, domain: arith.Domain) -> tir.Body:
    (head,) = _simplify_indices(tir.If(stmt.condition, ()), domain.ranges())
    assert isinstance(head, tir.If)
    then, orelse = _simplify_body(stmt.then, domain), _simplify_body(stmt.orelse, domain)
    if not then and not orelse:
        return ()
    same = head.condition is stmt.condition and then is stmt.then and orelse is stmt.orelse
    if same:
        return (stmt,)
    return (replace(stmt, condition=head.condition, then=then, orelse=orelse),)


def eliminate_dead_code(func: tir.PrimFunc, place: str | None = None) -> Rewrite:
    """`for i in (a, a): S`, `if false: S`, and stores to buffers that nothing loads → nothing.

    With a `place`, only loops and branches in the statement there are removed.  Conditions are
    decided by intervals and then by integer sets, that of an `if` at `place` on data also by what
    its operands are known to hold.  `if c and d: S` → `if d: S` where c always holds; what is not
    decided stays.  Stores to parameters always stay.

    Conditions, with a `place` at which nothing is dead: *runs*: a loop there runs 0 times.
    *decided*: a condition there always holds, or never does.
    """
    if place is None:
        proofs: list[arith.Proof] = []
        live = func.around(_live(func.body, arith.ANYWHERE, proofs))
        return Rewrite(_without_unread(live, proofs), tuple(proofs))
    done = with_live_branches(func, place)
    if done.func is not func:
        return done
    stmt, domain = places.find(func, place)
    match stmt:
        case tir.For():
            obligations.require(
                arith.prove(arith.at_most(stmt.stop, stmt.start), domain),
                f"runs: {place} never runs",
            )
        case tir.If() if tir.is_predicate(stmt.condition):
            raise _undecided(place, cast(arith.Predicate, stmt.condition), domain)
        case tir.If():
            return _by_data(func, place, stmt)
    raise ScheduleError(f"decided: nothing in {place} is dead")


def with_live_branches(func: tir.PrimFunc, place: str) -> Rewrite:
    """The kernel without the loops and branches in the statement at `place` that never run, and
    without the conditions there that always hold; the kernel itself where there are none."""
    proofs: list[arith.Proof] = []
    new = places.rewrite_at(func, place, lambda stmt, domain: _live((stmt,), domain, proofs))
    return Rewrite(new, tuple(proofs))


def _undecided(place: str, condition: arith.Predicate, domain: arith.Domain) -> ScheduleError:
    """The refusal of a condition that holds at one point and not at another."""
    always, never = arith.prove(condition, domain), arith.prove(arith.negation(condition), domain)
    words = f"decided: the condition of {place} is not always the same, {always.reason}, and its "
    return obligations.Unproven(f"{words}negation", never)


def _by_data(func: tir.PrimFunc, place: str, stmt: tir.If) -> Rewrite:
    """The kernel with a condition on data resolved; ScheduleError where it is not decided."""
    condition = cast(tir.Expr, stmt.condition)
    for value, branch in ((True, stmt.then), (False, stmt.orelse)):
        literal = tir.Literal(value, "bool")
        proof = effects.equal_values(func, addresses.path_of(func, place), condition, literal)
        if proof.proven:
            new = places.exchange_at(func, place, branch)
            return Rewrite(new, (proof,))
    raise obligations.Unproven(f"decided: the condition of {place} is not always the same", proof)


def _live(body: tir.Body, domain: arith.Domain, proofs: list[arith.Proof]) -> tir.Body:
    out: list[tir.Stmt] = []
    for stmt in body:
        out += _live_stmt(stmt, domain, proofs)
    same = len(out) == len(body) and all(a is b for a, b in zip(out, body, strict=True))
    return body if same else tuple(out)


def _live_stmt(stmt: tir.Stmt, domain: arith.Domain, proofs: list[arith.Proof]) -> tir.Body:
    match stmt:
        case tir.For():
            never = arith.prove(arith.at_most(stmt.stop, stmt.start), domain)
            if never.proven:
                proofs.append(never)
                return ()
            inside = domain.inside(stmt.var, stmt.start, stmt.stop)
            body = _live(stmt.body, inside, proofs)
            return (stmt.around(body),) if body else ()
        case tir.Block():
            return (stmt.around(_live(stmt.body, domain, proofs)),)
        case tir.If() if tir.is_predicate(stmt.condition):
            return _live_if(stmt, domain, proofs)
        case tir.If():
            then, orelse = _live(stmt.then, domain, proofs), _live(stmt.orelse, domain, proofs)
            if then is stmt.then and orelse is stmt.orelse:
                return (stmt,)
            return (replace(stmt, then=then, orelse=orelse),) if then or orelse else ()
        case tir.Let() | tir.NamedWindow():
            body = _live(tir.performed(stmt), domain, proofs)
            return (tir.with_performed(stmt, body),)
        case tir.Store() | tir.Reduce() | tir.Allocate() | tir.Assume() | tir.Call():
            return (stmt,)
    assert_never(stmt)


def _live_if(stmt: tir.If, domain: arith.Domain, proofs: list[arith.Proof]) -> tir.Body:
    condition = cast(arith.Predicate, stmt.condition)
    always = arith.prove(condition, domain)
    if always.proven:
        proofs.append(always)
        return _live(stmt.then, domain, proofs)
    never = arith.prove(arith.negation(condition), domain)
    if never.proven:
        proofs.append(never)
        return _live(stmt.orelse, domain, proofs)
    then = _live(stmt.then, domain.given(condition), proofs)
    orelse = _live(stmt.orelse, domain.given(arith.negation(condition)), proofs)
    left = _undecided_members(condition, domain, proofs)
    if left is condition and then is stmt.then and orelse is stmt.orelse:
        return (stmt,)
    new = replace(stmt, condition=left, then=then, orelse=orelse)
    return (new,) if then or orelse else ()


def _undecided_members(
    condition: arith.Predicate, domain: arith.Domain, proofs: list[arith.Proof]
) -> arith.Predicate:
    """A conjunction without the members that hold at each point of a domain."""
    members = arith.conjuncts(condition)
    if len(members) == 1:
        return condition  # it is known not to be decided
    always = [arith.prove(member, domain) for member in members]
    proofs += [proof for proof in always if proof.proven]
    if not any(proof.proven for proof in always):
        return condition
    return arith.conjunction(
        m for m, proof in zip(members, always, strict=True) if not proof.proven
    )


def _without_unread(func: tir.PrimFunc, proofs: list[arith.Proof]) -> tir.PrimFunc:
    """The kernel without allocated buffers that nothing reads, and the stores into them."""
    buffers = [stmt.buffer for stmt in tir.walk(func.body) if isinstance(stmt, tir.Allocate)]
    unread = {buffer: effects.never_read(func, buffer) for buffer in dict.fromkeys(buffers)}
    dead = {buffer for buffer, proof in unread.items() if proof.proven}
    if not dead:
        return func
    proofs += [proof for proof in unread.values() if proof.proven]
    return _without_unread(replace(func, body=without_stores(func.body, dead)), proofs)


def without_stores(body: tir.Body, dead: set[tir.Buffer]) -> tir.Body:
    """`body` without the allocations of the `dead` buffers, the writes to them, the hints about
    them (calls that perform nothing), and the loops and conditions that this empties."""
    out: list[tir.Stmt] = []
    for stmt in body:
        match stmt:
            case tir.Allocate() | tir.Store() | tir.Reduce():
                if stmt.buffer not in dead:
                    out.append(stmt)
            case tir.For() | tir.Block():
                inner = without_stores(stmt.body, dead)
                # A block that was empty before may state by its mark which padding is forbidden.
                if inner or (isinstance(stmt, tir.Block) and not stmt.body):
                    out.append(replace(stmt, body=inner))
            case tir.If():
                then, orelse = without_stores(stmt.then, dead), without_stores(stmt.orelse, dead)
                if then or orelse:
                    out.append(replace(stmt, then=then, orelse=orelse))
            case tir.Let() if stmt.buffer in dead:
                out += without_stores(stmt.body, dead)
            case tir.Call() if not tir.performed(stmt):
                if dead.isdisjoint(window.buffer for window in stmt.windows):
                    out.append(stmt)
            case tir.Call() | tir.Let() | tir.NamedWindow():
                inner = without_stores(tir.performed(stmt), dead)
                out += (tir.with_performed(stmt, inner),) if inner else ()
            case tir.Assume():
                out.append(stmt)
            case _:
                assert_never(stmt)
    return tuple(out)


def lift_conditions(func: tir.PrimFunc, place: str) -> Rewrite:
    """`for i: if c: S` → `if c: for i: S`, as far out as c allows, inside the loop `place`.

    So `with let(e) as t: if c: S` → `if c: with let(e) as t: S`.  Each conjunct moves by itself.  A
    condition moves out of a loop only where it is on the loop's whole body, has no else, and does
    not mention the loop's variable, so that it is the same in each iteration.  ScheduleError where
    none moves, with the reason for each condition that there is.
    """

    def change(stmt: tir.Stmt, _: arith.Domain) -> tir.Body:
        if not isinstance(stmt, tir.For):
            raise ScheduleError(f"{place} is a block, and a loop is needed")
        return (replace(stmt, body=_lifted(stmt.body)),)

    new = places.rewrite_at(func, place, change)
    if new == func:
        raise ScheduleError(f"lifted: {_why_none_moves(func, place)}")
    proof = obligations.structural(
        "a condition free of a loop's variable is the same in each iteration"
    )
    return Rewrite(new, (proof,))


def _why_none_moves(func: tir.PrimFunc, place: str) -> str:
    """Why each condition in a loop stays where it is."""
    outer = places.stmt_at(func, place)
    reasons = list(_staying((outer,), None))
    return "; ".join(reasons) if reasons else f"there is no condition in {place}"


def _staying(body: tir.Body, around: tir.For | tir.Let | None) -> Iterator[str]:
    """For each condition in a body, why it does not leave the loop or let directly around it."""
    for stmt in body:
        match stmt:
            case tir.For() | tir.Let():
                yield from _staying(stmt.body, stmt)
            case tir.Block():
                yield from _staying(stmt.body, None)
            case tir.If():
                text = tir.condition_text(stmt.condition)
                if not tir.is_predicate(stmt.condition):
                    yield f"{text} depends on data"
                elif stmt.orelse:
                    yield f"{text} has an else branch"
                elif around is None or len(body) > 1:
                    yield f"{text} is not the whole body of a loop"
                elif isinstance(around, tir.For):
                    yield f"{text} uses {around.var}"
                yield from _staying((*stmt.then, *stmt.orelse), None)
            case _:
                pass


def _lifted(body: tir.Body) -> tir.Body:
    out: list[tir.Stmt] = []
    for stmt in body:
        if isinstance(stmt, tir.For | tir.Block | tir.Let):
            stmt = replace(stmt, body=_lifted(stmt.body))
        if isinstance(stmt, tir.If):
            stmt = replace(stmt, then=_lifted(stmt.then), orelse=_lifted(stmt.orelse))
            inner = stmt.then[0] if len(stmt.then) == 1 else None
            if _plain(stmt) and isinstance(inner, tir.If) and _plain(inner):
                both = arith.conjunction((_predicate(stmt), _predicate(inner)))
                stmt = tir.If(both, inner.then)
        out.append(_pulled(stmt) if isinstance(stmt, tir.For | tir.Let) else stmt)
    return tuple(out)


def _plain(stmt: tir.If) -> bool:
    return tir.is_predicate(stmt.condition) and not stmt.orelse


def _predicate(stmt: tir.If) -> arith.Predicate:
    return cast(arith.Predicate, stmt.condition)


def _pulled(stmt: tir.For | tir.Let) -> tir.Stmt:
    inner = stmt.body[0] if len(stmt.body) == 1 else None
    if not isinstance(inner, tir.If) or not _plain(inner):
        return stmt
    own = {stmt.var} if isinstance(stmt, tir.For) else set()
    members = arith.conjuncts(_predicate(inner))
    free = [m for m in members if own.isdisjoint(arith.predicate_variables(m))]
    bound = [m for m in members if not own.isdisjoint(arith.predicate_variables(m))]
    if not free:
        return stmt
    body = (tir.If(arith.conjunction(bound), inner.then),) if bound else inner.then
    return tir.If(arith.conjunction(free), (replace(stmt, body=body),))
