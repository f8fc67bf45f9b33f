"""Loops and buffers of statements that a recipe adds to a band of rows; their names are new.

In: the names that a kernel has, and the lanes of its vectors.  Out: a `BandCode`, which makes loops
and buffers.  What always holds: nothing of one has a name that the kernel or another one has, and
`allocations` allocates each buffer that was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from graphflow import tir
from graphflow.arith import IndexExpr, Var, const
from graphflow.schedule import fresh_copy, fresh_name

MOST_CHAINS = 8
"""Accumulators that are used side by side; a vector of one waits ten cycles for the one before."""

Loop: TypeAlias = tuple[Var, int, tir.LoopKind]
"""The variable of a loop from 0 on, its extent and its kind."""


class BandCode:
    """Loops and buffers with new names, for vectors of `lanes`."""

    def __init__(self, taken: set[str], lanes: int) -> None:
        self.lanes = lanes
        self._taken = taken
        self._made: list[tir.Buffer] = []

    @property
    def allocations(self) -> tir.Body:
        """The allocations of all buffers that were made."""
        return tuple(tir.Allocate(buffer) for buffer in self._made)

    def scalar(self, name: str, dtype: str = "int64") -> tir.Buffer:
        """A register of one number."""
        return self.buffer(name, (), dtype)

    def buffer(
        self,
        name: str,
        shape: tuple[int, ...],
        dtype: str = "float32",
        scope: tir.Scope = "register",
    ) -> tir.Buffer:
        """A buffer called `name`, or like that."""
        buffer = tir.Buffer(self._fresh(name), shape, dtype, scope)
        self._made.append(buffer)
        return buffer

    def loop(self, name: str, extent: int, kind: tir.LoopKind = tir.LoopKind.SERIAL) -> Loop:
        """A loop whose variable is called `name`, or like that."""
        return Var(self._fresh(name)), extent, kind

    def vector(self, name: str, lanes: int) -> Loop:
        """A loop over the lanes of a vector."""
        return self.loop(name, lanes, tir.LoopKind.VECTORIZED)

    def unrolled(self, name: str, count: int) -> Loop:
        """A loop over accumulators, which is unrolled where these are few."""
        kind = tir.LoopKind.UNROLLED if count <= MOST_CHAINS else tir.LoopKind.SERIAL
        return self.loop(name, count, kind)

    def in_vectors(self, name: str, extent: int, stmt: Callable[[IndexExpr], tir.Stmt]) -> tir.Body:
        """The statement for each number below `extent`, in vectors, and in a shorter one at the
        end."""
        made = list[tir.Stmt]()
        for begin, count, width in (
            (0, extent // self.lanes, self.lanes),
            (extent // self.lanes * self.lanes, 1, extent % self.lanes),
        ):
            if count and width:
                part, lane = self.loop(name, count), self.vector(f"{name}_v", width)
                made += nested((part, lane), (stmt(part[0] * width + lane[0] + begin),))
        return tuple(made)

    def copied(self, body: tir.Body, suffix: str) -> tir.Body:
        """Statements with new names in the place of those that they declare."""
        copy, names = fresh_copy(body, suffix, self._taken)
        self._taken.update(names.values())
        return copy

    def _fresh(self, wanted: str) -> str:
        name = fresh_name(wanted, self._taken.__contains__)
        self._taken.add(name)
        return name


def nested(loops: Sequence[Loop], body: tir.Body) -> tir.Body:
    """Statements in loops from 0 on, without those that run once."""
    for var, extent, kind in reversed(loops):
        if extent == 1:
            body = tir.substitute_body(body, {var: const(0)})
        else:
            body = (tir.For(var, const(0), const(extent), kind, body),)
    return body
