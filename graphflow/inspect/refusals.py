"""Collect refusals: variants that a node does not have, and steps that a chosen variant lacks.

In: a `Compiled` model.  Out: a `RefusedStep` for each variant and reason, with the nodes that it
concerns.  What always holds: the reason names the schedule step that refused, if one did, and was
recorded when variants were enumerated or the kernel was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from graphflow.base.decisions import refusal_line
from graphflow.pipeline.compiler import Compiled

MOVES = "moves elements"
"""The name of the variant of a call that the compiler added to move elements."""


class RefusedStep(Struct, frozen=True):
    """Why these nodes do not have a variant, or why the variant that they have lacks a step.

    The latter if `chosen`: the recipe went on without the refused step.
    """

    variant: str
    reason: str
    chosen: bool
    nodes: tuple[str, ...]

    def report(self) -> dict[str, Any]:
        """The refusal as plain values, for the report."""
        return {
            "nodes": list(self.nodes),
            "variant": self.variant,
            "chosen": self.chosen,
            "reason": self.reason,
        }

    def line(self) -> str:
        """The refusal as a line of `explain`."""
        return refusal_line(self.variant, self.reason, self.chosen)


def refusals(compiled: Compiled) -> tuple[RefusedStep, ...]:
    """All refusals in the order of the graph; nodes with the same variant and reason are one
    record.
    """
    found: dict[tuple[str, str, bool], dict[str, None]] = {}
    for node, variant, reason, chosen in (*_variants(compiled), *_steps(compiled)):
        found.setdefault((variant, reason, chosen), {})[node] = None
    return tuple(RefusedStep(*about, tuple(nodes)) for about, nodes in found.items())


def _variants(compiled: Compiled) -> Iterator[tuple[str, str, str, bool]]:
    """The variants that nodes do not have, as (node, variant, reason, False)."""
    for node, choice in compiled.plan.choices.items():
        for refused in choice.refused:
            yield node, refused.variant, str(refused.reason), False


def _steps(compiled: Compiled) -> Iterator[tuple[str, str, str, bool]]:
    """The steps refused in the kernels of a run, as (node, variant, reason, True)."""
    for call, step in compiled.lowered.calls:
        kernel = None if call.prepare else compiled.lowered.kernels.get(step.symbol)
        for refusal in () if kernel is None else kernel.schedule.refusals:
            variant = MOVES if call.variant is None else call.variant.name
            yield call.name, variant, str(refusal), True
