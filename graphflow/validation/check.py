"""Validation of one kernel: a native run on generated inputs is compared with the definition.

In: a lowered kernel and its object code.  Out: a `Check`: what was compared, why nothing was
compared, or what differs.  What always holds: the same kernel gives the same check; times are not
part of it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any, Literal, TypeAlias

import numpy as np
from msgspec import Struct

from graphflow.base.fields import replace
from graphflow.base.trace import Trace
from graphflow.kernels.lowering import LoweredKernel, Repeated
from graphflow.kernels.recipes import Recipe, Scheduled, Tiled
from graphflow.tir import DTYPES, Buffer, to_text, undefined_value
from graphflow.validation.compare import (
    ComparisonCounts,
    Differs,
    Disagree,
    RunPair,
    compare_places,
    compare_values,
)
from graphflow.validation.elements import Unsolved
from graphflow.validation.expected import Found, Oracle
from graphflow.validation.inputs import Array, AssumedInputs, Kind, logical_inputs
from graphflow.validation.native import LinkedKernel, Slices, Trespass, one_slice, three_slices
from graphflow.validation.padding_contents import FILL, check_claims, relied_on
from graphflow.validation.parameter_positions import PlacedParameter, placed_params
from graphflow.validation.sampled_elements import samples

MOST_BYTES = 2 << 30
"""The most bytes of a kernel's parameters, which are allocated several times over."""

MOST_SPECIAL_BYTES = 256 << 20
"""The most bytes of parameters for which special inputs are tried too; making them takes
seconds."""

ROUNDS = ("ordinary", "special")

UNDEFINED = (float("nan"), 7.5e29)
"""What undefined padding holds in each of the two runs; workspaces hold NaN in both."""

BEFORE = {
    "f": (-1234.5, 4321.25), "i": (-77, 93), "u": (77, 93), "b": (True, False), "V": (1, 0),
}  # fmt: skip
"""What outputs hold before each of the two runs, by kind of dtype.

A position was written if it holds something else afterwards.
"""

CheckTask: TypeAlias = "tuple[LoweredKernel, bytes]"


Coverage: TypeAlias = Literal["all", "sampled", "none"]
"""Which elements of a kernel's outputs are compared."""


class Check(Struct, frozen=True):
    """The result of validating one kernel.

    method: `all` elements, `sampled` ones, or `none`, for a `reason`.
    compared: elements that were compared, over all rounds.
    rounded: those of them that differ within their error bounds.
    unjudged: those for which rounding decides, or bounds take too long.
    rounds: the kinds of inputs that were tried.
    difference: what is wrong; None if the kernel does what its definition says.
    """

    symbol: str
    method: Coverage
    compared: int = 0
    rounded: int = 0
    unjudged: int = 0
    rounds: tuple[str, ...] = ()
    reason: str | None = None
    difference: str | None = None


def check_kernel(task: CheckTask, trace: Trace) -> Check:
    """Validate one kernel; the time is recorded in the trace."""
    kernel, code = task
    with trace.timer("validate", kernel.symbol):
        try:
            return Checker(kernel, code).check()
        except Unsolved as reason:
            return Check(kernel.symbol, "none", reason=str(reason))


class Checker:
    """The state of validating one kernel."""

    def __init__(self, kernel: LoweredKernel, code: bytes) -> None:
        """Raises `Unsolved` if the kernel would take too much time or memory."""
        self.kernel = kernel
        self.definition = kernel.task.definition
        taken = sum(p.buffer.bytes for p in kernel.func.params)
        if taken > MOST_BYTES:
            raise Unsolved(f"its buffers take {taken >> 20} MB, at most {MOST_BYTES >> 20} are run")
        self.oracle = Oracle.of(self.definition)
        self.placed = {placed.buffer: placed for placed in placed_params(kernel.task)}
        self.assumed = _assumed(kernel.task.recipe)
        self.native = LinkedKernel(kernel, code)
        self.positive = False
        """Whether floats are positive: for most others the results would not be numbers."""
        # Of the text, so that it does not depend on how kernels are numbered.
        self.seed = zlib.crc32(to_text(self.definition).encode())
        self.large = taken > MOST_SPECIAL_BYTES

    def check(self) -> Check:
        """Run one round after the other, until one shows a difference."""
        so_far = Check(self.kernel.symbol, "all" if self.oracle.all else "sampled")
        for name in ROUNDS[:1] if self.large else ROUNDS:
            try:
                so_far = self.round(name, so_far)
            except (Differs, Trespass) as difference:
                return replace(so_far, difference=f"{difference} ({name} inputs)")
        return so_far

    def round(self, name: str, so_far: Check) -> Check:
        """Run and compare with inputs of one kind; returns `so_far` extended by the results."""
        ordinary = name == ROUNDS[0]
        arrays, expected = self.ordinary() if ordinary else self.expected(special=True)
        if ordinary and relied_on(self.kernel.task, self.placed.values()):
            memory = self.run(arrays, 0, one_slice(self.kernel.extent), undefined=FILL)
            check_claims(self.kernel.task, self.placed, arrays, memory)
        results = list(self.compared(arrays, expected))
        counts = [(r.equal + r.rounded + r.unjudged, r.rounded, r.unjudged) for r in results]
        compared, rounded, unjudged = (sum(column) for column in zip(*counts, strict=True))
        return replace(
            so_far,
            compared=so_far.compared + compared,
            rounded=so_far.rounded + rounded,
            unjudged=so_far.unjudged + unjudged,
            rounds=(*so_far.rounds, name),
        )

    def ordinary(self) -> tuple[dict[str, Array], Found]:
        """Inputs for which most results are finite, if there are such, and the expected results."""
        first = self.expected()
        if _mostly_finite(first[1]):
            return first
        self.positive = True
        second = self.expected()
        self.positive = _mostly_finite(second[1])
        return second if self.positive else first

    def expected(self, special: bool = False) -> tuple[dict[str, Array], Found]:
        """Logical inputs and the results of the definition.

        For `special` inputs other elements are sampled.  Raises `Unsolved` if not even one element
        can be computed.
        """
        seed = self.seed + special
        # Some instructions of a target that flushes denormals do so whatever is asked of them.
        kind = Kind(self.positive, special, not self.kernel.task.target.flushes_denormals)
        arrays = logical_inputs(self.definition, kind, self.assumed, seed)
        wanted = [] if self.oracle.all else self.wanted(seed)
        values = self.oracle.values(arrays, wanted)
        if wanted and not any(map(len, values.values())):
            raise Unsolved("one element takes more iterations than a sample may")
        return arrays, values

    def wanted(self, seed: int) -> list[tuple[Buffer, int]]:
        """The elements to compare; those of several outputs alternate."""
        lists = [
            [(b, position) for position in samples(self.kernel.func, self.placed[b], seed)]
            for b in self.definition.outputs
        ]
        return [pair for row in zip_longest(*lists) for pair in row if pair is not None]

    def compared(self, arrays: Mapping[str, Array], expected: Found) -> Iterator[ComparisonCounts]:
        """Run natively and compare each output."""
        extent = self.kernel.extent
        first = self.run(arrays, 0, one_slice(extent))
        second = self.run(arrays, 1, three_slices(extent))
        for buffer in self.definition.outputs:
            placed = self.placed[buffer]
            name = buffer.name
            before = BEFORE[first[name].dtype.kind]
            runs = RunPair(first[name], second[name], before)
            try:
                compare_places(placed, runs)
            except Disagree as difference:
                raise Differs(f"{difference}: {self.cause(arrays, first, placed)}") from None
            yield compare_values(placed, runs, expected.get(buffer, {}), self.oracle, arrays)

    def run(
        self,
        arrays: Mapping[str, Array],
        number: int,
        slices: Slices,
        before: int | None = None,
        undefined: float | None = None,
    ) -> dict[str, Array]:
        """The outputs of run `number`.

        before: the run whose initial output contents are used, if it is another one.
        undefined: what undefined padding of the inputs holds, if not the value of this run.
        """
        free = UNDEFINED[number] if undefined is None else undefined
        packed = {}
        for buffer in self.definition.inputs:
            value = undefined_value(buffer.dtype, free)
            packed[buffer.name] = self.placed[buffer].packed(arrays[buffer.name], value)
        held: dict[str, Any] = {
            b.name: BEFORE[np.dtype(b.dtype).kind][number if before is None else before]
            for b in self.definition.outputs
        }
        if (one := self.kernel.task.repeated) is not None:
            held[one.target] = self.repeated(one, packed[one.source], held[one.target])
        return self.native.run(packed, held, slices)

    def repeated(self, one: Repeated, given: Array, behind: float) -> Array:
        """The memory of an output that holds an input already; `behind` is in all other places."""
        func = self.definition
        source, target = func.param(one.source), func.param(one.target)
        memory = np.full(target.shape, behind, DTYPES[target.dtype])
        memory[tuple(map(slice, source.shape))] = given.reshape(source.shape)
        return memory

    def cause(
        self, arrays: Mapping[str, Array], first: Mapping[str, Array], placed: PlacedParameter
    ) -> str:
        """Why two runs differ, found by changing one of their differences at a time."""
        extent, name = self.kernel.extent, placed.buffer.name
        elements = placed.positions

        def same(other: Mapping[str, Array]) -> bool:
            kept = [memory[name][elements].tobytes() for memory in (first, other)]
            return kept[0] == kept[1]

        if not same(self.run(arrays, 1, one_slice(extent), before=0)):
            return "it depends on padding that is undefined"
        if not same(self.run(arrays, 0, one_slice(extent), before=1)):
            return "it depends on what its output held before"
        return "it depends on the slices in which its parallel loop is run"


def _assumed(recipe: Recipe) -> AssumedInputs:
    match recipe:
        case Tiled():
            return AssumedInputs(frozenset(recipe.finite), frozenset(recipe.excludes_negative_zero))
        case Scheduled():
            return AssumedInputs(frozenset(recipe.finite))
        case _:
            return AssumedInputs()


def _mostly_finite(expected: Found) -> bool:
    """Whether at least three quarters of the floats are numbers."""
    values: list[Any] = [
        value
        for buffer, elements in expected.items()
        if np.dtype(buffer.dtype).kind == "f"
        for value in elements.values()
        if value is not None
    ]
    return 4 * int(np.isfinite(np.array(values, np.float64)).sum()) >= 3 * len(values)
