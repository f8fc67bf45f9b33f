"""Reductions of neutral elements: whether reducing a value can change its target.

In: a kernel, a reduction in it, and the points at which it runs.  Out: a proof that the value is
the neutral element of the operator there, by what is known of the padding that it loads, or the
reason why that is not proven.
"""

from __future__ import annotations

from msgspec import Struct

from graphflow import arith, layout, tir
from graphflow.base.errors import ScheduleError
from graphflow.schedule.facts.padding import assumed_at, fact_at, require_away_from_forbidden
from graphflow.schedule.padding.assumptions import is_reciprocal_claim
from graphflow.schedule.places.obligations import structural


class NeutralQuery(Struct, frozen=True):
    """Queries on reductions in the statement at `position` of a kernel's body."""

    func: tir.PrimFunc
    position: int

    def proof(self, stmt: tir.Reduce, where: arith.Domain) -> arith.Proof | str:
        """A proof that the reduced value is neutral at `where`; else the reason, as text."""
        target = f"{tir.element_text(stmt.buffer, stmt.indices)}"
        try:
            (target_access,) = (
                a for a in tir.accesses((stmt,), where) if a.kind is tir.AccessKind.REDUCE
            )
            require_away_from_forbidden(self.func, target_access)
        except ScheduleError as error:
            return str(error)

        def known(load: tir.Load) -> layout.Fact:
            return fact_at(self.func, load, where, self.position)

        fact = layout.value_fact(
            stmt.value, known, lambda p: arith.holds_throughout(p, where), where.ranges()
        )
        claim = f"{tir.expr_text(stmt.value)} is {fact} where overcompute adds it to {target}"
        reason = self.not_neutral(stmt, fact)
        if reason is None:
            return structural(claim)
        loads = [e for e in tir.walk_expr(stmt.value) if isinstance(e, tir.Load)]
        unknown = [
            tir.element_text(e.buffer, e.indices) for e in loads if known(e) == layout.Undefined()
        ]
        nothing = f"; nothing is known of {', '.join(dict.fromkeys(unknown))}" if unknown else ""
        return f"{claim}, but {reason}{nothing}"

    def not_neutral(self, stmt: tir.Reduce, fact: layout.Fact) -> str | None:
        """Why a value with this fact may change the element that is reduced into, or None."""
        dtype = stmt.value.dtype
        demands = layout.reduction_demand(stmt.op, dtype)
        if isinstance(fact, layout.Range) and fact.lo == fact.hi and dtype not in tir.FLOATS:
            fact = layout.Constant(tir.Literal(fact.lo, dtype))
        if stmt.op is not tir.ReduceOp.ADD or dtype not in tir.FLOATS:
            wanted = " or ".join(str(d) for d in demands)
            return None if any(layout.serves(fact, d) for d in demands) else f"it must be {wanted}"
        if layout.serves(fact, layout.Equal(tir.Literal(-0.0, dtype))):
            return None
        zero = isinstance(fact, layout.Range) and fact.lo == fact.hi == 0
        if not zero and not any(layout.serves(fact, d) for d in demands):
            return "it must be a zero (and 0.0 times a number that may be infinite or NaN is none)"
        # −0.0 + 0.0 is 0.0, so 0.0 is neutral only where the sum is not −0.0.  A sum is −0.0 only
        # if all its terms are, the first one included: one that starts at anything else never is.
        for site in tir.sites(self.func.body[: self.position + 1]):
            other = site.stmt
            if (
                isinstance(other, tir.Reduce)
                and other.buffer == stmt.buffer
                and other.op != stmt.op
            ):
                return f"a {other.op.value} on {stmt.buffer.name} may make it -0.0 before"
            if isinstance(other, tir.Store) and other.buffer == stmt.buffer:
                start = self.started(other.value, site.domain)
                if not never_minus_zero(start) and not self.has_reciprocal(
                    other.value, site.domain
                ):
                    return (
                        f"the sum may start at -0.0, which adding 0.0 turns into 0.0: "
                        f"{tir.expr_text(other.value)} is {start}"
                    )
        return None

    def started(self, value: tir.Expr, where: arith.Domain) -> layout.Fact:
        """The fact of the value that a sum starts with at the points `where`."""
        return layout.value_fact(value, lambda load: fact_at(self.func, load, where, self.position))

    def has_reciprocal(self, value: tir.Expr, where: arith.Domain) -> bool:
        """Whether `value` is an element that was assumed not to be −0.0."""
        return isinstance(value, tir.Load) and assumed_at(
            self.func, value, where, self.position, is_reciprocal_claim
        )


def never_minus_zero(fact: layout.Fact) -> bool:
    """Whether a fact excludes −0.0."""
    match fact:
        case layout.Constant():
            return layout.order_key(fact.literal.value) != layout.order_key(-0.0)
        case layout.Range():
            return layout.order_key(fact.lo) > layout.order_key(-0.0) or layout.order_key(
                fact.hi
            ) < layout.order_key(-0.0)
        case _:
            return False
