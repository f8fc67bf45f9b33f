"""The stage `validate`: compares every distinct kernel of a program with its definition.

In: lowered kernels and their object code.  Out: a `Validation`.  `VerifyError` names each kernel
that differs, with the calls that run it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from graphflow.base.errors import VerifyError
from graphflow.base.target import Target
from graphflow.kernels.lowering import LoweredKernel
from graphflow.runtime import check_host, processor_of
from graphflow.validation.check import ROUNDS, Check, Coverage

KernelChecks: TypeAlias = (
    "Callable[[Mapping[str, tuple[LoweredKernel, bytes]]], Mapping[str, Check]]"
)
"""Compares kernels, given with their object code, with their definitions, by symbol."""

MOST_NAMED = 4
"""The most calls of a kernel that a message names."""


class Validation(Struct, frozen=True):
    """The checks of a program's kernels, in the order of the kernels, and how long they took."""

    checks: tuple[Check, ...]
    seconds: float

    @property
    def skipped(self) -> tuple[Check, ...]:
        """The kernels of which nothing was compared."""
        return tuple(check for check in self.checks if check.method == "none")

    def report(self) -> dict[str, Any]:
        """The checks as plain values."""
        counts: Counter[Coverage] = Counter(check.method for check in self.checks)
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
        """The checks in one line."""
        counts: Counter[Coverage] = Counter(check.method for check in self.checks)
        reasons = Counter(check.reason for check in self.skipped)
        skipped = "".join(f"; {n} not validated: {reason}" for reason, n in reasons.items())
        compared = sum(check.compared for check in self.checks)
        return (
            f"validated {len(self.checks) - len(self.skipped)} of {len(self.checks)} kernels in "
            f"{self.seconds:.1f} s: {counts['all']} in all elements, {counts['sampled']} in a "
            f"sample, {compared} elements compared{skipped}"
        )


def validate(
    kernels: Mapping[str, LoweredKernel],
    describe: Callable[[str], str],
    objects: Mapping[str, bytes],
    target: Target,
    dump: str | None,
    check: KernelChecks,
) -> Validation:
    """Validate all kernels with `check`, which is `check_kernel` of each, in worker processes or
    here; `describe` says what runs the kernel of a symbol, `dump` is the folder of its texts.

    Raises `VerifyError` if a kernel differs from its definition, and CodegenError if this processor
    cannot run the kernels.
    """
    start = time.perf_counter()
    check_host(processor_of(target.cpu, target.features), "the program to validate")
    checks = tuple(check({s: (kernel, objects[s]) for s, kernel in kernels.items()}).values())
    wrong = [check for check in checks if check.difference is not None]
    if wrong:
        raise VerifyError(_message(wrong, len(checks), describe, dump))
    return Validation(checks, time.perf_counter() - start)


def _message(
    wrong: list[Check], total: int, describe: Callable[[str], str], folder: str | None
) -> str:
    lines = [f"{len(wrong)} of {total} kernels differ from their definitions:"]
    lines += [f"  {describe(check.symbol)}: {check.difference}" for check in wrong]
    if folder is None:
        lines.append(
            "compile with --dump DIR (Options(dump=DIR)) and look at "
            + ", ".join(f"DIR/kernels/{check.symbol}.*" for check in wrong[:MOST_NAMED])
        )
    else:
        lines.append(f"their texts are {folder}/kernels/{wrong[0].symbol}.* and so on")
    return "\n".join(lines)
