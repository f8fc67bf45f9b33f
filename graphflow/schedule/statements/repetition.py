"""Primitives that run a statement once instead of many times, or many times instead of once.

In: a kernel and a place in it.  Out: the kernel with a loop less or more.  What always holds: all
iterations of the loop in question read the same values, compute the same and store the same.
"""

from __future__ import annotations

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.places import addresses, obligations, place_names, places
from graphflow.schedule.places.step_arguments import IndexGiven
from graphflow.schedule.steps.frame import Rewrite


def remove_loop(func: tir.PrimFunc, loop: str) -> Rewrite:
    """`for i in (a, b): S` → `S`, where S is idempotent and does not depend on i.

    1. S does not depend on i.
    2. S is idempotent: no iteration of i reads what an earlier one wrote.
    3. The loop runs at least once.
    """
    stmt, domain = places.find_loop(func, loop)
    if tir.substitute_body(stmt.body, {stmt.var: stmt.var + 1}) is not stmt.body:
        raise ScheduleError(f"the body of {loop} depends on {loop}")
    runs = obligations.require(
        arith.prove(arith.less_than(stmt.start, stmt.stop), domain), f"{loop} runs at least once"
    )
    idempotent = _idempotent(func, loop)
    new = places.exchange_at(func, loop, stmt.body)
    same = obligations.structural(f"the body of {loop} does not depend on {loop}")
    return Rewrite(new, (same, runs, idempotent), {loop: ()})


def add_loop(
    func: tir.PrimFunc,
    place: str,
    name: str,
    extent: IndexGiven,
    guard: bool = False,
) -> Rewrite:
    """`S` → `for i in (0, n): S`, where S is idempotent, or with `guard`
    `for i in (0, n): if i == 0: S`.

    1. n, which may use the variables of loops around, is positive.
    2. Without a guard S is idempotent: no iteration of i reads what an earlier one wrote.
    3. S is no allocation, for that would end with the loop, and is not run as lanes.

    Makes the loop in the role `loop`.
    """
    stmt, domain = places.find(func, place)
    place_names.require_names(name)
    place_names.require_fresh(func, name)
    stop = places.in_scope(extent, domain)
    if isinstance(stmt, tir.Allocate):
        raise ScheduleError(f"{place} is an allocation, which would end with the loop")
    lanes = next(
        (s for s in places.loops_around(func, place) if s.kind is tir.LoopKind.VECTORIZED), None
    )
    if lanes is not None:
        raise ScheduleError(f"{place} stands inside {lanes.var}, whose iterations are lanes")
    proofs: list[arith.Proof] = [
        obligations.require(
            arith.prove(arith.at_most(arith.const(1), stop), domain), f"{stop} is positive"
        )
    ]
    var = arith.Var(name)
    body = (tir.If(arith.equal(var, arith.const(0)), (stmt,)),) if guard else (stmt,)
    loop = tir.For(var, arith.const(0), stop, tir.LoopKind.SERIAL, body)
    new = places.exchange_at(func, place, (loop,))
    if guard:
        proofs.append(obligations.structural(f"{place} runs for {name} = 0 alone"))
    else:
        proofs.append(_idempotent(new, name))
    return Rewrite(new, tuple(proofs), made={"loop": (name,)})


def _idempotent(func: tir.PrimFunc, loop: str) -> arith.Proof:
    """The proof that one iteration of a loop, whose variable its body does not use, is enough."""
    return obligations.require(
        effects.no_carried_flow(func, addresses.path_of(func, loop)),
        f"the body of {loop} is idempotent",
    )
