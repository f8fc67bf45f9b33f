"""The rows of the next iteration that a kernel of stages fetches."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.kernels.definitions.reductions import normalization, reduction
from graphflow.kernels.recipes import SharedLoops, kernel_variants
from graphflow.kernels.recipes.kernel_schedule import kernel_schedule
from graphflow.schedule import Schedule

WIDE = PROCESSORS["zen4"]
SMALL = replace(WIDE, name="small", l2_bytes=4096)
"""A processor whose second-level cache holds nothing of a kernel."""


def scheduled(definition: tir.PrimFunc, target: Target) -> Schedule:
    """The kernel of the first variant whose stages meet at shared loops."""
    variant = next(
        v
        for v in kernel_variants(definition, frozenset(), target)
        if isinstance(v.recipe, SharedLoops)
    )
    placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
    return kernel_schedule(definition, placements, variant.recipe, target)


def test_a_softmax_fetches_the_rows_of_the_next_block() -> None:
    """By the last pass over x, once a line; the last block fetches its own rows."""
    definition = reduction.softmax((16, 64), (1,))
    made = scheduled(definition, SMALL)
    tir.verify(made.func, "scheduled")
    (call,) = tir.calls_in(made.func.body)
    (window,) = call.windows
    text = tir.to_text(made.func)
    assert call.definition == tir.PREFETCH16 and window.buffer.name == "x"
    assert "prefetch16(x[4*min(3, i0o + 1) + i0i_s_s, 16*e1o:16*e1o + 16])" in text
    x = np.random.default_rng(0).standard_normal((16, 64)).astype(np.float32)
    want = tir.interpret(definition, {"x": x})["y"]
    np.testing.assert_allclose(tir.interpret(made.func, {"x": x})["y"], want, rtol=1e-6)


def test_what_each_row_reads_alike_is_not_fetched() -> None:
    made = scheduled(normalization.layer_normalization((16, 64), 1, (64,), (64,)), SMALL)
    assert [w.buffer.name for c in tir.calls_in(made.func.body) for w in c.windows] == ["x"]


@pytest.mark.parametrize(
    ("shape", "target"),
    [
        pytest.param((16, 64), WIDE, id="the cache holds the rows"),
        pytest.param((16, 64), replace(PROCESSORS["zen3"], l2_bytes=4096), id="half lines"),
        pytest.param((16, 12), SMALL, id="rows shorter than a line"),
    ],
)
def test_no_rows_are_fetched_where(shape: tuple[int, int], target: Target) -> None:
    made = scheduled(reduction.softmax(shape, (1,)), replace(target, name="other"))
    assert not [*tir.calls_in(made.func.body)]


def test_rows_that_end_within_a_block_are_not_fetched_and_the_reason_is_kept() -> None:
    made = scheduled(reduction.softmax((18, 64), (1,)), SMALL)
    assert not [*tir.calls_in(made.func.body)]
    assert any("lies inside" in refusal.reason for refusal in made.refusals)
