"""What is known of the contents of a kernel's inputs, as far as some form can use it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from graphflow.kernels.recipes.roles import roles_of
from graphflow.tir import FLOATS, PrimFunc


@dataclass(frozen=True, slots=True)
class Known:
    """Names of inputs by what holds for each of their elements.

    `finite`: neither NaN nor infinite.  `reciprocal`: `1/x` is above −∞, so x is not −0.0 (nor one
    of the numbers so close to it that the quotient overflows).
    """

    finite: frozenset[str] = frozenset()
    reciprocal: frozenset[str] = frozenset()


NOTHING = Known()


@dataclass(frozen=True, slots=True)
class Asked:
    """Of which inputs the forms of a kernel could use which part of a `Known`."""

    finite: frozenset[str] = frozenset()
    reciprocal: frozenset[str] = frozenset()


@lru_cache(maxsize=4096)
def asked_of(definition: PrimFunc) -> Asked:
    """What is worth finding out about the inputs of `definition`."""
    roles = roles_of(definition)
    if roles is None:
        return Asked()
    floats = frozenset(b.name for b in definition.inputs if b.dtype in FLOATS)
    starts = {roles.start} if isinstance(roles.start, str) and roles.factors else set()
    return Asked(
        finite=roles.factors & floats,
        reciprocal=frozenset(starts) & floats,
    )
