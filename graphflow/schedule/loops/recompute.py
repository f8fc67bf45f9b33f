"""Loops divided into blocks that overlap: iterations near the border of two blocks run in both.

In: a kernel and a loop whose iterations may run more than once.  Out: the loop as two, the inner
one longer than the step of the outer one.  What always holds: an iteration that runs again stores
what it stored before, and nothing else has changed it.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.facts.dependence import independent
from graphflow.schedule.places import obligations, place_names, places
from graphflow.schedule.steps.frame import Rewrite


def divide_with_recompute(
    func: tir.PrimFunc, loop: str, count: int, step: int, names: tuple[str, str]
) -> Rewrite:
    """`for i in (0, n): S` → `for io in (0, N): for ii in (0, c + n - N·c): S[i → c·io + ii]`.

    `count` is N and `step` is c; the blocks overlap in n - N·c iterations, which run again.

    1. N and c are at least 1, and N·c <= n, a constant.
    2. Where blocks overlap, S is idempotent: no two iterations conflict, and what an iteration both
       reads and writes it stores first.
    3. The loop does not run its iterations at once, for two blocks store the same elements.

    Makes the two loops in the role `parts`.
    """
    stmt, domain = places.find_loop(func, loop)
    extent = places.constant_extent(stmt)
    if count < 1 or step < 1:
        raise ScheduleError(f"{count} blocks of step {step}: both must be at least 1")
    if count * step > extent:
        raise ScheduleError(f"{count} blocks of step {step} are more than the {extent} of {loop}")
    if stmt.kind in tir.AT_ONCE:
        raise ScheduleError(f"{loop} is {stmt.kind.value}, and two blocks store the same elements")
    inner_domain = domain.inside(stmt.var, stmt.start, stmt.stop)
    proofs: list[arith.Proof] = []
    if extent > count * step:
        # As threads, for which reductions into one element conflict too.
        serial = tir.For(stmt.var, stmt.start, stmt.stop, tir.LoopKind.SERIAL, stmt.body)
        proofs += independent(serial, domain)
        private = {s.buffer for s in tir.walk(stmt.body) if isinstance(s, tir.Allocate)}
        touched = [a for a in tir.accesses(stmt.body, inner_domain) if a.buffer not in private]
        proofs += _stored_first(touched, loop)
    outer, inner = arith.Var(names[0]), arith.Var(names[1])
    body = tir.substitute_body(stmt.body, {stmt.var: stmt.start + step * outer + inner})
    length = step + extent - count * step
    block = tir.For(inner, arith.const(0), arith.const(length), stmt.kind, body)
    divided = tir.For(outer, arith.const(0), arith.const(count), stmt.kind, (block,))
    place_names.require_names(*names)
    place_names.require_fresh(places.exchange_at(func, loop, stmt.body), *names)
    new = places.exchange_at(func, loop, (divided,))
    proofs.append(
        obligations.structural(f"{step}·{outer} + {inner} takes each of 0 … {extent - 1}")
    )
    return Rewrite(new, tuple(dict.fromkeys(proofs)), {loop: names}, {"parts": names})


def _stored_first(touched: Sequence[tir.Access], loop: str) -> list[arith.Proof]:
    """Proofs that each iteration stores what it both reads and writes before it reads it."""
    proofs: list[arith.Proof] = []
    for buffer in dict.fromkeys(a.buffer for a in touched if a.writes):
        condition = (
            f"each iteration of {loop} stores the elements of {buffer.name} before it reads them"
        )
        own = effects.stored_before_read([a for a in touched if a.buffer == buffer])
        proofs += (obligations.require(proof, condition) for proof in own)
    return proofs
