"""The chosen plan against plans that move conversions greedily, by cost and by measured time.

    python benchmarks/greedy.py [MODEL ...] [--threads N] [--blocks N] [--json]

The default model is the head of `graphflow.models.zoo.frames`.  The plans are those of
`graphflow.baselines.greedy`, each compiled with its layouts pinned; blocks of all programs
alternate on bound inputs, and a time is the median of the blocks' medians.  Ratios are relative to
the chosen plan; a ratio of times is the median of the blocks' ratios.  If a greedy plan is less
than 5 % slower, everything is measured twice more, and the median of the three counts.  `greedy
cost` is the cost of the greedy plan itself, `cost` that of the compiled plan, which may be lower:
the pins do not cover converted tensors, for which the solver may have found a cheaper layout.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping
from typing import Any

import onnx
from rich.console import Console
from rich.table import Table

import graphflow as gf
from graphflow.baselines import PLANNERS, greedy_pins, plan_seconds
from graphflow.bench import BlockTimes, Protocol, largest_error, measure
from graphflow.cost import CostModel
from graphflow.flow import enumerate_candidates
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse_groups
from graphflow.models import named
from graphflow.models.zoo.frames import frames_head
from graphflow.program import random_inputs
from graphflow.runtime import default_threads

CHOSEN = "chosen"
CLEAR = 1.05
"""If a greedy plan's time is below this multiple of the chosen plan's, the measurement is
repeated."""


def measured(model: onnx.ModelProto, threads: int, blocks: int) -> dict[str, Any]:
    """The times, costs, conversions and ratios of each plan, and the largest error."""
    exe = gf.compile(model, threads=threads)
    graph = fuse_groups(canonicalize(import_model(model, fallback=True)))
    cost = CostModel(exe.compiled.target, threads)
    candidates = enumerate_candidates(graph, cost, {})
    plans, costs = {CHOSEN: exe}, {CHOSEN: exe.compiled.plan.seconds}
    for name, planner in PLANNERS.items():
        taken = planner(graph, candidates, cost)
        costs[name] = plan_seconds(graph, candidates, taken, cost)
        plans[name] = gf.compile(model, threads=threads, layouts=greedy_pins(graph, taken))
    inputs = random_inputs(exe.inputs)
    expected = exe.run(inputs)
    rounds = _rounds({n: p.program.bind(inputs).run for n, p in plans.items()}, blocks)
    return {
        name: {
            "ms": statistics.median(found[name].median_ms for found in rounds),
            "iqr_ms": statistics.median(found[name].iqr_ms for found in rounds),
            "ratio": statistics.median(found[name].ratio_to(found[CHOSEN]) for found in rounds),
            "ratios": [found[name].ratio_to(found[CHOSEN]) for found in rounds],
            "cost_ms": 1e3 * plan.compiled.plan.seconds,
            "cost_ratio": plan.compiled.plan.seconds / costs[CHOSEN],
            "greedy_cost_ms": 1e3 * costs[name],
            "conversions": len(plan.compiled.plan.conversions),
            "max_rel_error": largest_error(plan.run(inputs), expected),
        }
        for name, plan in plans.items()
    }


def _rounds(runs: Mapping[str, Callable[[], object]], blocks: int) -> list[dict[str, BlockTimes]]:
    """One measurement if every greedy plan is clearly slower, else three."""
    rounds = [measure(runs, Protocol(blocks=blocks))]
    if min(rounds[0][name].ratio_to(rounds[0][CHOSEN]) for name in runs if name != CHOSEN) < CLEAR:
        rounds += [measure(runs, Protocol(blocks=blocks)) for _ in range(2)]
    return rounds


def plans_table(model: str, plans: dict[str, dict[str, Any]]) -> Table:
    """A table with one row for each plan."""
    table = Table(title=model, header_style="bold")
    table.add_column("plan")
    for column in ("ms", "± iqr", "ratio", "cost ms", "ratio", "greedy cost", "copies", "error"):
        table.add_column(column, justify="right")
    for name, found in plans.items():
        table.add_row(
            name,
            f"{found['ms']:.3f}",
            f"{found['iqr_ms']:.3f}",
            f"{found['ratio']:.3f}",
            f"{found['cost_ms']:.3f}",
            f"{found['cost_ratio']:.3f}",
            f"{found['greedy_cost_ms']:.3f}",
            str(found["conversions"]),
            f"{found['max_rel_error']:.0e}",
        )
    return table


def main() -> None:
    """Print one table, or one JSON object on a line, for each model."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: the head over frames")
    parser.add_argument("--threads", type=int, default=default_threads())
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one object a line, one line a model")
    given = parser.parse_args()
    models = {name: named(name, 0) or onnx.load(name) for name in given.models}
    for name, model in (models or {"frames": frames_head(0)}).items():
        plans = measured(model, given.threads, given.blocks)
        if given.json:
            print(json.dumps({"model": name, "threads": given.threads, "plans": plans}))
        else:
            console = Console() if sys.stdout.isatty() else Console(width=120)
            console.print(plans_table(name, plans))


if __name__ == "__main__":
    main()
