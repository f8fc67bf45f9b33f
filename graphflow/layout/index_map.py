"""Index maps: bijections from logical indices of a tensor to physical indices in memory.

In: a construction (identity, permutation, split, offset, composition, or a user's function).
Out: an `IndexMap` with its inverse.  What always holds: the map is injective, because its inverse
is constructed together with it (no solver is asked for one) and undoes it; `check` proves both
again.  Logical indices are called i0, i1 … and physical indices p0, p1 …, so two maps are equal
exactly if their output expressions are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from graphflow import arith
from graphflow.base.errors import ScheduleError
from graphflow.layout.inversion import solve_indices

Inverse: TypeAlias = "tuple[tuple[arith.Var, ...], tuple[arith.IndexExpr, ...]]"

CHECKED_EXTENT = 1 << 30
"""Maps without a shape are checked for all logical indices below this."""


@lru_cache(maxsize=64)
def logical_vars(rank: int) -> tuple[arith.Var, ...]:
    """i0, i1 …: the names of logical indices in every map."""
    return tuple(arith.Var(f"i{axis}") for axis in range(rank))


@lru_cache(maxsize=64)
def physical_vars(rank: int) -> tuple[arith.Var, ...]:
    """p0, p1 …: the names of physical indices in every inverse, predicate and region."""
    return tuple(arith.Var(f"p{axis}") for axis in range(rank))


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A bijection from logical index tuples to physical ones, with its inverse.

    The constructor renames variables to i0 … and p0 …, and does not check the inverse (see
    `check`).
    """

    inputs: tuple[arith.Var, ...]
    outputs: tuple[arith.IndexExpr, ...]
    inverse: Inverse = field(compare=False)

    def __post_init__(self) -> None:
        back_inputs, back_outputs = self.inverse
        if len(back_inputs) != len(self.outputs) or len(back_outputs) != len(self.inputs):
            raise ScheduleError(
                f"index map {self.inputs} -> {self.outputs}: its inverse takes "
                f"{len(back_inputs)} and gives {len(back_outputs)} indices, which must be "
                f"{len(self.outputs)} and {len(self.inputs)}"
            )
        _require_known(self.outputs, self.inputs)
        _require_known(back_outputs, back_inputs)
        inputs, physical = logical_vars(len(self.inputs)), physical_vars(len(back_inputs))
        object.__setattr__(self, "outputs", _renamed(self.outputs, self.inputs, inputs))
        back = _renamed(back_outputs, back_inputs, physical)
        object.__setattr__(self, "inputs", inputs)
        object.__setattr__(self, "inverse", (physical, back))

    @property
    def logical_rank(self) -> int:
        """Number of logical axes."""
        return len(self.inputs)

    @property
    def physical_rank(self) -> int:
        """Number of physical axes."""
        return len(self.outputs)

    @staticmethod
    def identity(rank: int) -> IndexMap:
        """The identity: row-major order."""
        return IndexMap.permute(range(rank))

    @staticmethod
    def permute(order: Sequence[int]) -> IndexMap:
        """Physical axis k is logical axis `order[k]`."""
        rank = len(order)
        if sorted(order) != list(range(rank)):
            raise ScheduleError(
                f"permute({list(order)}): name each axis from 0 to {rank - 1} exactly once"
            )
        i, p = logical_vars(rank), physical_vars(rank)
        back = tuple(p[list(order).index(axis)] for axis in range(rank))
        return IndexMap(i, tuple(i[axis] for axis in order), (p, back))

    @staticmethod
    def split(rank: int, axis: int, factor: int, inner_last: bool = False) -> IndexMap:
        """`i -> i // factor, i % factor` on one axis; the inner part follows, or goes last."""
        _require_axis("split", axis, rank)
        if factor < 1:
            raise ScheduleError(f"split of axis {axis} by {factor}: the factor must be positive")
        i, p = logical_vars(rank), physical_vars(rank + 1)
        outer, inner = arith.floor_div(i[axis], factor), arith.floor_mod(i[axis], factor)
        place = rank if inner_last else axis + 1
        outputs: list[arith.IndexExpr] = [*i[:axis], outer, *i[axis + 1 :]]
        outputs.insert(place, inner)
        kept: list[arith.IndexExpr] = [p[k] for k in range(rank + 1) if k != place]
        kept[axis] = p[axis] * factor + p[place]
        return IndexMap(i, tuple(outputs), (p, tuple(kept)))

    @staticmethod
    def offset(rank: int, axis: int, amount: int) -> IndexMap:
        """`i -> i + amount` on one axis: padding in front."""
        _require_axis("offset", axis, rank)
        return IndexMap.shift(tuple(amount if k == axis else 0 for k in range(rank)))

    @staticmethod
    def shift(amounts: Sequence[int]) -> IndexMap:
        """`i -> i + amount` on every axis."""
        i, p = logical_vars(len(amounts)), physical_vars(len(amounts))
        there = tuple(v + amount for v, amount in zip(i, amounts, strict=True))
        back = tuple(v - amount for v, amount in zip(p, amounts, strict=True))
        return IndexMap(i, there, (p, back))

    @staticmethod
    def from_function(
        rank: int,
        function: Callable[..., Sequence[arith.IndexLike]],
        shape: Sequence[int] | None = None,
    ) -> IndexMap:
        """The map that a user writes as a function of `rank` indices.

        The inverse is derived from quotient and remainder pairs, permutations, offsets, sums whose
        other terms are known and, where the logical `shape` is given, from mixed-radix sums such
        as `16*i + j`; the only index of an axis of one is 0.  ScheduleError says which index cannot
        be found again.
        """
        i = logical_vars(rank)
        outputs = tuple(arith.as_index(e) for e in function(*i))
        _require_known(outputs, i)
        return _invertible(rank, outputs, None if shape is None else tuple(shape))

    def then(self, other: IndexMap) -> IndexMap:
        """The composition: this map, then `other` on its physical indices."""
        if self.physical_rank != other.logical_rank:
            raise ScheduleError(
                f"cannot compose {self} with {other}: the first gives {self.physical_rank} "
                f"indices, the second takes {other.logical_rank}"
            )
        p = physical_vars(other.physical_rank)
        back = self.invert(other.invert(p))
        return IndexMap(self.inputs, other.apply(self.outputs), (p, back))

    def shifted(self, amounts: Sequence[int]) -> IndexMap:
        """This map, then `shift(amounts)` on its physical indices."""
        p, back = self.inverse
        there = tuple(e + k for e, k in zip(self.outputs, amounts, strict=True))
        moved = {v: v - k for v, k in zip(p, amounts, strict=True) if k}
        return IndexMap(self.inputs, there, (p, tuple(arith.substitute(e, moved) for e in back)))

    def apply(self, indices: Sequence[arith.IndexLike]) -> tuple[arith.IndexExpr, ...]:
        """The physical indices of logical ones; ValueError where the rank differs."""
        return _at(self.inputs, self.outputs, indices)

    def invert(self, indices: Sequence[arith.IndexLike]) -> tuple[arith.IndexExpr, ...]:
        """The logical indices at physical ones; of padding, indices outside the tensor."""
        return _at(*self.inverse, indices)

    def check(self, shape: Sequence[int] | None = None) -> arith.Proof:
        """A proof that the map is injective and the inverse undoes it, for indices of `shape`."""
        undone = self._undone(shape)
        if not undone.proven:
            return undone
        injective = arith.prove_injective(self.outputs, self._domain(shape))
        if injective.verdict is arith.Verdict.REFUTED:
            return injective
        # A left inverse is in itself a proof of injectivity, if the sets run out of budget.
        return undone if not injective.proven else injective

    def _undone(self, shape: Sequence[int] | None) -> arith.Proof:
        """A proof that the inverse undoes the map, which implies that the map is injective."""
        back = self.invert(self.outputs)
        same = arith.conjunction(arith.equal(a, b) for a, b in zip(back, self.inputs, strict=True))
        return arith.prove(same, self._domain(shape))

    def _domain(self, shape: Sequence[int] | None) -> arith.Domain:
        extents = [CHECKED_EXTENT] * self.logical_rank if shape is None else list(shape)
        return arith.box(self.inputs, extents)

    def __str__(self) -> str:
        return f"({_text(self.inputs)}) -> ({_text(self.outputs)})"


@lru_cache(maxsize=10_000)
def _invertible(
    rank: int, outputs: tuple[arith.IndexExpr, ...], shape: tuple[int, ...] | None
) -> IndexMap:
    """The map with the inverse that is derived from it; see `IndexMap.from_function`."""
    i, p = logical_vars(rank), physical_vars(len(outputs))
    ranges = {} if shape is None else {v: (0, n - 1) for v, n in zip(i, shape, strict=True)}
    # What single digits say of an index does not depend on how far it runs.
    plain = all(map(_is_digit, outputs))
    known = _solved(outputs) if plain else solve_indices(dict(zip(p, outputs, strict=True)), ranges)
    single = {v: arith.as_index(0) for v, (_, last) in ranges.items() if last == 0}
    known = single | known
    missing = [str(v) for v in i if v not in known]
    if missing:
        text = f"index map ({_text(i)}) -> ({_text(outputs)})"
        hint = "" if shape is not None else ", or give the logical shape"
        raise ScheduleError(
            f"{text}: cannot find {', '.join(missing)} again from the physical index; "
            f"write it as pairs i // c, i % c, as offsets or as a permutation{hint}"
        )
    found = IndexMap(i, outputs, (p, tuple(known[v] for v in i)))
    # The only index of an axis of one is 0: what leads back to that is right.
    back = zip(i, found.invert(outputs), strict=True)
    unclear = ((e, v) for v, e in back if e is not v and e is not single.get(v))
    if any(arith.simplify_index(e, ranges) is not v for e, v in unclear):
        proof = found._undone(shape)
        if not proof.proven:
            raise ScheduleError(f"index map {found}: the derived inverse is wrong, {proof}")
    return found


@lru_cache(maxsize=10_000)
def _solved(outputs: tuple[arith.IndexExpr, ...]) -> dict[arith.IndexExpr, arith.IndexExpr]:
    return solve_indices(dict(zip(physical_vars(len(outputs)), outputs, strict=True)), {})


def _is_digit(expr: arith.IndexExpr) -> bool:
    """Whether an expression is an index, or a quotient or rest of one."""
    while isinstance(expr, arith.FloorDiv | arith.FloorMod):
        expr = expr.numerator
    return isinstance(expr, arith.Var)


def _text(exprs: Sequence[arith.IndexExpr]) -> str:
    return ", ".join(map(str, exprs))


def _at(
    names: tuple[arith.Var, ...],
    exprs: tuple[arith.IndexExpr, ...],
    indices: Sequence[arith.IndexLike],
) -> tuple[arith.IndexExpr, ...]:
    if indices == names:  # most are asked what they send their own variables to
        return exprs
    values = {v: arith.as_index(e) for v, e in zip(names, indices, strict=True)}
    return tuple(arith.substitute(expr, values) for expr in exprs)


def _renamed(
    exprs: tuple[arith.IndexExpr, ...], old: tuple[arith.Var, ...], new: tuple[arith.Var, ...]
) -> tuple[arith.IndexExpr, ...]:
    return exprs if old == new else _at(old, exprs, new)


def _require_known(exprs: Sequence[arith.IndexExpr], inputs: Sequence[arith.Var]) -> None:
    known = frozenset(inputs)
    for expr in exprs:
        if not arith.variables(expr) <= known:
            foreign = sorted(v.name for v in arith.variables(expr) - known)
            raise ScheduleError(
                f"{expr} uses {', '.join(foreign)}; an index map may use its inputs only "
                f"({_text(inputs)})"
            )


def _require_axis(what: str, axis: int, rank: int) -> None:
    if not 0 <= axis < rank:
        raise ScheduleError(f"{what}: there is no axis {axis} among {rank}")


def smallest_box(index_map: IndexMap, logical_shape: Sequence[int]) -> tuple[int, ...]:
    """The extents that hold the image of `logical_shape`, by interval arithmetic.

    ScheduleError where the map sends an index of the shape below zero.
    """
    ranges = {v: (0, n - 1) for v, n in zip(index_map.inputs, logical_shape, strict=True)}
    extents = []
    for axis, output in enumerate(index_map.outputs):
        low, high = arith.bounds(output, ranges)
        if low is None or high is None:
            raise ScheduleError(f"index map {index_map}: output {axis} has no bounds")
        if low < 0 and 0 not in logical_shape:
            raise ScheduleError(
                f"index map {index_map} on {list(logical_shape)}: physical axis {axis} would "
                f"start at {low}; physical indices must not be negative, add an offset of {-low}"
            )
        extents.append(max(high + 1, 0))
    return tuple(extents)
