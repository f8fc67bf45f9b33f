"""Tests of what the timing table keeps of searches."""

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.codegen import host_target
from graphflow.kernels.recipes import best_found, point_key, search_key, timed_searches
from graphflow.schedule import Schedule, Sketch, choices_text, divide_loop

TARGET = host_target()

KERNEL = gf.kernel(
    """
    def double(x: f32[24], y: out[f32[24]]):
        for i in serial(0, 24):
            y[i] = x[i] + x[i]
    """
)


@gf.sketch(tile=(4, 5, 6, 8))
def tiles(s: Schedule, tile: int) -> Schedule:
    return s.apply(divide_loop, "i", tile, ("io", "ii"), "perfect")


def timed(sketch: Sketch = tiles, compiler: str = "c", **seconds: float) -> dict[str, float]:
    """A table with the seconds of points, `t4` being that of tile 4."""
    search = search_key(sketch, KERNEL, compiler)
    points = {name: (("tile", int(name[1:])),) for name in seconds}
    return {point_key(search, points[name]): s for name, s in seconds.items()}


def found_in(known: dict[str, float], compiler: str = "c") -> dict[str, float]:
    return timed_searches(known).get(search_key(tiles, KERNEL, compiler), {})


def test_the_point_with_the_least_seconds_is_found() -> None:
    known = timed(t4=3e-6, t8=1e-6, t6=2e-6) | {"another key": 1.0}
    best = best_found(tiles, KERNEL, TARGET, found_in(known))
    assert best is not None
    schedule, found = best
    assert schedule.func == found.kernel and choices_text(found.point) == "tile=8"
    assert str(found) == (
        "sketch tiles with tile=8: 1.0 µs measured, the best of 3 timed; "
        "3.0 µs with the default choices"
    )


def test_nothing_is_found_without_timings() -> None:
    assert best_found(tiles, KERNEL, TARGET, found_in({"another key": 1.0})) is None


def test_results_are_stale_when_sketch_kernel_or_compiler_change() -> None:
    known = timed(t4=1e-6)
    assert found_in(known) and not found_in(known, "another compiler")
    changed = replace(tiles, source=tiles.source + "\n")
    assert search_key(changed, KERNEL, "c") != search_key(tiles, KERNEL, "c")
    other = gf.kernel(
        """
        def double(x: f32[25], y: out[f32[25]]):
            for i in serial(0, 25):
                y[i] = x[i] + x[i]
        """
    )
    assert search_key(tiles, other, "c") != search_key(tiles, KERNEL, "c")
    renamed = replace(KERNEL, name="another")  # names do not matter
    assert search_key(tiles, renamed, "c") == search_key(tiles, KERNEL, "c")


def test_a_point_that_is_refused_or_unknown_is_no_result() -> None:
    for name in ("t5", "t7"):
        assert best_found(tiles, KERNEL, TARGET, found_in(timed(**{name: 1e-9}))) is None
