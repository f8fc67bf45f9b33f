"""The lines of the next panel that tiles along rows fetch."""

import numpy as np
import pytest

from graphflow import tir
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.kernels.definitions.windows import convolution
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.recipes import kernel_variants
from graphflow.kernels.recipes.kernel_schedule import kernel_schedule
from graphflow.kernels.recipes.schedules.lines_ahead import lines_ahead
from graphflow.schedule import Schedule

WIDE = replace(PROCESSORS["zen4"], name="wide", cycles_per_far_line=30.0)
SMALL = replace(WIDE, name="small", l2_bytes=4096)
"""A processor whose second-level cache holds nothing of a kernel."""
NARROW = replace(PROCESSORS["zen3"], name="narrow", l2_bytes=4096, cycles_per_far_line=30.0)


def scheduled(definition: tir.PrimFunc, target: Target) -> Schedule:
    """The kernel of the first variant whose lanes run along rows."""
    variant = next(
        v
        for v in kernel_variants(definition, frozenset({"w"}), target)
        if v.name.endswith("along rows")
    )
    placements = tuple((name, layout, None) for name, layout in variant.layouts.items())
    return kernel_schedule(definition, placements, variant.recipe, target)


def sequence(length: int = 1024) -> tir.PrimFunc:
    window = Window.of((3,), pads=(1, 1))
    return convolution.convolution((1, 4, length), (4, 4, 3), window)


@pytest.mark.parametrize(("target", "width"), [(SMALL, 64), (NARROW, 16)])
def test_each_channel_fetches_the_lines_that_the_next_panel_ends_with(
    target: Target, width: int
) -> None:
    """The last of them holds what the last tap of the last lane meets: x[.., 2 * width]."""
    made = scheduled(sequence(), target)
    tir.verify(made.func, "scheduled")
    fetched = [w for c in tir.calls_in(made.func.body) for w in c.windows]
    assert {w.buffer.name for w in fetched} == {"x"}
    last = 1024 // width - 1
    text = tir.to_text(made.func)
    for k in range(width // 16):
        line = f"min(1008, max(0, {width}*min({last}, panel + 1) + {width - 16 * k}))"
        assert f"prefetch16(x[0, ic, {line}:{line} + 16]" in text
    x = np.random.default_rng(0).standard_normal((1, 4, 1024)).astype(np.float32)
    w = np.random.default_rng(1).standard_normal((4, 4, 3)).astype(np.float32)
    want = tir.interpret(sequence(), {"x": x, "w": w})["y"]
    packed = w.transpose(1, 2, 0)[None]
    got = tir.interpret(made.func, {"x": x, "w": packed})["y"]
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_phases_of_a_transposed_convolution_fetch_too() -> None:
    definition = convolution.transposed_convolution(
        (1, 8, 512), (8, 1, 4), (1024,), strides=(2,), pads_begin=(1,)
    )
    made = scheduled(definition, SMALL)
    assert {w.buffer.name for c in tir.calls_in(made.func.body) for w in c.windows} == {"x"}


def test_reads_outside_of_all_loops_of_a_panel_are_left_as_they_are() -> None:
    func = tir.parse("""
@primfunc
def kernel(x: f32[4096], y: out[f32[4096]]):
    for i in parallel(0, 4096):
        y[i] = x[i]
""")
    assert lines_ahead(Schedule.of(func), SMALL).func == func


def image() -> tir.PrimFunc:
    window = Window.of((3, 3), pads=(1, 1, 1, 1))
    return convolution.convolution((1, 4, 20, 128), (4, 4, 3, 3), window)


@pytest.mark.parametrize(
    ("definition", "target"),
    [
        pytest.param(sequence(), WIDE, id="the cache holds the rows"),
        pytest.param(
            sequence(),
            replace(PROCESSORS["zen4"], name="seen", l2_bytes=4096),
            id="none is awaited",
        ),
        pytest.param(image(), SMALL, id="the next iteration reads other rows"),
    ],
)
def test_no_lines_are_fetched_where(definition: tir.PrimFunc, target: Target) -> None:
    assert not [*tir.calls_in(scheduled(definition, target).func.body)]
