"""Programs are compiled and saved before the first one is timed, and times are kept as they come.

In: how to compile and how to time a model.  Out: its results.  What always holds: nothing is
compiled while programs are timed, which would disturb the times; and with `--folder` what a
benchmark has made is there for its next call, so one that was stopped goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import graphflow as gf
from graphflow.codegen import named_target

Compile = Callable[[str, Path], Any]
"""Compiles the model of a name, saves its programs to a folder, and returns plain values."""

Time = Callable[[Path, Any], Any]
"""Times the programs in a folder, of which `Compile` returned the values; returns plain ones."""


def add_arguments(parser: argparse.ArgumentParser, threads: int | None) -> None:
    """What `results` reads, and how programs are compiled."""
    parser.add_argument("--threads", type=int, default=threads)
    parser.add_argument("--target", choices=("host", "avx2"), default="host")
    parser.add_argument("--folder", type=Path, help="keeps programs and times for another call")
    parser.add_argument("--compile-only", action="store_true", help="into the folder")


def compile_arguments(given: argparse.Namespace, **options: Any) -> dict[str, Any]:
    """The target and the options of `gf.compile`."""
    options["threads"] = given.threads
    return {"target": named_target(given.target), "options": gf.Options(**options)}


@dataclass(frozen=True)
class Results:
    """What `Compile` returned of a model, and `Time` in each round; no rounds with
    `--compile-only`."""

    values: Any
    rounds: list[Any]


def results(
    names: Iterable[str], given: argparse.Namespace, compiled: Compile, timed: Time, rounds: int = 1
) -> dict[str, Results]:
    """The results of each model, by its name."""
    with nullcontext(given.folder) if given.folder else tempfile.TemporaryDirectory() as top:
        part = f"{given.target}-{given.threads}"
        folders = {name: Path(top, part, name.replace("/", "_")) for name in names}
        found = {
            name: Results(_kept(folder / "programs.json", partial(compiled, name, folder)), [])
            for name, folder in folders.items()
        }
        for turn in range(0 if given.compile_only else rounds):
            for name, folder in folders.items():
                time = partial(timed, folder, found[name].values)
                found[name].rounds.append(_kept(folder / f"times{turn}.json", time))
    return found


def _kept(path: Path, make: Callable[[], Any]) -> Any:
    """The values in a file, which is made if it does not exist."""
    if not path.exists():
        print(f"making {path}", file=sys.stderr, flush=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        made = json.dumps(make())
        path.write_text(made, encoding="utf-8")
    return json.loads(path.read_text(encoding="utf-8"))
