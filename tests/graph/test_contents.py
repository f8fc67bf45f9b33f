"""Tests of facts about elements: what holds for every value, and which variants use it."""

from typing import Any

import numpy as np
import pytest

from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.base.fields import replace
from graphflow.codegen import avx2_target
from graphflow.convert import apply_plan
from graphflow.flow import plan_layouts, variants_of
from graphflow.frontends import import_model
from graphflow.graph import (
    Expansions,
    OperatorGraph,
    assumptions_about,
    canonicalize,
    contents,
    fact_of_array,
    fuse_groups,
    in_one_pass,
    known_inputs,
)
from graphflow.kernels.recipes import KernelVariant, Tiled, kernel_schedule, lifted
from graphflow.layout import Fact, Range, Undefined, fact_of, order_key
from graphflow.schedule import Schedule, assume_finite, assume_reciprocal
from graphflow.tir import If, walk
from support.padded import Net
from support.planning.attentions import attention

TARGET = replace(avx2_target(), name="short vectors", vector_bytes=16, vector_registers=8)


def graph_of(net: Net) -> OperatorGraph:
    return fuse_groups(canonicalize(import_model(net.model())))


def facts_of(net: Net, **assume: Any) -> dict[str, Fact]:
    graph = graph_of(net)
    return contents(graph, assumptions_about(graph, assume))


def f32(*values: float) -> np.ndarray[Any, Any]:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("array", "fact"),
    [
        (f32(1, -2), Range(-2.0, 1.0)),
        (f32(0, 0), fact_of(0.0, "float32")),
        (f32(-0.0, -0.0), fact_of(-0.0, "float32")),
        (f32(0, -0.0), Range(-0.0, 0.0)),
        (f32(0, 3), Range(-0.0, 3.0)),
        (f32(np.inf, np.inf), fact_of(np.inf, "float32")),
        (f32(np.inf, 1), Undefined()),
        (f32(np.nan, 1), Undefined()),
        (f32(), Undefined()),
        (np.array([3, -4]), Range(-4, 3)),
        (np.array([True]), fact_of(True, "bool")),
    ],
)
def test_the_fact_of_an_array(array: Any, fact: Fact) -> None:
    assert fact_of_array(array) == fact


def one(op: str, *constants: Any, **attributes: Any) -> Net:
    net = Net()
    x = net.input("x", (1, 6, 4, 4))
    operands = [net.constant(np.asarray(c, np.float32)) for c in constants]
    net.output(net.node(op, [x, *operands], ["y"], **attributes))
    return net


POOL = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}


@pytest.mark.parametrize(
    ("op", "assume", "lo", "hi"),
    [
        (one("Relu"), "finite", -0.0, 3.41e38),
        (one("Sigmoid"), "finite", 0.0, 1.001),
        (one("HardSigmoid"), "finite", -1e-6, 1.00001),
        (one("Clip", -1.0, 6.0), "finite", -1.0, 6.0),
        (one("Softmax", axis=1), (-20, 20), 0.0, 1e36),
        (one("MaxPool", **POOL), (0, 1), -np.inf, 1.0),
        (one("AveragePool", **POOL), (0, 1), 0.0, 9.001),
        (one("Tanh"), "finite", -1.001, 1.001),
        (one("Exp"), (-1, 1), 0.3, 2.8),
        (one("Mul", 3.0), (-1, 2), -3.1, 6.1),
    ],
    ids=lambda p: p.model().graph.node[0].op_type if isinstance(p, Net) else None,
)
def test_activations_bound_what_is_finite(op: Net, assume: Any, lo: float, hi: float) -> None:
    found = facts_of(op, x=assume)["y"]
    assert isinstance(found, Range)
    assert order_key(lo) <= order_key(found.lo) <= order_key(found.hi) <= order_key(hi)
    assert facts_of(op)["y"] == Undefined(), "NaN goes through"


def test_a_group_of_many_stages_is_followed() -> None:
    """Each stage reads the one before several times; that must cost no more than one pass."""
    net = Net()
    last = net.input("x", (1, 6, 2, 2))
    for k in range(60):
        last = net.node(("Relu", "HardSigmoid", "Clip")[k % 3], [last])
    net.output(last)
    found = facts_of(net, x="finite")[last]
    assert isinstance(found, Range) and found.hi <= 1.001


# Convolutions over a halo of zeros ----------------------------------------------------------------


def biased(*bias: float, outputs: int = 4) -> OperatorGraph:
    net = Net()
    x = net.input("x", (1, 4, 4, 4))
    values = np.resize(np.array(bias, np.float32), outputs)
    weight = net.weight(outputs, 4, 3, 3)
    net.output(net.node("Conv", [x, weight, net.constant(values)], pads=[1] * 4))
    return graph_of(net)


def halo_variants(
    graph: OperatorGraph, facts: dict[str, Fact] | None = None
) -> list[KernelVariant]:
    (node,) = graph.nodes
    return [f for f in variants_of(graph, TARGET, facts).of_node[node.name] if "halo" in f.name]


@pytest.mark.parametrize("bias", [(1.0, -2.0), (0.0, 3.0), (-1.0, np.inf)])
def test_a_bias_that_is_never_minus_zero_permits_a_halo(bias: tuple[float, ...]) -> None:
    graph = biased(*bias)
    (node,) = graph.nodes
    variants = halo_variants(graph)
    assert variants
    for variant in variants:
        held = {"x": 0.0, "w": "undef"}
        placements = tuple(
            (p.buffer.name, variant.layouts[p.buffer.name], held.get(p.buffer.name))
            for p in node.func.params
        )
        made = kernel_schedule(node.func, placements, variant.recipe, TARGET)
        assert not any(isinstance(stmt, If) for stmt in walk(made.func.body)), variant.name


@pytest.mark.parametrize("bias", [(1.0, -0.0), (-0.0,), (np.nan, 1.0), (-1e-45, 1.0)])
def test_a_bias_of_minus_zero_keeps_its_sign(bias: tuple[float, ...]) -> None:
    """−0.0 + 0·w is 0.0.  Next to zero the reciprocal overflows, so the kernel cannot tell."""
    assert not halo_variants(biased(*bias))


def test_what_a_variant_states_must_hold() -> None:
    """A plan with a variant that states more than a forward pass finds is refused."""
    honest, lying = biased(1.0, 2.0), biased(1.0, -0.0)
    (variant, *_) = halo_variants(honest)
    assert isinstance(variant.recipe, Tiled) and variant.recipe.excludes_negative_zero == ("b",)
    plan = plan_layouts(lying, TARGET, 1)
    (name,) = plan.choices
    choice = replace(plan.choices[name], variant=variant)
    with pytest.raises(VerifyError, match=r"states that b is never -0\.0"):
        apply_plan(lying, replace(plan, choices={name: choice}))


def test_without_the_statement_the_kernel_is_not_freed() -> None:
    graph = biased(1.0, 2.0)
    (node,) = graph.nodes
    variant = halo_variants(graph)[0]
    assert isinstance(variant.recipe, Tiled)
    placements = tuple(
        (p.buffer.name, variant.layouts[p.buffer.name], {"x": 0.0, "w": "undef"}.get(p.buffer.name))
        for p in node.func.params
    )
    made = kernel_schedule(
        node.func, placements, replace(variant.recipe, excludes_negative_zero=()), TARGET
    )
    assert any(isinstance(stmt, If) for stmt in walk(made.func.body))


def test_a_user_may_state_of_contents_only_what_is_looked_at() -> None:
    """A kernel that a user schedules is refused if it assumes what flow does not check."""
    graph = biased(1.0, 2.0)
    func = Schedule.of(graph.nodes[0].func)
    assert lifted(func.apply(assume_finite, "b", "told").func, TARGET)
    with pytest.raises(ScheduleError, match="assumes what nobody has proven"):
        lifted(func.apply(assume_reciprocal, "b", "told").func, TARGET)


def test_the_keys_that_constant_masks_show_are_known() -> None:
    causal = np.tril(np.ones((3, 20), np.bool_))
    window = np.where(np.tril(np.triu(np.ones((3, 20)), -1)), 0, -np.inf).astype(np.float32)
    hidden = np.where(np.arange(20) < 5, 0, -1e4).astype(np.float32)
    never = np.zeros((3, 20), np.bool_)
    near = np.full(20, -900, np.float32)
    for mask, want in (
        (causal, ((0, 1), (0, 2), (0, 3))),
        (window, ((0, 1), (0, 2), (1, 3))),
        (hidden, ((0, 5),)),
        (never, ((0, 0),) * 3),
        (near, ((0, 20),)),
    ):
        case = attention(2, 3, 20, 4, mask=mask)
        graph = fuse_groups(canonicalize(import_model(case.model, {})))
        ((found,),) = in_one_pass(Expansions(graph)).of_node.values()
        assert known_inputs(graph, found.node, contents(graph)).shown_keys == (want,)


def test_of_masks_that_a_run_gives_no_keys_are_known() -> None:
    case = attention(2, 3, 20, 4, mask="row")
    graph = fuse_groups(canonicalize(import_model(case.model, {})))
    ((found,),) = in_one_pass(Expansions(graph)).of_node.values()
    assert known_inputs(graph, found.node, contents(graph)).shown_keys == ()
