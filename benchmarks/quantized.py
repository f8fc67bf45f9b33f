"""Quantized networks beside onnxruntime, and beside the float32 networks that they were made of.

    python benchmarks/quantized.py [NETWORK…] [--ways u8s8,s8s8,…] [--threads 2] [--blocks 10]
                                   [--target avx2] [--json FILE]

The networks are those of `models/zoo/quantized_zoo.py`, quantized by onnxruntime.  graphflow and
onnxruntime run the quantized network, and graphflow the float32 one, in alternating blocks; a speed
is the other time over that of graphflow's quantized network, the median over consecutive blocks.
The last lines have the geometric means.  graphflow compiles both networks for the processor that
`--target` names; onnxruntime uses what instructions the host has.
"""

from __future__ import annotations

import argparse
import json
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

import graphflow as gf
from graphflow.base.processors import TARGET_NAMES
from graphflow.base.target import Target
from graphflow.bench import (
    Protocol,
    largest_error,
    load_peer,
    mean_speeds,
    measure,
    speeds_beside,
    speeds_table,
)
from graphflow.codegen import named_target
from graphflow.models.zoo.quantized_zoo import NETWORKS, QUANTIZED
from graphflow.quantization import WAYS

OURS, FLOAT, PEER = "graphflow", "graphflow float32", "onnxruntime"
OTHERS = (PEER, FLOAT)
SEED = 0


def compared(name: str, way: str, threads: int, blocks: int, target: Target) -> dict[str, Any]:
    """The milliseconds of all three, the speeds beside the others, the largest relative difference
    from onnxruntime, and how many products add up integers."""
    network, feeds = NETWORKS[name], NETWORKS[name].feeds(SEED)
    model = QUANTIZED[f"{name}_{way}"].build(SEED)
    shapes = {tensor: array.shape for tensor, array in feeds.items()}
    options = gf.Options(threads=threads)
    build = partial(gf.compile, input_shapes=shapes, options=options, target=target)
    ours = build(model)
    runs = {
        OURS: ours.run,
        FLOAT: build(network.build(SEED)).run,
        PEER: load_peer(PEER, model, threads).run,
    }
    times = measure({title: partial(run, feeds) for title, run in runs.items()}, Protocol(blocks))
    return {
        "network": name,
        "way": way,
        "threads": threads,
        "target": target.name,
        **speeds_beside(times, OURS),
        "error": largest_error(runs[OURS](feeds), runs[PEER](feeds)),
        "integer_products": ours.report()["summary"]["integer_products"],
    }


def main() -> None:
    """Measure, print the table and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", default=[*NETWORKS])
    parser.add_argument("--ways", type=lambda text: text.split(","), default=[*WAYS])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--blocks", type=int, default=10)
    parser.add_argument("--target", choices=TARGET_NAMES, default="host")
    parser.add_argument("--json", type=Path)
    wanted = parser.parse_args()
    target = named_target(wanted.target)
    results = []
    for name in wanted.networks:
        for way in wanted.ways:
            results.append(compared(name, way, wanted.threads, wanted.blocks, target))
            if wanted.json is not None:
                wanted.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    Console(width=120).print(speeds_table(results, ("network", "way"), OURS, OTHERS))
    print(*mean_speeds(results, OTHERS), sep="\n")


if __name__ == "__main__":
    main()
