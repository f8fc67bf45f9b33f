"""Convolutions in transformed tiles end to end: special values, padding, residuals, the option."""

import numpy as np
import pytest
from onnx import version_converter

import graphflow as gf
from graphflow.base.dtypes import DTYPES, HALVES
from graphflow.codegen import avx2_target, host_target
from graphflow.kernels.recipes import TRANSFORMED_TILES
from graphflow.models import ModelBuilder
from graphflow.models.zoo.building.sixteen_bits import in_sixteen_bits
from support.models.sized_runs import beside_peer
from support.padded import Net, check, no_masks

CHANNELS, SIZE = 64, (12, 11)
RAGGED = 58
"""Channels that do not fill the last of several vectors."""

OFTEN_RAGGED = [RAGGED, pytest.param(CHANNELS, marks=pytest.mark.slow)]
"""Whole vectors take no other way: of ragged channels the vectors but the last one are whole."""

WHOLE = gf.Options(fallback=None, workers=0, threads=2)


def network(channels: int = CHANNELS, size: tuple[int, int] = SIZE) -> ModelBuilder:
    b = ModelBuilder()
    x = b.input("x", (1, channels, *size))
    y = b.conv(x, channels, 3, pads=[1, 1, 1, 1])
    b.output(b.relu(b.add(y, x)))
    return b


def sequences(channels: int = CHANNELS, steps: int = 600, batch: int = 2) -> ModelBuilder:
    """A residual block of convolutions of 3 taps along sequences."""
    b = ModelBuilder()
    x = b.input("x", (batch, channels, steps))
    y = b.node("Conv", [x, b.weight(channels, channels, 3)], pads=[1, 1])
    y = b.node("Conv", [b.relu(y), b.weight(channels, channels, 3)], pads=[1, 1])
    b.output(b.relu(b.add(y, x)))
    return b


def taken(exe: gf.Executable) -> list[str]:
    return [
        choice.variant_name
        for choice in exe.compiled.plan.choices.values()
        if "in transformed tiles" in choice.variant_name
    ]


@pytest.fixture(scope="module", params=[CHANNELS, RAGGED])
def both(request: pytest.FixtureRequest) -> tuple[gf.Executable, gf.Executable]:
    """The network in transformed tiles, and as plain sums."""
    model = network(request.param).model()
    tiled = gf.compile(model, options=WHOLE)
    assert taken(tiled)
    plain = gf.compile(model, options=gf.Options(fallback=None, winograd=False, threads=2))
    assert not taken(plain)
    return tiled, plain


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 1e38, -3e38, 2.0**65, 3e19])
def test_special_values_come_out_where_plain_sums_have_them(
    both: tuple[gf.Executable, gf.Executable], value: float
) -> None:
    shape = both[0].inputs[0].shape
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    for row, column in np.ndindex(SIZE):
        special = x.copy()
        special[0, (7 * row + column) % shape[1], row, column] = value
        tiled, plain = (next(iter(exe.run({"x": special}).values())) for exe in both)
        np.testing.assert_array_equal(np.isnan(tiled), np.isnan(plain))
        np.testing.assert_array_equal(np.isposinf(tiled), np.isposinf(plain))
        if not abs(value) < 2.0**65:  # else one large element is in the sums of a whole tile
            known = np.isfinite(plain)
            np.testing.assert_allclose(tiled[known], plain[known], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("channels", OFTEN_RAGGED)
@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_sequences_are_transformed_along_their_axis(channels: int, target: gf.Target) -> None:
    model = sequences(channels).model()
    tiled = gf.compile(model, options=WHOLE, target=target)
    assert len(taken(tiled)) == 2
    assert all(name.endswith(("of 2", "of 4")) for name in taken(tiled))
    plain = gf.compile(
        model, options=gf.Options(fallback=None, winograd=False, threads=2), target=target
    )
    x = np.random.default_rng(0).standard_normal(tiled.inputs[0].shape, np.float32)
    got, want = (next(iter(exe.run({"x": x}).values())) for exe in (tiled, plain))
    assert np.linalg.norm(got.astype("float64") - want) / np.linalg.norm(want) < 1e-5
    for at, value in ((0, np.inf), (71, np.nan), (599, -3e38)):
        special = x.copy()
        special[1, 5, at] = value
        got, want = (next(iter(exe.run({"x": special}).values())) for exe in (tiled, plain))
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.isposinf(got), np.isposinf(want))


def test_the_error_is_small(both: tuple[gf.Executable, gf.Executable]) -> None:
    x = np.random.default_rng(1).standard_normal(both[0].inputs[0].shape, np.float32)
    tiled, plain = (next(iter(exe.run({"x": x}).values())) for exe in both)
    error = np.linalg.norm(tiled.astype("float64") - plain) / np.linalg.norm(plain)
    assert error < 1e-5


@pytest.mark.parametrize("dtype", HALVES)
def test_outputs_may_have_16_bits(dtype: str) -> None:
    """Special values are where plain sums have them, other elements a few roundings apart."""
    model = in_sixteen_bits(version_converter.convert_version(network().model(), 22), dtype)
    tiled, plain = (
        gf.compile(model, options=gf.Options(fallback=None, winograd=w, threads=2))
        for w in (True, False)
    )
    assert taken(tiled) and not taken(plain)
    x = np.random.default_rng(0).standard_normal((1, CHANNELS, *SIZE)).astype(DTYPES[dtype])
    for value in (0.5, np.nan, np.inf, 6e4):
        x[0, 7, 3, 5] = value
        results = [next(iter(exe.run({"x": x}).values())) for exe in (tiled, plain)]
        assert {result.dtype for result in results} == {DTYPES[dtype]}
        got, want = (result.astype(np.float32) for result in results)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.isposinf(got), np.isposinf(want))
        finite = np.isfinite(want)
        if value < 1e4:  # else one large element is in the sums of a whole tile
            step = 2.0**-7 if dtype == "bfloat16" else 2.0**-10
            np.testing.assert_allclose(got[finite], want[finite], rtol=step, atol=4 * step)


@pytest.mark.parametrize("channels", OFTEN_RAGGED)
@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_padding_plays_no_part(channels: int, target: gf.Target) -> None:
    b = ModelBuilder()
    x = b.input("x", (1, 20, *SIZE))
    y = b.conv(b.relu(b.conv(x, channels, 1)), channels, 3, pads=[1, 1, 1, 1])
    b.output(b.conv(b.node("Exp", [y]), 20, 1, in_channels=channels))
    model = b.model()
    options = gf.Options(poison=True, workers=0, threads=2)
    poisoned = gf.compile(model, options=options, target=target)
    assert taken(poisoned)
    inputs = {"x": np.random.default_rng(0).standard_normal((1, 20, *SIZE), np.float32) / 9}
    first, second = (
        next(iter(poisoned.run(inputs, poison=value).values())) for value in (np.nan, -42.0)
    )
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_a_reader_may_rely_on_the_padding(target: gf.Target) -> None:
    """Bands write no constant there, so what a reader demands is filled in behind them."""
    net = Net()
    x = net.input("x", (1, 48, *SIZE))
    x = net.relu(net.conv(x, RAGGED, 3, in_channels=48, pads=[1] * 4))
    net.output(net.sum_channels(x), net.point(x, 20, in_channels=RAGGED))
    with no_masks():
        exe = check(net.model(), {x: "blocked"}, target=target, plain=False)
    assert taken(exe)
    assert any("over the padding" in c.variant_name for c in exe.compiled.plan.choices.values())


def test_the_plan_says_why_and_with_what_error(both: tuple[gf.Executable, gf.Executable]) -> None:
    (choice,) = both[0].compiled.plan.choices.values()
    assert "computed in transformed tiles" in choice.because
    assert "in norm" in choice.because


# Sides that a run decides ------------------------------------------------------------------------

SIDES = {"n": (1, 2), "h": (1, 21), "w": (1, 24)}
RUNS = [
    dict(zip("nhw", extents, strict=True))
    for extents in (
        (1, 1, 1), (2, 21, 24), (1, 4, 8), (2, 5, 7), (1, 13, 3), (1, 20, 23), (2, 16, 21),
        (1, 2, 24), (1, 21, 1), (2, 17, 16),
    )
]  # fmt: skip


def open_network(channels: int) -> ModelBuilder:
    """Two convolutions and a residual; what the second one reads is filled behind its sides."""
    b = ModelBuilder(opset=17)
    x = b.input("x", ("n", channels, "h", "w"))
    y = b.relu(b.conv(x, channels, 3, pads=[1, 1, 1, 1]))
    b.output(b.relu(b.add(b.conv(y, channels, 3, pads=[1, 1, 1, 1]), x)))
    return b


@pytest.mark.parametrize("channels", [RAGGED, pytest.param(32, marks=pytest.mark.slow)])
@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_one_program_serves_images_of_all_sides(target: gf.Target, channels: int) -> None:
    options = gf.Options(fallback=None, workers=0, threads=2, poison=True)
    model = open_network(channels).model()
    exe = gf.compile(model, sizes=SIDES, options=options, target=target)
    (one,) = exe.specializations
    variants = [node["variant"] for node in one.report()["program"]["nodes"]]
    assert sum(TRANSFORMED_TILES in (variant or "") for variant in variants) == 2
    assert beside_peer(model, SIDES, RUNS, compiled=exe) == ([], "")


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (2, 1, 0, 1), (0, 1, 1, 2)])
def test_sides_may_be_padded_unevenly(pads: tuple[int, int, int, int]) -> None:
    b = ModelBuilder(opset=17)
    x = b.input("x", (1, 32, "h", "w"))
    b.output(b.conv(x, 32, 3, pads=list(pads)))
    sizes = {"h": (3, 19), "w": (3, 26)}
    runs = [{"h": h, "w": w} for h, w in ((3, 3), (19, 26), (4, 9), (6, 5), (18, 10), (7, 26))]
    options = gf.Options(fallback=None, workers=0, threads=2, poison=True)
    exe = gf.compile(b.model(), sizes=sizes, options=options)
    assert taken(exe.specializations[0])
    assert beside_peer(b.model(), sizes, runs, compiled=exe) == ([], "")


def test_special_values_at_open_borders_come_out_where_plain_sums_have_them() -> None:
    """Also behind a run with NaN everywhere, and in rows and columns that do not fill tiles."""
    model = open_network(32).model()
    tiled, plain = (
        gf.compile(
            model,
            sizes=SIDES,
            options=gf.Options(fallback=None, workers=0, threads=2, winograd=winograd),
        )
        for winograd in (True, False)
    )
    random = np.random.default_rng(0)
    for height, width in ((1, 1), (5, 9), (14, 24), (21, 7)):
        for value in (np.inf, np.nan, 3e38, 2.0**65):
            for place in ((0, 0), (height - 1, width - 1), (height // 2, width - 1)):
                for exe in (tiled, plain):
                    exe.run({"x": np.full((2, 32, 21, 24), np.nan, np.float32)})
                x = random.standard_normal((1, 32, height, width), np.float32)
                x[0, 3, *place] = value
                got, want = (next(iter(exe.run({"x": x}).values())) for exe in (tiled, plain))
                np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
                np.testing.assert_array_equal(np.isposinf(got), np.isposinf(want))


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_one_program_serves_sequences_of_all_lengths(target: gf.Target) -> None:
    """Also behind a run with NaN everywhere, which leaves it where a shorter one reads."""
    b = ModelBuilder(opset=17)
    x = b.input("x", (1, RAGGED, "n"))
    first, second = (b.weight(RAGGED, RAGGED, 3, scale=(3 * RAGGED) ** -0.5) for _ in range(2))
    y = b.relu(b.node("Conv", [x, first], pads=[1, 1]))
    b.output(b.node("Conv", [y, second], pads=[0, 2]))
    sizes, options = {"n": (1, 500)}, gf.Options(fallback=None, workers=0, threads=2, poison=True)
    exe = gf.compile(b.model(), sizes=sizes, options=options, target=target)
    assert len(taken(exe.specializations[0])) == 2
    for count in (500, 1, 3, 4, 63, 64, 65, 499):
        exe.run({"x": np.full((1, RAGGED, 500), np.nan, np.float32)})
        assert beside_peer(b.model(), sizes, [{"n": count}], compiled=exe) == ([], "")
