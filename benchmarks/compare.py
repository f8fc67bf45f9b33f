"""Whole networks beside other runtimes: time of a run, time until a first run, peak memory.

    python benchmarks/compare.py [MODEL…] [--threads 2] [--against onnxruntime,openvino]
                                 [--blocks 12] [--json FILE]

A model is a name as `graphflow bench` takes it, or a path; the default are the networks that the
onnx package ships, and the zoo.  First each runtime loads the model and runs it once in a process
that imports no other one (`first_run.py`), graphflow from an empty cache, and again where it finds
its program: the seconds and the peak of resident memory are those of a user of that runtime alone.
Then all runtimes are in one process and run in alternating blocks; a speed is the peer's time over
that of graphflow, the median over consecutive blocks, because the speed of a shared machine
changes.  The last lines have the geometric means of the speeds, and of those beside the better peer
of each model.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import graphflow as gf
from graphflow.base.offered_names import LIGHT, PEER_NAMES, ZOO_PREFIX
from graphflow.bench import Protocol, largest_error, load_peer, measure
from graphflow.models import EXPORTED, LONG, ZOO, light_names, named
from graphflow.program import OpenTensor, random_inputs

OURS = "graphflow"
AGAIN = "again"
"""The same in a process that finds the program of the process before."""
REFERENCE = PEER_NAMES[0]

SEED = 0
"""The networks of the onnx package come without weights; they are drawn with this seed."""

EXTENTS = {
    "batch": 1, "batch_size": 1, "sequence_length": 64, "sequence": 1, "past": 127, "total": 128,
    "encoder": 64, "decoder": 16, "frames": 256, "height": 128, "width": 128,
}  # fmt: skip
"""The extents of symbolic dimensions: one image, one text, one token behind a past."""

MODEL, INPUTS = "model.onnx", "inputs.npz"

KEPT_BYTECODE = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
"""The environment of first runs: an installed package has bytecode.  Without it the import of the
compiler takes 1.7 s of processor time in place of 0.8, in each process."""

WIDTH = 150
"""Columns of the table, also where the output is a file."""

Arrays = Mapping[str, NDArray[Any]]
Network = Callable[[Arrays], Arrays]


def networks() -> list[str]:
    """The networks of the onnx package and of the zoo, without the zoo's single patterns."""
    zoo = [ZOO_PREFIX + name for name in (*ZOO, *EXPORTED) if ":" not in name]
    return [LIGHT + name for name in light_names()] + zoo


def loaded(name: str) -> tuple[onnx.ModelProto, dict[str, NDArray[Any]]]:
    """The model, and random inputs of it; those of long sequences have the zoo's extents."""
    model = named(name, SEED) or onnx.load(name)
    long = LONG.get(name.removeprefix(ZOO_PREFIX))
    if long is not None:
        return model, long.feeds(SEED)
    constants = {constant.name for constant in model.graph.initializer}
    tensors = [
        OpenTensor(
            value.name,
            onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name,
            tuple(_extent(name, dim) for dim in value.type.tensor_type.shape.dim),
        )
        for value in model.graph.input
        if value.name not in constants
    ]
    return model, random_inputs(tensors)


def save(name: str, folder: Path) -> None:
    """Write the model and its inputs to files."""
    model, inputs = loaded(name)
    onnx.save(model, folder / MODEL)
    with (folder / INPUTS).open("wb") as file:
        np.savez(file, **inputs)  # type: ignore[arg-type]


def _extent(name: str, dim: onnx.TensorShapeProto.Dimension) -> int:
    if dim.HasField("dim_value"):
        return dim.dim_value
    if dim.dim_param not in EXTENTS:
        raise SystemExit(f"{name}: no extent is known for its dimension {dim.dim_param!r}")
    return EXTENTS[dim.dim_param]


def network(runtime: str, model: onnx.ModelProto, inputs: Arrays, threads: int) -> Network:
    """The model, ready to run in a runtime."""
    if runtime != OURS:
        return load_peer(runtime, model, threads).run
    shapes = {name: array.shape for name, array in inputs.items()}
    return gf.compile(model, input_shapes=shapes, options=gf.Options(threads=threads)).run


def first_run(runtime: str, folder: Path, threads: int) -> dict[str, float] | str:
    """Seconds until a first run has ended, and the peak of resident memory in MiB, of a process
    with that runtime alone; the last line of its errors instead, if a peer fails.

    `folder` has the model and its inputs.
    """
    script = str(Path(__file__).with_name("first_run.py"))
    files = str(folder / MODEL), str(folder / INPUTS)
    cache = ["--cache", str(folder / "cache")]
    command = [sys.executable, script, runtime, *files, "--threads", str(threads), *cache]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=KEPT_BYTECODE)
    if ended.returncode and runtime == OURS:
        raise SystemExit(ended.stderr)
    if ended.returncode:
        return ended.stderr.strip().splitlines()[-1]
    found: dict[str, float] = json.loads(ended.stdout)
    return found


def alternating(
    name: str, runtimes: Sequence[str], threads: int, blocks: int
) -> dict[str, dict[str, float]]:
    """Milliseconds of each runtime, and for peers their speed: our time is 1; for the reference
    also the largest relative difference of the outputs."""
    model, inputs = loaded(name)
    ready = {runtime: network(runtime, model, inputs, threads) for runtime in runtimes}
    times = measure({r: partial(run, inputs) for r, run in ready.items()}, Protocol(blocks=blocks))
    found = {runtime: {"ms": time.median_ms} for runtime, time in times.items()}
    for peer in runtimes[1:]:
        found[peer]["speed"] = times[peer].ratio_to(times[OURS])
    if REFERENCE in ready:
        found[OURS]["error"] = largest_error(ready[OURS](inputs), ready[REFERENCE](inputs))
    return found


def compared(name: str, peers: Sequence[str], threads: int, blocks: int) -> dict[str, Any]:
    """All numbers of a model by runtime, each part measured in a process of its own; `failures`
    has the reasons of peers that cannot run it."""
    with tempfile.TemporaryDirectory() as folder:
        _apart(save, name, Path(folder))
        alone = {runtime: first_run(runtime, Path(folder), threads) for runtime in (OURS, *peers)}
        again = first_run(OURS, Path(folder), threads)
    failures = {runtime: found for runtime, found in alone.items() if isinstance(found, str)}
    able = [runtime for runtime in alone if runtime not in failures]
    times = _apart(alternating, name, able, threads, blocks)
    return {
        "model": name,
        "threads": threads,
        "failures": failures,
        AGAIN: again,
        **{runtime: alone[runtime] | times[runtime] for runtime in able},
    }


def _apart(function: Callable[..., Any], *arguments: object) -> Any:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(function, arguments)


def table(results: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> Table:
    """One row for each model."""
    drawn = Table(header_style="bold")
    drawn.add_column("model")
    for runtime in (OURS, *peers):
        drawn.add_column(f"{runtime} ms", justify="right")
        if runtime != OURS:
            drawn.add_column("speed", justify="right")
    for what in ("first run s", "peak MiB"):
        drawn.add_column(f"{what}: " + ", ".join((OURS, AGAIN, *peers)), justify="right")
    drawn.add_column("error", justify="right")
    for result in results:
        cells = [f"{result[OURS]['ms']:.3g}"]
        for peer in peers:
            found = result.get(peer)
            cells += [f"{found['ms']:.3g}", f"{found['speed']:.2f}"] if found else ["-", "-"]
        for key in ("first_s", "peak_mib"):
            values = (result.get(runtime) for runtime in (OURS, AGAIN, *peers))
            cells.append(", ".join(f"{found[key]:.3g}" if found else "-" for found in values))
        error = result[OURS].get("error")
        drawn.add_row(result["model"], *cells, "-" if error is None else f"{error:.0e}")
    return drawn


def means(results: Sequence[Mapping[str, Any]], peers: Sequence[str]) -> dict[str, list[float]]:
    """The speeds of all models beside each peer, and beside the better one of each model."""
    speeds = {peer: [found[peer]["speed"] for found in results if peer in found] for peer in peers}
    if len(peers) > 1:
        beside = ([found[peer]["speed"] for peer in peers if peer in found] for found in results)
        speeds["the better peer"] = [min(found) for found in beside if found]
    return {name: found for name, found in speeds.items() if found}


def main() -> None:
    """Measure, print the table and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=networks())
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--against", type=lambda text: text.split(","), default=[REFERENCE])
    parser.add_argument("--blocks", type=int, default=12)
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    imported = [sys.executable, "-c", "import graphflow as gf; gf.compile"]
    subprocess.run(imported, env=KEPT_BYTECODE, check=True)  # makes bytecode that is missing
    results = []
    for name in wanted.models:
        results.append(compared(name, wanted.against, wanted.threads, wanted.blocks))
        if wanted.json is not None:
            wanted.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    Console(width=WIDTH).print(table(results, wanted.against))
    for peer, speeds in means(results, wanted.against).items():
        least = min(speeds)
        print(f"beside {peer}: geometric mean {statistics.geometric_mean(speeds):.3f}", end=", ")
        print(f"least {least:.2f}, of {len(speeds)} models")


if __name__ == "__main__":
    main()
