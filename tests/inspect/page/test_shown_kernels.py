"""Tests of the kernels on the page: the steps lead from the definition to the kernel that runs."""

import pytest

from graphflow.codegen import emit_assembly, emit_ir
from graphflow.inspect.page import shown_kernels, shown_model
from graphflow.inspect.page.page_data import ShownEdit
from graphflow.pipeline.compiler import Compiled
from graphflow.schedule import replay
from graphflow.tir import to_text
from support.models.compiled_networks import compiled_network
from support.models.shown_networks import shown

CONCAT = "probe:concat:58"


def compiled() -> Compiled:
    return compiled_network(CONCAT)


def edited(lines: list[str], edits: tuple[ShownEdit, ...]) -> list[str]:
    """The text after edits of the text before, as the page applies them."""
    after, done = [], 0
    for edit in edits:
        after += [*lines[done : edit.first], *edit.added]
        done = edit.first + edit.removed
    return after + lines[done:]


def test_the_steps_lead_from_the_definition_to_the_kernel_that_runs() -> None:
    for symbol, kernel in shown(CONCAT).kernels.items():
        made = compiled().lowered.kernels[symbol]
        assert kernel.steps is not None
        lines = kernel.definition.splitlines()
        for count, (step, known) in enumerate(
            zip(kernel.steps, made.schedule.steps, strict=False), 1
        ):
            lines = edited(lines, step.edits)
            assert step.step == str(known)
            assert step.proofs == tuple(map(str, known.proofs))
            if count in (1, len(made.schedule.steps)):
                now = replay(made.schedule.definition, made.schedule.steps[:count])
                assert lines == to_text(now).splitlines()
        for step in kernel.steps[len(made.schedule.steps) :]:
            assert step.step == "lowering"
            lines = edited(lines, step.edits)
        assert lines == kernel.lowered.splitlines() == to_text(made.func).splitlines()


def test_the_code_is_that_of_the_kernel_that_runs() -> None:
    for symbol, kernel in shown(CONCAT).kernels.items():
        func = compiled().lowered.kernels[symbol].func
        assert kernel.ir == emit_ir(func, symbol, compiled().target)
        assert kernel.assembly == emit_assembly(func, symbol, compiled().target)


def test_only_the_kernels_that_take_most_have_long_texts_where_there_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shown_kernels, "STEP_CHARACTERS", 1)
    monkeypatch.setattr(shown_kernels, "CODE_CHARACTERS", 1)
    model = shown_model(compiled())
    shares = dict.fromkeys(model.kernels, 0.0)
    for node in model.program.nodes:
        if node.kernel is not None:
            shares[node.kernel] += node.share
    most = max(shares, key=lambda symbol: shares[symbol])
    for texts in ("steps", "ir", "assembly"):
        assert [s for s, k in model.kernels.items() if getattr(k, texts) is not None] == [most]
