"""Generated inputs for validation.

In: a definition, what its kernel may assume of inputs, a seed.  Out: a logical array for each
input.  What always holds: the same definition and seed give the same arrays.

Floats are small multiples of one half and a few larger numbers.  One operand of a product is scaled
by a power of two, so that long sums of products are exact and do not saturate the functions behind
them; results are then compared to the last bit, and a wrong index shows.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt, prod
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow import tir
from graphflow.arith import constant_value, variables
from graphflow.base.dtypes import FLOATING, integer_limits, smallest
from graphflow.validation.scalar_inputs import scalar_inputs

Array: TypeAlias = NDArray[Any]

PATTERN = 1_000_003
"""The length of the random sequence that longer arrays repeat: a prime, so that rows differ."""

LARGE_EVERY = 64
"""One in so many floats is one of the larger numbers."""


class Kind(Struct, frozen=True):
    """A kind of inputs.

    `positive` floats are for logarithms and roots.  `special` inputs contain NaN, infinities,
    negative zeros, extreme integers and, with `denormals`, these.
    """

    positive: bool = False
    special: bool = False
    denormals: bool = True


class AssumedInputs(Struct, frozen=True):
    """The inputs that the kernel may assume to be finite, and those it may assume not to be
    −0.0."""

    finite: frozenset[str] = frozenset()
    excludes_negative_zero: frozenset[str] = frozenset()


def logical_inputs(
    func: tir.PrimFunc, kind: Kind, assumed: AssumedInputs, seed: int
) -> dict[str, Array]:
    """An array for each input of `func`, of its shape and dtype."""
    products = _products(func)
    shifts = _shifts(products)
    stmts = (site.stmt for site in _reductions(func))
    factors_only = any(isinstance(s, tir.Reduce) and s.op is tir.ReduceOp.MUL for s in stmts)
    terms = max((terms for terms, _ in products), default=1)
    scalars = scalar_inputs(func, seed)
    found = {}
    for number, buffer in enumerate(func.inputs):
        if buffer in scalars:
            found[buffer.name] = np.array(scalars[buffer], buffer.dtype)
            continue
        rng = np.random.default_rng([seed, number])
        flat = np.resize(_plain(rng, buffer, kind.positive, factors_only), buffer.size)
        if buffer.name in shifts and flat.dtype.kind == "f":
            flat = np.ldexp(flat, -shifts[buffer.name]).astype(flat.dtype)
        if kind.special:
            _spread(rng, flat, _specials(buffer, assumed, kind.denormals), terms)
        found[buffer.name] = np.ascontiguousarray(flat).reshape(buffer.shape)
    return found


def _plain(rng: np.random.Generator, buffer: tir.Buffer, positive: bool, factors: bool) -> Array:
    count = min(buffer.size, PATTERN)
    dtype = tir.DTYPES[buffer.dtype]
    if dtype.kind == "b":
        return rng.integers(0, 2, count).astype(dtype)
    if dtype.kind != "f":
        return rng.integers(0 if dtype.kind == "u" else -4, 9, count).astype(dtype)
    if factors:  # products of many numbers stay in range
        return rng.choice(np.array([-2, -1, -0.5, 0.5, 1, 2], dtype), count)
    halves = rng.integers(-8, 9, count)
    if positive:
        halves = np.abs(halves) + 1
    large = rng.integers(0, LARGE_EVERY, count) == 0
    return (np.where(large, halves * 4, halves) * 0.5).astype(dtype)


def _specials(buffer: tir.Buffer, assumed: AssumedInputs, denormals: bool) -> list[Any]:
    dtype = tir.DTYPES[buffer.dtype]
    if dtype.kind == "b":
        return [True, False]
    if buffer.dtype not in FLOATING:
        return [*reversed(integer_limits(buffer.dtype))]
    tiny = [smallest(buffer.dtype) * 5] if denormals else []
    found = [*tiny, 0.0]
    if buffer.name not in assumed.finite:
        found.insert(0, float("inf"))
    if buffer.name not in assumed.excludes_negative_zero:
        found += [-0.0, *(-each for each in tiny)]
        if buffer.name not in assumed.finite:
            found = [float("nan"), float("-inf"), *found]
    return found


def _spread(rng: np.random.Generator, flat: Array, specials: list[Any], terms: int) -> None:
    """Put special values at random positions, so few that about half of the results see none."""
    if not flat.size:
        return
    count = max(len(specials), flat.size // (2 * max(terms, 8)))
    places = rng.integers(0, flat.size, min(count, flat.size))
    flat[places] = np.resize(np.array(specials).astype(flat.dtype), places.size)


# What is computed with the inputs -----------------------------------------------------------------


def _products(func: tir.PrimFunc) -> list[tuple[int, tuple[tir.Buffer, ...]]]:
    """For each sum its number of terms, and the inputs that are multiplied in a term."""
    found = []
    for site in _reductions(func):
        stmt = site.stmt
        assert isinstance(stmt, tir.Reduce)
        place = frozenset().union(*map(variables, stmt.indices))
        inner = [axis for axis in site.domain.axes if axis.var not in place]
        extents = [constant_value(axis.stop - axis.start) or 1 for axis in inner]
        factors: tuple[tir.Buffer, ...] = ()
        if stmt.op is tir.ReduceOp.ADD and any(
            isinstance(e, tir.Binary) and e.op == "mul" for e in tir.walk_expr(stmt.value)
        ):
            loads = (e.buffer for e in tir.walk_expr(stmt.value) if isinstance(e, tir.Load))
            factors = tuple(dict.fromkeys(b for b in loads if b in func.inputs))
        found.append((prod(extents), factors))
    return found


def _reductions(func: tir.PrimFunc) -> Iterator[tir.Site]:
    return (site for site in tir.sites(func.body) if isinstance(site.stmt, tir.Reduce))


def _shifts(products: list[tuple[int, tuple[tir.Buffer, ...]]]) -> dict[str, int]:
    """By how many bits the last factor of a product is scaled down: to about 1/√terms."""
    scaled = {factors[-1].name: terms for terms, factors in products if len(factors) > 1}
    # Sums over segments of one tensor add up to one sum.
    bits = isqrt(sum(scaled.values())).bit_length()
    return dict.fromkeys(scaled, bits)
