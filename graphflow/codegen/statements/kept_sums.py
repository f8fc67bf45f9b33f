"""Sums of matrix products that stay in matrix registers while a loop runs.

In: a loop, or a body that begins with one.  Out: the context in which to emit the loop, within
which `MatrixRegisters` has the sums.  What always holds: nothing is kept in a part that has a
product which no instruction of the target performs, as that one reads and writes memory.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from graphflow import tir
from graphflow.codegen.instruction_set import instruction_for
from graphflow.codegen.matrices import (
    MatrixWindow,
    begun_sums,
    is_matrix_product,
    matrix_window,
    sums_of_products,
)
from graphflow.codegen.memory import Address
from graphflow.codegen.statements.part_writers import PartWriters


class KeptSums:
    """The sums that loops of one part keep in registers."""

    def __init__(self, writers: PartWriters) -> None:
        self._memory, self._matrices = writers.memory, writers.matrices
        calls = tir.calls_in(writers.func.body)
        products = [call for call in calls if is_matrix_product(call.definition)]
        performed = [instruction_for(call, writers.target) is not None for call in products]
        self.in_matrices = bool(performed) and all(performed)
        """Whether the part has matrix products, and all of them are in matrix registers."""

    def while_running(self, loop: tir.For) -> AbstractContextManager[None] | None:
        """In which to emit a loop whose sums stay in registers while it runs.

        None where it does more than such products, where which sums they add to changes from
        iteration to iteration, and where it runs in a loop that keeps them already.
        """
        if self._matrices.is_keeping or not self.in_matrices:
            return None
        sums = [self._window(window, shape) for window, shape in sums_of_products(loop) or ()]
        return self._matrices.keeping(sums) if sums else None

    def begun_by(self, body: tir.Body) -> AbstractContextManager[None] | None:
        """In which to emit the second statement of a body, a loop of matrix products, where the
        first one is a loop that fills their sums, and is left out; None where a body begins with
        anything else."""
        if not self.in_matrices or len(body) < 2 or self._matrices.is_keeping:
            return None
        begun = begun_sums(body[0], body[1])
        if begun is None:
            return None
        sums: list[MatrixWindow] = []
        rows: list[Address | None] = []
        for (window, shape), row in begun:
            sums.append(self._window(window, shape))
            address = None if row is None else self._memory.window(row, shape[1:])
            if row is not None and (address is None or address.place.local):
                return None
            rows.append(address)
        return self._matrices.keeping(sums, rows)

    def _window(self, window: tir.BufferWindow, shape: tuple[int, ...]) -> MatrixWindow:
        return matrix_window(self._memory.address(window.buffer, window.starts), window, shape)
