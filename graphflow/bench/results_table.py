"""The table of `graphflow bench`, one row for each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

NOTHING = "-"


def bench_table(results: Sequence[dict[str, Any]]) -> Table:
    """Times with their interquartile range, the ratio to the peer, the floor and the error.

    What a peer could not load or run has a dash, and its reason is below the table.
    """
    table = Table(header_style="bold")
    keys = dict.fromkeys(key for result in results for key in result)
    programs = [key.removesuffix("_iqr_ms") for key in keys if key.endswith("_iqr_ms")]
    table.add_column("model")
    for program in programs:
        table.add_column(f"{program} ms", justify="right")
    for column in ("speedup", "floor ms", "GFLOP", "error", "compile s"):
        table.add_column(column, justify="right")
    for result in results:
        table.add_row(
            result["model"],
            *(_time(result, name) for name in programs),
            NOTHING if result["speedup"] is None else f"{result['speedup']:.2f}",
            f"{result['floor_ms']:.3f}",
            f"{result['gflop']:.3f}",
            _error(result),
            f"{result['compile_s']:.1f}",
        )
    notes = [
        f"{result['model']}: {reason}"
        for result in results
        for reason in result["failures"].values()
    ]
    if any(result["check_is_weak"] for result in results):
        notes.append("weak: the outputs hardly vary, so a small error proves little")
    if notes:
        table.caption = escape("\n".join(notes))
    return table


def _time(result: dict[str, Any], program: str) -> str:
    if f"{program}_ms" not in result:
        return NOTHING
    return f"{result[f'{program}_ms']:.3f} ± {result[f'{program}_iqr_ms']:.3f}"


def _error(result: dict[str, Any]) -> str:
    if result["max_rel_error"] is None:
        return NOTHING
    return f"{result['max_rel_error']:.1e}" + (" (weak)" if result["check_is_weak"] else "")
