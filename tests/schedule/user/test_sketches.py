"""Tests of sketches: schedules with free choices, and the refusals of points without one."""

from collections.abc import Callable

import pytest

import graphflow as gf
from graphflow.base.errors import ScheduleError
from graphflow.codegen import host_target
from graphflow.schedule import Refusal, Schedule, Sketch, divide_loop, vectorize_loop
from graphflow.tir import PrimFunc, to_text

TARGET = host_target()


def doubling(name: str) -> PrimFunc:
    return gf.kernel(
        f"""
        def {name}(x: f32[24], y: out[f32[24]]):
            for i in serial(0, 24):
                y[i] = x[i] + x[i]
        """
    )


def divided(factor: int) -> Sketch:
    """A sketch that closes over a value."""

    @gf.sketch(tile=(8, 5), where="tile > 0")
    def tiles(s: Schedule, tile: int) -> Schedule:
        s = s.apply(divide_loop, "i", tile * factor, ("io", "ii"), "perfect")
        return s.apply(vectorize_loop, "ii")

    return tiles


@pytest.mark.parametrize("entry", [gf.build, gf.tune])
def test_what_is_no_list_of_sketches_is_refused(entry: Callable[..., object]) -> None:
    with pytest.raises(TypeError, match="sketches is of type Sketch; give a list"):
        entry(doubling("double"), sketches=divided(1))
    with pytest.raises(TypeError, match="an object of type function; give functions that are"):
        entry(doubling("double"), sketches=[doubling])


def test_a_point_gives_a_schedule_or_a_refusal_with_its_reason() -> None:
    kernel, tiles = doubling("double"), divided(1)
    space = tiles.space(kernel, TARGET)
    assert space is not None and tiles.name == "tiles"
    good, bad = (tiles.schedule(kernel, TARGET, point) for point in space.sample(2))
    assert isinstance(good, Schedule) and "ii in vectorized(0, 8)" in to_text(good.func)
    assert isinstance(bad, Refusal)
    assert "perfect needs a factor that divides 24, and 5 does not" in bad.reason


def test_a_sketch_may_be_meant_for_one_kernel() -> None:
    @gf.sketch(kernel="double", tile=(8,))
    def tiles(s: Schedule, tile: int) -> Schedule:
        return s

    assert tiles.space(doubling("double"), TARGET) is not None
    assert tiles.space(doubling("other"), TARGET) is None


def test_the_digest_differs_with_the_values_that_a_sketch_closes_over() -> None:
    assert divided(1).digest == divided(1).digest != divided(2).digest


def test_the_digest_differs_with_the_space() -> None:
    def of(*tiles: int, where: str = "tile > 0") -> Sketch:
        @gf.sketch(tile=tiles, where=where)
        def tiled(s: Schedule, tile: int) -> Schedule:
            return s

        return tiled

    assert of(8, 5).digest == of(8, 5).digest
    assert len({of(*t).digest for t in ((8, 5), (5, 8), (8, 5, 4))}) == 3
    assert of(8, 5).digest != of(8, 5, where="tile > 5").digest


@pytest.mark.parametrize("given", [None, doubling("double")])
def test_what_is_no_schedule_is_a_mistake_of_the_sketch(given: object) -> None:
    @gf.sketch(tile=(1,))
    def wrong(s: Schedule, tile: int) -> Schedule:
        return given  # type: ignore[return-value]

    with pytest.raises(ScheduleError, match=f"gives {type(given).__name__} for double, and no sch"):
        wrong.schedule(doubling("double"), TARGET, (("tile", 1),))


def test_an_error_of_the_sketch_itself_says_where_it_arose() -> None:
    @gf.sketch(tile=(1,))
    def broken(s: Schedule, tile: int) -> Schedule:
        raise KeyError(tile)

    with pytest.raises(KeyError) as caught:
        broken.schedule(doubling("double"), TARGET, (("tile", 1),))
    assert caught.value.__notes__ == ["in the sketch broken of double with tile=1"]


def test_a_schedule_of_another_kernel_is_a_mistake_of_the_sketch() -> None:
    other = doubling("other")

    @gf.sketch(tile=(1,))
    def wrong(s: Schedule, tile: int) -> Schedule:
        return Schedule.of(other)

    with pytest.raises(ScheduleError, match="a schedule of another kernel than double"):
        wrong.schedule(doubling("double"), TARGET, (("tile", 1),))


def test_a_function_without_source_is_refused() -> None:
    namespace: dict[str, object] = {}
    exec("def tiles(s, tile):\n    return s", namespace)
    with pytest.raises(ScheduleError, match="the source of the sketch tiles cannot be read"):
        gf.sketch(tile=(1,))(namespace["tiles"])  # type: ignore[arg-type]
