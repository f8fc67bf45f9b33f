"""`graphflow calibrate`: measure this processor, so that plans for it have true prices."""

from __future__ import annotations

import argparse
import json
import os

from rich.console import Console
from rich.table import Table

from graphflow.base.options import rates_file
from graphflow.base.processors import Rates
from graphflow.base.target import Target
from graphflow.bench import measured_rates
from graphflow.cli.drawing import stdout_console
from graphflow.codegen import kept_rates, kind_of, uncalibrated_host
from graphflow.runtime import default_threads, replace_file

UNITS = {
    "clock_ghz": "10⁹ cycles a second",
    "l2_gbps": "10⁹ bytes a second, one core",
    "l3_gbps": "10⁹ bytes a second, one core",
    "dram_gbps": "10⁹ bytes a second, one core",
    "dram_cores": "bandwidth of memory, in those of one core",
}
"""What the fields of `Rates` count."""


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
        stdout_console().print(_table(kept[kind], host))
        print(f"Kept in {file}: plans for this kind of processor are priced by it from now on.")
    return 0


def _table(measured: Rates, host: Target) -> Table:
    """What was measured beside what is assumed of such a processor."""
    table = Table(title=f"{kind_of(host)}: rates")
    for heading in ("rate", "unit", "assumed", "measured"):
        table.add_column(heading, justify="left" if heading in ("rate", "unit") else "right")
    for name, number in measured.items():
        table.add_row(name, UNITS[name], f"{getattr(host, name):g}", f"{number:.3g}")
    return table


COMMANDS = {"calibrate": run_calibrate}
"""The command of this module, by name."""
