"""Random steps of a schedule: primitives with the arguments that their `PrimitiveCase` draws."""

from collections.abc import Mapping

from graphflow.schedule import transform_layout
from graphflow.tir import to_text
from support.primitives.all_cases import ALL_CASES, SEQUENCE_CASES
from support.primitives.choices import chosen
from support.primitives.primitive_cases import PrimitiveCase
from support.schedules.schedule_trial import Trial

ANY_BUFFER = PrimitiveCase(
    transform_layout,
    chosen(lambda c: c.transformation(c.buffers())),
    variant="of any buffer",
    share=3,
)
"""Parameters too: a schedule is compared with their elements in the layouts that they have then."""

IN_SCHEDULES = {case: case.share for case in (*ALL_CASES, ANY_BUFFER) if case.share}
IN_SEQUENCES = {case: case.share or 1.0 for case in (*SEQUENCE_CASES, ANY_BUFFER)}
BY_NAME = {case.name: case for case in IN_SCHEDULES}


MOST_TEXT = 4000
"""Characters of a kernel that a sequence still makes larger."""

DRAWS_PER_STEP = 4
"""Draws for each step of a sequence: one that finds no place for its primitive is no step."""


def random_sequence(t: Trial, most: int) -> None:
    """Primitives of all kinds, at most so many, those included that are refused."""
    for _ in range(DRAWS_PER_STEP * most):
        if t.tried.total() == most or len(to_text(t.func)) > MOST_TEXT:
            return
        random_step(t, IN_SEQUENCES)


def random_step(t: Trial, cases: Mapping[PrimitiveCase, float] = IN_SCHEDULES) -> bool:
    """One step with drawn arguments; False where it does not apply or is refused."""
    return step_of(t, t.dice.weighted(cases))


def step_of(t: Trial, case: PrimitiveCase) -> bool:
    arguments = case.arguments(t.func, t.dice.between)
    return arguments is not None and t.step(case.primitive, *arguments)
