"""One program for a range of sizes beside a program for each shape, and beside onnxruntime.

    python benchmarks/sizes.py [--most 8] [--threads 2] [MODEL …]

For each network and some shares of the greatest extents: milliseconds of the program for all
extents, of the program for these alone, of padding the inputs to the most by hand, and of
onnxruntime; medians of alternating blocks.  Networks with a known shape get an open batch, up to
`--most`; in all others the extents of all sizes change together.  The last column is the time of
the first program over that of the second, the median over consecutive short blocks, because the
speed of a shared machine changes; the last lines have its geometric means.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from functools import partial
from math import ceil, exp, log
from statistics import median

import numpy as np
import onnx

import graphflow as gf
from graphflow.bench import Protocol, load_peer, measure
from graphflow.models import named, with_open_batch
from graphflow.program import OpenTensor, random_inputs

NETWORKS = (
    "zoo:resnet18", "zoo:mobilenet_v3_small", "zoo:densenet40_k12", "zoo:unet",
    "zoo:regnet_y_400mf", "zoo:vit", "zoo:convnext", "zoo:bert", "zoo:speech", "zoo:vit_any",
    "zoo:gpt",
)  # fmt: skip
BATCH = "batch"
SIZES: dict[str, Mapping[str, tuple[int, int]]] = {
    "zoo:bert": {"batch_size": (1, 4), "sequence_length": (1, 64)},
    "zoo:speech": {"batch": (1, 4), "frames": (1, 256)},
    "zoo:vit_any": {"batch": (1, 4), "height": (8, 128), "width": (8, 128)},
    "zoo:gpt": {"batch": (1, 1), "sequence": (1, 1), "past": (0, 127), "total": (1, 128)},
}
"""Networks with symbolic dimensions of their own, and the bounds of these."""

SHARES = (1 / 8, 1 / 4, 1 / 2, 1.0)

PAIRED = Protocol(blocks=25, idle=0.0, discarded=0.005, measured=0.02)
"""Programs of this compiler leave no thread spinning, so they alternate without idling."""


def rows(
    model: onnx.ModelProto, sizes: Mapping[str, tuple[int, int]], threads: int
) -> Iterator[tuple[float, dict[str, float], float]]:
    """For some shares of the greatest extents the milliseconds of each way to run the model, and
    the time of the program for all extents over that of the program for these."""
    options = gf.Options(threads=threads)
    ranged = gf.compile(model, sizes=sizes, options=options)
    peer = load_peer("onnxruntime", model, threads)
    for share in SHARES:
        extents = {name: max(lo, ceil(share * hi)) for name, (lo, hi) in sizes.items()}
        if "past" in extents:
            extents["past"] = extents["total"] - extents["sequence"]
        tensors = _with_extents(ranged, extents)
        exact = gf.compile(model, input_shapes={t.name: t.shape for t in tensors}, options=options)
        feeds = random_inputs(tensors)
        programs = {"ranged": partial(ranged.run, feeds), "exact": partial(exact.run, feeds)}
        blocks = [time.blocks for time in measure(programs, PAIRED).values()]
        runs = programs | {"onnxruntime": partial(peer.run, feeds)}
        if "past" not in extents:  # what stands behind the past would count as tokens
            largest = _with_extents(ranged, {name: hi for name, (_, hi) in sizes.items()})
            full = {t.name: t.shape for t in largest}
            runs["padded"] = partial(_padded, ranged, feeds, full)
        times = measure(runs, Protocol(blocks=5))
        ratio = median(ours / exactly for ours, exactly in zip(*blocks, strict=True))
        yield share, {name: time.median_ms for name, time in times.items()}, ratio


def _with_extents(exe: gf.Executable, extents: Mapping[str, int]) -> list[OpenTensor]:
    """The inputs where the dimensions have these extents."""
    return [
        OpenTensor(
            tensor.name,
            tensor.dtype,
            tuple(extents[n] if isinstance(n, str) else n for n in tensor.shape or ()),
        )
        for tensor in exe.inputs
    ]


def _padded(
    exe: gf.Executable, feeds: Mapping[str, np.ndarray], full: Mapping[str, tuple[int, ...]]
) -> None:
    """A run as a caller pads it: to the most, with zeros, and the results copied."""
    arrays = {}
    for name, array in feeds.items():
        arrays[name] = np.zeros(full[name], array.dtype)
        arrays[name][tuple(map(slice, array.shape))] = array
    for array in exe.run(arrays).values():
        array[: len(next(iter(feeds.values())))].copy()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=NETWORKS)
    parser.add_argument("--most", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    wanted = parser.parse_args()
    ratios: dict[float, list[float]] = {}
    for name in wanted.models:
        model = named(name)
        if model is None:
            raise SystemExit(f"{name} is no network of the zoo")
        sizes = SIZES.get(name)
        if sizes is None:
            model, sizes = with_open_batch(model, BATCH), {BATCH: (1, wanted.most)}
        for share, times, ratio in rows(model, sizes, wanted.threads):
            listed = "  ".join(f"{way} {ms:8.3f} ms" for way, ms in times.items())
            ratios.setdefault(share, []).append(ratio)
            print(f"{name:24} {share:5.3f}  {listed}  ranged / exact {ratio:.2f}", flush=True)
    for share, found in ratios.items():
        mean = exp(sum(map(log, found)) / len(found))
        print(
            f"ranged / exact at {share:.3f} of the most: geometric mean {mean:.3f}, largest "
            f"{max(found):.2f}"
        )


if __name__ == "__main__":
    main()
