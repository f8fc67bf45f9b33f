"""Tests that the cost model alone states and reads costs, cache sizes and throughputs."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields

import pytest

from graphflow.base.target import Target
from support.paths import ROOT
from support.source import MODULES, nodes, trees

HOME = ("graphflow/cost/", "graphflow/base/target.py")

PRICE = re.compile(
    r"CYCLES|_PER_(CYCLE|SECOND|BYTE)|OVERHEAD|SECONDS|GBPS|GFLOPS|LATENCY|CLOCK|GHZ|START_UP|"
    r"(^|_)(L[123]|LINE|CACHE|WAY|STACK)_(BYTES|WAYS)|PENALTY|_COST$|^COST_|THROUGHPUT|BANDWIDTH|"
    r"MICROSECONDS|_NS$|MASKED_STORE|PRIVATE_BYTES|UNALIGNED|GATHERED|UNHIDDEN"
)
"""What constants of prices and of processors are called."""

STATED = {
    ("graphflow/bench/machine_limits.py", "IN_CACHE_BYTES"): "what a measurement reads",
    ("graphflow/flow/pins.py", "NO_COST"): "what rounding leaves between equal prices",
    ("graphflow/runtime/driver/system.py", "CLOCK_MONOTONIC"): "a number of Linux",
    ("graphflow/runtime/driver/system.py", "CLOCK_MONOTONIC_COARSE"): "a number of Linux",
    ("graphflow/runtime/driver/threads.py", "_STACK_BYTES"): "of the threads that it makes",
    ("graphflow/bench/machine_limits.py", "SECONDS"): "how long a measurement is repeated",
    ("graphflow/tuning/harness.py", "RUN_SECONDS"): "how long a timed run is to be",
    ("graphflow/processes/workers.py", "IDLE_SECONDS"): "when idle processes end",
    ("graphflow/pipeline/services.py", "READY_SECONDS"): "how long a process waits for another",
    ("frontends/tensors/folding.py", "SECONDS"): "a limit on evaluating constants at import",
    ("graphflow/runtime/pool.py", "_BARRIER_MICROSECONDS"): "how long threads spin",
    ("graphflow/runtime/pool.py", "_IDLE_MICROSECONDS"): "how long threads spin",
    ("graphflow/runtime/pool.py", "_CROWDED_MICROSECONDS"): "how long threads spin",
    ("graphflow/runtime/pool.py", "_STARTING_SECONDS"): "when a waiting thread gives up",
    ("graphflow/runtime/driver/sharing_trials.py", "_LONGEST_NS"): "which runs try two ways",
    ("graphflow/runtime/step_table.py", "PATIENCE_NS"): "when a waiting thread gives up",
}
"""Constants that are called so and decide about no plan, with what they are."""

UNPRICED = {
    "name", "cpu", "features", "vector_bytes", "vector_registers", "buffer_axes",
    "flushes_denormals", "whole_jumps", "steps_per_iteration",
}  # fmt: skip
PRICED = {field.name for field in fields(Target)} - UNPRICED
"""The fields of a target that are there for prices."""

READ = {
    ("kernels/recipes/variants/operands.py", "stack_bytes"): "a limit of what is made, no price",
    ("kernels/recipes/schedules/staged.py", "stack_bytes"): "a limit of what is made, no price",
    (
        "kernels/recipes/schedules/jammed_rows.py",
        "stack_bytes",
    ): "a limit of what is made, no price",
    (
        "kernels/recipes/schedules/stage_lanes.py",
        "stack_bytes",
    ): "a limit of what is made, no price",
    (
        "kernels/recipes/variants/row_band_variants.py",
        "stack_bytes",
    ): "a limit of what is made, no price",
    ("graphflow/tuning/harness.py", "l2_bytes"): "copies that the cache does not hold are timed",
    **dict.fromkeys(
        (("graphflow/codegen/host/host_rates.py", f"l{k}_bytes") for k in (1, 2, 3)),
        "what processors of one kind have in common",
    ),
    **dict.fromkeys(
        (
            ("graphflow/bench/core_rates.py", field)
            for field in ("fmas_per_cycle", "peak_factor", "l2_bytes", "l3_bytes")
        ),
        "what rates are measured by, and in which cache",
    ),
    ("graphflow/bench/floor.py", "l3_bytes"): "where weights lie in the floor of a run",
    ("graphflow/layout/families.py", "layout_families"): "families that a target adds, no price",
    ("kernels/recipes/tiled_kernels.py", "tile_kinds"): "kinds that a target adds, no price",
}
"""Where such a field is read for something else than a price."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for module, tree in trees().items():
        name = MODULES[module].relative_to(ROOT).as_posix()
        if not name.startswith(HOME):
            yield name, tree


def stated(tree: ast.Module) -> Iterator[str]:
    """Constants of a module or a class whose value has a number in it."""
    for node in nodes(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
            numbers = any(
                isinstance(n, ast.Constant) and type(n.value) in (int, float)
                for n in ast.walk(node.value)
            )
            yield from (n for n in names if n.isupper() and numbers and PRICE.search(n))


def read(tree: ast.Module) -> Iterator[str]:
    """Fields for prices that are read from whatever is called a target."""
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and node.attr in PRICED:
            yield node.attr


def test_no_price_is_stated_elsewhere() -> None:
    found = {(name, constant) for name, tree in modules() for constant in stated(tree)}
    assert found == set(STATED)


def test_no_price_of_a_target_is_read_elsewhere() -> None:
    found = {(name, field) for name, tree in modules() for field in read(tree)}
    assert found == set(READ)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("MOVE_CYCLES = 2.0", ["MOVE_CYCLES"]),
        ("A, L2_BYTES = 3, 1 << 20", ["L2_BYTES"]),
        ("X: Final = 4 * 1024\nDRAM_GBPS: float = 25.0", ["DRAM_GBPS"]),
        ("def f():\n    TILE_OVERHEAD = 16.0\n", ["TILE_OVERHEAD"]),
        ("MOST_NODES = 10", []),
        ("SECONDS = time.monotonic", []),
        ("seconds = 3.0", []),
    ],
)
def test_constants_are_told_by_their_names(text: str, names: list[str]) -> None:
    assert list(stated(ast.parse(text))) == names


def test_fields_are_told_by_their_names() -> None:
    assert {"l1_bytes", "dram_gbps", "clock_ghz", "fma_latency"} <= PRICED
    assert list(read(ast.parse("half = self.target.l2_bytes // 2"))) == ["l2_bytes"]
    assert not list(read(ast.parse("target.vector_bytes, target.lanes('float32')")))
