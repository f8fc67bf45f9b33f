"""The steps of a program: which kernel runs on which memory, how often, and what comes next.

In: symbols and places in the blocks of a program's memory.  Out: frozen data.  What always holds:
nothing here knows what a kernel computes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from graphflow.base.fields import Signed

Space: TypeAlias = Literal["arena", "constant", "input", "output"]


class BufferRef(Struct, frozen=True):
    """The memory of a kernel parameter.

    `position` is a byte offset (a multiple of 64) for "arena" and "constant", and the index of a
    graph input or output for "input" and "output". The parameter begins `offset` bytes behind that.
    """

    space: Space
    position: int
    offset: int = 0


class ProgramStep(Struct, frozen=True):
    """One kernel call of the program.

    `extent` is the number of iterations of the kernel's parallel loop (1: sequential, 0: nothing to
    do).  At most `threads` threads (0: all of the program's) get equal shares of the iterations; a
    thread that finishes its share takes iterations from the others.  That saves `saved` nanoseconds
    by estimate if all iterations are executed, each for the most of the sizes `within`.  If it
    `meets`, the kernel is in phases: each thread executes its share by one call, in which it meets
    the others.
    """

    symbol: str
    buffers: tuple[BufferRef, ...]
    extent: int
    threads: int = 0
    portion: Portion | None = None
    jump: StepJump | None = None
    meets: bool = False
    saved: int = 0
    within: tuple[SizeWithin, ...] = ()

    def workers(self, threads: int) -> int:
        """How many of the program's `threads` threads get iterations of this step."""
        return min(self.threads or threads, threads, self.extent)


class SizeWithin(Struct, frozen=True):
    """A size with which the work of each iteration of a step grows: the value of input number
    `input`, which is from 0 to `most`."""

    input: int
    most: int


class StepJump(Struct, frozen=True):
    """Where a run goes on behind a step, if the bool at `flag` is `when` then.

    That is `distance` steps behind the step, or before it if `distance` is negative; otherwise the
    run goes on with the next step.  The target lies between the same sections as the step.
    """

    flag: BufferRef
    when: bool
    distance: Signed


class PortionDigit(Struct, frozen=True):
    """A digit of the numbers of a step's iterations: from 0 to `count` - 1.

    A run executes the iterations in which it is below ceil(count · n / most), where n is the value
    of input number `input`, or the int64 that is at `place` when the step is reached; both are from
    0 to `most`.  It executes those with any digit where there is neither.
    """

    count: int
    input: int | None = None
    most: int = 1
    place: BufferRef | None = None

    @staticmethod
    def by(holder: BufferRef, count: int, most: int) -> PortionDigit:
        """The digit of which a run executes a part by the size at `holder`: that of an input is
        known before the first step."""
        if holder.space == "input":
            return PortionDigit(count, holder.position, most)
        return PortionDigit(count, None, most, holder)

    @property
    def holder(self) -> BufferRef | None:
        """Where the size lies; None where there is none."""
        return self.place if self.input is None else BufferRef("input", self.input)

    def executed(self, values: Mapping[int, int]) -> int:
        """How many values of the digit a run has at most in which inputs hold `values`."""
        if self.input is None:
            return self.count
        return -(-self.count * values[self.input] // self.most)


class Portion(Struct, frozen=True):
    """The part of a step's iterations that a run executes.

    The number of an iteration has these `digits`, the most significant one first; the iterations
    are as many as the product of the counts.
    """

    digits: tuple[PortionDigit, ...]

    @property
    def places(self) -> tuple[BufferRef, ...]:
        """Where sizes lie that other steps of a run write: what is executed is known only when the
        run reaches the step."""
        return tuple(digit.place for digit in self.digits if digit.place is not None)

    @property
    def extent(self) -> int:
        """The iterations of the step."""
        return math.prod(digit.count for digit in self.digits)

    def executed(self, values: Mapping[int, int]) -> int:
        """How many iterations a run executes in which inputs hold `values`."""
        return math.prod(digit.executed(values) for digit in self.digits)


class SharingPrices(Struct, frozen=True):
    """What it takes to share steps, in nanoseconds by estimate: that threads meet behind one, and
    that a run wakes those beside the caller."""

    meeting: int = 0
    waking: int = 0


class Signature(Struct, frozen=True):
    """The limits of a kernel's arguments, against which steps are checked.

    `extent` is the most iterations of its parallel loop, `sizes` the number of bytes that it may
    access behind the address of each parameter.
    """

    extent: int
    sizes: tuple[int, ...]
