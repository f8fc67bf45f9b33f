"""The chosen plan against uniform plans: is the chosen one ever slower, measured, than the best?

    python benchmarks/plans.py [MODEL ...] [--light] [--channels 8,9] [--threads N] [--json]
                               [--target avx2] [--timings [FILE]] [--folder F [--compile-only]]

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
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import onnx
from rich.console import Console
from rich.table import Table
from saved_programs import add_arguments, compile_arguments, results

import graphflow as gf
from graphflow.base.fields import replace
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


def compiled(given: argparse.Namespace, name: str, folder: Path) -> dict[str, Any]:
    """The chosen plan, and one plan for each family by the family's name, as plain values: `pinned`
    is the number of inner tensors that were pinned (None: chosen freely); `same_as` names an
    earlier plan with the same program, whose times count for both.  Other programs are saved."""
    model = named(name, 0) or onnx.load(name)
    arguments = compile_arguments(given, timings=given.timings)
    # Before flow may change it; pins refer to its tensors.
    graph = fuse_groups(canonicalize(import_model(model, fallback=True)))
    target = arguments["target"]
    layouts = {
        f.name: uniform_pins(graph, target, f) for f in families(RANK, target.lanes("float32"))
    }
    plans: dict[str, dict[str, Any]] = {}
    programs: dict[str, tuple[object, ...]] = {}
    for plan, pins in {CHOSEN: None, **layouts}.items():
        exe = gf.compile(model, layouts=pins, **arguments)
        program = _identity(exe.compiled.spec)
        same = next((other for other, known in programs.items() if known == program), None)
        if same is None:
            programs[plan] = program
            exe.save(folder / f"{plan}.gf")
        plans[plan] = {
            "estimated_ms": 1e3 * exe.compiled.plan.seconds,
            "measured_prices": exe.compiled.plan.measured_prices,
            "estimated_prices": exe.compiled.plan.estimated_prices,
            "pinned": None if pins is None else len(pins),
            "same_as": same,
        }
    return {"model": name, "edges": len(inner_values(graph, RANK)), "plans": plans}


def _identity(spec: ProgramSpec) -> tuple[object, ...]:
    places = tuple((offset, array.shape) for offset, array in spec.constants)
    return spec.objects, spec.prepare, spec.run, places, spec.arena_bytes


def timed(blocks: int, folder: Path, model: Mapping[str, Any]) -> dict[str, Any]:
    """Times, estimates and the ratio of one model as plain values."""
    plans = model["plans"]
    programs = {n: gf.load(folder / f"{n}.gf") for n, p in plans.items() if p["same_as"] is None}
    inputs = random_inputs(programs[CHOSEN].inputs)
    expected = programs[CHOSEN].run(inputs)
    runs = {name: exe.program.bind(inputs).run for name, exe in programs.items()}
    rounds = [_round(plans, runs, blocks)]
    if max(_ratios(rounds[0]).values()) > SUSPICIOUS:
        rounds += [_round(plans, runs, blocks) for _ in range(2)]
    times = {n: statistics.median(t for found in rounds for t in found[n]) for n in plans}
    ratios = [_ratios(found) for found in rounds]
    worst = [max(found.values()) for found in ratios]
    return {
        **model,
        "threads": programs[CHOSEN].threads,
        "plans": {name: {"ms": times[name], **plan} for name, plan in plans.items()},
        "best": max(ratios[0], key=lambda n: statistics.median(found[n] for found in ratios)),
        "ratio": statistics.median(worst),
        "ratios": worst,
        "max_rel_error": max(largest_error(exe.run(inputs), expected) for exe in programs.values()),
    }


def _round(
    plans: Mapping[str, Any], runs: Mapping[str, Callable[[], object]], blocks: int
) -> Round:
    timings = measure(runs, replace(PROTOCOL, blocks=blocks))
    return {n: timings[p["same_as"] or n].blocks for n, p in plans.items()}


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


def _channels(text: str) -> list[int]:
    return [int(n) for n in text.split(",")]


def main() -> None:
    """Print the table, or one JSON object on a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="default: the whole zoo")
    parser.add_argument("--light", action="store_true", help="the light models too, reseeded")
    parser.add_argument("--channels", type=_channels, default=[], help="of every probe, as 8,9,15")
    parser.add_argument("--blocks", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="one object a line, one line a model")
    parser.add_argument("--timings", nargs="?", const=default_timings(), metavar="FILE")
    add_arguments(parser, threads=None)
    given = parser.parse_args()
    save, time = partial(compiled, given), partial(timed, given.blocks)
    found = [
        result
        for model in results(_names(given), given, save, time).values()
        for result in model.rounds
    ]
    if given.json:
        for result in found:
            print(json.dumps(result))
    elif found:
        console = Console() if sys.stdout.isatty() else Console(width=200)
        console.print(plans_table(found))


if __name__ == "__main__":
    main()
