"""Tests of the pins on the page: each is what a compilation with this pin finds."""

import pytest

import graphflow.inspect.page.shown_pins as shown_pins_module
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.flow import PinTrials
from graphflow.flow.branch_and_bound.conditioning import TablesTooLarge
from graphflow.flow.candidates.candidates import Unsatisfiable
from graphflow.flow.pins import IMPOSSIBLE, NO_TENSOR, SEARCHED
from graphflow.inspect.page.shown_pins import LEFT_OUT, TIMED, plan_changes, shown_pins
from graphflow.models.zoo import zoo_model
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.plan import EndToEndTime, LayoutPlan
from support.models.compiled_networks import compiled_network

pytestmark = pytest.mark.usefixtures("code_is_left_out")

NETWORK = "probe:concat:58"


def compiled_with(pins: dict[str, str]) -> LayoutPlan:
    base = compiled_network(NETWORK)
    options = Options(threads=1, winograd=False)
    request = CompileRequest(
        zoo_model(NETWORK, 0), target=base.target, options=options, layouts=pins
    )
    return compile_graph(request).plan


def test_a_pin_costs_and_changes_what_a_compilation_with_it_does() -> None:
    plan, found = compiled_network(NETWORK).plan, shown_pins(compiled_network(NETWORK))
    assert [pin.layout for pin in found["conv_3"]] == ["NHWC", "NHWC padded to 64", "NCHW"]
    for value, pin in (("conv_3", found["conv_3"][0]), ("relu_1", found["relu_1"][-1])):
        made = compiled_with({value: pin.layout})
        assert pin.seconds == pytest.approx(made.seconds - plan.seconds)
        assert pin.changes == tuple(plan_changes(plan, made))
        assert ("layout", value) in {(change.kind, change.name) for change in pin.changes}
    converted = next(change for change in found["conv_3"][0].changes if change.kind == "copy")
    assert converted.before is not None and converted.before.startswith("convert: NCHW, ")


def test_a_plan_does_not_differ_from_itself() -> None:
    plan = compiled_network(NETWORK).plan
    assert not [*plan_changes(plan, plan)]


def test_converted_tensors_are_planned_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shown_pins_module, "MOST_PLANNED", 8)  # two plans of four nodes
    found = shown_pins(compiled_network(NETWORK))
    planned = [value for value, pins in found.items() for pin in pins if pin.seconds is not None]
    assert planned == ["conv_3", "conv_3"]
    left_out = [pin for pins in found.values() for pin in pins if pin.seconds is None]
    assert left_out and {(pin.because, pin.changes) for pin in left_out} == {(LEFT_OUT, ())}


def test_a_plan_that_was_timed_end_to_end_is_not_compared_with_prices() -> None:
    compiled = compiled_network(NETWORK)
    timed = replace(compiled.plan, end_to_end=EndToEndTime("NHWC", 1e-3, 2e-3, 1e-3))
    found = shown_pins(replace(compiled, plan=timed))
    assert {pin.because for pins in found.values() for pin in pins} == {TIMED}


def test_a_trial_says_why_it_has_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_network(NETWORK)
    trials, layout = compiled.pin_trials, compiled.plan.edges["conv_3"].edge_type.layout
    assert isinstance(trials, PinTrials)
    assert trials.plan("nothing", layout) == NO_TENSOR
    for error, reason in ((TablesTooLarge, SEARCHED), (Unsatisfiable("none"), IMPOSSIBLE)):

        def refuse(*_: object, error: type[Exception] | Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr("graphflow.flow.pins.Problem", refuse)
        assert trials.plan("conv_3", layout) == reason
