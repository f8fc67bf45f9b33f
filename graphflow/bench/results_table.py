"""Tables of measured times: of `graphflow bench`, and of programs beside others."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from graphflow.bench.timed_blocks import BlockTimes

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


def speeds_beside(times: Mapping[str, BlockTimes], ours: str) -> dict[str, dict[str, float]]:
    """The milliseconds of each program, and its time over that of `ours`."""
    return {
        title: {"ms": found.median_ms, "speed": found.ratio_to(times[ours])}
        for title, found in times.items()
    }


def speeds_table(
    results: Sequence[Mapping[str, Any]], columns: Sequence[str], ours: str, others: Sequence[str]
) -> Table:
    """One row for each result: what it has in `columns`, the milliseconds of `ours`, those of each
    of `others` with the speed of ours beside it, where it ran, and the error."""
    table = Table(header_style="bold")
    for title in columns:
        table.add_column(title)
    titles = (f"{ours} ms", *(t for other in others for t in (f"{other} ms", "speed")), "error")
    for title in titles:
        table.add_column(title, justify="right")
    for result in results:
        cells = [f"{result[ours]['ms']:.3g}"]
        for other in others:
            there = result.get(other)
            cells += [f"{there['ms']:.3g}", f"{there['speed']:.3f}"] if there else ["", ""]
        named = (str(result[title]) for title in columns)
        table.add_row(*named, *cells, f"{result['error']:.0e}")
    return table


def mean_speeds(results: Sequence[Mapping[str, Any]], others: Sequence[str]) -> Iterator[str]:
    """A line for each of the others that ran: the geometric mean and the least of the speeds."""
    for other in others:
        speeds = [result[other]["speed"] for result in results if other in result]
        if speeds:
            mean, least = statistics.geometric_mean(speeds), min(speeds)
            yield f"beside {other}: geometric mean {mean:.3f}, least {least:.3f}"
