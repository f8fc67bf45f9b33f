"""The commands for many requests or files: serve has models behind HTTP, by the Open Inference
Protocol; map takes files of arrays through a model, on the workers of a Dask cluster."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from graphflow.base.errors import GraphflowError
from graphflow.base.extras import require_extra
from graphflow.cli.on_demand import on_demand


def serve_command(wanted: argparse.Namespace) -> int:
    """`graphflow serve MODEL…`."""
    require_extra("serve", "`graphflow serve`")
    files, limits = on_demand("serve.model_files"), on_demand("serve.serve_limits")
    process = on_demand("serve.serve_process")
    named = tuple(map(files.named_model, wanted.models))
    for file in named:
        if not file.path.is_file():
            raise GraphflowError(f"there is no file {file.path}; give the path of a model")
    if not named and not wanted.folder:
        raise GraphflowError("nothing is to be served; give a model, or a folder of models")
    found = files.ModelFiles(named, tuple(map(Path, wanted.folder)))
    found.found()  # refuses two files of one name, and folders that cannot be read
    names = [limit.name for limit in fields(limits.ServeLimits)]
    given = {name: getattr(wanted, name) for name in names if hasattr(wanted, name)}
    token = wanted.token_file
    process.serve_models(
        process.ServeOptions(
            files=found,
            host=wanted.host,
            port=wanted.port,
            limits=limits.ServeLimits(**given),
            token=None if token is None else on_demand("serve.access").read_token(token),
            allows_anyone=wanted.allow_anyone,
            certificate=wanted.certificate,
            key=wanted.key,
            threads=wanted.threads,
            compile_options=_compile_options(wanted),
            shares_runs=not wanted.alone,
            reloads=wanted.reload,
            access_log=wanted.access_log,
        )
    )
    return 0


def _compile_options(wanted: argparse.Namespace) -> tuple[str, ...]:
    """The options of `graphflow compile` for ONNX models."""
    sizes = (f"{name}={lo}:{'' if hi is None else hi}" for name, (lo, hi) in wanted.size)
    flags = [flag for size in sizes for flag in ("--size", size)]
    return (*flags, "--strict") if wanted.strict else tuple(flags)


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


COMMANDS = {"map": map_command, "serve": serve_command}
"""The commands of this module, by name."""
