"""The expected results of a kernel: its definition evaluated for all elements, or for a sample.

In: a definition, arrays for its inputs, the elements that are wanted.  Out: their values by output
and position, and error bounds for some of them.  What always holds: values come from the
interpreter, which runs the definition as it was before scheduling.  Elements that exceed the budget
are left out and counted; `Unsolved` is raised if no element can be computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct

from graphflow.tir import Buffer, PrimFunc, compile_to_python, undefined_value
from graphflow.validation.elements import (
    Elements,
    Evaluation,
    OverBudget,
    Unsolved,
    counted_iterations,
)
from graphflow.validation.error_bounds import with_errors
from graphflow.validation.inputs import Array

ALL = 60_000
"""Definitions of up to this many iterations are run as a whole: about 0.05 s."""

SAMPLE = 100_000
"""The iterations for a sample of the elements: about 0.05 s."""

LEAST = 48
"""The number of elements that are computed even if they take more than that."""

MOST = 500_000
"""The iterations after which a sample ends in any case."""

BOUNDS = 600_000
"""The iterations for error bounds, each of which takes a few times as long."""

ALL_OR_NOTHING = 1_000_000
"""Definitions that cannot be sampled are run as a whole up to this many iterations."""

Wanted: TypeAlias = "Iterable[tuple[Buffer, int]]"
Found: TypeAlias = "dict[Buffer, dict[int, Any]]"
"""The value by output and position, or None if the definition writes nothing there."""


class Oracle(Struct, frozen=True, dict=True):
    """A definition that can be evaluated; `all` says that it is cheap enough to run as a whole."""

    func: PrimFunc
    all: bool

    @staticmethod
    def of(func: PrimFunc) -> Oracle:
        """Decide how elements are computed; raises `Unsolved` if every way is too expensive."""
        count = counted_iterations(func)
        if count <= ALL:
            return Oracle(func, True)
        oracle = Oracle(func, False)
        try:
            oracle.elements  # noqa: B018  whether it can be made
        except Unsolved as reason:
            if count > ALL_OR_NOTHING:
                raise Unsolved(f"{reason}, and all takes {count} iterations") from None
            return Oracle(func, True)
        return oracle

    @cached_property
    def elements(self) -> Elements:
        """The definition, for evaluating single elements."""
        return Elements.of(self.func)

    @cached_property
    def bounded(self) -> tuple[PrimFunc, dict[Buffer, Buffer]]:
        """The definition with error bounds, and the buffer of bounds of each output."""
        return with_errors(self.func)

    @cached_property
    def bounded_elements(self) -> Elements:
        """The definition with error bounds, for evaluating single elements."""
        return Elements.of(self.bounded[0])

    def values(self, arrays: Mapping[str, Array], wanted: Wanted) -> Found:
        """All elements; or of the `wanted` ones, in order, as many as the budget allows."""
        if self.all:
            return _run(self.func, arrays)
        found, _ = _evaluated(Evaluation(self.elements, _flat(arrays), MOST), wanted, SAMPLE)
        return found

    def bounds(self, arrays: Mapping[str, Array], wanted: Wanted) -> tuple[Found, int]:
        """The error bounds of the wanted elements, and how many were too expensive."""
        func, buffers = self.bounded
        asked = [(buffers[b], position) for b, position in wanted]
        try:
            evaluation = Evaluation(self.bounded_elements, _flat(arrays), BOUNDS)
        except Unsolved:
            found = _run(func, arrays)
            return {b: found[made] for b, made in buffers.items() if made in found}, 0
        found, missed = _evaluated(evaluation, asked)
        return {b: found[made] for b, made in buffers.items() if made in found}, missed

    def has_bounds(self, buffer: Buffer) -> bool:
        """Whether correct kernels may differ in elements of an output."""
        return buffer in self.bounded[1]


class _Written(dict[int, Any]):
    """The elements that were written; all others read as undefined."""

    def __init__(self, buffer: Buffer) -> None:
        super().__init__()
        self._undefined = undefined_value(buffer.dtype, float("nan"))

    def __missing__(self, position: int) -> Any:
        return self._undefined


def _run(func: PrimFunc, arrays: Mapping[str, Array]) -> Found:
    """Run all of `func`."""
    outputs = {b: _Written(b) for b in func.outputs}
    memory = {b: list(arrays[b.name].reshape(-1)) for b in func.inputs}
    with np.errstate(all="ignore"):
        compile_to_python(func)(*(memory.get(p.buffer, outputs.get(p.buffer)) for p in func.params))
    return {b: {k: held.get(k) for k in range(b.size)} for b, held in outputs.items()}


def _flat(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: array.reshape(-1) for name, array in arrays.items()}


def _evaluated(
    evaluation: Evaluation, wanted: Wanted, enough: int | None = None
) -> tuple[Found, int]:
    """Elements in the order in which they are wanted, and how many were not computed.

    The first `LEAST` elements are always computed, then more until `enough` iterations have been
    run.
    """
    found: Found = {}
    asked = list(wanted)
    stop = 0 if enough is None else evaluation.left - enough
    with np.errstate(all="ignore"):
        for number, (buffer, position) in enumerate(asked):
            if number >= LEAST and evaluation.left < stop:
                return found, len(asked) - number
            try:
                value = evaluation.element(buffer, position)
            except (OverBudget, RecursionError):
                return found, len(asked) - number
            found.setdefault(buffer, {})[position] = value
    return found, 0
