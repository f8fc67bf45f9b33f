"""Tests of the part of a step that a run executes: which iterations are left out, and that what is
executed gives what a run gives."""

from __future__ import annotations

import pytest

import graphflow as gf
from graphflow.lower.run_portions import any_counted
from graphflow.program import Portion
from support.models.sized_runs import OPTIONS, beside_peer, parsed_model

MOST = 7

BATCHES = "g (float[n,3,12,12] x, float[8,3,3,3] w) => (float y) { y=Conv<pads=[1,1,1,1]>(x,w) }"
PANELS = "g (float[n,64,256] x, float[256,512] w) => (float y) { y=MatMul(x,w) }"
GROUPED = "g (float[n,16,9,9] x, float[16,4,3,3] w) => (float y) { y=Conv<group=4>(x,w) }"
INNERMOST = (
    "g (float[n,8,12,12] x) => (float y) { r=Relu(x) t=Transpose<perm=[1,2,3,0]>(r) y=Exp(t) }"
)
CHAINED = (
    "g (float[n,3,12,12] x, float[8,3,3,3] w, float[8,8,1,1] v) => (float y) "
    "{ a=Conv(x,w) b=Relu(a) c=Conv(b,v) s=Softmax<axis=1>(c) y=Concat<axis=1>(s,a) }"
)
HEAD = (
    "g (float[n,3,12,12] x, float[8,3,3,3] w) => (float y) { b=Constant<value=int64[1] {0}>() "
    "e=Constant<value=int64[1] {3}>() s=Slice(x,b,e,b) y=Conv(s,w) }"
)


def portions(text: str) -> list[Portion | None]:
    exe = gf.compile(parsed_model(text), sizes={"n": (1, MOST)}, options=OPTIONS)
    return [step.portion for step in exe.program.spec.run]


def groups_of(text: str) -> set[int]:
    return {part.groups for part in portions(text) if part is not None}


def test_a_loop_over_batches_first_has_one_group() -> None:
    assert groups_of(BATCHES) == {1}
    assert groups_of(GROUPED) == {1}


def test_a_loop_over_panels_of_weights_first_has_several_groups() -> None:
    assert max(groups_of(PANELS)) > 1


def test_elements_that_another_tensor_counts_are_all_computed() -> None:
    """Their count is no input of the program."""
    assert portions(HEAD)[-1] is None


def test_a_step_whose_batch_is_innermost_is_executed_as_a_whole() -> None:
    assert None in portions(INNERMOST)


def test_a_model_without_sizes_has_no_portions() -> None:
    exe = gf.compile(parsed_model(BATCHES.replace("[n,", "[3,")), options=OPTIONS)
    assert all(step.portion is None for step in exe.program.spec.run)
    (one,) = exe.specializations
    assert not any_counted(one.compiled.physical)


@pytest.mark.parametrize("text", [BATCHES, PANELS, GROUPED, INNERMOST, CHAINED, HEAD])
@pytest.mark.parametrize("threads", [1, 3])
def test_all_that_a_run_gives_is_computed(text: str, threads: int) -> None:
    options = gf.Options(cache="off", workers=0, threads=threads)
    runs = [{"n": extent} for extent in (1, 2, 4, MOST)]
    wrong, why_not = beside_peer(
        parsed_model(text), {"n": (1, MOST)}, runs, options, tolerance=1e-3
    )
    assert not wrong and not why_not
