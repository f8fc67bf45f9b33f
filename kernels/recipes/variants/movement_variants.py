"""Variants of kernels that only move elements between layouts other than row-major.

In: a definition that moves elements, as a concatenation or a shuffle of channels does, and the
target.  Out: its variants with all operands in layouts of these families, priced by which moves
copy whole vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import TypeAlias

from graphflow.arith import FloorMod, IndexExpr, Var, terms_of
from graphflow.base.target import Target
from graphflow.cost import Work, move_cycles
from graphflow.kernels.recipes.analysis.positions import MOST_TURNS, flat_offset, touched
from graphflow.kernels.recipes.analysis.variant import KernelVariant, Padding, Staged
from graphflow.layout import Layout, families
from graphflow.tir import Move, PrimFunc, iteration_count, moves_of

Steps: TypeAlias = tuple[tuple[int, int], ...]
"""The iterations of each loop of a move, and how far an iteration goes in the written buffer."""


def movement_variants(
    definition: PrimFunc, constants: frozenset[str], target: Target
) -> Iterator[KernelVariant]:
    """Variants of movement whose operands are all in layouts of families other than row-major."""
    moves = moves_of(definition)
    if not moves or len(definition.outputs) != 1 or not definition.outputs[0].size:
        return
    rank, dtype = len(definition.outputs[0].shape), definition.outputs[0].dtype
    others = families(rank, target.computed_lanes(dtype), target)[1:]
    counts = [iteration_count(domain.axes) for _, _, domain in moves]
    for out, data in product(others, others):
        layouts = {b.name: data.instantiate(b.shape) for b in definition.inputs
                   if len(b.shape) == rank}  # fmt: skip
        layouts[definition.outputs[0].name] = out.instantiate(definition.outputs[0].shape)
        placed = {name: layout for name, layout in layouts.items() if layout is not None}
        if len(placed) < len(definition.params):
            continue
        adjacent = _in_vectors(moves, placed)
        cycles = sum(
            move_cycles(count, in_vectors, dtype, target)
            for count, in_vectors in zip(counts, adjacent, strict=True)
        )
        shape = definition.outputs[0].shape
        rows = prod((*shape[:1], *shape[2:]))
        work = Work(0.0, cycles, rows, *touched(definition.params, placed, constants))
        output = placed[definition.outputs[0].name]
        padding = Padding.UNDEF if output.is_padded else Padding.NONE
        given = placed[definition.inputs[0].name].describe()
        name = f"copied from {given} to {output.describe()}"
        yield KernelVariant(name, placed, frozenset(), {}, padding, Staged(), work, False)


def _in_vectors(moves: Sequence[Move], layouts: Mapping[str, Layout]) -> list[bool]:
    """For each move whether it copies in vectors.

    It does where a loop has stride one on both sides, or where several moves write neighbouring
    elements by turns and read elements that are no farther apart.
    """
    positions = [
        tuple(flat_offset(layouts[a.buffer.name], a.indices) for a in (store, load))
        for store, load, _ in moves
    ]
    steps = [_steps(move, w) for move, (w, _) in zip(moves, positions, strict=True)]
    places: dict[Steps, list[int]] = {}
    for known, (written, _) in zip(steps, positions, strict=True):
        if known is not None:
            places.setdefault(known, []).append(terms_of(written)[1])
    found = []
    for (_, _, domain), known, (written, read) in zip(moves, steps, positions, strict=True):
        turns = _turns(places[known]) if known is not None else 1
        by_turns = turns > 1 and any(
            step == turns and 1 <= dict(terms_of(read)[0]).get(axis.var, 0) <= turns
            for axis, (_, step) in zip(domain.axes, known or (), strict=True)
        )
        found.append(by_turns or not _by_one(written).isdisjoint(_by_one(read)))
    return found


def _steps(move: Move, written: IndexExpr) -> Steps | None:
    """How the loops of a move go through what it writes; None where that is not linear."""
    coefficients = dict(terms_of(written)[0])
    axes = move[2].axes
    if not set(coefficients) <= {axis.var for axis in axes}:
        return None
    return tuple((iteration_count((axis,)), coefficients.get(axis.var, 0)) for axis in axes)


def _turns(places: Sequence[int]) -> int:
    """How many moves write by turns that begin at these places; 1 where they do not."""
    first, count = min(places), len(places)
    by_turns = sorted(places) == [*range(first, first + count)] and count <= MOST_TURNS
    return count if by_turns else 1


@lru_cache(maxsize=10_000)
def _by_one(position: IndexExpr) -> frozenset[Var]:
    """The variables with which a position in memory goes on by one, inside blocks too."""
    found = set()
    for atom, k in terms_of(position)[0]:
        inside = _aligned(atom) if isinstance(atom, FloorMod) else atom
        if k == 1 and isinstance(inside, Var):
            found.add(inside)
    return frozenset(found)


def _aligned(atom: FloorMod) -> Var | None:
    """The variable of `(variable + multiple) % divisor`, whose blocks begin with those of it."""
    terms, offset = terms_of(atom.numerator)
    by_one = [v for v, k in terms if k == 1 and isinstance(v, Var)]
    others = [k for _, k in terms if k != 1]
    aligned = not any(k % atom.divisor for k in (*others, offset))
    return by_one[0] if len(by_one) == 1 and aligned and len(others) == len(terms) - 1 else None
