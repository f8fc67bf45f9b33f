"""Single operators beside onnxruntime: models of one node, at one and at two threads.

    python benchmarks/operators.py [--threads 1,2] [--only REGEX] [--rounds N] [--blocks N]
                                   [--json FILE]

Both programs are timed through their public interface, from arrays to new arrays, in alternating
blocks, and in several rounds over all operators: where a virtual machine loses its second processor
for a while, that lasts longer than the blocks of one operator.  A time is the fastest block's
median, because other load only ever makes a block slower; the speed is onnxruntime's time divided
by graphflow's.  The time in place is that of graphflow's native program alone, which reads and
overwrites memory that it has: the rest of graphflow's time goes into checking the inputs and into
memory for new arrays.  The error is relative to onnxruntime.  An operator whose error exceeds
what its kind allows is marked WRONG, and the exit code is then 1.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto
from rich.console import Console
from rich.table import Table

import graphflow as gf
from graphflow.bench import (
    Protocol,
    Run,
    hardly_varies,
    largest_error,
    load_peer,
    measure,
)
from graphflow.models import ModelBuilder
from graphflow.program import random_inputs

REFERENCE = "onnxruntime"

ALLOWED_ERROR = 1e-4
"""The largest relative error of a correct result."""

ALLOWED_ERROR_OF_STATES = 2e-2
"""The same where each step quantizes the state of the step before: a number next to a tie becomes
another byte, and all later steps differ.  onnxruntime's results at 1 and 2 threads differ by so
much."""

SLOW = 0.85
"""Operators below this speed are counted."""

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Operator:
    """A node: the shapes of its inputs, of its random weights behind them, and its constants."""

    op_type: str
    inputs: tuple[Shape, ...]
    weights: tuple[Shape, ...] = ()
    constants: tuple[NDArray[Any] | None, ...] = ()
    """None for an optional input that is not given."""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    dtypes: tuple[str, ...] = ()
    opset: int = 17
    output: Shape | None = None
    """The shape of the output, if ONNX's inference does not find it."""
    outputs: int = 1
    domain: str = ""
    allowed_error: float = ALLOWED_ERROR

    @property
    def name(self) -> str:
        """The operator, the shapes of its inputs and weights, and the attributes that it has."""
        shapes = " ".join("×".join(map(str, shape)) for shape in (*self.inputs, *self._products))
        attributes = (f"{name}={_text(value)}" for name, value in self.attributes.items())
        return " ".join((self.op_type, shapes, *attributes))

    @property
    def _products(self) -> tuple[Shape, ...]:
        """The weights of more than one axis."""
        return tuple(shape for shape in self.weights if len(shape) > 1)

    def model(self) -> ModelProto:
        """The model of this node alone."""
        b = ModelBuilder(opset=self.opset)
        dtypes = self.dtypes or ("float32",) * len(self.inputs)
        names = [
            b.input(f"x{k}", shape, dtype)
            for k, (shape, dtype) in enumerate(zip(self.inputs, dtypes, strict=True))
        ]
        names += [b.weight(*shape, scale=0.1) for shape in self.weights]
        names += ["" if array is None else b.constant(array) for array in self.constants]
        made = [f"y{k}" for k in range(self.outputs)]
        b.node(self.op_type, names, made, domain=self.domain, **self.attributes)
        b.output(*made, shape=self.output)
        return b.model()


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else f"{value}"


def softmaxes() -> Iterator[Operator]:
    """Softmax and LogSoftmax along the last axis and along channels."""
    for shape in ((4, 4, 256, 256), (3, 197, 197), (12, 128, 128), (64, 1000), (197, 58)):
        yield Operator("Softmax", (shape,), attributes={"axis": -1})
    for shape in ((1, 64, 56, 56), (1, 58, 28, 28), (1, 21, 129, 129)):
        yield Operator("Softmax", (shape,), attributes={"axis": 1})
    for shape in ((64, 1000), (197, 197), (1, 58, 28, 28)):
        yield Operator("LogSoftmax", (shape,), attributes={"axis": 1})


def norms() -> Iterator[Operator]:
    """Normalizations over rows, over images, over groups of channels and across channels."""
    for rows, width in ((3136, 96), (197, 192), (197, 58), (128, 768)):
        weights = ((width,), (width,))
        yield Operator("LayerNormalization", ((1, rows, width),), weights, attributes={"axis": -1})
    for rows, width in ((3136, 96), (197, 192), (197, 58)):
        shape = (1, rows, width)
        yield Operator("RMSNormalization", (shape,), ((width,),), attributes={"axis": -1}, opset=23)
    for shape in ((1, 64, 56, 56), (1, 58, 28, 28)):
        yield Operator("InstanceNormalization", (shape,), ((shape[1],), (shape[1],)))
    for shape, groups in (((1, 64, 56, 56), 32), ((1, 58, 28, 28), 29), ((1, 96, 28, 28), 1)):
        yield Operator(
            "GroupNormalization",
            (shape,),
            ((shape[1],), (shape[1],)),
            attributes={"num_groups": groups},
            opset=21,
            output=shape,
        )
    for shape in ((1, 64, 56, 56), (1, 58, 28, 28)):
        yield Operator("LRN", (shape,), attributes={"size": 5, "alpha": 1e-4, "bias": 2.0})
        yield Operator(
            "BatchNormalization",
            (shape,),
            constants=tuple(np.linspace(a, 1.5, shape[1], dtype=np.float32) for a in (1, 0, 0, 1)),
        )


def reductions() -> Iterator[Operator]:
    """Reductions of images, of rows and of columns."""
    for shape in ((1, 64, 56, 56), (1, 58, 28, 28), (1, 512, 7, 7)):
        yield Operator("ReduceMean", (shape,), attributes={"axes": [2, 3]})
        yield Operator("GlobalAveragePool", (shape,))
    yield Operator("ReduceMax", ((512, 513),), attributes={"axes": [1]})
    yield Operator("ReduceMax", ((512, 513),), attributes={"axes": [0]})
    yield Operator("ReduceMean", ((1, 197, 192),), attributes={"axes": [-1]})
    yield Operator("ReduceMean", ((1, 197, 192),), attributes={"axes": [1]})
    yield Operator("ReduceL2", ((197, 58),), attributes={"axes": [1]})
    yield Operator("ReduceMax", ((64, 197, 58),), attributes={"axes": [1]})


def pools() -> Iterator[Operator]:
    """Pools of images."""
    three: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    two: dict[str, Any] = {"kernel_shape": [2, 2], "strides": [2, 2]}
    halved = three | {"strides": [2, 2]}
    for shape in ((1, 64, 112, 112), (1, 58, 57, 57)):
        yield Operator("MaxPool", (shape,), attributes=halved)
        yield Operator("AveragePool", (shape,), attributes=halved)
    for shape in ((1, 64, 56, 56), (1, 58, 28, 28)):
        yield Operator("MaxPool", (shape,), attributes=two)
        yield Operator("MaxPool", (shape,), attributes=three)
        yield Operator("AveragePool", (shape,), attributes=three)
    yield Operator("MaxPool", ((1, 64, 56, 56),), attributes=two, outputs=2)
    for channels, size, taps in ((512, 13, 13), (256, 20, 5)):
        wide = {"kernel_shape": [taps] * 2, "pads": [taps // 2] * 4}
        yield Operator("MaxPool", ((1, channels, size, size),), attributes=wide)


def elementwise() -> Iterator[Operator]:
    """Elementwise operators at the speed of memory and of vector functions."""
    some, odd = (1, 64, 56, 56), (197, 1015)
    for op_type in (
        "Exp",
        "Tanh",
        "Sigmoid",
        "Erf",
        "Relu",
        "Sqrt",
        "HardSwish",
        "Softplus",
        "Atan",
    ):
        yield Operator(op_type, (some,))
    for op_type in ("Exp", "Tanh", "Sigmoid"):
        yield Operator(op_type, (odd,))
    for shape in ((3136, 384), (197, 58)):
        yield Operator("Gelu", (shape,), opset=20)
    for shape in (some, odd):
        yield Operator("Add", (shape, shape))
        yield Operator("Mul", (shape, shape))
        bounds = (np.float32(0), np.float32(6))
        yield Operator("Clip", (shape,), constants=tuple(map(np.asarray, bounds)))
        yield Operator("Where", (shape, shape, shape), dtypes=("bool", "float32", "float32"))
    yield Operator("Add", (some, (1, 64, 1, 1)))
    yield Operator("Mod", ((64, 1000), (64, 1000)), attributes={"fmod": 1})
    yield Operator("Add", ((197, 192), (192,)))


def movement() -> Iterator[Operator]:
    """Operators that move elements; the parts of Concat do not end at vectors."""
    yield Operator("Concat", ((1, 58, 28, 28), (1, 58, 28, 28)), attributes={"axis": 1})
    yield Operator("Concat", ((197, 20), (197, 38)), attributes={"axis": 1})
    yield Operator("Concat", ((197, 64), (197, 64)), attributes={"axis": 1})
    yield Operator("Transpose", ((1, 64, 56, 56),), attributes={"perm": [0, 2, 3, 1]})
    yield Operator("Transpose", ((1, 197, 3, 58),), attributes={"perm": [0, 2, 1, 3]})
    rotated = ((1, 12, 128, 64), (1, 128, 32), (1, 128, 32))
    yield Operator("RotaryEmbedding", rotated, opset=23)
    for shape, count, axis in (((30522, 768), 128, 0), ((64, 256, 49), 64, 1)):
        places = np.random.default_rng(0).permutation(shape[axis])[:count]
        yield Operator("Gather", (shape,), constants=(places,), attributes={"axis": axis})
    for op_type, shape, places, axis in (
        ("Gather", (30522, 768), (1, 128), 0), ("Gather", (64, 256, 49), (64,), 1),
        ("GatherElements", (256, 1000), (256, 100), 1),
        ("GatherElements", (1, 1000, 64), (1, 300, 64), 1),
    ):  # fmt: skip
        by_data = {"dtypes": ("float32", "int64"), "attributes": {"axis": axis}}
        yield Operator(op_type, (shape, places), **by_data)
    yield Operator("Trilu", ((512, 512),))
    yield Operator("EyeLike", ((512, 512),))


def attentions() -> Iterator[Operator]:
    """Attentions of prompts, and of tokens behind earlier keys that they join."""
    for heads, groups, length, size, earlier in (
        (8, 8, 64, 64, 0), (8, 8, 128, 64, 0), (8, 8, 512, 64, 0), (32, 8, 128, 64, 0),
        (8, 8, 1, 64, 63), (32, 8, 1, 64, 511), (14, 2, 1, 64, 255), (32, 8, 16, 64, 512),
    ):  # fmt: skip
        shapes = ((1, heads, length, size), *[(1, groups, length, size)] * 2)
        pasts = ((length, length + earlier), *[(1, groups, earlier, size)] * 2) if earlier else ()
        yield Operator(
            "Attention",
            (*shapes, *pasts),
            attributes={"is_causal": 1},
            opset=23,
            outputs=3 if earlier else 1,
        )


def choices() -> Iterator[Operator]:
    """Operators that find elements by values: at sampled places, and by their order."""
    for shape in ((1, 32, 64, 64), (1, 20, 56, 56), (1, 3, 224, 224)):
        yield Operator("GridSample", (shape, (1, *shape[2:], 2)))
    for shape, count in (
        ((100, 1000), 10), ((1, 25200), 300), ((1, 50257), 50),
        ((1, 8400), 1000), ((1, 1000), 1000), ((100, 1000), 500), ((64, 256), 256),
        ((1, 50257), 50257),
    ):  # fmt: skip
        yield Operator("TopK", (shape,), constants=(np.array([count]),), outputs=2)
    for classes, boxes, most in ((1, 1000, 100), (1, 5000, 300), (80, 1000, 50)):
        yield Operator(
            "NonMaxSuppression",
            ((1, boxes, 4), (1, classes, boxes)),
            constants=(np.array([most]), np.array([0.5], np.float32), np.array([0.1], np.float32)),
        )


def products() -> Iterator[Operator]:
    """Convolutions and matrix products, with weights given at run time where these are inputs."""
    pad: dict[str, Any] = {"pads": [1, 1, 1, 1]}
    yield Operator("Conv", ((1, 64, 28, 28), (64, 64, 3, 3)), attributes=pad)
    yield Operator("Conv", ((1, 58, 28, 28), (58, 58, 3, 3)), attributes=pad)
    yield Operator("Conv", ((1, 58, 28, 28),), ((58, 58, 1, 1),))
    dilated = {"pads": [2, 2, 2, 2], "dilations": [2, 2]}
    yield Operator("Conv", ((1, 64, 56, 56),), ((64, 64, 3, 3),), attributes=dilated)
    upward = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    yield Operator("ConvTranspose", ((1, 128, 28, 28),), ((128, 64, 4, 4),), attributes=upward)
    for channels, size, kernel, stride in ((1, 16000, 10, 5), (512, 3199, 3, 2)):
        row = {"pads": [kernel // 2] * 2, "strides": [stride]}
        yield Operator("Conv", ((1, channels, size),), ((512, channels, kernel),), attributes=row)
    for channels, size, kernel in ((96, 56, 3), (96, 56, 7), (58, 28, 3)):
        yield Operator(
            "Conv",
            ((1, channels, size, size),),
            ((channels, 1, kernel, kernel),),
            attributes={"group": channels, "pads": [kernel // 2] * 4},
        )
    for shape, weights, stride in (
        ((1, 256, 256), (256, 128, 16), 8),
        ((1, 64, 28, 28), (64, 32, 2, 2), 2),
    ):
        rank = len(shape) - 2
        pads = [(weights[2] - stride) // 2] * (2 * rank)
        yield Operator(
            "ConvTranspose",
            (shape,),
            (weights,),
            attributes={"strides": [stride] * rank, "pads": pads},
        )
    for m, k, n in (
        (128, 768, 3072), (197, 192, 576), (197, 58, 58), (211, 300, 100), (1, 1024, 1000),
    ):  # fmt: skip
        yield Operator("MatMul", ((m, k),), ((k, n),))
    yield Operator("MatMul", ((12, 128, 64), (12, 64, 128)))
    yield Operator("MatMul", ((12, 128, 128), (12, 128, 64)))
    yield Operator("MatMul", ((3, 197, 64), (3, 64, 197)))


def sequences() -> Iterator[Operator]:
    """Convolutions of speech encoders, vocoders, text and segmentation, most along one axis."""
    for channels, size, outputs, kernel, dilation in (
        (80, 3000, 384, 3, 1), (512, 1500, 512, 3, 1), (32, 24000, 16, 3, 1),
        (256, 800, 256, 3, 3), (128, 6400, 128, 3, 1), (64, 12800, 64, 7, 3),
        (32, 25600, 32, 3, 1), (32, 25600, 1, 7, 1), (1, 24000, 32, 7, 1),
    ):  # fmt: skip
        row = {"pads": [kernel // 2 * dilation] * 2, "dilations": [dilation]}
        weights = (outputs, channels, kernel)
        yield Operator("Conv", ((1, channels, size),), (weights,), attributes=row)
    for shape, weights, stride in (
        ((1, 512, 100), (512, 256, 16), 8),
        ((1, 64, 12800), (64, 32, 4), 2),
        ((1, 32, 3200), (32, 1, 16), 8),
        ((1, 512, 3200), (512, 1, 16), 8),
        ((1, 48, 4000), (48, 4, 8), 4),
        ((1, 64, 128, 128), (64, 2, 2, 2), 2),
    ):
        rank = len(shape) - 2
        upward = {"strides": [stride] * rank, "pads": [(weights[2] - stride) // 2] * (2 * rank)}
        yield Operator("ConvTranspose", (shape,), (weights,), attributes=upward)


def recurrent() -> Iterator[Operator]:
    """Layers over steps × sequences × features, of as many units as features."""
    for op, gates, steps, batch, units, directions in (
        ("LSTM", 4, 100, 1, 128, 1), ("LSTM", 4, 100, 1, 256, 2), ("LSTM", 4, 50, 16, 128, 1),
        ("LSTM", 4, 100, 1, 256, 1), ("LSTM", 4, 64, 1, 64, 1), ("LSTM", 4, 1000, 1, 64, 1),
        ("GRU", 3, 100, 1, 128, 1), ("GRU", 3, 50, 8, 256, 2), ("GRU", 3, 64, 1, 64, 1),
        ("RNN", 1, 100, 4, 64, 1), ("RNN", 1, 1000, 1, 64, 1),
    ):  # fmt: skip
        weights = (directions, gates * units, units)
        attributes: dict[str, Any] = {"hidden_size": units}
        attributes |= {"direction": "bidirectional"} if directions == 2 else {}
        yield Operator(op, ((steps, batch, units),), (weights, weights), attributes=attributes)


def quantized_recurrent() -> Iterator[Operator]:
    """LSTMs as onnxruntime's dynamic quantization writes them, with as many units as features."""
    for steps, batch, units, directions in (
        (100, 1, 128, 1), (100, 1, 256, 2), (50, 8, 128, 1), (50, 16, 256, 1),
        (64, 1, 64, 1), (1000, 1, 64, 1),
    ):  # fmt: skip
        random, width = np.random.default_rng(0), 4 * units
        shape = (directions, units, width)
        w, r = (random.integers(-127, 128, shape).astype(np.int8) for _ in range(2))
        bias = random.normal(0, 0.1, (directions, 2 * width)).astype(np.float32)
        of_weights = np.full(directions, 1e-3, np.float32), np.zeros(directions, np.int8)
        absent = (None,) * 4  # lengths, states and peepholes
        yield Operator(
            "DynamicQuantizeLSTM",
            ((steps, batch, units),),
            constants=(w, r, bias, *absent, *of_weights, *of_weights),
            attributes={
                "hidden_size": units,
                "direction": "bidirectional" if directions == 2 else "forward",
            },
            output=(steps, directions, batch, units),
            domain="com.microsoft",
            allowed_error=ALLOWED_ERROR_OF_STATES,
        )


FAMILIES = (
    softmaxes, norms, reductions, pools, elementwise, movement, attentions, choices, products,
    sequences,
    recurrent, quantized_recurrent,
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """An operator measured: microseconds of a run, the speed and the error beside onnxruntime.

    `weak` says that the outputs hardly vary, so that a small error proves little, and `allowed` is
    the largest error of a correct result.
    """

    operator: str
    threads: int
    graphflow_us: float
    in_place_us: float
    onnxruntime_us: float
    error: float
    weak: bool
    allowed: float

    @property
    def speed(self) -> float:
        """The time of onnxruntime over that of graphflow."""
        return self.onnxruntime_us / self.graphflow_us

    @property
    def wrong(self) -> bool:
        """Whether the results differ from onnxruntime's; NaN counts as different."""
        return not self.error <= self.allowed


def measured(operator: Operator, threads: int, protocol: Protocol) -> Result:
    """The times and the error of one operator."""
    model = operator.model()
    exe = gf.compile(model, threads=threads)
    peer = load_peer(REFERENCE, model, threads)
    inputs = random_inputs(exe.inputs)
    expected = peer.run(inputs)
    error = largest_error(exe.run(inputs), expected)
    runs: dict[str, Run] = {
        "graphflow": partial(exe.run, inputs),
        "in place": exe.program.bind(inputs).run,
        REFERENCE: partial(peer.run, inputs),
    }
    fastest = {name: 1e3 * min(t.blocks) for name, t in measure(runs, protocol).items()}
    times = fastest["graphflow"], fastest["in place"], fastest[REFERENCE]
    weak = hardly_varies(expected)
    return Result(operator.name, threads, *times, error, weak, operator.allowed_error)


def fastest_of(rounds: Sequence[Result]) -> Result:
    """One operator in all rounds: the fastest block of each program, the largest error."""
    return replace(
        rounds[0],
        graphflow_us=min(result.graphflow_us for result in rounds),
        in_place_us=min(result.in_place_us for result in rounds),
        onnxruntime_us=min(result.onnxruntime_us for result in rounds),
        error=max(rounds, key=lambda result: (result.wrong, result.error)).error,
    )


def results_table(results: Sequence[Result]) -> Table:
    """One row for each operator; below it the geometric mean of speeds and how many are slow."""
    table = Table(
        title=f"{results[0].threads} thread(s)", caption=summary(results), header_style="bold"
    )
    table.add_column("operator", overflow="fold")
    for column in ("graphflow µs", "in place µs", "onnxruntime µs", "speed", "error"):
        table.add_column(column, justify="right")
    for result in results:
        error = f"{result.error:.1e}" + (" (weak)" if result.weak else "")
        table.add_row(
            result.operator,
            f"{result.graphflow_us:.1f}",
            f"{result.in_place_us:.1f}",
            f"{result.onnxruntime_us:.1f}",
            f"[yellow]{result.speed:.2f}[/]" if result.speed < SLOW else f"{result.speed:.2f}",
            f"[bold red]WRONG {error}[/]" if result.wrong else error,
        )
    return table


def summary(results: Sequence[Result]) -> str:
    """The geometric mean of the speeds, the number of slow operators, and of wrong ones."""
    speeds = [result.speed for result in results]
    slow = sum(speed < SLOW for speed in speeds)
    text = (
        f"{len(results)} operators: geometric mean {statistics.geometric_mean(speeds):.2f}, "
        f"{slow} below {SLOW}"
    )
    wrong = [result.operator for result in results if result.wrong]
    return f"{text}; WRONG: {', '.join(wrong)}" if wrong else text


def main() -> int:
    """Print a table for each number of threads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", default="1,2", help="numbers of threads: 1, 2 or 1,2")
    parser.add_argument("--only", default="", metavar="REGEX", help="operators by their names")
    parser.add_argument("--rounds", type=int, default=2, help="rounds over all operators")
    parser.add_argument("--blocks", type=int, default=3, help="blocks of each program in a round")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results to a file")
    given = parser.parse_args()
    wanted = re.compile(given.only, re.IGNORECASE)
    chosen = [x for family in FAMILIES for x in family() if wanted.search(x.name)]
    if not chosen:
        parser.error(f"no operator matches {given.only!r}")
    protocol = Protocol(blocks=given.blocks, idle=0.06, discarded=0.01, measured=0.02)
    results: list[Result] = []
    for threads in map(int, given.threads.split(",")):
        rounds: list[list[Result]] = []
        for _ in range(given.rounds):
            rounds.append([])
            for operator in chosen:
                with Console(stderr=True).status(operator.name):
                    rounds[-1].append(measured(operator, threads, protocol))
        found = [fastest_of(each) for each in zip(*rounds, strict=True)]
        Console(width=110).print(results_table(found))
        results += found
    if given.json:
        given.json.write_text(
            json.dumps([asdict(x) | {"speed": x.speed} for x in results], indent=1)
        )
    return int(any(result.wrong for result in results))


if __name__ == "__main__":
    sys.exit(main())
