"""Sequences of random primitives on kernels of five kinds, interpreted and as native code.

In: a kind of kernel and a seed.  Out: an `Outcome`: what was wrong, what applied, and whether the
scheduled kernel ran natively.  A sequence has twelve primitives with random arguments, those of the
schedule fuzzer and those of the property tests; one that is refused is left out.

Importing this module adds the family `softmax`, which is drawn only by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from graphflow.tir import to_text
from support.kernels.schedule_kernels import Dice, Sketch, family, indexed, nest, random_kernel
from support.kernels.schedule_rows import NEVER
from support.primitives.all_cases import SEQUENCE_CASES
from support.primitives.primitive_cases import PrimitiveCase
from support.schedules.schedule_cases import Outcome, crashed_kind, crashed_text, verdict
from support.schedules.schedule_steps import STEPS, Chosen
from support.schedules.schedule_trial import Crashed, Trial

FAMILIES = {
    "matmul": "product",
    "convolution": "convolution",
    "image": "image",
    "pooling": "pool",
    "softmax": "softmax",
    "stencil": "stencil",
}
"""The family of random kernels by the name of the operator; images are convolved or pooled."""

MOST_STEPS = 12
"""Primitives of a sequence, those included that are refused."""

MOST_DRAWS = 48
"""Draws for one sequence: one that finds no place for its primitive does not count as a step."""

MOST_TEXT = 4000
"""Characters of a kernel that a sequence still makes larger."""


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


def drawn_by(case: PrimitiveCase) -> Callable[[Trial], Chosen]:
    """A primitive with the arguments that its property test draws."""

    def choose(t: Trial) -> Chosen:
        arguments = case.arguments(t.func, t.dice.between)
        return None if arguments is None else (case.primitive, arguments)

    return choose


SEQUENCE_STEPS: dict[str, tuple[float, Callable[[Trial], Chosen]]] = {
    **{case.name: (1.0, drawn_by(case)) for case in SEQUENCE_CASES},
    **STEPS,
}
"""All primitives with a way to draw arguments; by name the weight and the draw."""


def run_sequence(kind: str, seed: int) -> Outcome:
    """The sequence of a seed on a kernel of a kind, checked in the interpreter and natively."""
    kernel = random_kernel(seed, FAMILIES[kind])
    trial = Trial(kernel.func, Dice(seed, 4))
    made = Outcome(tried=trial.tried, taken=trial.taken, kernel=kernel)
    weights = {name: weight for name, (weight, _) in SEQUENCE_STEPS.items()}
    try:
        for _ in range(MOST_DRAWS):
            if trial.tried.total() == MOST_STEPS or len(to_text(trial.func)) > MOST_TEXT:
                break
            if not trial.loops():
                break
            chosen = SEQUENCE_STEPS[trial.dice.weighted(weights)][1](trial)
            if chosen is not None:
                trial.step(chosen[0], *chosen[1])
    except Crashed as crash:
        steps = (*trial.schedule.steps, crash.args[0])
        return replace(made, wrong=crashed_text(crash), kind=crashed_kind(crash), steps=steps)
    wrong, kind_, ran = verdict(kernel, trial.schedule, seed, native=True)
    return replace(made, wrong=wrong, kind=kind_, native=ran, steps=trial.schedule.steps)


def mean_length(outcomes: Sequence[Outcome]) -> float:
    """How many primitives of a sequence apply, in the mean."""
    return sum(len(outcome.steps) for outcome in outcomes) / len(outcomes)
