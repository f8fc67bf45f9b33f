"""Rows that may share a run: along which size of a program, and how many at most.

In: an executable.  Out: the most rows of a run in which rows of several callers, or parts of one
large batch, may be put together; or the reason why none may.  What always holds: it is proven that
each row of the outputs is computed from the same row of the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from graphflow.api.executable import Executable
from graphflow.runtime import with_size_names


class RowBatches(Struct, frozen=True):
    """The most rows of a run, and the least; 1 and 1 where `refusal` says why rows are not put
    together."""

    most: int
    least: int = 1
    refusal: str = ""


def row_batches(exe: Executable) -> RowBatches:
    """What may be put together in runs of an executable."""
    made = exe.specializations
    if len(made) != 1:
        return RowBatches(
            1, 1, "there is not one program that serves all shapes; compile it with sizes"
        )
    alone, report = made[0], made[0].report()
    reasons = []
    for rows in report["rows"]:
        size = next(s for s in alone.program.spec.sizes if s.name == rows["size"])
        reason = rows["why_not"] or _not_first(alone, size.name, report)
        if not reason:
            return RowBatches(size.hi, size.lo)
        reasons.append(f"along {size.name}: {reason}")
    why_not = "; ".join(reasons) or "it was compiled for one shape; compile it with a size"
    return RowBatches(1, 1, why_not)


def sized_axes_in(report: Mapping[str, Any], name: str) -> dict[int, str]:
    """The sizes along axes of a tensor, as a report has them."""
    edges = (edge for edge in report.get("edges", ()) if edge["name"] == name)
    return {size["axis"]: size["name"] for edge in edges for size in edge["sizes"]}


def _not_first(exe: Executable, size: str, report: Mapping[str, Any]) -> str:
    """Why the rows of a size are not those of the whole inputs and outputs; empty if they are."""
    spec = exe.program.spec
    for tensor in spec.inputs[: len(spec.inputs) - len(spec.held)]:
        shape = with_size_names(spec, tensor).shape or ()
        if [axis for axis, extent in enumerate(shape) if extent == size] != [0]:
            return f"input {tensor.name} does not have it as its first axis alone"
    for result in spec.results:
        axes = sized_axes_in(report, result.name)
        if [axis for axis, name in axes.items() if name == size] != [0]:
            return f"output {result.name} does not have it as its first axis alone"
    return ""
