"""Count the kernels of the finished program that only move elements.

In: a `Compiled` model.  Out: a `Movement` with the counts.  What always holds: executed steps are
counted, not planned ones, and by their kernels, whatever operator they came from.
"""

from __future__ import annotations

from msgspec import Struct

from graphflow import tir
from graphflow.pipeline.compiler import Compiled
from graphflow.program import ProgramStep


class Movement(Struct, frozen=True):
    """Counts of executed kernels that only move or fill elements.

    `boundary` ones touch a graph input or output, `inner` ones do not; `fills` write constants
    only; `folded` is the number of steps that run once, before the first run.
    """

    boundary: int
    inner: int
    fills: int
    folded: int

    @property
    def conversions(self) -> int:
        """All executed kernels that move elements."""
        return self.boundary + self.inner


def movement(compiled: Compiled) -> Movement:
    """The counts for the steps of the program; those of poison mode are left out."""
    kinds = {
        symbol: movement_kind(kernel.func) for symbol, kernel in compiled.lowered.kernels.items()
    }
    own_inputs = len(compiled.imported.inputs)
    steps = [step for step in compiled.spec.run if not _poisons(step, own_inputs)]
    # A foreign section is no kernel and counts as computing.
    moving = [step for step in steps if kinds.get(step.symbol) == "move"]
    boundary = sum(any(ref.space in ("input", "output") for ref in step.buffers) for step in moving)
    return Movement(
        boundary=boundary,
        inner=len(moving) - boundary,
        fills=sum(kinds.get(step.symbol) == "fill" for step in steps),
        folded=len(compiled.spec.prepare),
    )


def movement_kind(func: tir.PrimFunc) -> str:
    """The kind of a kernel: `move`, `fill` or `compute`.

    `fill` if every write stores a constant, `move` if every write stores a loaded element or a
    constant, else `compute`.
    """
    moved = False
    for write in tir.writes_in(func.body):
        if not isinstance(write, tir.Store) or not _is_moved(write.value):
            return "compute"
        moved = moved or any(isinstance(part, tir.Load) for part in tir.walk_expr(write.value))
    return "move" if moved else "fill"


def _is_moved(value: tir.Expr) -> bool:
    match value:
        case tir.Load() | tir.Literal() | tir.Undef():
            return True
        case tir.Select(condition, if_true, if_false):
            return tir.is_predicate(condition) and _is_moved(if_true) and _is_moved(if_false)
        case _:
            return False


def _poisons(step: ProgramStep, own_inputs: int) -> bool:
    """Whether a step belongs to poison mode: it reads an input that is not the model's."""
    return any(ref.space == "input" and ref.position >= own_inputs for ref in step.buffers)
