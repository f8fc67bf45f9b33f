"""The stage `validate`: compares every distinct kernel of a program with its definition.

In: lowered kernels and their object code.  Out: a `Validation`, or None if the options do not ask
for one.  `VerifyError` names each kernel that differs, with the calls that run it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphflow.errors import VerifyError
from graphflow.lower import Lowered
from graphflow.options import Options
from graphflow.runtime import check_host, processor_of
from graphflow.target import Target
from graphflow.trace import Trace
from graphflow.validation.check import ROUNDS, Check, check_kernel
from graphflow.workers import Workers

MOST_NAMED = 4
"""Calls that a message names for one kernel."""


@dataclass(frozen=True)
class Validation:
    """The checks of a program's kernels, in the order of the kernels, and how long they took."""

    checks: tuple[Check, ...]
    seconds: float

    @property
    def skipped(self) -> tuple[Check, ...]:
        """The kernels of which nothing was compared."""
        return tuple(check for check in self.checks if check.method == "none")

    def report(self) -> dict[str, Any]:
        """As plain values."""
        counts = Counter(check.method for check in self.checks)
        return {
            "kernels": len(self.checks),
            "all_elements": counts["all"],
            "sampled": counts["sampled"],
            "special_inputs": sum(ROUNDS[1] in check.rounds for check in self.checks),
            "not_validated": [
                {"kernel": check.symbol, "reason": check.reason} for check in self.skipped
            ],
            "compared_elements": sum(check.compared for check in self.checks),
            "within_rounding": sum(check.rounded for check in self.checks),
            "unjudged_elements": sum(check.unjudged for check in self.checks),
            "seconds": self.seconds,
        }

    def summary(self) -> str:
        """In one line."""
        counts = Counter(check.method for check in self.checks)
        reasons = Counter(check.reason for check in self.skipped)
        skipped = "".join(f"; {n} not validated: {reason}" for reason, n in reasons.items())
        compared = sum(check.compared for check in self.checks)
        return (
            f"validated {len(self.checks) - len(self.skipped)} of {len(self.checks)} kernels in "
            f"{self.seconds:.1f} s: {counts['all']} in all elements, {counts['sampled']} in a "
            f"sample, {compared} elements compared{skipped}"
        )


def validate(
    lowered: Lowered,
    objects: Mapping[str, bytes],
    target: Target,
    options: Options,
    trace: Trace,
    workers: Workers,
) -> Validation | None:
    """Validate all kernels if the options say so.

    Raises `VerifyError` where a kernel differs from its definition, and CodegenError where this
    processor cannot run them.
    """
    if not options.validate:
        return None
    start = time.perf_counter()
    check_host(processor_of(target.cpu, target.features), "the program to validate")
    tasks = {symbol: (kernel, objects[symbol]) for symbol, kernel in lowered.kernels.items()}
    checks = tuple(workers.map(check_kernel, tasks, trace).values())
    wrong = [check for check in checks if check.difference is not None]
    if wrong:
        raise VerifyError(_message(wrong, len(checks), lowered, options))
    return Validation(checks, time.perf_counter() - start)


def _message(wrong: list[Check], total: int, lowered: Lowered, options: Options) -> str:
    lines = [f"{len(wrong)} of {total} kernels differ from their definitions:"]
    lines += [f"  {_named(check.symbol, lowered)}: {check.difference}" for check in wrong]
    folder = options.dump
    if folder is None:
        lines.append(
            "compile with --dump DIR (Options(dump=DIR)) and look at "
            + ", ".join(f"DIR/kernels/{check.symbol}.*" for check in wrong[:MOST_NAMED])
        )
    else:
        lines.append(f"their texts are {folder}/kernels/{wrong[0].symbol}.* and so on")
    return "\n".join(lines)


def _named(symbol: str, lowered: Lowered) -> str:
    """A kernel, the calls that run it, and their form."""
    calls = [call for call, step in lowered.calls if step.symbol == symbol]
    names = [call.name for call in calls[:MOST_NAMED]]
    more = f" and {len(calls) - len(names)} more" if len(calls) > len(names) else ""
    form = calls[0].form
    kernel = lowered.kernels[symbol]
    made = type(kernel.task.recipe).__name__.lower() if form is None else f"form {form.name}"
    return f"{symbol} ({', '.join(names)}{more}; {made})"
