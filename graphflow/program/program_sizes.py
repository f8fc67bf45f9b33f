"""What of a program's inputs each run decides: extents, what is computed from them, and states.

In: numbers of inputs, outputs and steps.  Out: frozen data.  What always holds: a size has bounds,
and an input of the program that holds it in a run.
"""

from __future__ import annotations

from msgspec import Struct

from graphflow.base.fields import Signed
from graphflow.base.sizes import SizeFormula
from graphflow.program.program_steps import ProgramStep


class InputSize(Struct, frozen=True):
    """An extent that each run decides: input number `input` holds it, and is not the caller's.

    `axes` are pairs of the number of an input and an axis, which all have this extent in a run;
    their specs have the greatest one.  `element` is the number of an integer input whose only
    element is the size in a run; None if there is none.  `lo` and `hi` are the least and the
    greatest, and `name` is what the model calls it.
    """

    name: str
    input: int
    lo: int
    hi: int
    axes: tuple[tuple[int, int], ...]
    element: int | None = None


class ComputedSize(Struct, frozen=True):
    """A size that each run computes: input number `input` holds it, and is not the caller's.

    `operands` are the numbers of inputs that hold other sizes.  `lo` and `hi` are the least and the
    greatest, which each run checks; `name` is the formula as users write it.
    """

    name: str
    input: int
    lo: Signed
    hi: Signed
    formula: SizeFormula
    operands: tuple[int, ...]


class StateSpec(Struct, frozen=True):
    """Input number `input`, whose elements output number `output` repeats at their own indices.

    If the memory of the output holds them before a run, which may have more room along an axis,
    `instead` is executed in place of step `step` of `run`, and no step reads the input.  All rows
    of the input along `axis` that a run gives are there after the run too; where it is None, that
    is not known.
    """

    input: int
    output: int
    step: int
    instead: ProgramStep
    axis: int | None = None
