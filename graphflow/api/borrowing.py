"""Packed constants that a new program of a model borrows from earlier programs of the same model.

In: a compiled model, and earlier compilations of it with their programs.  Out: the packed constants
that the new program takes from an earlier one, and the steps of `prepare` that it can skip.  What
always holds: two constants count as equal only if the same kernels made them from the same bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

from msgspec import Struct
from numpy.typing import NDArray

from graphflow.api.releasing import ReleasedConstant
from graphflow.base.fields import replace
from graphflow.graph import Array
from graphflow.pipeline.compiler import Compiled
from graphflow.program import ProgramStep
from graphflow.runtime import NOTHING_BORROWED, Borrowed, Program
from graphflow.tir import Role

SMALL = 1 << 12
"""The most bytes of a constant that is compared by its bits; a larger one is compared by its
address."""

_Origin: TypeAlias = "tuple[object, ...]"
"""A key of how a constant was made.  Equal keys mean equal bits, as long as the arrays whose
addresses are in the keys exist."""


class _Packed(Struct, frozen=True):
    """A constant that runs read, made by the step of `prepare` with number `step`; None for a
    constant that is stored."""

    origin: _Origin
    position: int
    nbytes: int
    step: int | None


def borrowed(compiled: Compiled, earlier: Iterable[tuple[Compiled, Program]]) -> Borrowed:
    """The constants that earlier programs have too, each taken from the first of these programs."""
    if compiled.spec.sections:  # they read the block itself
        return NOTHING_BORROWED
    lent: dict[tuple[_Origin, int], tuple[Program, _Packed]] = {}
    for other, program in earlier:
        if other.options.flush_denormals == compiled.options.flush_denormals:
            for packed in _packed(other):
                lent.setdefault((packed.origin, packed.nbytes), (program, packed))
    parts: dict[int, NDArray[Any]] = {}
    steps: set[int] = set()
    for packed in _packed(compiled) if lent else ():
        found = lent.get((packed.origin, packed.nbytes))
        if found is not None:
            program, there = found
            parts[packed.position] = program.constants.part(there.position, there.nbytes)
            steps.update(() if packed.step is None else (packed.step,))
    return Borrowed(parts, frozenset(steps))


def _packed(compiled: Compiled) -> tuple[_Packed, ...]:
    """The constants that runs read and whose origin is known."""
    origins: dict[int, _Origin | None] = {
        position: _bits(array) for position, array in compiled.spec.constants
    }
    kept, scratch = compiled.spec.run_constant_bytes, compiled.lowered.scratch_place
    found = {
        position: _Packed(_bits(array), position, array.nbytes, None)
        for position, array in compiled.spec.constants
        if position < kept
    }
    for number, step in enumerate(compiled.spec.prepare):
        made = tuple(_constants_of(compiled, step, Role.OUTPUT))
        origin = _origin(compiled, step, origins)
        fresh = len(made) == 1 and made[0][1] == 0
        fresh = fresh and (made[0][0] not in origins or made[0][0] >= scratch)
        for position, _, _ in made:  # written twice, or with others: unknown
            origins[position] = origin if fresh else None
            found.pop(position, None)
        if fresh and origin is not None:
            position, _, nbytes = made[0]
            if position + nbytes <= kept:
                found[position] = _Packed(origin, position, nbytes, number)
    return tuple(found.values())


def _origin(
    compiled: Compiled, step: ProgramStep, origins: dict[int, _Origin | None]
) -> _Origin | None:
    """The key of the output of a step: its kernel and the keys of its inputs; None if the origin of
    an input is not known."""
    params = compiled.lowered.kernels[step.symbol].func.params
    count = sum(param.role is not Role.OUTPUT for param in params)
    reads = tuple(
        (origins.get(position), offset)
        for position, offset, _ in _constants_of(compiled, step, Role.INPUT)
    )
    if len(reads) < count or any(origin is None for origin, _ in reads):
        return None
    task = replace(compiled.lowered.kernels[step.symbol].task, symbol="", claimed=None)
    return "made", task, step.extent, reads


def _constants_of(
    compiled: Compiled, step: ProgramStep, role: Role
) -> Iterator[tuple[int, int, int]]:
    """Position, offset and size in bytes of each parameter of a role in the constant block."""
    params = compiled.lowered.kernels[step.symbol].func.params
    for param, ref in zip(params, step.buffers, strict=True):
        if param.role is role and ref.space == "constant":
            yield ref.position, ref.offset, param.buffer.bytes


def _bits(array: Array) -> _Origin:
    """The key of a stored array: its bits if it is `SMALL`, else the address of its memory, which
    is read-only; or its origin, if its contents were released."""
    if isinstance(array, ReleasedConstant):
        return "released", array.dtype.str, array.shape, array.origin or id(array)
    about = array.dtype.str, array.shape, array.strides
    if array.nbytes <= SMALL:
        return "bits", *about, array.tobytes()
    return "place", *about, array.__array_interface__["data"][0]
