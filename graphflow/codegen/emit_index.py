"""Emits index expressions and predicates, after substituting what is known of loop variables.

In: expressions over loop variables.  Each variable is either *bound* to another expression (that of
an unrolled loop to a constant, that of a vectorized loop to its start plus the lane) or *running*,
with an i64 value (a loop that LLVM sees).  Out: i64 scalars, linear terms for addresses, and truth
values per lane.

What always holds: bindings are substituted and ranges used before any instruction is emitted, so an
index that is constant in an unrolled iteration costs none.  All numbers on the way to a value are
proven to fit an i64 by the ranges; else a CodegenError has the expression and the bound.  Sums are
added up from the outermost loop's variable to the innermost's, so that the partial sums are
loop-invariant and can be hoisted.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from functools import partial
from math import inf
from typing import Any, TypeAlias, TypeVar, assert_never

from msgspec import Struct

from graphflow import arith
from graphflow.base.errors import CodegenError
from graphflow.llvm import IrBuilder, IrValue, bool_constant, int_constant, lanes_of

Terms: TypeAlias = tuple[tuple[arith.IndexExpr, int], ...]

Found = TypeVar("Found")

Decision: TypeAlias = bool | tuple[bool, ...] | IrValue
"""A condition: decided, decided per lane, or to be decided at run time (an i1, or one a lane)."""


class Lanes(Struct, frozen=True):
    """The enclosing vectorized loop: a lane variable from 0 to `extent - 1`, in `width` lanes."""

    var: arith.Var
    extent: int
    width: int


class Indices:
    """Emits index expressions inside the loops that are open."""

    def __init__(self, builder: IrBuilder) -> None:
        self.builder = builder
        self.lanes: Lanes | None = None
        self.ranges: dict[arith.Var, arith.Interval] = {}
        self._bindings: dict[arith.Var, arith.IndexExpr] = {}
        self._values: dict[arith.Var, IrValue] = {}
        self._depths: dict[arith.Var, int] = {}
        self._variables: dict[arith.IndexExpr, frozenset[arith.Var]] = {}
        self._largest: dict[arith.IndexExpr, float] = {}
        """Of atoms the largest part, for the loops that are open; infinite where it is unknown."""
        self._resolved: dict[Lanes | None, dict[Hashable, Any]] = {}
        self._resolved_here: dict[Hashable, Any] = {}
        """What `resolved_once` keeps, by the lanes; and for those that are open."""

    # ---- loops around

    @contextmanager
    def bound(self, var: arith.Var, expr: arith.IndexExpr) -> Iterator[None]:
        """While the context lasts, `var` is replaced by `expr`, which must be resolved."""
        self._bindings[var] = expr
        yield
        del self._bindings[var]

    def bound_to_each(self, var: arith.Var, start: arith.IndexExpr, extent: int) -> Iterator[None]:
        """While one iterates, `var` is bound to `start`, to `start + 1` and so on."""
        for step in range(extent):
            self._bindings[var] = start + step
            yield
        self._bindings.pop(var, None)

    @contextmanager
    def running(self, var: arith.Var, value: IrValue, interval: arith.Interval) -> Iterator[None]:
        """While the context lasts, `var` has this i64 value, which lies within `interval`."""
        self._values[var], self.ranges[var] = value, interval
        self._largest.clear()
        self._resolved.clear()
        self._resolved_here = self._resolved.setdefault(self.lanes, {})
        self._depths[var] = len(self._depths)
        yield
        del self._values[var], self.ranges[var], self._depths[var]

    @contextmanager
    def vectorized(self, var: arith.Var, start: arith.IndexExpr, lanes: Lanes) -> Iterator[None]:
        """While the context lasts, `var` is `start` plus the number of the lane."""
        self.lanes, self.ranges[lanes.var] = lanes, (0, lanes.extent - 1)
        self._largest.clear()
        self._resolved_here = self._resolved.setdefault(lanes, {})
        with self.bound(
            var, arith.linear((*arith.terms_of(start)[0], (lanes.var, 1)), arith.terms_of(start)[1])
        ):
            yield
        self.lanes = None
        del self.ranges[lanes.var]
        self._resolved_here = self._resolved.setdefault(None, {})

    # ---- resolution

    def terms(self, expr: arith.IndexExpr) -> tuple[Terms, int]:
        """The linear terms and the constant of `expr` under the bindings.

        CodegenError unless the sum, in whatever order it is added up, is proven to fit an i64.
        """
        terms, constant = self._bound_terms(expr)
        total: float = abs(constant)
        for atom, k in terms:
            largest = self._largest.get(atom)
            total += abs(k) * (self._largest_of(atom) if largest is None else largest)
        if total > arith.WORD:  # rare, and then the signs matter
            self._require_word(terms, constant)
        return terms, constant

    def _largest_of(self, atom: arith.IndexExpr) -> float:
        part = arith.largest_part(atom, self._with_idle_lanes())
        found = self._largest[atom] = inf if part is None else max(part, 1)
        return found

    def _with_idle_lanes(self) -> arith.Ranges:
        """The ranges of the variables, where lanes beyond the extent are computed too."""
        if self.lanes is None:
            return self.ranges
        return {**self.ranges, self.lanes.var: (0, self.lanes.width - 1)}

    def _require_word(self, terms: Terms, constant: int) -> None:
        ranges, expr = self._with_idle_lanes(), arith.linear(terms, constant)
        if not arith.variables(expr) <= ranges.keys():
            return  # a variable without a loop, which has no value to emit either
        most = arith.largest_part(expr, ranges)
        if most is None or most > arith.WORD:
            reach = "has no bound" if most is None else f"may need numbers up to {most}"
            raise CodegenError(
                f"the index expression {expr} {reach}, and native code computes indices in 64 "
                f"bits, up to {arith.WORD}; use smaller factors or extents"
            )

    def _bound_terms(self, expr: arith.IndexExpr) -> tuple[Terms, int]:
        terms, constant = arith.terms_of(expr)
        merged: dict[arith.IndexExpr, int] = {}
        for atom, k in terms:
            bound = self._bindings.get(atom) if isinstance(atom, arith.Var) else None
            if not isinstance(atom, arith.Var) and not self._bindings.keys().isdisjoint(
                self._in(atom)
            ):
                return arith.terms_of(
                    arith.simplify_index(arith.substitute(expr, self._bindings), self.ranges)
                )
            if bound is None:
                merged[atom] = merged.get(atom, 0) + k
            elif isinstance(bound, arith.Const):
                constant += k * bound.value
            else:
                inner, extra = arith.terms_of(bound)
                constant += extra * k
                for inner_atom, inner_k in inner:
                    merged[inner_atom] = merged.get(inner_atom, 0) + inner_k * k
        return tuple((atom, k) for atom, k in merged.items() if k), constant

    def resolved_once(
        self, expr: arith.IndexExpr, key: Hashable, resolve: Callable[[], Found]
    ) -> Found:
        """What `resolve` finds of `expr` under the bindings, which is kept by `key`.

        It is found anew for other bindings, other lanes, and when a loop begins to run.
        """
        state = (key, *map(self._bindings.get, self._in(expr)))
        known = self._resolved_here
        if state in known:
            found: Found = known[state]
        else:
            found = known[state] = resolve()
        return found

    def _in(self, atom: arith.IndexExpr) -> frozenset[arith.Var]:
        found = self._variables.get(atom)
        if found is None:
            found = self._variables[atom] = arith.variables(atom)
        return found

    def resolved(self, expr: arith.IndexExpr) -> arith.IndexExpr:
        """`expr` with the bindings substituted."""
        terms, constant = self.terms(expr)
        return arith.linear(terms, constant)

    def resolved_predicate(self, predicate: arith.Predicate) -> arith.Predicate:
        """`predicate` with the bindings substituted, simplified by the ranges of the variables."""
        return arith.simplify_predicate(arith.substitute_in(predicate, self._bindings), self.ranges)

    def bounds(self, terms: Terms, constant: int) -> arith.Interval:
        """An interval that contains the value of the sum."""
        return arith.bounds(arith.linear(terms, constant), self.ranges)

    def lane_stride(self, terms: Terms) -> int | None:
        """The coefficient of the lane, 0 where it does not occur, None inside a floor or mod."""
        if self.lanes is None:
            return 0
        stride = 0
        for atom, k in terms:
            if atom is self.lanes.var:
                stride = k
            elif not isinstance(atom, arith.Var) and self.lanes.var in self._in(atom):
                return None
        return stride

    def at_lane(self, terms: Terms, constant: int, lane: int) -> tuple[Terms, int]:
        """The terms as they are in one lane."""
        assert self.lanes is not None
        expr = arith.substitute(arith.linear(terms, constant), {self.lanes.var: arith.const(lane)})
        return arith.terms_of(arith.simplify_index(expr, self.ranges))

    # ---- values

    def value(self, expr: arith.IndexExpr) -> IrValue:
        """`expr` as an i64; it must not depend on the lane."""
        return self.sum(*self.terms(expr))

    def vector(self, expr: arith.IndexExpr) -> IrValue:
        """`expr` as an i64 or, where it depends on the lane, as a vector of them."""
        terms, constant = self.terms(expr)
        stride = self.lane_stride(terms)
        if stride == 0:
            return self.sum(terms, constant)
        assert self.lanes is not None
        if stride is None:
            # Poison beyond the extent; `_compared` freezes those lanes before they decide anything.
            values = [self.sum(*self.at_lane(terms, constant, i)) for i in range(self.lanes.extent)]
            return self.builder.gathered(values, self.lanes.width)
        rest = tuple(term for term in terms if term[0] is not self.lanes.var)
        steps = lanes_of((stride * i + constant for i in range(self.lanes.width)), "i64")
        return self.builder.binary("add nsw", self.sum(rest, 0), steps) if rest else steps

    def _idle_lanes_are_poison(self, expr: arith.IndexExpr) -> bool:
        """Whether `vector` gathers the lanes of the loop one by one, and there are others."""
        lanes = self.lanes
        if lanes is None or lanes.extent == lanes.width:
            return False
        return self.lane_stride(self.terms(expr)[0]) is None

    def sum(self, terms: Terms, constant: int) -> IrValue:
        """A resolved sum without the lane, as an i64."""
        ordered = sorted(terms, key=lambda term: self._depth(term[0]))
        total = int_constant(0)
        key: Terms = ()
        for atom, k in ordered:
            key = (*key, (atom, k))
            total = self.builder.remembered(key, partial(self._plus, total, atom, k))
        if not constant:
            return total
        if not ordered:
            return int_constant(constant)
        return self.builder.binary("add nsw", total, int_constant(constant))

    def _plus(self, total: IrValue, atom: arith.IndexExpr, k: int) -> IrValue:
        value = self._atom(atom)
        if k != 1:
            value = self.builder.binary("mul nsw", value, int_constant(k))
        return value if total.text == "0" else self.builder.binary("add nsw", total, value)

    def _depth(self, atom: arith.IndexExpr) -> int:
        if isinstance(atom, arith.Var):
            return self._depths.get(atom, -1)
        return max((self._depths.get(v, -1) for v in arith.variables(atom)), default=-1)

    def _atom(self, atom: arith.IndexExpr) -> IrValue:
        match atom:
            case arith.Var():
                value = self._values.get(atom)
                if value is None:
                    raise CodegenError(
                        f"index variable {atom} has no loop around it; give every integer "
                        "parameter a constant before emitting"
                    )
                return value
            case arith.FloorDiv():
                return self._floor(atom.numerator, atom.divisor, want_rest=False)
            case arith.FloorMod():
                return self._floor(atom.numerator, atom.divisor, want_rest=True)
            case arith.Extremum():
                a, b = (self.sum(*arith.terms_of(operand)) for operand in atom.operands)
                return self.builder.intrinsic("smin" if atom.kind == "min" else "smax", a, b)
        raise TypeError(f"not an atom of an index expression: {atom!r}")

    def _floor(self, numerator: arith.IndexExpr, divisor: int, want_rest: bool) -> IrValue:
        b = self.builder
        value, by = self.sum(*arith.terms_of(numerator)), int_constant(divisor)
        power = divisor & (divisor - 1) == 0
        if power and want_rest:
            return b.binary("and", value, int_constant(divisor - 1))
        if power:
            return b.binary("ashr", value, int_constant(divisor.bit_length() - 1))
        low = arith.bounds(numerator, self.ranges)[0]
        if low is not None and low >= 0:
            return b.binary("urem" if want_rest else "udiv", value, by)
        rest = b.binary("srem", value, by)
        negative = b.compare("icmp slt", rest, int_constant(0))
        if want_rest:
            return b.binary("add", rest, b.select(negative, by, int_constant(0)))
        return b.binary("add", b.binary("sdiv", value, by), b.convert("sext", negative, "i64"))

    # ---- truth

    def truth(self, predicate: arith.Predicate) -> Decision:
        """A resolved predicate: known at compile time, known per lane, an i1, or a vector of i1."""
        known = self.decided(predicate)
        return self._truth(predicate) if known is None else known

    def decided(self, predicate: arith.Predicate) -> bool | tuple[bool, ...] | None:
        """A resolved predicate as it is known at compile time, for all lanes or each of them."""
        if isinstance(predicate, arith.Truth):
            return predicate.value
        lanes = self.lanes
        if lanes is None or arith.predicate_variables(predicate) != frozenset((lanes.var,)):
            return None
        known = [arith.holds(predicate, {lanes.var: i}) for i in range(lanes.extent)]
        return (*known, *[False] * (lanes.width - lanes.extent))

    def _truth(self, predicate: arith.Predicate) -> IrValue:
        b = self.builder
        match predicate:
            case arith.Truth():
                return bool_constant(predicate.value)
            case arith.AtLeastZero():
                return self._compared("icmp sge", predicate.expr)
            case arith.IsZero():
                return self._compared("icmp eq", predicate.expr)
            case arith.Not():
                return self._compared("icmp ne", predicate.member.expr)
            case arith.And() | arith.Or():
                operation = "and" if isinstance(predicate, arith.And) else "or"
                first, *others = (self._truth(member) for member in predicate.members)
                for other in others:
                    first = b.binary(operation, first, other)
                return first
        assert_never(predicate)

    def _compared(self, operation: str, expr: arith.IndexExpr) -> IrValue:
        value = self.vector(expr)
        if self._idle_lanes_are_poison(expr):
            # Poison in a mask would store the lane, beyond the buffer.
            value = self.builder.freeze(value)
        low, high = arith.bounds(expr, self.ranges)
        narrow = low is not None and high is not None and low >= -(2**31) and high < 2**31
        if value.lanes > 1 and narrow:
            value = self.builder.convert("trunc", value, "i32")
        return self.builder.compare(operation, value, int_constant(0, value.element))
