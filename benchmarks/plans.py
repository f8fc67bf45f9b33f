"""The chosen plan against uniform plans: is the chosen one ever slower, measured, than the best?

    python benchmarks/plans.py [MODEL ...] [--light] [--channels 8,9] [--threads N] [--json]
                               [--timings [FILE]]

Each model is compiled as graphflow chooses, and once for each family of layouts, with that family
pinned on every tensor whose operators support it; `--timings` uses the times that `graphflow tune`
measured.  Blocks of all programs alternate on bound inputs; a time is the median of the blocks'
medians.  The ratio is the chosen plan's time to that of the best uniform plan, the median over
consecutive blocks, because the speed of a shared machine changes.  A ratio above 1.05 is measured
twice more, and the median of the three counts: the best of several noisy times is too low.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import onnx
from rich.console import Console
from rich.table import Table

import graphflow as gf
from graphflow.base.offered_names import LIGHT, ZOO_PREFIX
from graphflow.base.options import default_timings
from graphflow.baselines import inner_values, uniform_pins
from graphflow.bench import Protocol, largest_error, measure
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse_groups
from graphflow.layout import families
from graphflow.models import ZOO, light_names, named
from graphflow.models.zoo.single_patterns import PATTERNS
from graphflow.program import ProgramSpec, random_inputs

SUSPICIOUS = 1.05
"""A larger ratio is measured again."""

CHOSEN = "chosen"
RANK = 4

PROTOCOL = Protocol(idle=0.0, discarded=0.01, measured=0.05)
"""No idle time: all programs share their threads, so none of them spins while another one is
timed."""

Round: TypeAlias = "Mapping[str, tuple[float, ...]]"
"""Milliseconds of each block of each plan."""


@dataclass(frozen=True)
class Plan:
    """A compiled plan: `pinned` is the number of inner tensors that were pinned (None: chosen
    freely); `same_as` names an earlier plan with the same program, whose times count for both."""

    exe: gf.Executable
    pinned: int | None
    same_as: str | None

    @property
    def estimated_ms(self) -> float:
        """The cost model's estimate of a run."""
        return 1e3 * self.exe.compiled.plan.seconds


def compiled_plans(model: onnx.ModelProto, options: gf.Options) -> dict[str, Plan]:
    """The chosen plan, and one plan for each family by the family's name."""
    chosen = gf.compile(model, options=options)
    # Before flow may change it; pins refer to its tensors.
    graph, target = (
        fuse_groups(canonicalize(import_model(model, fallback=True))),
        chosen.compiled.target,
    )
    plans = {CHOSEN: Plan(chosen, None, None)}
    for family in families(RANK, target.lanes("float32")):
        pins = uniform_pins(graph, target, family)
        exe = gf.compile(model, layouts=pins, options=options)
        plans[family.name] = Plan(exe, len(pins), _same_program(exe, plans))
    return plans


def _same_program(exe: gf.Executable, plans: Mapping[str, Plan]) -> str | None:
    wanted = _identity(exe.compiled.spec)
    for name, plan in plans.items():
        if plan.same_as is None and _identity(plan.exe.compiled.spec) == wanted:
            return name
    return None


def _identity(spec: ProgramSpec) -> tuple[object, ...]:
    places = tuple((offset, array.shape) for offset, array in spec.constants)
    return spec.objects, spec.prepare, spec.run, places, spec.arena_bytes


def measured(name: str, model: onnx.ModelProto, options: gf.Options, blocks: int) -> dict[str, Any]:
    """Times, estimates and the ratio of one model as plain values."""
    plans = compiled_plans(model, options)
    inputs = random_inputs(plans[CHOSEN].exe.inputs)
    expected = plans[CHOSEN].exe.run(inputs)
    runs = {n: p.exe.program.bind(inputs).run for n, p in plans.items() if p.same_as is None}
    rounds = [_round(plans, runs, blocks)]
    if max(_ratios(rounds[0]).values()) > SUSPICIOUS:
        rounds += [_round(plans, runs, blocks) for _ in range(2)]
    times = {n: statistics.median(t for found in rounds for t in found[n]) for n in plans}
    ratios = [_ratios(found) for found in rounds]
    worst = [max(found.values()) for found in ratios]
    return {
        "model": name,
        "threads": plans[CHOSEN].exe.threads,
        "edges": len(
            inner_values(fuse_groups(canonicalize(import_model(model, fallback=True))), RANK)
        ),
        "plans": {
            n: {
                "ms": times[n],
                "estimated_ms": p.estimated_ms,
                "measured_prices": p.exe.compiled.plan.measured_prices,
                "estimated_prices": p.exe.compiled.plan.estimated_prices,
                "pinned": p.pinned,
                "same_as": p.same_as,
            }
            for n, p in plans.items()
        },
        "best": max(ratios[0], key=lambda n: statistics.median(found[n] for found in ratios)),
        "ratio": statistics.median(worst),
        "ratios": worst,
        "max_rel_error": max(largest_error(p.exe.run(inputs), expected) for p in plans.values()),
    }


def _round(
    plans: Mapping[str, Plan], runs: Mapping[str, Callable[[], object]], blocks: int
) -> Round:
    timings = measure(runs, replace(PROTOCOL, blocks=blocks))
    return {n: timings[n if p.same_as is None else p.same_as].blocks for n, p in plans.items()}


def _ratios(found: Round) -> dict[str, float]:
    """The ratio of the chosen plan's time to that of each uniform plan."""
    return {
        name: statistics.median(c / u for c, u in zip(found[CHOSEN], blocks, strict=True))
        for name, blocks in found.items()
        if name != CHOSEN
    }


# What is printed --------------------------------------------------------------------------------


def plans_table(results: Sequence[dict[str, Any]]) -> Table:
    """A table with one row for each model, and the geometric mean and the worst ratio."""
    ratios = [found["ratio"] for found in results]
    worst = max(results, key=lambda found: float(found["ratio"]))
    mean = statistics.geometric_mean(ratios)
    table = Table(
        header_style="bold",
        caption="milliseconds measured / estimated by the cost model (inner tensors pinned of all);"
        " = the same program as the chosen plan or an earlier one\n"
        f"geometric mean of the ratios {mean:.3f}, worst {worst['ratio']:.3f} ({worst['model']})",
    )
    table.add_column("model")
    for name in results[0]["plans"]:
        table.add_column(name, justify="right")
    table.add_column("best uniform")
    for column in ("ratio", "error"):
        table.add_column(column, justify="right")
    for found in results:
        cells = (_cell(plan, found["edges"]) for plan in found["plans"].values())
        error = f"{found['max_rel_error']:.0e}"
        table.add_row(found["model"], *cells, found["best"], f"{found['ratio']:.3f}", error)
    return table


def _cell(plan: Mapping[str, Any], edges: int) -> str:
    """The measured and the estimated time, and for uniform plans the number of pinned tensors."""
    times = f"{plan['ms']:.3f} / {plan['estimated_ms']:.3f}"
    if plan["pinned"] is None:
        return times
    same = "" if plan["same_as"] is None else "= "
    return f"{same}{times} ({plan['pinned']}/{edges})"


# From arguments to models -----------------------------------------------------------------------


def _names(given: argparse.Namespace) -> list[str]:
    names = list(given.models)
    if given.light:
        names += [f"{LIGHT}{name}" for name in light_names()]
    for channels in given.channels:
        names += [
            f"{ZOO_PREFIX}probe:{pattern}:{channels}"
            for pattern, (_, divisor) in PATTERNS.items()
            if channels % divisor == 0
        ]
    return list(dict.fromkeys(names or [f"{ZOO_PREFIX}{name}" for name in ZOO]))


def _proto(name: str) -> onnx.ModelProto:
    return named(name, 0) or onnx.load(name)


def _channels(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def main() -> None:
    """Print the table, or one JSON object on a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: the whole zoo")
    parser.add_argument("--light", action="store_true", help="the light models too, reseeded")
    parser.add_argument("--channels", type=_channels, default=[], help="of every probe, as 8,9,15")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one object a line, one line a model")
    parser.add_argument("--timings", nargs="?", const=default_timings(), metavar="FILE")
    given = parser.parse_args()
    options = gf.Options(threads=given.threads, timings=given.timings)
    results = []
    for name in _names(given):
        print(f"measuring {name}", file=sys.stderr)
        results.append(measured(name, _proto(name), options, given.blocks))
        if given.json:
            print(json.dumps(results[-1]), flush=True)
    if not given.json:
        console = Console() if sys.stdout.isatty() else Console(width=200)
        console.print(plans_table(results))


if __name__ == "__main__":
    main()
