"""Tests of kernels that run beside each other: `graphflow/flow/candidates/side_by_side.py`."""

from graphflow.base.fields import replace
from graphflow.codegen import host_target
from graphflow.cost import NO_WORK, CostModel
from graphflow.flow.candidates.side_by_side import side_by_side, without_sharing
from graphflow.graph import Node
from graphflow.kernels.definitions.recurrent import ACTIVATIONS, rnn
from graphflow.kernels.definitions.recurrent_kernel import Recurrence
from graphflow.kernels.recipes import kernel_variants

TANH = ACTIVATIONS["tanh"][1]
LAYER = rnn(Recurrence(5, 1, 64, (TANH,)))
VARIANTS = kernel_variants(LAYER, frozenset({"weights"}), host_target())


def node(name: str, reads: str) -> Node:
    inputs = (reads, *(f"{name}.{b.name}" for b in LAYER.inputs[1:]))
    return Node(name, "RNN", LAYER, inputs, tuple(f"{name}.{b.name}" for b in LAYER.outputs))


def counted(*nodes: Node) -> dict[str, int]:
    return side_by_side(nodes, {node.name: VARIANTS for node in nodes})


def test_neighbours_that_read_nothing_of_each_other_run_at_once() -> None:
    assert counted(node("a", "x"), node("b", "x")) == {"a": 2, "b": 2}
    assert counted(node("a", "x"), node("b", "a.y"), node("c", "x")) == {"a": 1, "b": 2, "c": 2}


def test_what_one_thread_runs_beside_others_takes_its_part_of_the_time() -> None:
    model = CostModel(host_target(), 2)
    plain, phases = VARIANTS
    assert without_sharing(plain, 2, model) == without_sharing(plain, 5, model) == 0.5
    assert without_sharing(plain, 1, model) == without_sharing(phases, 2, model) == 1.0
    assert without_sharing(replace(plain, work=replace(NO_WORK, rows=4)), 2, model) == 1.0
