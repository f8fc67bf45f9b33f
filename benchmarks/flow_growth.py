"""Compile time by stage, from import to convert: for each network, and for graphs of growing size.

    python benchmarks/flow_growth.py [NETWORK ...] [--blocks N ...] [--ops N ...] [--profile STAGE]

Without arguments the benchmark takes all networks of `light:` and `zoo:`, and graphs of growing
size: residual blocks (Conv, Relu, Conv, Add, Relu on 64 channels of 14 x 14), and two chains:
`fused` has elementwise operators only, so that groups reach their size limit; `apart` alternates
pooling with sigmoid.  Each graph is planned in a process of its own, so that no shape is known from
an earlier one.  Times are processor time, which other load disturbs less than wall time; they
include linear programs where they are needed.  The last columns are the numbers of operators of
the model and of groups that are planned.
"""

from __future__ import annotations

import argparse
import cProfile
import multiprocessing
import pstats
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import onnx
from onnx import TensorProto, helper
from rich.console import Console
from rich.table import Table

from graphflow.base.target import Target
from graphflow.baselines import plan_groups
from graphflow.convert import apply_plan
from graphflow.frontends import import_model
from graphflow.graph import canonicalize, fuse
from graphflow.models import LIGHT, ZOO, ZOO_PREFIX, light_names, named

TARGET = Target("eight lanes", "", "", 32, 16, clock_ghz=6.25)
THREADS = 2
STAGES = ("import", "canonicalize", "fuse", "flow", "convert")


def _model(
    nodes: list[onnx.NodeProto], shape: list[int], out: str, weights: list[onnx.TensorProto]
) -> onnx.ModelProto:
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", out)]
    graph = helper.make_graph(nodes, "growth", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


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


GROWING: dict[str, Callable[[int], onnx.ModelProto]] = {
    "residual blocks": residual,
    "operators, fused": lambda n: chain(n, FUSED),
    "operators, apart": lambda n: chain(n, APART),
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

    graph = stage(fuse, stage(canonicalize, stage(import_model, model)))
    graph, plan = stage(plan_groups, graph, TARGET, THREADS)
    stage(apply_plan, graph, plan)
    return seconds, len(model.graph.node), len(graph)


def networks() -> list[str]:
    """The names of all networks, without the probes, which are small."""
    zoo = [f"{ZOO_PREFIX}{name}" for name in ZOO if not name.startswith("probe:")]
    return [*(f"{LIGHT}{name}" for name in light_names()), *zoo]


def main() -> None:
    """Measure and print one row for each graph."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument("--blocks", type=int, nargs="*")
    parser.add_argument("--ops", type=int, nargs="*")
    parser.add_argument("--profile", choices=STAGES)
    given = parser.parse_args()
    names, blocks, ops = given.networks, given.blocks or [], given.ops or []
    if not names and given.blocks is None and given.ops is None:
        names, blocks, ops = networks(), [50, 100, 200, 400, 800, 2000], [1000, 10_000]
    names = [*names, *(f"{n} residual blocks" for n in blocks)]
    names += [f"{n} operators, {kind}" for n in ops for kind in ("fused", "apart")]
    table = Table("graph", *STAGES, "operators", "groups")
    for column in table.columns[1:]:
        column.justify = "right"
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as pool:
        for name in names:
            seconds, operators, groups = pool.submit(measure, name, given.profile).result()
            table.add_row(name, *(f"{s:.2f}" for s in seconds), str(operators), str(groups))
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(table)


if __name__ == "__main__":
    main()
