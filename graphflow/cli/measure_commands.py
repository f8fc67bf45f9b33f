"""The commands that measure: bench times models beside onnxruntime, tune fills the timing table."""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from typing import Any

from rich.console import Console

from graphflow.api.compilation import executable_of
from graphflow.api.progress_bar import ProgressBar
from graphflow.base.extras import require_extra
from graphflow.bench import bench_table
from graphflow.cli.comparison import compare
from graphflow.cli.compiling import onnx_model, options, require_one_shape, values
from graphflow.cli.drawing import stdout_console
from graphflow.cli.on_demand import on_demand
from graphflow.codegen import named_target
from graphflow.pipeline.request import CompileRequest
from graphflow.tuning import Tuned, tune


def run_bench(wanted: argparse.Namespace) -> int:
    """`graphflow bench MODEL...`."""
    require_one_shape(wanted)
    results = []
    for name in wanted.models:
        with Console(stderr=True).status(f"measuring {name}"):
            results.append(_measured(name, wanted))
        if wanted.json:
            print(json.dumps(results[-1]), flush=True)
    if not wanted.json:
        stdout_console().print(bench_table(results))
    return 0


def run_tune(wanted: argparse.Namespace) -> int:
    """`graphflow tune MODEL...`."""
    if wanted.dask is None:
        for name in wanted.models:
            print(f"{name}: {_tuned(name, wanted, target=named_target(wanted.target))}")
        return 0
    require_extra("distributed", "`graphflow tune --dask`")
    timing = on_demand("distributed.cluster_timing")
    with on_demand("distributed.clusters").client_of(wanted.dask) as client:
        kinds = timing.machine_kinds(client, wanted.target, wanted.threads)
        for name in wanted.models:
            for kind, machines in kinds.items():
                site = partial(timing.ClusterSite, client=client, machines=machines)
                found = _tuned(name, wanted, target=kind.target, threads=kind.threads, site=site)
                print(f"{name}, {kind}, machines: {len(machines)}: {found}")
    return 0


def _tuned(name: str, wanted: argparse.Namespace, **where: Any) -> Tuned:
    """The result of tuning one model; `where` has the target of `tune`, its threads and site."""
    with ProgressBar(f"tuning {os.path.basename(name)}") as bar:
        return tune(
            onnx_model(name, wanted.reseed),
            input_shapes=dict(wanted.shape),
            input_values=values(wanted),
            options=options(wanted),
            search=wanted.search,
            progress=bar.stage,
            counting=bar.count,
            **where,
        )


COMMANDS = {"bench": run_bench, "tune": run_tune}
"""The commands of this module, by name."""


def _measured(name: str, wanted: argparse.Namespace) -> dict[str, Any]:
    model = onnx_model(name, wanted.reseed)
    request = CompileRequest(
        model,
        name=name,
        input_shapes=dict(wanted.shape),
        input_values=values(wanted),
        options=options(wanted),
    )
    return compare(executable_of(request), model, against=wanted.against)
