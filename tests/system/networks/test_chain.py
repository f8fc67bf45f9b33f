"""Tests of the example of padding proofs: Conv and Relu, Exp, Conv, and a sum over padded channels.

Inner tensors have channel blocks, the last of which is padded.  Exp turns the zeros that a
convolution leaves there into ones, so a sum that runs over the padding would be wrong although all
shapes agree.  The interpreter, native code and onnxruntime must agree.
"""

from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.errors import VerifyError
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.convert import apply_plan, verify_plan
from graphflow.frontends import import_model
from graphflow.graph import OperatorGraph, canonicalize, fuse_groups, interpret_graph
from graphflow.kernels.recipes import kernel_variants
from graphflow.layout import Equal, Undefined
from graphflow.pipeline import compiler_stages
from graphflow.plan import LayoutPlan
from support.padded import (
    POISONS,
    Arrays,
    Net,
    assert_all_same,
    check,
    compile_pinned,
    normal_inputs,
    reference,
    run_physical,
)

CHANNELS = 26
HEIGHT, WIDTH = 3, 9
TARGETS = pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])


def chain(between: bool = True) -> onnx.ModelProto:
    """Conv+Relu → Exp → (Conv, where `between`) → sum over channels."""
    net = Net()
    x = net.input("x", (1, CHANNELS, HEIGHT, WIDTH))
    last = net.node("Exp", [net.relu(net.conv(x, CHANNELS, 3, pads=[1] * 4))], ["e"])
    if between:
        last = net.node("Conv", [last, net.weight(CHANNELS, CHANNELS, 3, 3, scale=0.05)], ["c"],
                        pads=[1] * 4)  # fmt: skip
    net.output(net.sum_channels(last, keepdims=1))
    return net.model()


def pins(between: bool) -> dict[str, str]:
    """Layouts that leave padding, and for the sum, which has one channel, one that does not."""
    return {**dict.fromkeys(inner(between), "blocked"), "reducesum_1": "NCHW"}


def inner(between: bool) -> tuple[str, ...]:
    """The tensors with padding."""
    return ("e", "c") if between else ("e",)


@lru_cache
def compiled(between: bool, target: Target, poison: bool = False) -> gf.Executable:
    return compile_pinned(chain(between), pins(between), poison, target)


def ordinary(between: bool) -> Arrays:
    return normal_inputs(chain(between))


def special(between: bool) -> Arrays:
    """NaN at the left edge, infinities and large numbers next to it; the right side is ordinary."""
    (array,) = ordinary(between).values()
    array = array.copy()
    for value, channel, row, column in (
        (np.nan, 25, 2, 0),
        (np.inf, 7, 0, 3),
        (-np.inf, 19, 2, 3),
        (1e38, 16, 1, 3),
        (-0.0, 0, 1, 8),
    ):
        array[0, channel, row, column] = value
    return {"x": array}


CASES = pytest.mark.parametrize("between", [True, False], ids=["with conv", "exp to sum"])
INPUTS = pytest.mark.parametrize("inputs", [ordinary, special], ids=["normal", "special"])


@pytest.mark.decisions
@CASES
@TARGETS
def test_conversions_stand_at_the_boundary_only(between: bool, target: Target) -> None:
    report = compiled(between, target).report()
    summary = report["summary"]
    assert summary["inner_conversions"] == 0 and summary["fills"] == 0
    assert summary["conversions"] == summary["boundary_conversions"]
    lanes = target.lanes("float32")
    blocks = -(-CHANNELS // lanes)
    found = {e["name"]: e for e in report["edges"] if e["name"] in ("e", "c")}
    for edge in found.values():
        assert edge["where"] == "stored"
        assert edge["layout"] == f"NCHW{lanes}c"
        assert edge["physical_shape"] == [1, blocks, HEIGHT, WIDTH, lanes]
        assert [r["fact"] for r in edge["regions"] if r["region"] != "logical"] == ["undef"]
    assert tuple(found) == inner(between)


@pytest.mark.decisions
@CASES
@TARGETS
def test_pairs_cancel_with_both_proofs(between: bool, target: Target) -> None:
    """One proof that the layouts are equal, one for each region of padding."""
    gone = {c["edge"]: c["proof"] for c in compiled(between, target).report()["cancelled"]}
    for edge in inner(between):
        name = f"NCHW{target.lanes('float32')}c"
        assert f"{name} and {name} place every element alike" in gone[edge]
        assert "equal index maps and boxes" in gone[edge]
        assert "pad(1) holds undef, needed none" in gone[edge]


@pytest.mark.decisions
@CASES
@TARGETS
def test_the_sum_may_not_run_over_the_padding(between: bool, target: Target) -> None:
    """The pair before the sum is refused in its bare variant, with the reason and what is done."""
    (refused,) = compiled(between, target).report()["refused"]
    assert refused["edge"] == ("c" if between else "e")
    assert "leaves undef in pad(1)" in refused["reason"]
    assert "ReduceSum" in refused["reason"] and "equal to 0.0 float32" in refused["reason"]
    assert "mask" in refused["repair"]


@lru_cache
def interpreted(between: bool, inputs: Any) -> Arrays:
    imported = import_model(chain(between))
    return interpret_graph(imported, inputs(between))


@CASES
@INPUTS
@TARGETS
def test_interpreter_native_code_and_onnxruntime_agree(
    between: bool, inputs: Any, target: Target
) -> None:
    given = inputs(between)
    expected = reference(chain(between), given)
    assert_all_same(interpreted(between, inputs), expected, "imported graph, interpreted")
    executable = compiled(between, target)
    assert_all_same(executable.run(given), expected, "native")
    value = np.nan if inputs is ordinary else -42.0
    found = run_physical(executable.compiled.lowered, given, undefined=value)
    assert_all_same(found, expected, f"kernels interpreted, memory full of {value}")


@CASES
@INPUTS
@TARGETS
def test_poison_changes_nothing(between: bool, inputs: Any, target: Target) -> None:
    executable = compiled(between, target, True)
    padded = -CHANNELS % target.lanes("float32") * HEIGHT * WIDTH
    plan = executable.compiled.plan
    written = [edge.edge_type for edge in plan.edges.values()]
    written += [made.target for made in plan.conversions]
    undefined = [t for t in written if any(fact == Undefined() for _, fact in t.facts)]
    assert len(undefined) >= (2 if between else 1)
    assert executable.poisoned == padded * len(undefined)
    given = inputs(between)
    expected = reference(chain(between), given)
    for value in POISONS:
        assert_all_same(executable.run(given, poison=value), expected, f"poison {value}")


def test_specials_reach_some_outputs_and_not_all() -> None:
    """Otherwise comparing their places would show nothing; behind a convolution ∞ − ∞ is NaN."""
    for between in (True, False):
        (output,) = reference(chain(between), special(between)).values()
        assert np.isnan(output).any() and np.isfinite(output).any()
        assert between or np.isposinf(output).any()


# Mutations: the repair is taken out, and somebody must notice ------------------------------------


def planned(between: bool) -> tuple[OperatorGraph, LayoutPlan]:
    found = compiled(between, host_target()).compiled
    return found.graph, found.plan


def without_repair(graph: OperatorGraph, plan: LayoutPlan) -> LayoutPlan:
    """The plan with a sum that runs over padding of which nothing is known."""
    node = graph.nodes[-1]
    chosen = plan.choices[node.name]
    variants = kernel_variants(node.func, frozenset(), host_target())
    layout = chosen.variant.layouts[node.func.inputs[0].name]
    bare = next(
        variant
        for variant in variants
        if variant.layouts[node.func.inputs[0].name] == layout
        and variant.layouts[node.func.outputs[0].name]
        == chosen.variant.layouts[node.func.outputs[0].name]
        and any(isinstance(d, Equal) for d in variant.demands.values())
    )
    return replace(plan, choices={**plan.choices, node.name: replace(chosen, variant=bare)})


@CASES
def test_a_plan_without_its_repair_is_refused(between: bool) -> None:
    graph, plan = planned(between)
    verify_plan(graph, plan)
    with pytest.raises(VerifyError) as caught:
        apply_plan(graph, without_repair(graph, plan))
    text = str(caught.value)
    assert "(ReduceSum) needs pad(1) of" in text and "equal to 0.0 float32" in text
    assert "a forward pass finds undef" in text


@CASES
def test_unverified_it_would_change_the_outputs(
    between: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the tests above see a repair that is missing: each poison shows in the outputs."""
    graph, plan = planned(between)
    mutant = without_repair(graph, plan)
    monkeypatch.setattr("graphflow.convert.apply.verify_plan", lambda *_: None)
    trials = compiled(between, host_target()).compiled.pin_trials
    flow = replace(compiler_stages.FLOW, run=lambda *_: (graph, mutant, trials))
    monkeypatch.setattr(compiler_stages, "FLOW", flow)
    broken = compile_pinned(chain(between), {}, poison=True)
    given = ordinary(between)
    (expected,) = reference(chain(between), given).values()
    (with_nan,) = broken.run(given, poison=np.nan).values()
    assert np.isnan(with_nan).all()
    (with_number,) = broken.run(given, poison=-42.0).values()
    padded = -CHANNELS % host_target().lanes("float32")
    np.testing.assert_allclose(with_number, expected - 42.0 * padded, rtol=1e-3)


def test_sum_of_fourteen_ones_is_fourteen() -> None:
    """exp(0) = 1 in all channels: what runs over the padding gives sixteen."""
    net = Net()
    x = net.input("x", (1, 14, 3, 3))
    cropped = net.node("MaxPool", [x], ["m"], kernel_shape=[1, 1])
    net.node("Exp", [cropped], ["e"])
    net.output(net.node("Neg", [net.sum_channels("e")], ["y"]), "m")
    model = net.model()
    pinned = {"m": "blocked", "e": "blocked"}
    executable = check(model, pinned)
    zeros = {"x": np.zeros((1, 14, 3, 3), np.float32)}
    assert (executable.run(zeros)["y"] == -14.0).all()
    poisoned = compile_pinned(model, pinned, poison=True)
    for value in POISONS:
        assert (poisoned.run(zeros, poison=value)["y"] == -14.0).all()
    imported = fuse_groups(canonicalize(import_model(model)))
    assert (interpret_graph(imported, zeros)["y"] == -14.0).all()
