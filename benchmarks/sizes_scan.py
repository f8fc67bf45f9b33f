"""Sizes that are slower than the next larger one: products, attention and norms, size by size.

    python benchmarks/sizes_scan.py [--only REGEX] [--sizes 1:130] [--threads N] [--rounds N]
                                    [--against] [--programs DIR] [--compile-only] [--json FILE]

Each case is a model with one extent that is scanned.  The programs of all sizes are compiled first
and then timed in turns, round by round, so that a disturbance of the machine affects neighbouring
sizes alike; a time is the least of the rounds' medians, because other load only ever makes a run
slower.  Times are those of the native program alone, in place.  A size is slow if it takes more
than `SLOWER` times as long as the next larger one; such pairs are timed again, in alternating
blocks, before they are printed.  With `--against`, onnxruntime's times are printed beside them,
measured in the same turns.  `--programs` names a folder that keeps the compiled programs:
`--compile-only` fills it without timing anything.  The exit code is the number of slow sizes.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

from onnx import ModelProto
from rich.console import Console
from rich.table import Table

import graphflow as gf
from graphflow.bench import Run, load_peer
from graphflow.models import ModelBuilder
from graphflow.models.zoo.sequences.bert import bert
from graphflow.program import random_inputs

SLOWER = 1.15
"""The most that a size may take of the time of the next larger one."""

AGAIN = 12
"""Rounds of alternating blocks in which a pair that looks slow is timed again."""

BLOCK_SECONDS = 0.003
"""How long the runs of a block are repeated, at least three times."""

CALL_SECONDS = 2e-6
"""What calling a program from Python takes: pairs whose difference is less are not told apart."""


@dataclass(frozen=True)
class Case:
    """A model for each size, and the shapes of its inputs where the model leaves them open."""

    name: str
    model: Callable[[int], ModelProto]
    shapes: Callable[[int], Mapping[str, tuple[int, ...]]] | None = None


def _product(*shapes: tuple[int, ...], constant: bool) -> ModelProto:
    b = ModelBuilder()
    left, right = shapes
    weight = b.weight(*right, scale=0.1) if constant else b.input("w", right)
    b.output(b.node("MatMul", [b.input("x", left), weight]))
    return b.model()


def products() -> Iterator[Case]:
    """Matrix products: rows, depth and columns, with weights and with two inputs, and batches."""
    for k, n in ((128, 128), (312, 312), (256, 1024), (768, 768), (58, 58)):
        model = partial(lambda m, k, n: _product((m, k), (k, n), constant=True), k=k, n=n)
        yield Case(f"product n×{k}×{n}", model)
    yield Case("product 64×n×128", lambda n: _product((64, n), (n, 128), constant=True))
    yield Case("product 64×128×n", lambda n: _product((64, 128), (128, n), constant=True))
    yield Case(
        "product n×128×128, two inputs", lambda n: _product((n, 128), (128, 128), constant=False)
    )
    yield Case(
        "product 64×128×n, two inputs", lambda n: _product((64, 128), (128, n), constant=False)
    )
    yield Case("product 8 of n×64×128", lambda n: _product((8, n, 64), (64, 128), constant=True))


def _attention(n: int, heads: int, head: int) -> ModelProto:
    """Softmax(Q Kᵀ) V of given queries, keys and values."""
    b = ModelBuilder()
    query, key, value = (b.input(name, (heads, n, head)) for name in "qkv")
    scores = b.node("MatMul", [query, b.node("Transpose", [key], perm=[0, 2, 1])])
    b.output(b.node("MatMul", [b.node("Softmax", [scores], axis=-1), value]))
    return b.model()


def _block(n: int, width: int, heads: int) -> ModelProto:
    """Self-attention with its four projections, a residual and a LayerNormalization."""
    b = ModelBuilder()
    head = width // heads
    x = b.input("x", (1, n, width))

    def dense(y: str) -> str:
        return b.add(
            b.node("MatMul", [y, b.weight(width, width, scale=width**-0.5)]), b.weight(width)
        )

    def split(y: str, *perm: int) -> str:
        apart = b.node("Reshape", [y, b.literal([1, n, heads, head])])
        return b.node("Transpose", [apart], perm=list(perm))

    query, key, value = (
        split(dense(x), 0, 2, 1, 3),
        split(dense(x), 0, 2, 3, 1),
        split(dense(x), 0, 2, 1, 3),
    )
    weights = b.node("Softmax", [b.node("MatMul", [query, key])], axis=-1)
    joined = b.node("Transpose", [b.node("MatMul", [weights, value])], perm=[0, 2, 1, 3])
    attended = dense(b.node("Reshape", [joined, b.literal([1, n, width])]))
    inputs = [b.add(attended, x), b.weight(width), b.weight(width)]
    b.output(b.node("LayerNormalization", inputs, axis=-1))
    return b.model()


def attention() -> Iterator[Case]:
    """The products of an attention, its softmax, all three, and a block with projections."""
    yield Case("QKᵀ 12 of n×64×n", lambda n: _product((12, n, 64), (12, 64, n), constant=False))
    yield Case("PV 12 of n×n×64", lambda n: _product((12, n, n), (12, n, 64), constant=False))
    yield Case("Softmax 12×n×n", lambda n: _rowwise("Softmax", (12, n, n)))
    yield Case("attention, 4 heads of 32", lambda n: _attention(n, 4, 32))
    yield Case("attention, 12 heads of 64", lambda n: _attention(n, 12, 64))
    yield Case("block of width 128, 2 heads", lambda n: _block(n, 128, 2))


def _rowwise(
    op_type: str, shape: tuple[int, ...], *weights: int, **attributes: object
) -> ModelProto:
    b = ModelBuilder(opset=17)
    inputs = [b.input("x", shape), *(b.weight(extent) for extent in weights)]
    b.output(b.node(op_type, inputs, **(attributes or {"axis": -1})))
    return b.model()


def norms() -> Iterator[Case]:
    """LayerNormalization, softmax and reductions: many rows, and rows of many lengths."""
    norm = "LayerNormalization"
    yield Case(f"{norm} n×768", lambda n: _rowwise(norm, (n, 768), 768, 768))
    yield Case(f"{norm} n×128", lambda n: _rowwise(norm, (n, 128), 128, 128))
    yield Case(f"{norm} 64×n", lambda n: _rowwise(norm, (64, n), n, n))
    yield Case("Softmax 64×n", lambda n: _rowwise("Softmax", (64, n)))
    yield Case("Softmax n×64, over columns", lambda n: _rowwise("Softmax", (n, 64), axis=0))
    for op_type in ("ReduceMean", "ReduceMax"):
        for axis in (0, 1):
            for shape in ("n×64", "64×n"):
                model = partial(_reduction, op_type=op_type, axis=axis, shape=shape)
                yield Case(f"{op_type} {shape}, axis {axis}", model)


def _reduction(n: int, op_type: str, axis: int, shape: str) -> ModelProto:
    extents = (n, 64) if shape == "n×64" else (64, n)
    return _rowwise(op_type, extents, axes=[axis], keepdims=0)


def classifier() -> Iterator[Case]:
    """A small encoder of text, as exporters write it, by the number of its tokens."""

    def shapes(n: int) -> Mapping[str, tuple[int, ...]]:
        return dict.fromkeys(("input_ids", "attention_mask", "token_type_ids"), (1, n))

    yield Case("text encoder", lambda n: bert(0, layers=2, positions=max(64, n)), shapes)


FAMILIES = (products, attention, norms, classifier)


@dataclass
class Sized:
    """One size of a case: its program, that of onnxruntime if wanted, and their least seconds."""

    size: int
    runs: dict[str, Run]
    seconds: dict[str, float]


def prepared(case: Case, sizes: Sequence[int], given: argparse.Namespace) -> list[Sized]:
    """All sizes of a case compiled, or loaded from the folder that keeps them."""
    found = []
    for size in sizes:
        exe = _executable(case, size, given)
        if given.compile_only:
            continue
        inputs = random_inputs(exe.inputs)
        runs: dict[str, Run] = {"graphflow": exe.program.bind(inputs).run}
        if given.against:
            peer = load_peer("onnxruntime", case.model(size), given.threads)
            runs["onnxruntime"] = partial(peer.run, inputs)
        found.append(Sized(size, runs, {}))
    return found


def _executable(case: Case, size: int, given: argparse.Namespace) -> gf.Executable:
    shapes = case.shapes(size) if case.shapes else None
    if given.programs is None:
        return gf.compile(case.model(size), threads=given.threads, input_shapes=shapes)
    name = re.sub(r"\W+", "-", case.name)
    path = given.programs / f"{name}.{size}.{given.threads}.gfx"
    if not path.exists():
        exe = gf.compile(case.model(size), threads=given.threads, input_shapes=shapes)
        exe.save(path)
    return gf.load(path)


def _block_seconds(run: Run) -> float:
    """The median of runs that last `BLOCK_SECONDS`, after one that is discarded."""
    run()
    taken: list[float] = []
    end = time.perf_counter() + BLOCK_SECONDS
    while len(taken) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def time_rounds(sized: Sequence[Sized], rounds: int) -> None:
    """Times all sizes in turns and keeps the least time of each."""
    for _ in range(rounds):
        for each in sized:
            for name, run in each.runs.items():
                seconds = _block_seconds(run)
                each.seconds[name] = min(seconds, each.seconds.get(name, seconds))


def ratio(this: Sized, larger: Sized, program: str = "graphflow") -> float:
    """The time of a size over that of a larger one, but for what the call of it takes."""
    mine, other = this.seconds[program], larger.seconds[program]
    return 1.0 if mine - other < CALL_SECONDS * (SLOWER - 1) else mine / other


def slow_sizes(sized: Sequence[Sized]) -> list[tuple[Sized, Sized]]:
    """The sizes that take more than `SLOWER` of the next larger one, with it, timed again."""
    found = []
    for pair in pairwise(sized):
        if ratio(*pair) > SLOWER:
            time_rounds(pair, AGAIN)
            if ratio(*pair) > SLOWER:
                found.append(pair)
    return found


def slow_table(case: Case, slow: Sequence[tuple[Sized, Sized]], count: int) -> Table:
    """A row for each slow size."""
    title = f"{case.name}: {len(slow)} of {count} sizes are slow"
    table = Table(title=title, header_style="bold", title_justify="left")
    for column in ("size", "µs", "next", "ratio"):
        table.add_column(column, justify="right")
    peer = any("onnxruntime" in this.seconds for this, _ in slow)
    if peer:
        table.add_column("onnxruntime", justify="right")
    for this, larger in slow:
        row = [this.size, *(1e6 * x.seconds["graphflow"] for x in (this, larger))]
        texts = [f"{row[0]}", *(f"{x:.1f}" for x in row[1:]), f"{ratio(this, larger):.2f}"]
        if peer:
            times = (f"{1e6 * x.seconds['onnxruntime']:.1f}" for x in (this, larger))
            texts.append(" ".join(times))
        table.add_row(*texts)
    return table


def main() -> int:
    """Print the slow sizes of each case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", metavar="REGEX", help="cases by their names")
    parser.add_argument("--sizes", default="1:130", metavar="LOW:HIGH", help="both included")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5, help="rounds over all sizes")
    parser.add_argument("--against", action="store_true", help="time onnxruntime too")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="keep the programs here")
    parser.add_argument("--compile-only", action="store_true", help="only fill --programs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all times to a file")
    given = parser.parse_args()
    if given.compile_only and given.programs is None:
        parser.error("--compile-only needs --programs")
    if given.programs is not None:
        given.programs.mkdir(parents=True, exist_ok=True)
    low, high = map(int, given.sizes.split(":"))
    wanted = re.compile(given.only, re.IGNORECASE)
    cases = [case for family in FAMILIES for case in family() if wanted.search(case.name)]
    if not cases:
        parser.error(f"no case matches {given.only!r}")
    total, times = 0, {}
    for case in cases:
        sized = prepared(case, range(low, high + 1), given)
        if not sized:
            continue
        time_rounds(sized, given.rounds)
        slow = slow_sizes(sized)
        total += len(slow)
        times[case.name] = {x.size: {n: 1e6 * s for n, s in x.seconds.items()} for x in sized}
        if slow:
            Console(width=100).print(slow_table(case, slow, len(sized)))
        else:
            Console().print(f"{case.name}: none of {len(sized)} sizes is slow")
    if given.json:
        given.json.write_text(json.dumps(times, indent=1))
    return total


if __name__ == "__main__":
    sys.exit(main())
