"""Which kernels of the finished program only move elements, and what they move.

In: a lowered program.  Out: counts.  What always holds: they are counted on what is executed, not
on what was planned, whatever operator a kernel came from.
"""

from __future__ import annotations

from dataclasses import dataclass

from graphflow.pipeline.compiler import Compiled
from graphflow.program import ProgramStep
from graphflow.tir import (
    Expr,
    Literal,
    Load,
    PrimFunc,
    Select,
    Store,
    Undef,
    is_predicate,
    walk_expr,
    writes_in,
)


@dataclass(frozen=True, slots=True)
class Movement:
    """Executed kernels that move: at the boundary (of the graph's inputs and outputs) and inner
    ones; `fills` write constants only; `folded` did their work before the first run."""

    boundary: int
    inner: int
    fills: int
    folded: int

    @property
    def conversions(self) -> int:
        """All that move elements from one place to another."""
        return self.boundary + self.inner


def movement(compiled: Compiled) -> Movement:
    """Count the steps of the program that only move elements."""
    kinds = {
        symbol: movement_kind(kernel.func) for symbol, kernel in compiled.lowered.kernels.items()
    }
    own_inputs = len(compiled.imported.inputs)
    steps = [step for step in compiled.spec.run if not _poisons(step, own_inputs)]
    # What another program runs is no kernel, and computes.
    moving = [step for step in steps if kinds.get(step.symbol) == "move"]
    boundary = sum(_at_boundary(step) for step in moving)
    return Movement(
        boundary=boundary,
        inner=len(moving) - boundary,
        fills=sum(kinds.get(step.symbol) == "fill" for step in steps),
        folded=len(compiled.spec.prepare),
    )


def movement_kind(func: PrimFunc) -> str:
    """`move` if every write stores an element as it is (or a constant beside it), `fill` if every
    write stores a constant, else `compute`."""
    moved = False
    for write in writes_in(func.body):
        if not isinstance(write, Store) or not _is_moved(write.value):
            return "compute"
        moved = moved or any(isinstance(part, Load) for part in walk_expr(write.value))
    return "move" if moved else "fill"


def _is_moved(value: Expr) -> bool:
    match value:
        case Load() | Literal() | Undef():
            return True
        case Select(condition, if_true, if_false):
            return is_predicate(condition) and _is_moved(if_true) and _is_moved(if_false)
        case _:
            return False


def _poisons(step: ProgramStep, own_inputs: int) -> bool:
    """Whether a step belongs to poison mode: it reads an input that the model does not have."""
    return any(ref.space == "input" and ref.position >= own_inputs for ref in step.buffers)


def _at_boundary(step: ProgramStep) -> bool:
    return any(ref.space in ("input", "output") for ref in step.buffers)
