"""Sequences of random primitives on kernels of many kinds, interpreted and as native code.

In: a kind of kernel and a seed.  Out: an `Outcome`: what was wrong, what applied, and whether the
scheduled kernel ran natively.  A sequence has twelve primitives with the arguments that their
`PrimitiveCase` draws; one that is refused is left out.

Importing this module adds the family `softmax`, which is drawn only by name.
"""

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from graphflow.base.fields import replace
from support.kernels.schedule_kernels import (
    Dice,
    Kernel,
    Sketch,
    family,
    indexed,
    nest,
    random_kernel,
    whole_numbers,
)
from support.kernels.schedule_rows import NEVER
from support.kernels.sequence_kernels import SEQUENCE_KERNELS
from support.schedules.schedule_cases import Outcome, drawn, verdict
from support.schedules.schedule_steps import random_sequence
from support.schedules.schedule_trial import Trial

FAMILIES = {
    "matmul": "product",
    "convolution": "convolution",
    "image": "image",
    "pooling": "pool",
    "softmax": "softmax",
    "stencil": "stencil",
}
"""The family of random kernels by the name of the operator; images are convolved or pooled."""

KINDS: dict[str, Callable[[int], Kernel]] = {
    **{kind: partial(random_kernel, family=family) for kind, family in FAMILIES.items()},
    **{
        name: lambda seed, draw=draw, name=name: whole_numbers(draw(Random(seed).randint), name)  # type: ignore[misc]
        for name, draw in SEQUENCE_KERNELS.items()
    },
}
"""Kernels by what they are, of which a seed gives one."""

MOST_STEPS = 12
"""Primitives of a sequence, those included that are refused."""


@family(NEVER)
def softmax(s: Sketch) -> None:
    """`exp(x - max) / sum` over the last axis, in one nest or in three."""
    s.rounded = True
    n, m = s.dice.between(1, 4), s.dice.between(2, 9)
    i, r, k, j = s.loops("i", "r", "k", "j")
    dtype = s.dice.among(("f32", "f32", "f64"))
    x, y = s.input("x", dtype, (n, m)), s.output(dtype, (n, m))
    used = [p.split(":")[0] for p in s.params]
    top, total = (next(t for t in (w, w + "2", w + "3") if t not in used) for w in ("top", "total"))
    s.lines += [f"{top} = alloc({dtype}[{n}])", f"{total} = alloc({dtype}[{n}])"]

    def power(at: str, row: str) -> str:
        return f"exp({indexed(x, (row, at))} - {top}[{row}])"

    stages: list[Callable[[str], list[str]]] = [
        lambda row: [
            f"{top}[{row}] = {dtype}(-inf)",
            *nest([(r, m)], [f"reduce_max({top}[{row}], {indexed(x, (row, r))})"]),
        ],
        lambda row: [
            f"{total}[{row}] = {dtype}(0.0)",
            *nest([(k, m)], [f"{total}[{row}] += {power(k, row)}"]),
        ],
        lambda row: nest([(j, m)], [f"{indexed(y, (row, j))} = {power(j, row)} / {total}[{row}]"]),
    ]
    if s.dice.chance(0.5):
        s.block("compute", nest([(i, n)], [line for stage in stages for line in stage(i)]))
        return
    rows = (i, *s.loops("a", "b"))
    for name, row, stage in zip(("largest", "sums", "divide"), rows, stages, strict=True):
        s.block(name, nest([(row, n)], stage(row)))


def run_sequence(kind: str, seed: int) -> Outcome:
    """The sequence of a seed on a kernel of a kind, checked in the interpreter and natively."""
    kernel = KINDS[kind](seed)
    trial = Trial(kernel.func, Dice(seed, 4))
    made, schedule = drawn(kernel, trial, lambda: random_sequence(trial, MOST_STEPS))
    if schedule is None:
        return made
    wrong, kind_, ran = verdict(kernel, schedule, seed, native=True)
    return replace(made, wrong=wrong, kind=kind_, native=ran)


def mean_length(outcomes: Sequence[Outcome]) -> float:
    """How many primitives of a sequence apply, in the mean."""
    return sum(len(outcome.steps) for outcome in outcomes) / len(outcomes)
