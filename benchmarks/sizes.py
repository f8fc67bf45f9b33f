"""One program for a range of batches beside a program for each, and beside onnxruntime.

    python benchmarks/sizes.py [--most 8] [--threads 2] [MODEL …]

For each network and some batches: milliseconds of the program for all batches up to the most, of
the program for this batch alone, of padding the batch to the most by hand, and of onnxruntime;
medians of alternating blocks.  The last line has the geometric mean of the first over the second.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import partial
from math import exp, log

import numpy as np
import onnx

import graphflow as gf
from graphflow.bench import Protocol, load_peer, measure
from graphflow.models import named, with_open_batch
from graphflow.program import random_inputs

NETWORKS = (
    "zoo:resnet18", "zoo:mobilenet_v3_small", "zoo:densenet40_k12", "zoo:unet",
    "zoo:regnet_y_400mf", "zoo:vit", "zoo:convnext",
)  # fmt: skip
BATCH = "batch"


def rows(model: onnx.ModelProto, most: int, threads: int) -> Iterator[tuple[int, dict[str, float]]]:
    """For some batches the milliseconds of each way to run the model."""
    options = gf.Options(threads=threads)
    ranged = gf.compile(model, sizes={BATCH: (1, most)}, options=options)
    peer = load_peer("onnxruntime", model, threads)
    for batch in sorted({1, max(1, most // 4), max(1, most // 2), most}):
        shapes = {
            tensor.name: tuple(batch if n == BATCH else int(n) for n in tensor.shape or ())
            for tensor in ranged.inputs
        }
        exact = gf.compile(model, input_shapes=shapes, options=options)
        feeds = random_inputs(exact.inputs)
        runs = {
            "ranged": partial(ranged.run, feeds),
            "exact": partial(exact.run, feeds),
            "padded": partial(_padded, ranged, feeds, most),
            "onnxruntime": partial(peer.run, feeds),
        }
        times = measure(runs, Protocol(blocks=5))
        yield batch, {name: time.median_ms for name, time in times.items()}


def _padded(exe: gf.Executable, feeds: dict[str, np.ndarray], most: int) -> None:
    """A run as a caller pads it: to the most, with zeros, and the results cut."""
    count = len(next(iter(feeds.values())))
    full = {n: np.concatenate([a, np.zeros((most - count, *a.shape[1:]), a.dtype)])
            for n, a in feeds.items()}  # fmt: skip
    for array in exe.run(full).values():
        array[:count].copy()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=NETWORKS)
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    wanted = parser.parse_args()
    ratios: dict[str, list[float]] = {}
    for name in wanted.models:
        model = named(name)
        if model is None:
            raise SystemExit(f"{name} is no network of the zoo")
        for batch, times in rows(with_open_batch(model, BATCH), wanted.most, wanted.threads):
            listed = "  ".join(f"{way} {ms:8.3f} ms" for way, ms in times.items())
            ratio = times["ranged"] / times["exact"]
            where = "most" if batch == wanted.most else "less"
            ratios.setdefault(where, []).append(ratio)
            print(f"{name:24} {batch:3}  {listed}  ranged / exact {ratio:.2f}", flush=True)
    for where, found in ratios.items():
        mean = exp(sum(map(log, found)) / len(found))
        print(f"ranged / exact at {where}: geometric mean {mean:.3f}, largest {max(found):.2f}")


if __name__ == "__main__":
    main()
