"""What steps of recipes refused: variants that a node does not have, and parts of those it has.

In: what the compiler's stages gave.  Out: one `RefusedStep` for each variant and reason, with the
nodes that it is about.  What always holds: a reason names the step that refused, where one did, and
everything said here was recorded when the variant was looked for or its kernel was made.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from graphflow.base.decisions import refusal_line
from graphflow.pipeline.compiler import Compiled

MOVES = "moves elements"
"""The variant of a call that is made by no recipe of a node's own."""


@dataclass(frozen=True, slots=True)
class RefusedStep:
    """Why there is no such variant of these nodes; of the variant they have, why it is as it is.

    `chosen` says which of the two: a recipe went on without the step that was refused.
    """

    variant: str
    reason: str
    chosen: bool
    nodes: tuple[str, ...]

    def report(self) -> dict[str, Any]:
        """The refusal as plain values."""
        return {
            "nodes": list(self.nodes),
            "variant": self.variant,
            "chosen": self.chosen,
            "reason": self.reason,
        }

    def line(self) -> str:
        """The refusal in the story of a tensor that one of the nodes makes."""
        return refusal_line(self.variant, self.reason, self.chosen)


def refusals(compiled: Compiled) -> tuple[RefusedStep, ...]:
    """All that was refused, in the order of the graph; nodes of one variant and reason together."""
    found: dict[tuple[str, str, bool], dict[str, None]] = {}
    for node, variant, reason, chosen in (*_variants(compiled), *_steps(compiled)):
        found.setdefault((variant, reason, chosen), {})[node] = None
    return tuple(RefusedStep(*about, tuple(nodes)) for about, nodes in found.items())


def _variants(compiled: Compiled) -> Iterator[tuple[str, str, str, bool]]:
    """The variants that nodes do not have."""
    for node, choice in compiled.plan.choices.items():
        for refused in choice.refused:
            yield node, refused.variant, str(refused.reason), False


def _steps(compiled: Compiled) -> Iterator[tuple[str, str, str, bool]]:
    """What was refused while the kernels of the chosen variants were made, for those of a run."""
    for call, step in compiled.lowered.calls:
        kernel = None if call.prepare else compiled.lowered.kernels.get(step.symbol)
        for refusal in () if kernel is None else kernel.schedule.refusals:
            variant = MOVES if call.variant is None else call.variant.name
            yield call.name, variant, str(refusal), True
