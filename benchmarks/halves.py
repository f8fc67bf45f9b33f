"""Networks of float16 and bfloat16 beside our float32, and beside onnxruntime on the same model.

    python benchmarks/halves.py [NETWORK…] [--types float16,bfloat16] [--threads 1] [--blocks 10]
                                [--excess-precision] [--flush-denormals] [--folded]
                                [--target avx2] [--json FILE]

The networks are those of `models/zoo/sixteen_bit_zoo.py`.  graphflow in 16 bits and in float32, and
onnxruntime in 16 bits, take turns in alternating blocks; a speed is the other time over that of
graphflow in 16 bits, the median over consecutive blocks.  onnxruntime has no kernels for most
operators on bfloat16: then its columns are empty.  With `--excess-precision` graphflow in 16 bits
may leave out roundings; with `--flush-denormals` all three count denormals as zero.  With
`--folded` normalizations are factors of the weights in front of them before a network is cast, as
exporters write networks that are evaluated; else the rounding between both has to be kept.  The
error is the largest difference from our float32, relative to its largest element.  graphflow
compiles both networks for the processor that `--target` names.  The last lines have the geometric
means.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
from rich.console import Console

import graphflow as gf
from graphflow.base.dtypes import HALVES
from graphflow.base.processors import TARGET_NAMES
from graphflow.base.target import Target
from graphflow.bench import (
    PeerFailure,
    Protocol,
    Run,
    largest_error,
    load_peer,
    mean_speeds,
    measure,
    peer_outputs,
    speeds_beside,
    speeds_table,
)
from graphflow.codegen import named_target
from graphflow.models.zoo.sixteen_bit_zoo import NETWORKS, sixteen_bit_feeds, sixteen_bit_network

OURS, FLOAT, PEER = "graphflow", "graphflow float32", "onnxruntime"
OTHERS = (FLOAT, PEER)
SEED = 0

Rewritten: TypeAlias = Callable[[onnx.ModelProto], onnx.ModelProto]


def folded(model: onnx.ModelProto) -> onnx.ModelProto:
    """The float32 model after the simplest optimizations of onnxruntime, which fold
    BatchNormalization into the convolution in front of it."""
    with tempfile.NamedTemporaryFile(suffix=".onnx") as file:
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
        options.optimized_model_filepath = file.name
        options.log_severity_level = 3  # else it warns that the file may depend on the processor
        onnxruntime.InferenceSession(model.SerializeToString(), options)
        return onnx.load(file.name)


def compared(
    name: str,
    dtype: str,
    options: gf.Options,
    target: Target,
    blocks: int,
    rewritten: Rewritten | None,
) -> dict[str, Any]:
    """The milliseconds of all three, the speeds beside the others, and the largest relative
    difference from float32."""
    whole, feeds = NETWORKS[name], sixteen_bit_feeds(name, dtype, SEED)
    model, wide = sixteen_bit_network(name, dtype, SEED, rewritten), whole.feeds(SEED)
    shapes = {tensor: array.shape for tensor, array in feeds.items()}
    build = partial(gf.compile, input_shapes=shapes, options=options, target=target)
    ours, float32 = build(model), build(whole.build(SEED))
    threads = ours.threads
    runs: dict[str, Run] = {OURS: partial(ours.run, feeds), FLOAT: partial(float32.run, wide)}
    try:
        peer = load_peer(PEER, model, threads, flush_denormals=options.flush_denormals)
        peer_outputs(PEER, peer, feeds)
        runs[PEER] = partial(peer.run, feeds)
    except PeerFailure:
        pass
    times = measure(runs, Protocol(blocks))
    results = {tensor: array.astype(np.float32) for tensor, array in ours.run(feeds).items()}
    return {
        "network": name,
        "type": dtype,
        "threads": threads,
        "target": target.name,
        **speeds_beside(times, OURS),
        "error": largest_error(results, float32.run(wide)),
    }


def main() -> None:
    """Measure, print the table and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=[*NETWORKS])
    parser.add_argument("--types", type=lambda text: text.split(","), default=[*HALVES])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--excess-precision", action="store_true")
    parser.add_argument("--flush-denormals", action="store_true")
    parser.add_argument("--folded", action="store_true")
    parser.add_argument("--target", choices=TARGET_NAMES, default="host")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    target = named_target(wanted.target)
    options = gf.Options(
        threads=wanted.threads,
        excess_precision=wanted.excess_precision,
        flush_denormals=wanted.flush_denormals,
    )
    rewritten = folded if wanted.folded else None
    results = []
    for name in wanted.networks:
        for dtype in wanted.types:
            results.append(compared(name, dtype, options, target, wanted.blocks, rewritten))
            if wanted.json is not None:
                wanted.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    Console(width=120).print(speeds_table(results, ("network", "type"), OURS, OTHERS))
    print(*mean_speeds(results, OTHERS), sep="\n")


if __name__ == "__main__":
    main()
