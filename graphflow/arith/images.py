"""Images of domains, and proofs that some contain others.

In: a tuple of index expressions over a domain.  Out: an `Image`, the set of its values, and a
`Proof` that images cover a box or that one lies within others.  What always holds: isl decides
within the operation budget of `sets`, and what it does not decide is UNKNOWN.  Before it is asked,
points that reach a tuple are solved for (`reaching_points`): a projection takes isl milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import islpy as isl
from msgspec import Struct

from graphflow.arith.domain import Domain, box
from graphflow.arith.index_expr import IndexExpr, Var
from graphflow.arith.isl_text import isl_constraints, isl_index, isl_name
from graphflow.arith.predicates import (
    Predicate,
    conjunction,
    conjuncts,
    disjunction,
    predicate_variables,
)
from graphflow.arith.proof import Proof, Verdict
from graphflow.arith.reaching_points import condition_to_reach
from graphflow.arith.sets import proof_of_emptiness, prove, read_domain


class Image(Struct, frozen=True):
    """The set of index tuples that `indices` reaches over `domain`."""

    domain: Domain
    indices: tuple[IndexExpr, ...]

    def covers(self, region: Predicate, names: Sequence[Var], shape: Sequence[int]) -> Proof:
        """Whether every tuple of the box `shape` in `region`, stated over `names`, is reached."""
        return images_cover((self,), region, names, shape)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.indices))}) for {self.domain}"

    def range(self, context: Any) -> Any:
        """The set in isl's terms."""
        inputs = ", ".join(isl_name(axis.var) for axis in self.domain.axes)
        outputs = ", ".join(isl_index(index) for index in self.indices)
        text = f"{{ [{inputs}] -> [{outputs}] : {isl_constraints(self.domain)} }}"
        return isl.Map.read_from_str(context, text).range()


def images_cover(
    images: Sequence[Image], region: Predicate, names: Sequence[Var], shape: Sequence[int]
) -> Proof:
    """Whether every tuple of the box `shape` in `region` is reached by one of `images`."""
    text = f"{' or '.join(map(str, images))} covers {list(shape)}"

    def missing(context: Any) -> Any:
        points = read_domain(context, box(names, shape).given(region))
        for image in images:
            points = points.subtract(image.range(context))
        return points

    return proof_of_emptiness(text, missing, lambda points: (f"misses {points.sample_point()}", ()))


def image_within(inner: Image, others: Sequence[Image]) -> Proof:
    """Whether every tuple that `inner` reaches is reached by one of `others`."""
    return _within(inner, tuple(others))


@lru_cache(maxsize=20_000)
def _within(inner: Image, others: tuple[Image, ...]) -> Proof:
    def missing(context: Any) -> Any:
        points = inner.range(context)
        for other in others:
            points = points.subtract(other.range(context))
        return points

    text = f"{inner} lies within {' or '.join(map(str, others)) or 'nothing'}"
    if _points_found(inner, others):
        return Proof(Verdict.PROVEN, text, "a point for each tuple")
    return proof_of_emptiness(text, missing, lambda points: (f"not at {points.sample_point()}", ()))


def _points_found(inner: Image, others: Sequence[Image]) -> bool:
    """Whether at each point of `inner` a point that reaches its tuple is proven to be in the domain
    of one of `others`; where not, there may be one all the same."""
    found = (
        condition_to_reach(inner.indices, one.indices, one.domain, inner.domain) for one in others
    )
    conditions = [conjuncts(condition) for condition in found if condition is not None]
    if not conditions:
        return False
    first, *rest = (dict.fromkeys(parts) for parts in conditions)
    common = {part: None for part in first if all(part in other for other in rest)}
    one_of = disjunction(
        conjunction(part for part in parts if part not in common) for parts in conditions
    )
    return all(
        prove(claim, inner.domain.about(predicate_variables(claim))).proven
        for claim in (*common, one_of)
    )
