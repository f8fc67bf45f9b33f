"""What is known of the contents of a kernel's inputs, as far as some form can use it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphflow.kernels.recipes.roles import roles_of
from graphflow.layout import Range
from graphflow.tir import FLOATS, PrimFunc, ReduceOp


@dataclass(frozen=True, slots=True)
class Known:
    """Names of inputs by what holds for each of their elements.

    `finite`: neither NaN nor infinite.  `reciprocal`: `1/x` is above −∞, so x is not −0.0 (nor one
    of the numbers so close to it that the quotient overflows).  `bounds`: inputs of which a largest
    or smallest element is taken, and a range of all of them.
    """

    finite: frozenset[str] = frozenset()
    reciprocal: frozenset[str] = frozenset()
    bounds: tuple[tuple[str, Range], ...] = ()


NOTHING = Known()


@dataclass(frozen=True, slots=True)
class Asked:
    """Of which inputs the forms of a kernel could use which part of a `Known`."""

    finite: frozenset[str] = frozenset()
    reciprocal: frozenset[str] = frozenset()
    bounds: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def asked_of(definition: PrimFunc) -> Asked:
    """What is worth finding out about the inputs of `definition`."""
    roles = roles_of(definition)
    if roles is None:
        return Asked()
    floats = frozenset(b.name for b in definition.inputs if b.dtype in FLOATS)
    extremes = roles.bare in (ReduceOp.MAX, ReduceOp.MIN)
    starts = {roles.start} if isinstance(roles.start, str) and roles.factors else set()
    return Asked(
        finite=roles.factors & floats,
        reciprocal=frozenset(starts) & floats,
        bounds=frozenset(name for name, reads in roles.reads.items() if reads and extremes),
    )
