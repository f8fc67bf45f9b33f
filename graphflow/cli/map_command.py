"""`graphflow map`: files of arrays through a model, on the workers of a Dask cluster."""

from __future__ import annotations

import argparse
import sys

from graphflow.base.extras import require_extra
from graphflow.cli.on_demand import on_demand


def map_command(wanted: argparse.Namespace) -> int:
    """`graphflow map MODEL`."""
    require_extra("distributed", "`graphflow map`")
    files = on_demand("distributed.file_map")
    inputs = on_demand("distributed.file_stores").found_files(wanted.input)
    model = on_demand("distributed.portable_model").portable_model(
        *wanted.models, sizes=dict(wanted.size), threads=wanted.threads
    )
    with (
        on_demand("distributed.clusters").client_of(wanted.dask) as client,
        on_demand("api.progress_bar").ProgressBar("files") as bar,
    ):
        print(f"dashboard: {client.dashboard_link}", file=sys.stderr)
        outcome = files.map_files(
            client, model, inputs, wanted.output, columns=wanted.columns, counting=bar.count
        )
    print(f"{outcome.done} files done, {outcome.before} before, {len(outcome.failed)} failed")
    for record in outcome.failed:
        print(f"{record.input}: {record.error}", file=sys.stderr)
    return 1 if outcome.failed else 0


COMMANDS = {"map": map_command}
"""The commands of this module, by name."""
