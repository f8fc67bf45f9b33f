"""The table of `graphflow bench`, one row for each model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table


def bench_table(results: Sequence[dict[str, Any]]) -> Table:
    """Times with their interquartile range, the ratio to the peer, the floor and the error."""
    table = Table(header_style="bold")
    programs = [key.removesuffix("_iqr_ms") for key in results[0] if key.endswith("_iqr_ms")]
    table.add_column("model")
    for program in programs:
        table.add_column(f"{program} ms", justify="right")
    for column in ("speedup", "floor ms", "GFLOP", "error", "compile s"):
        table.add_column(column, justify="right")
    for found in results:
        table.add_row(
            found["model"],
            *(f"{found[f'{name}_ms']:.3f} ± {found[f'{name}_iqr_ms']:.3f}" for name in programs),
            f"{found['speedup']:.2f}",
            f"{found['floor_ms']:.3f}",
            f"{found['gflop']:.3f}",
            f"{found['max_rel_error']:.1e}" + (" (weak)" if found["check_is_weak"] else ""),
            f"{found['compile_s']:.1f}",
        )
    if any(found["check_is_weak"] for found in results):
        table.caption = "weak: the outputs hardly vary, so a small error proves little"
    return table
