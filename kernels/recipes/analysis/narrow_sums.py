"""Sums of products of narrow numbers: which instructions of the target take them.

In: the types of factors, or the roles of a kernel.  Out: whether the target has the instruction.
What always holds: instructions are known by their definitions (`codegen.instructions_of`), not by
name.
"""

from __future__ import annotations

from functools import lru_cache

from graphflow.base.dtypes import BYTES
from graphflow.base.target import Target
from graphflow.codegen import instructions_of
from graphflow.kernels.recipes.analysis.roles import Roles
from graphflow.tir import PrimFunc

SUM, FLOAT_SUM = "int32", "float32"


def multiplies_in_lanes(roles: Roles, target: Target) -> bool:
    """Whether one instruction sums the products of two vectors of a kernel's bytes.

    Vectors of 16 bits take three, with widening and adding: their price stays that of 32 bits.
    """
    dtypes = tuple(sorted(roles.reads[name][0].buffer.dtype for name in roles.factors))
    lanes = target.computed_lanes(SUM)
    shapes = ((lanes,), (lanes,), (lanes,))
    bytes_alone = all(dtype in BYTES for dtype in dtypes)
    return bytes_alone and roles.sum_dtype == SUM and dtypes in _factors_of(target, shapes)


def sums_terms(target: Target, dtypes: tuple[str, str], terms: int) -> bool:
    """Whether one instruction sums so many products of these types in each lane of a vector: of
    integers in int32, of floats in float32."""
    lanes = target.computed_lanes(SUM)
    shapes = ((lanes,), (terms,), (lanes, terms))
    return tuple(sorted(dtypes)) in _factors_of(target, shapes)


@lru_cache(maxsize=64)
def _factors_of(target: Target, shapes: tuple[tuple[int, ...], ...]) -> frozenset[tuple[str, ...]]:
    """The types of the factors of instructions of a target whose operands have these shapes."""
    return frozenset(
        tuple(sorted(p.buffer.dtype for p in each.params[1:]))
        for each in instructions_of(target, composed=False)
        if _is_sum(each) and tuple(p.buffer.shape for p in each.params) == shapes
    )


def _is_sum(definition: PrimFunc) -> bool:
    return definition.params[0].buffer.dtype in (SUM, FLOAT_SUM)
