"""A lowered program: its kernels, its steps and its memory.

In: what `lower` decided.  Out: a `Lowered`, of which `assemble` makes a `ProgramSpec`.  What always
holds: a control region's kernels and constants are those of the program around it too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from msgspec import Struct

from graphflow.graph import Array
from graphflow.kernels.lowering import LoweredKernel
from graphflow.lower.states import StatePair
from graphflow.physical import PhysicalCall, PhysicalGraph
from graphflow.program import BufferRef, ProgramStep
from graphflow.tir import Buffer

MOST_NAMED = 4
"""The most calls of one kernel that a message names."""


class ConstantShift(Struct, frozen=True):
    """Where the constants of a part of a program lie in the constant block of the whole one: the
    first `kept_bytes` from `kept` on, and the others from `rest` on."""

    kept_bytes: int
    kept: int
    rest: int

    def moved(self, position: int) -> int:
        """The position in the block of the whole program."""
        if position < self.kept_bytes:
            return self.kept + position
        return self.rest + position - self.kept_bytes


class Lowered(Struct, frozen=True, dict=True):
    """The lowered program: kernels by symbol, calls with their steps, and the memory of each
    storage.

    Runs touch only the first `kept_bytes` of the constant block; the rest is used by `prepare`
    alone, and from `scratch_place` on storages that one call of it writes take turns.  `physical`
    is the graph that was lowered, with the tensors inside others at their own origins
    (`window_origins.py`).  `states` has for each input that an output repeats the step to execute
    where both are one memory; None where they cannot be.  `workspaces` are the scratch buffers of
    each call of the physical graph; a call of a control region has the steps of its parts.
    `inner` are the programs of these parts, and where their constants lie in the block.
    """

    kernels: Mapping[str, LoweredKernel]
    calls: tuple[tuple[PhysicalCall, ProgramStep], ...]
    places: Mapping[str, BufferRef]
    arena_bytes: int
    constant_bytes: int
    kept_bytes: int
    scratch_place: int
    physical: PhysicalGraph
    states: tuple[tuple[StatePair, ProgramStep | None], ...] = ()
    workspaces: tuple[tuple[Buffer, ...], ...] = ()
    inner: tuple[tuple[Lowered, ConstantShift], ...] = ()

    @cached_property
    def outputs(self) -> Mapping[str, tuple[Buffer, ...]]:
        """What the kernel of each call of a run writes, by the name of the call: partial results of
        its output too, which are behind those of the node."""
        return {call.name: call.definition.outputs for call, _ in self.calls if not call.prepare}

    def contents(self) -> Iterator[tuple[int, Array]]:
        """The contents of the constants before `prepare`, by their positions in the block."""
        for name, spec in self.physical.storages.items():
            if spec.contents is not None:
                yield self.places[name].position, spec.contents
        for lowered, shift in self.inner:
            for position, array in lowered.contents():
                yield shift.moved(position), array

    def describe(self, symbol: str) -> str:
        """A kernel in words: symbol, the calls that run it, variant."""
        calls = [call for call, step in self.calls if step.symbol == symbol]
        repeating = (pair.call for pair, _ in self.states if pair.symbol == symbol)
        calls += [self.physical.calls[number] for number in repeating]
        names = [call.name for call in calls[:MOST_NAMED]]
        more = f" and {len(calls) - len(names)} more" if len(calls) > len(names) else ""
        variant = calls[0].variant
        kernel = self.kernels[symbol]
        made = (
            type(kernel.task.recipe).__name__.lower()
            if variant is None
            else f"variant {variant.name}"
        )
        return f"{symbol} ({', '.join(names)}{more}; {made})"
