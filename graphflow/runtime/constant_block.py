"""The constants of a program: a block of memory, and parts of other programs' blocks.

In: a `ProgramSpec`, initial constants and the steps that prepare others from them, or a block that
was prepared before.  What always holds: a block that does not fit the program raises; after
`prepare` nothing writes into a block, so programs can share it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from graphflow.base.errors import VerifyError
from graphflow.program import ALIGNMENT, BufferRef, ProgramSpec, ProgramStep
from graphflow.runtime.aligned_memory import (
    data_address,
    release,
    store,
    usable,
    zeroed_block,
)
from graphflow.runtime.native_code import NativeCode

LET_GO_AT_ONCE = 4 << 20
"""The bytes of initial constants at which `prepare` stops for letting go of them.  Measured on the
102 MB of resnet50, two threads of a Cascade Lake, nine times: 91 ms at the least and 106 in the
median; 97 and 101 without stops."""


class Rereadable(Protocol):
    """A constant that is read when it is needed."""

    @property
    def nbytes(self) -> int:
        """The bytes of all elements."""

    def read(self) -> NDArray[Any]:
        """Its contents; an error if they cannot be had any more."""


Initial: TypeAlias = "dict[int, NDArray[Any] | Rereadable]"
"""The constants of a program before `prepare`, by their positions in the block."""


class Borrowed(Struct, frozen=True):
    """Constants of a program that lie in blocks of others: `parts` their bytes by position, `steps`
    the numbers of the steps of `prepare` that would make some of them."""

    parts: Mapping[int, NDArray[np.uint8]] = field(default_factory=dict)
    steps: frozenset[int] = frozenset()

    @property
    def places(self) -> dict[int, int]:
        """The addresses of the parts, by their positions in the block."""
        return {position: data_address(part) for position, part in self.parts.items()}


NOTHING_BORROWED = Borrowed()
"""All constants lie in the program's own block."""


class ConstantBlock(Struct, frozen=True):
    """Constants as `prepare` left them: `memory`, and `borrowed` what others' blocks have of it."""

    memory: NDArray[np.uint8]
    borrowed: Borrowed

    def part(self, position: int, nbytes: int) -> NDArray[np.uint8]:
        """The bytes of one of the constants that runs read, in place."""
        part = self.borrowed.parts.get(position)
        return self.memory[position : position + nbytes] if part is None else part

    def read_by_runs(self, nbytes: int) -> NDArray[np.uint8]:
        """The first `nbytes`, read-only; a copy, where some of them are borrowed."""
        view = self.memory[:nbytes]
        if self.borrowed.parts:
            view = view.copy()
            for position, part in self.borrowed.parts.items():
                view[position : position + len(part)] = part
        view.flags.writeable = False
        return view

    def shared_with(self, spec: ProgramSpec, owner: ProgramSpec) -> ConstantBlock:
        """The block of one program for another; VerifyError if their sizes differ."""
        sizes = (owner.constant_bytes, owner.run_constant_bytes)
        if sizes != (spec.constant_bytes, spec.run_constant_bytes):
            raise VerifyError(
                f"a program with {spec.constant_bytes} bytes of constants, of which runs read "
                f"{spec.run_constant_bytes}, cannot share those of one with {sizes[0]} and "
                f"{sizes[1]}"
            )
        return self


def prepare_constants(
    spec: ProgramSpec, code: NativeCode, borrowed: Borrowed, initial: Initial
) -> ConstantBlock:
    """The constant block after `prepare`, without the part that only `prepare` needs.

    `initial` has the constants of `spec`.  Those of that part are read where they are, if kernels
    can, and else where they are copied to just before: nothing writes into them.  Each is taken out
    of `initial` when no later step reads it, so that weights to which nothing else refers are not
    in memory twice.  Memory of what is made on the way is returned, too.
    """
    block = zeroed_block(spec.constant_bytes)
    steps = tuple(step for k, step in enumerate(spec.prepare) if k not in borrowed.steps)
    read = {ref.position for step in steps for ref in _constants(step)}
    for offset in [*initial]:
        if offset in borrowed.parts:
            del initial[offset]
        elif offset < spec.run_constant_bytes:
            store(block, offset, _contents(initial.pop(offset)))
        elif offset not in read:
            del initial[offset]
    for part in _until_let_go(steps, initial, spec):
        held = {offset: usable(_contents(initial[offset])) for offset in part.reads}
        apart = {offset: data_address(array) for offset, array in held.items()}
        table = code.table(part.steps, block, borrowed.places | apart)
        # Its own arena, in which steps of `prepare` leave nothing for later ones: those of the runs
        # start out as zeros.
        arena = code.arena(spec, [table])
        code.walk(arena, 0)
        held.clear()
        for offset in part.lasts:
            del initial[offset]
        release(block, max(part.used_behind, spec.run_constant_bytes))
    release(block, spec.run_constant_bytes)
    return ConstantBlock(block, borrowed)


def _contents(constant: NDArray[Any] | Rereadable) -> NDArray[Any]:
    return constant if isinstance(constant, np.ndarray) else constant.read()


class _StepsAtOnce(Struct, frozen=True):
    """Steps that are executed before constants are let go of: by position those that they read, and
    of these the ones that no later step reads; `used_behind` is where the part of the block ends
    that later steps use."""

    steps: tuple[ProgramStep, ...]
    reads: frozenset[int]
    lasts: tuple[int, ...]
    used_behind: int


def _constants(step: ProgramStep) -> Iterator[BufferRef]:
    return (ref for ref in step.buffers if ref.space == "constant")


def _until_let_go(
    steps: Sequence[ProgramStep], initial: Initial, spec: ProgramSpec
) -> list[_StepsAtOnce]:
    """The steps in parts; each but the last ends where `LET_GO_AT_ONCE` bytes are let go of: of
    `initial` constants, and of what the block has for steps."""
    sizes = {position: constant.nbytes for position, constant in initial.items()}
    reads = [{ref.position for ref in _constants(step)} & sizes.keys() for step in steps]
    last = {position: number for number, here in enumerate(reads) for position in here}
    behind = [0]  # where the part ends that later steps use, of the last step first
    for step in reversed(steps[1:]):
        behind.append(max(behind[-1], _used_by(step, sizes, spec)))
    parts, begin, lasts, highest = list[_StepsAtOnce](), 0, list[int](), 0
    for number, (step, used_behind) in enumerate(zip(steps, reversed(behind), strict=False)):
        lasts += (position for position in sorted(reads[number]) if last[position] == number)
        highest = max(highest, used_behind, _used_by(step, sizes, spec))
        freed = sum(sizes[position] for position in lasts) + highest - used_behind
        if number == len(steps) - 1 or freed >= LET_GO_AT_ONCE:
            here = steps[begin : number + 1]
            read = frozenset(position for one in reads[begin : number + 1] for position in one)
            parts.append(_StepsAtOnce(tuple(here), read, tuple(lasts), used_behind))
            begin, lasts, highest = number + 1, [], used_behind
    return parts


def _used_by(step: ProgramStep, apart: Container[int], spec: ProgramSpec) -> int:
    """Where the last byte of the block ends that a step may use, without the constants that lie
    `apart`; the end of the block, where that is not known."""
    signature = spec.signatures.get(step.symbol)
    if signature is None:
        return spec.constant_bytes
    ends = (
        ref.position + ref.offset + size
        for ref, size in zip(step.buffers, signature.sizes, strict=True)
        if ref.space == "constant" and ref.position not in apart
    )
    return max(ends, default=0)


def prepared_before(
    spec: ProgramSpec, prepared: NDArray[np.uint8], borrowed: Borrowed
) -> ConstantBlock:
    """A block for a program without `prepare`; VerifyError if it does not fit."""
    if spec.prepare or spec.constants or len(prepared) != spec.constant_bytes:
        raise VerifyError(
            f"{len(prepared)} bytes of prepared constants do not fit a program with "
            f"{spec.constant_bytes} bytes, {len(spec.constants)} initial constants and "
            f"{len(spec.prepare)} steps that prepare them"
        )
    if len(prepared) and data_address(prepared) % ALIGNMENT:
        raise VerifyError(f"prepared constants must begin at a multiple of {ALIGNMENT} bytes")
    return ConstantBlock(prepared, borrowed)
