"""The commands that measure: bench times models beside onnxruntime, tune fills the timing table,
and calibrate measures this processor, so that plans for it have true prices."""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from graphflow.api.first_compilation import executable_of
from graphflow.api.progress_bar import ProgressBar
from graphflow.base.extras import require_extra
from graphflow.base.options import rates_file
from graphflow.base.processors import Rates
from graphflow.base.target import Target
from graphflow.bench import bench_table, measured_rates
from graphflow.cli.comparison import compare
from graphflow.cli.compiling import onnx_model, options, require_one_shape, values
from graphflow.cli.drawing import stdout_console
from graphflow.cli.on_demand import on_demand
from graphflow.codegen import kept_rates, kind_of, named_target, uncalibrated_host
from graphflow.pipeline.request import CompileRequest
from graphflow.runtime import default_threads, replace_file
from graphflow.tuning import Tuned, tune

UNITS = {
    "clock_ghz": "10⁹ cycles a second",
    "l2_gbps": "10⁹ bytes a second, one core",
    "l3_gbps": "10⁹ bytes a second, one core",
    "dram_gbps": "10⁹ bytes a second, one core",
    "dram_cores": "bandwidth of memory, in those of one core",
}
"""What the fields of `Rates` count."""


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


def run_calibrate(wanted: argparse.Namespace) -> int:
    """`graphflow calibrate`."""
    file, host = rates_file(), uncalibrated_host()
    kept, kind = kept_rates(file), kind_of(host)
    kept.pop(kind, None)
    if not wanted.forget:
        with Console(stderr=True).status("measuring this processor"):
            kept[kind] = measured_rates(host, default_threads())
    content = (json.dumps(kept, indent=2) + "\n").encode()
    os.makedirs(os.path.dirname(file), exist_ok=True)
    replace_file(file, lambda out: out.writelines([content]))
    if wanted.json:
        print(json.dumps({"kind": kind, "file": file, "rates": kept.get(kind)}))
    elif wanted.forget:
        print(f"{file} keeps no rates of {kind}")
    else:
        stdout_console().print(_rates_table(kept[kind], host))
        print(f"Kept in {file}: plans for this kind of processor are priced by it from now on.")
    return 0


def _rates_table(measured: Rates, host: Target) -> Table:
    """What was measured beside what is assumed of such a processor."""
    table = Table(title=f"{kind_of(host)}: rates")
    for heading in ("rate", "unit", "assumed", "measured"):
        table.add_column(heading, justify="left" if heading in ("rate", "unit") else "right")
    for name, number in measured.items():
        table.add_row(name, UNITS[name], f"{getattr(host, name):g}", f"{number:.3g}")
    return table


COMMANDS = {"bench": run_bench, "calibrate": run_calibrate, "tune": run_tune}
"""The commands of this module, by name."""
