"""Primitives that run a statement once instead of many times, or many times instead of once.

In: a kernel and a place in it.  Out: the kernel with a loop less or more.  What always holds: all
iterations of the loop in question read the same values, compute the same and store the same.
"""

from __future__ import annotations

from graphflow.arith import (
    Proof,
    Var,
    at_most,
    const,
    equal,
    less_than,
    prove,
)
from graphflow.base.errors import ScheduleError
from graphflow.effects import no_carried_flow
from graphflow.schedule.places.addresses import path_of
from graphflow.schedule.places.obligations import require, structural
from graphflow.schedule.places.place_names import require_fresh, require_names
from graphflow.schedule.places.places import find, find_loop, in_scope, loops_around, rewrite_at
from graphflow.schedule.places.step_arguments import IndexGiven
from graphflow.schedule.steps.frame import Rewrite
from graphflow.tir import Allocate, For, If, LoopKind, PrimFunc, substitute_body


def remove_loop(func: PrimFunc, loop: str) -> Rewrite:
    """`for i: S` → `S`, where S is idempotent and does not depend on i.

    1. S does not depend on i.
    2. S is idempotent: no iteration of i reads what an earlier one wrote.
    3. The loop runs at least once.
    """
    stmt, domain = find_loop(func, loop)
    if substitute_body(stmt.body, {stmt.var: stmt.var + 1}) is not stmt.body:
        raise ScheduleError(f"the body of {loop} depends on {loop}")
    runs = require(prove(less_than(stmt.start, stmt.stop), domain), f"{loop} runs at least once")
    idempotent = _idempotent(func, loop)
    new = rewrite_at(func, loop, lambda _s, _d: stmt.body)
    same = structural(f"the body of {loop} does not depend on {loop}")
    return Rewrite(new, (same, runs, idempotent), {loop: ()})


def add_loop(
    func: PrimFunc, place: str, name: str, extent: IndexGiven, guard: bool = False
) -> Rewrite:
    """`S` → `for i in (0, n): S`, where S is idempotent, or with `guard`
    `for i in (0, n): if i == 0: S`.

    1. n, which may use the variables of loops around, is positive.
    2. Without a guard S is idempotent: no iteration of i reads what an earlier one wrote.
    3. S is no allocation, for that would end with the loop, and is not run as lanes.

    Makes the loop in the role `loop`.
    """
    stmt, domain = find(func, place)
    require_names(name)
    require_fresh(func, name)
    stop = in_scope(extent, domain)
    if isinstance(stmt, Allocate):
        raise ScheduleError(f"{place} is an allocation, which would end with the loop")
    lanes = next((s for s in loops_around(func, place) if s.kind is LoopKind.VECTORIZED), None)
    if lanes is not None:
        raise ScheduleError(f"{place} stands inside {lanes.var}, whose iterations are lanes")
    proofs: list[Proof] = [require(prove(at_most(const(1), stop), domain), f"{stop} is positive")]
    var = Var(name)
    body = (If(equal(var, const(0)), (stmt,)),) if guard else (stmt,)
    loop = For(var, const(0), stop, LoopKind.SERIAL, body)
    new = rewrite_at(func, place, lambda _s, _d: (loop,))
    if guard:
        proofs.append(structural(f"{place} runs for {name} = 0 alone"))
    else:
        proofs.append(_idempotent(new, name))
    return Rewrite(new, tuple(proofs), made={"loop": (name,)})


def _idempotent(func: PrimFunc, loop: str) -> Proof:
    """The proof that one iteration of a loop, whose variable its body does not use, is enough."""
    return require(no_carried_flow(func, path_of(func, loop)), f"the body of {loop} is idempotent")
