"""The constants of a program: a block of memory, and parts of other programs' blocks.

In: a `ProgramSpec`, initial constants and the steps that prepare others from them, or a block that
was prepared before.  What always holds: a block that does not fit the program raises; after
`prepare` nothing writes into a block, so programs can share it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import VerifyError
from graphflow.program import ALIGNMENT, ProgramSpec, ProgramStep
from graphflow.runtime.aligned_memory import data_address, is_usable, release, store, zeroed_block
from graphflow.runtime.native_code import NativeCode

LET_GO_AT_ONCE = 4 << 20
"""The bytes of initial constants at which `prepare` stops for letting go of them.  Measured on the
102 MB of resnet50, two threads of a Cascade Lake, nine times: 91 ms at the least and 106 in the
median; 97 and 101 without stops."""


@dataclass(frozen=True, slots=True)
class Borrowed:
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


@dataclass(frozen=True, slots=True)
class ConstantBlock:
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
    spec: ProgramSpec, code: NativeCode, borrowed: Borrowed, initial: dict[int, NDArray[Any]]
) -> ConstantBlock:
    """The constant block after `prepare`, without the part that only `prepare` needs.

    `initial` has the constants of `spec` by their positions.  Those of that part are read where
    they are, if kernels can: nothing writes into them.  Each is taken out of `initial` when no
    later step reads it, so that weights to which nothing else refers are not in memory twice.
    """
    block = zeroed_block(spec.constant_bytes)
    apart = borrowed.places
    for offset in [*initial]:
        if offset in borrowed.parts:
            del initial[offset]
        elif offset >= spec.run_constant_bytes and is_usable(initial[offset]):
            apart[offset] = data_address(initial[offset])
        else:
            store(block, offset, initial.pop(offset))
    steps = tuple(step for k, step in enumerate(spec.prepare) if k not in borrowed.steps)
    if steps:
        parts = [*_until_let_go(steps, {offset: array.nbytes for offset, array in initial.items()})]
        tables = [code.table(part, block, apart) for part, _ in parts]
        # Its own arena, dropped afterwards: those of the runs start out as zeros.
        arena = code.arena(spec, tables)
        for table, job, (_, read) in zip(tables, arena.jobs, parts, strict=True):
            code.walk(arena, table, job)
            for offset in read:
                del initial[offset]
    release(block, spec.run_constant_bytes)
    return ConstantBlock(block, borrowed)


def _until_let_go(
    steps: Sequence[ProgramStep], sizes: Mapping[int, int]
) -> Iterator[tuple[tuple[ProgramStep, ...], list[int]]]:
    """The steps in parts, each with the constants that it is the last one to read; a part but the
    last ends where these have `LET_GO_AT_ONCE` bytes.  `sizes` has the bytes of constants by their
    positions."""
    last = {
        ref.position: number
        for number, step in enumerate(steps)
        for ref in step.buffers
        if ref.space == "constant" and ref.position in sizes
    }
    first, read = 0, list[int]()
    for number, step in enumerate(steps):
        here = {ref.position for ref in step.buffers if ref.space == "constant"}
        read += (position for position in sorted(here) if last.get(position) == number)
        if number == len(steps) - 1 or sum(sizes[p] for p in read) >= LET_GO_AT_ONCE:
            yield tuple(steps[first : number + 1]), read
            first, read = number + 1, []


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
