"""Compile time by stage, from import to codegen: for each network, and for graphs of growing size.

    python benchmarks/flow_growth.py [NETWORK ...] [--blocks N ...] [--ops N ...]
                                     [--operands N ...] [--profile STAGE]

Without arguments the benchmark takes all networks of `light:` and `zoo:`, and graphs of growing
size.  Of many nodes: residual blocks (Conv, Relu, Conv, Add, Relu on 64 channels of 14 x 14), two
chains, of which `fused` has elementwise operators only, so that groups reach their size limit, and
`apart` alternates pooling with sigmoid, and the iterations of a Loop.  Of few nodes with many
operands: a Concat, a Sum, a Split, and a Split whose parts are joined after a Relu of each.  Each
graph is compiled in a process of its own, so that no shape is known from an earlier one.  Times are
processor time, which other load disturbs less than wall time.  The last columns are the numbers of
operators of the model and of groups that are planned.
"""

from __future__ import annotations

import argparse
import cProfile
import multiprocessing
import pstats
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import onnx
from onnx import TensorProto, helper, parser
from rich.console import Console
from rich.table import Table

from graphflow.base.offered_names import LIGHT, ZOO_PREFIX
from graphflow.base.options import Options
from graphflow.base.trace import Trace
from graphflow.baselines import plan_groups
from graphflow.codegen import avx2_target, make_object
from graphflow.convert import apply_plan
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse_groups
from graphflow.lower import Lowered, lower
from graphflow.models import ZOO, light_names, named

TARGET = avx2_target()
THREADS = 2
STAGES = ("import", "canonicalize", "fuse", "flow", "convert", "lower", "codegen")
OPSET = 17


def _model(
    nodes: list[onnx.NodeProto], shape: list[int], out: str, weights: list[onnx.TensorProto]
) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", out)]
    graph = helper.make_graph(nodes, "growth", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])


def residual(blocks: int) -> onnx.ModelProto:
    """Residual blocks that share their weights, so that the model stays small."""
    size = 64 * 64 * 9
    values = [0.01 * (k % 7 - 3) for k in range(size)]
    weights = [helper.make_tensor("w", TensorProto.FLOAT, [64, 64, 3, 3], values)]
    nodes, x = [], "x"
    for k in range(blocks):
        conv = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
        nodes += [
            helper.make_node("Conv", [x, "w"], [f"a{k}"], **conv),
            helper.make_node("Relu", [f"a{k}"], [f"b{k}"]),
            helper.make_node("Conv", [f"b{k}", "w"], [f"c{k}"], **conv),
            helper.make_node("Add", [f"c{k}", x], [f"d{k}"]),
            helper.make_node("Relu", [f"d{k}"], [f"e{k}"]),
        ]
        x = f"e{k}"
    return _model(nodes, [1, 64, 14, 14], x, weights)


def chain(ops: int, cycle: list[tuple[str, dict[str, Any]]]) -> onnx.ModelProto:
    """The operators of a cycle, one after another, repeated."""
    nodes, x = [], "x"
    for k in range(ops):
        op, attributes = cycle[k % len(cycle)]
        nodes.append(helper.make_node(op, [x], [f"v{k}"], **attributes))
        x = f"v{k}"
    return _model(nodes, [1, 16, 8, 8], x, [])


FUSED: list[tuple[str, dict[str, Any]]] = [("Relu", {}), ("Sigmoid", {}), ("Tanh", {})]
APART: list[tuple[str, dict[str, Any]]] = [
    ("MaxPool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("Sigmoid", {}),
]


def _parsed(inputs: str, outputs: str, nodes: str, values: str = "") -> onnx.ModelProto:
    head = f'ir_version: 8, opset_import: ["" : {OPSET}]'
    return parser.parse_model(f"<{head}> growth ({inputs}) => ({outputs}) <{values}> {{ {nodes} }}")


def unrolled(trips: int) -> onnx.ModelProto:
    """A Loop whose body has one operator, and whose rows are returned."""
    body = "body (int64 i, bool on, float[8] x) => (bool more, float[8] z, float[8] row)"
    nodes = "more = Identity (on) z = Tanh (x) row = Identity (z)"
    return _parsed(
        "float[8] x0",
        f"float[8] y, float[{trips}, 8] rows",
        f"y, rows = Loop <body = {body} {{ {nodes} }}> (trips, , x0)",
        f"int64 trips = {{{trips}}}",
    )


def _many(name: str, count: int, before: str = "") -> str:
    return ", ".join(f"{before}{name}{k}" for k in range(count))


def operands(count: int, op: str) -> onnx.ModelProto:
    """One node with so many operands, rows of eight numbers."""
    rows = _many("x", count, "float[1, 8] ")
    match op:
        case "Concat":
            nodes = f"y = Concat <axis = 0> ({_many('x', count)})"
            return _parsed(rows, f"float[{count}, 8] y", nodes)
        case "Sum":
            return _parsed(rows, "float[1, 8] y", f"y = Sum ({_many('x', count)})")
        case "Split":
            return _parsed(
                f"float[{count}, 8] y", rows, f"{_many('x', count)} = Split <axis = 0> (y)"
            )
        case _:
            relus = " ".join(f"z{k} = Relu (x{k})" for k in range(count))
            nodes = (
                f"{_many('x', count)} = Split <axis = 0> (x) {relus} "
                f"y = Concat <axis = 0> ({_many('z', count)})"
            )
            return _parsed(f"float[{count}, 8] x", f"float[{count}, 8] y", nodes)


OPERANDS = ("Concat", "Sum", "Split", "Split and Concat")

GROWING: dict[str, Callable[[int], onnx.ModelProto]] = {
    "residual blocks": residual,
    "operators, fused": lambda n: chain(n, FUSED),
    "operators, apart": lambda n: chain(n, APART),
    "trips of a Loop": unrolled,
    **{f"operands of {op}": partial(operands, op=op) for op in OPERANDS},
}


def model_of(name: str) -> onnx.ModelProto:
    """The graph of that size for `N KIND`, else the network or the file of that name."""
    size, _, kind = name.partition(" ")
    return GROWING[kind](int(size)) if kind in GROWING else named(name, 0) or onnx.load(name)


def measure(name: str, profiled: str | None) -> tuple[list[float], int, int]:
    """The seconds of each stage, and the numbers of operators and of groups."""
    seconds: list[float] = []
    model = model_of(name)

    def stage(run: Callable[..., Any], *given: Any) -> Any:
        profile = cProfile.Profile() if STAGES[len(seconds)] == profiled else None
        start = time.process_time()
        result = profile.runcall(run, *given) if profile else run(*given)
        seconds.append(time.process_time() - start)
        if profile:
            pstats.Stats(profile).sort_stats("cumulative").print_stats(30)
        return result

    graph = stage(fuse_groups, stage(canonicalize, stage(import_model, model)))
    graph, plan = stage(plan_groups, graph, TARGET, THREADS)
    stage(_objects, stage(lower, stage(apply_plan, graph, plan), TARGET))
    return seconds, len(model.graph.node), len(graph)


def _objects(lowered: Lowered) -> list[bytes]:
    trace, kernels = Trace(Options()), lowered.kernels.items()
    return [make_object((kernel.func, symbol, TARGET), trace) for symbol, kernel in kernels]


def networks() -> list[str]:
    """The names of all networks, without the probes, which are small."""
    zoo = [f"{ZOO_PREFIX}{name}" for name in ZOO if not name.startswith("probe:")]
    return [*(f"{LIGHT}{name}" for name in light_names()), *zoo]


def main() -> None:
    """Measure and print one row for each graph."""
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("networks", nargs="*", metavar="NETWORK")
    arguments.add_argument("--blocks", type=int, nargs="*")
    arguments.add_argument("--ops", type=int, nargs="*")
    arguments.add_argument("--operands", type=int, nargs="*", help="also the trips of a Loop")
    arguments.add_argument("--profile", choices=STAGES)
    given = arguments.parse_args()
    names, blocks, ops = given.networks, given.blocks or [], given.ops or []
    wide = given.operands or []
    if not names and given.blocks is None and given.ops is None and given.operands is None:
        names, blocks, ops = networks(), [50, 100, 200, 400, 800, 2000], [1000, 10_000]
        wide = [500, 1000, 2000, 4000]
    names = [*names, *(f"{n} residual blocks" for n in blocks)]
    names += [f"{n} operators, {kind}" for n in ops for kind in ("fused", "apart")]
    names += [f"{n} operands of {op}" for op in OPERANDS for n in wide]
    names += [f"{n} trips of a Loop" for n in wide]
    table = Table("graph", *STAGES, "operators", "groups")
    for column in table.columns[1:]:
        column.justify = "right"
    # concurrent.futures' pool waits for ever at its end where a process that may do one task only
    # raised an error (CPython 3.11).
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for name in names:
            seconds, operators, groups = pool.apply(measure, (name, given.profile))
            table.add_row(name, *(f"{s:.2f}" for s in seconds), str(operators), str(groups))
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(table)


if __name__ == "__main__":
    main()
