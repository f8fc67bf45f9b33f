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
    keys = dict.fromkeys(key for found in results for key in found)
    programs = [key.removesuffix("_iqr_ms") for key in keys if key.endswith("_iqr_ms")]
    table.add_column("model")
    for program in programs:
        table.add_column(f"{program} ms", justify="right")
    for column in ("speedup", "floor ms", "GFLOP", "error", "compile s"):
        table.add_column(column, justify="right")
    for found in results:
        table.add_row(
            found["model"],
            *(_time(found, name) for name in programs),
            NOTHING if found["speedup"] is None else f"{found['speedup']:.2f}",
            f"{found['floor_ms']:.3f}",
            f"{found['gflop']:.3f}",
            _error(found),
            f"{found['compile_s']:.1f}",
        )
    notes = [
        f"{found['model']}: {reason}" for found in results for reason in found["failures"].values()
    ]
    if any(found["check_is_weak"] for found in results):
        notes.append("weak: the outputs hardly vary, so a small error proves little")
    if notes:
        table.caption = escape("\n".join(notes))
    return table


def _time(found: dict[str, Any], program: str) -> str:
    if f"{program}_ms" not in found:
        return NOTHING
    return f"{found[f'{program}_ms']:.3f} ± {found[f'{program}_iqr_ms']:.3f}"


def _error(found: dict[str, Any]) -> str:
    if found["max_rel_error"] is None:
        return NOTHING
    return f"{found['max_rel_error']:.1e}" + (" (weak)" if found["check_is_weak"] else "")
