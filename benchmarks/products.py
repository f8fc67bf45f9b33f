"""Matrix products beside their bounds and onnxruntime, at one and at two threads.

    python benchmarks/products.py [--threads 1,2] [--only REGEX] [--blocks N] [--avx2]

Each shape is a model of one product, compiled once.  Four programs take turns in alternating
blocks: graphflow's native program in place, onnxruntime, a kernel that does nothing but
multiply-adds, and one that reads as many bytes as the product touches.  The last two give the peak
and the bandwidth of the machine at that time, because the speed of a shared machine drifts.  The
bound of a product is its multiply-adds at the peak, or its operands and its result at the
bandwidth, whichever takes longer.  A time is the fastest block's median, because other load only
ever makes a block slower.  The error is relative to a product in float64.
"""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from functools import partial
from math import prod

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from rich.console import Console
from rich.table import Table

import graphflow as gf
from graphflow.bench import (
    Protocol,
    Run,
    kernel_run,
    load_peer,
    measure,
    peak_kernel,
    read_kernel,
)
from graphflow.codegen import avx2_target, host_target
from graphflow.models import ModelBuilder

REFERENCE = "onnxruntime"

ITEM_BYTES = 4
"""Bytes of an element of float32."""

PEAK_TILES = 2048
"""Tiles of the kernel of multiply-adds: half a millisecond on one core."""

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Product:
    """`y[b, m, n] = Σ x[b, m, k] · w[b, k, n]`; `w` is a constant unless it is given by `run`."""

    m: int
    k: int
    n: int
    batch: int = 1
    run: bool = False

    @property
    def flops(self) -> float:
        """Operations, a multiply-add counted as two."""
        return 2.0 * self.batch * self.m * self.k * self.n

    @property
    def touched(self) -> int:
        """Bytes of the operands and of the result."""
        elements = self.m * self.k + self.k * self.n + self.m * self.n
        return ITEM_BYTES * self.batch * elements

    def operands(self) -> tuple[Array, Array]:
        """Random operands."""
        random = np.random.default_rng(0)
        outer = (self.batch,) if self.batch > 1 else ()
        x = random.standard_normal((*outer, self.m, self.k), np.float32)
        return x, random.standard_normal((*outer, self.k, self.n), np.float32)

    def model(self, weights: Array) -> ModelProto:
        """A model of this product alone."""
        b = ModelBuilder()
        outer = (self.batch,) if self.batch > 1 else ()
        x = b.input("x", (*outer, self.m, self.k))
        w = b.input("w", weights.shape) if self.run else b.constant(weights)
        b.output(b.node("MatMul", [x, w]))
        return b.model()

    def __str__(self) -> str:
        batch = f"{self.batch}×" if self.batch > 1 else ""
        given = ", both given" if self.run else ""
        return f"{batch}{self.m}×{self.k}×{self.n}{given}"


PRODUCTS = (
    Product(128, 768, 768),
    Product(128, 768, 3072),
    Product(128, 3072, 768),
    Product(197, 192, 768),
    Product(512, 512, 512, run=True),
    Product(512, 512, 512),
    Product(1, 768, 3072),
    Product(1, 1024, 1000),
    Product(4096, 64, 64),
    Product(128, 1000, 10),
    Product(1000, 3, 1000, run=True),
    Product(1, 4096, 4096),
    Product(16, 1024, 4096),
    Product(128, 256, 1024),
    Product(128, 64, 128, batch=12, run=True),
    Product(128, 128, 64, batch=12, run=True),
    Product(197, 64, 197, batch=3, run=True),
)


def row(product: Product, threads: int, avx2: bool, protocol: Protocol) -> list[str]:
    """The cells of one product."""
    x, weights = product.operands()
    given = {"x": x, "w": weights} if product.run else {"x": x}
    model = product.model(weights)
    target = avx2_target() if avx2 else host_target()
    exe = gf.compile(model, threads=threads, target=target)
    peer = load_peer(REFERENCE, model, threads)
    wanted = x.astype(np.float64) @ weights.astype(np.float64)
    (found,) = exe.run(given).values()
    error = float(np.abs(found - wanted).max() / np.abs(wanted).max())
    peak, reading = peak_kernel(target, PEAK_TILES), read_kernel(target, product.touched)
    runs: dict[str, Run] = {
        "graphflow": exe.program.bind(given).run,
        REFERENCE: partial(peer.run, given),
        "peak": kernel_run(peak, target, threads),
        "read": kernel_run(reading, target, threads),
    }
    ms = {name: min(times.blocks) for name, times in measure(runs, protocol).items()}
    steps = peak.inputs[0].shape[0]
    computing = ms["peak"] * product.flops / (2.0 * steps * prod(peak.outputs[0].shape))
    moving = ms["read"] * product.touched / reading.inputs[0].bytes
    bound = max(computing, moving)
    return [
        str(product),
        f"{product.flops / ms['graphflow'] / 1e6:.1f}",
        f"{computing / ms['graphflow']:.0%}",
        f"{'peak' if computing >= moving else 'memory'} {bound / ms['graphflow']:.0%}",
        f"{1e3 * ms['graphflow']:.1f}",
        f"{1e3 * ms[REFERENCE]:.1f}",
        f"{ms[REFERENCE] / ms['graphflow']:.2f}",
        f"{error:.0e}",
    ]


def main() -> None:
    """Print a table for each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", default="1,2", help="numbers of threads: 1, 2 or 1,2")
    parser.add_argument("--only", default="", metavar="REGEX", help="products by their names")
    parser.add_argument("--blocks", type=int, default=12, help="blocks of each program")
    parser.add_argument("--avx2", action="store_true", help="force the AVX2 variant of the target")
    given = parser.parse_args()
    chosen = [product for product in PRODUCTS if re.search(given.only, str(product))]
    if not chosen:
        parser.error(f"no product matches {given.only!r}")
    protocol = Protocol(blocks=given.blocks, idle=0.04, discarded=0.005, measured=0.015)
    for threads in map(int, given.threads.split(",")):
        table = Table("product", title=f"{threads} thread(s)")
        for name in ("GFLOP/s", "of peak", "of bound", "µs", "ort µs", "speed", "error"):
            table.add_column(name, justify="right")
        for product in chosen:
            table.add_row(*row(product, threads, given.avx2, protocol))
        Console(width=120).print(table)


if __name__ == "__main__":
    main()
