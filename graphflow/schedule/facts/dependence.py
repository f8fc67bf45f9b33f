"""What primitives require of dependences: proofs by the effect analysis, or a refusal.

In: two bodies or a loop, as for `graphflow.effects.commuting`.  Out: the proofs; ScheduleError,
which names the condition and the iterations that meet, where one is not proven.
"""

from __future__ import annotations

from collections.abc import Iterable

from graphflow import arith, effects, tir
from graphflow.schedule.places import obligations, place_names


def ordered_commute(
    first: tir.Body,
    second: tir.Body,
    domain: arith.Domain,
    moving: tuple[arith.Var, ...],
    order: arith.Predicate,
    condition: str,
    private: frozenset[tir.Buffer] = frozenset(),
) -> tuple[arith.Proof, ...]:
    """Proofs that no iteration of `first` conflicts with one of `second` for pairs in `order`.

    The arguments are those of `graphflow.effects.commuting`.  ScheduleError, which begins with
    `condition`, where a pair is not proven free of conflicts.
    """
    return _required(
        effects.commuting(first, second, domain, moving, order, private=private), condition
    )


def _required(answers: Iterable[arith.Proof], condition: str) -> tuple[arith.Proof, ...]:
    """The answers under the condition that they are needed for; refuses at the first open one."""
    stated = (answer.of(f"{condition}: {answer.claim}") for answer in answers)
    proofs = tuple(dict.fromkeys(obligations.require(proof, condition) for proof in stated))
    none = obligations.structural(
        f"{condition}: no buffer is written by one and touched by the other"
    )
    return proofs or (none,)


def independent(stmt: tir.For, domain: arith.Domain) -> tuple[arith.Proof, ...]:
    """Proofs that the iterations of a loop may run at once; `domain` is that around the loop.

    ScheduleError where that is not proven.  Two threads may not reduce into one element; two lanes
    of a vectorized loop may.
    """
    condition = f"the iterations of {stmt.var} are independent"
    return _required(effects.independent_iterations(stmt, domain), condition)


def still_independent(func: tir.PrimFunc, place: str) -> tuple[arith.Proof, ...]:
    """Proofs that parallel and vectorized loops around `place` and in it are still independent."""
    proofs: tuple[arith.Proof, ...] = ()
    holding = tuple(stmt for stmt in func.body if place_names.has_name(stmt, place))
    for site in tir.sites(holding):
        stmt = site.stmt
        if not isinstance(stmt, tir.For) or stmt.kind not in tir.AT_ONCE:
            continue
        around = any(getattr(s, "name", None) == place for s in tir.walk(stmt.body)) or any(
            loop.var.name == place for loop in tir.loops_of((stmt,))
        )
        if around or any(axis.var.name == place for axis in site.domain.axes):
            proofs += independent(stmt, site.domain)
    return proofs
