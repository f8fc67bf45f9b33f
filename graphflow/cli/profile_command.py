"""The command profile: the time of each step of a run, beside its estimate.

In: parsed arguments.  Out: tables, JSON, a trace, and the page with these times.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from msgspec import to_builtins
from rich.markup import escape
from rich.table import Table

from graphflow.api.executable import Executable
from graphflow.base.errors import GraphflowError
from graphflow.base.fields import replace
from graphflow.base.run_profile import OperatorTime, RunProfile, StepProfile
from graphflow.bench import chrome_trace, peer_profile, profile_run
from graphflow.cli.compiling import compiled_or_decided, onnx_model, require_one_shape
from graphflow.cli.drawing import stdout_console
from graphflow.cli.executables import drawn_inputs
from graphflow.inspect import measured_nodes, page_of


def run_profile(wanted: argparse.Namespace) -> int:
    """`graphflow profile MODEL`."""
    require_one_shape(wanted)
    with compiled_or_decided(wanted) as exe:
        pass
    found = profile_of(exe, wanted)
    if wanted.trace is not None:
        write_trace(Path(wanted.trace), found)
    if wanted.json:
        print(json.dumps(to_builtins(found), indent=1))
    else:
        show_profile(found, wanted.top)
    return 0


def profiled_page(exe: Any, wanted: argparse.Namespace) -> str:
    """The page of a model with the measured steps of a run."""
    return page_of(exe.compiled, profile_of(exe, wanted))


def measured_seconds(exe: Any) -> dict[int, float]:
    """The measured times of the nodes of a program, by their places in its report."""
    return measured_nodes(exe.compiled, _measured(exe))


def profile_of(exe: Any, wanted: argparse.Namespace) -> RunProfile:
    """The profile of a run on random inputs, with that of the program that is wanted beside it.

    GraphflowError for a model without a program for this processor.
    """
    found = _measured(exe)
    if wanted.against is None:
        return found
    model = onnx_model(wanted.model, wanted.reseed)
    return replace(found, peer=peer_profile(model, found.threads, inputs_of(exe)))


def _measured(exe: Any) -> RunProfile:
    if not isinstance(exe, Executable):
        raise GraphflowError(
            "steps can be measured on this processor only; leave --target out to profile"
        )
    return profile_run(exe.compiled, exe.program, inputs_of(exe))


def inputs_of(exe: Any) -> dict[str, Any]:
    """Random inputs, and the values for which the model was compiled."""
    return drawn_inputs(exe, {}, {})


def write_trace(path: Path, profile: RunProfile) -> None:
    """Write the trace; GraphflowError if the file cannot be written."""
    try:
        path.write_text(json.dumps(chrome_trace(profile)), encoding="utf-8")
    except OSError as error:
        raise GraphflowError(f"cannot write the trace {path}: {error.strerror or error}") from None


def show_profile(profile: RunProfile, top: int) -> None:
    """Print the slowest steps, the operators, and the operators of the peer."""
    console = stdout_console()
    console.print(_steps_table(profile, top))
    console.print(_operators_table("graphflow, by operator", profile.operators()))
    if profile.peer is not None:
        title = f"{profile.peer.name}'s own profile, by operator"
        console.print(_operators_table(title, profile.peer.operators))


def _steps_table(profile: RunProfile, top: int) -> Table:
    share = profile.step_seconds / profile.seconds
    caption = (
        f"A run takes {_micros(profile.seconds)} µs with {profile.threads} threads "
        f"({_micros(profile.estimate)} estimated); its {len(profile.steps)} steps take "
        f"{100 * share:.1f} % of that, {_micros(profile.before)} µs pass before them, "
        f"{_micros(profile.between)} between them, and {_micros(profile.after)} after them. "
        f"Peaks: {profile.gflops:.0f} GFLOP/s, {profile.gbps:.0f} GB/s from the caches. "
        f"Means of the fastest {profile.runs} runs."
    )
    table = Table(header_style="bold", caption=caption)
    for column in ("step", "operators", "variant"):
        table.add_column(column, overflow="fold")
    for column in ("µs", "estimate", "share", "GFLOP/s", "GB/s", "waiting", "imbalance"):
        table.add_column(column, justify="right")
    for step in sorted(profile.steps, key=lambda step: -step.seconds)[:top]:
        table.add_row(*map(escape, _step_row(profile, step)))
    return table


def _step_row(profile: RunProfile, step: StepProfile) -> tuple[str, ...]:
    rates = (f"{n / step.seconds / 1e9:.1f}" if n and step.seconds else "" for n in _work(step))
    return (
        step.name,
        step.operators,
        step.variant or "moves elements",
        _micros(step.seconds),
        "" if step.estimate is None else _micros(step.estimate),
        f"{100 * step.seconds / profile.seconds:.1f} %",
        *rates,
        _micros(step.waiting),
        f"{100 * step.imbalance:.0f} %",
    )


def _work(step: StepProfile) -> tuple[float, int]:
    return step.flops, step.bytes


def _operators_table(title: str, times: tuple[OperatorTime, ...]) -> Table:
    table = Table(title=title, header_style="bold")
    table.add_column("operators", overflow="fold")
    for column in ("µs", "share", "nodes"):
        table.add_column(column, justify="right")
    total = sum(time.seconds for time in times)
    for time in times:
        share = time.seconds / total if total else 0.0
        table.add_row(
            escape(time.operator), _micros(time.seconds), f"{100 * share:.1f} %", str(time.count)
        )
    return table


def _micros(seconds: float) -> str:
    return f"{1e6 * seconds:.1f}"


COMMANDS = {"profile": run_profile}
"""The commands of this module, by name."""
