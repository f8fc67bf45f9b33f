"""Tests of assumptions about inputs: which can be stated, what follows, and the check in a run."""

from math import inf, nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import graphflow as gf
from graphflow.base.assumed import Assumed, parse_assumption
from graphflow.base.errors import InvalidModel
from graphflow.models import ModelBuilder

LARGEST = float(np.finfo(np.float32).max)


def scaled(shape: tuple[int, ...] = (2, 3)) -> Any:
    build = ModelBuilder()
    x = build.input("x", shape)
    build.output(build.node("Mul", [x, build.constant(np.float32(2))], ["y"]))
    return build.model()


@pytest.mark.parametrize(
    ("given", "lo", "hi", "text"),
    [
        ("finite", -LARGEST, LARGEST, "finite"),
        ("nonnegative", -0.0, LARGEST, "finite and in [0.0, ∞]"),
        ((-1, 2.5), -1.0, 2.5, "finite and in [-1.0, 2.5]"),
        ((-inf, 0), -LARGEST, 0.0, "finite and in [-∞, 0.0]"),
        ((0.1, 1e300), float(np.float32(0.1)), LARGEST, "finite and in [0.10000000149011612, ∞]"),
        (3, 3.0, 3.0, "equal to 3.0"),
    ],
)
def test_what_can_be_said_of_floats(given: Any, lo: float, hi: float, text: str) -> None:
    found = parse_assumption("x", "float32", given)
    assert (found.lo, found.hi) == (lo, hi)
    assert np.signbit(found.lo) == np.signbit(lo)
    assert np.signbit(found.hi) == np.signbit(hi)
    assert str(found) == text
    assert Assumed(**found.plain()) == found


def test_what_can_be_said_of_integers() -> None:
    assert parse_assumption("n", "int8", (0, 1000)) == Assumed("n", "int8", 0, 127)
    assert parse_assumption("n", "int64", 3) == Assumed("n", "int64", 3, 3, True)
    assert str(parse_assumption("n", "uint8", "finite")) == "finite"
    for given in ((0, 1.5), 2.5, (300, 400), -(2**80)):
        with pytest.raises(InvalidModel, match=r"is not an integer|cannot be|no int8 value"):
            parse_assumption("n", "int8", given)


@pytest.mark.parametrize(
    "given", ["x is finite", (1, 2, 3), None, (2, 1), (nan, 1), nan, inf, (1e39, 1e40), [0]]
)
def test_what_cannot_be_true(given: Any) -> None:
    with pytest.raises(InvalidModel, match="cannot assume"):
        gf.compile(scaled(), assume={"x": given})


def test_only_what_the_user_gives_can_be_assumed() -> None:
    for name in ("y", "z"):
        with pytest.raises(InvalidModel, match=f"anything of {name}: it is no input .* are x"):
            gf.compile(scaled(), assume={name: "finite"})


def test_assumptions_about_open_shapes_are_read_before_a_run() -> None:
    build = ModelBuilder()
    build.output(build.relu(build.input("x", ("n", 3))))
    for given, message in (({"y": 1}, "anything of y"), ({"x": (2, 1)}, r"\(2, 1\) of x")):
        with pytest.raises(InvalidModel, match=message):
            gf.compile(build.model(), assume=given)
    assert gf.compile(build.model(), assume={"x": (1, 2)}).run({"x": np.ones((2, 3), np.float32)})


def test_a_default_that_contradicts_is_an_error() -> None:
    build = ModelBuilder()
    x, w = build.input("x", (3,)), build.input("w", (3,))
    build.constant(np.array([1, -2, 3], np.float32), "w")
    build.output(build.node("Mul", [x, w]))
    with pytest.raises(InvalidModel, match=r"w\[1\] is -2.0"):
        gf.compile(build.model(), assume={"w": "nonnegative"}, overridable=["w"])
    gf.compile(build.model(), assume={"w": "finite"}, overridable=["w"])
    with pytest.raises(InvalidModel, match="anything of w: it is no input"):
        gf.compile(build.model(), assume={"w": "finite"})


@pytest.mark.parametrize(
    ("given", "good", "bad"),
    [
        ("finite", [-3.0, -0.0, 1e38], [nan, inf, -inf]),
        ("nonnegative", [0.0, -0.0, 7.0], [-1e-45, nan, inf]),
        ((0.1, 1), [np.float32(0.1), 1.0], [0.0999, 1.0001]),
        (0.0, [0.0], [-0.0, 1.0, nan]),
    ],
)
def test_checks_name_the_tensor_the_index_and_the_value(
    given: Any, good: list[float], bad: list[float]
) -> None:
    checked = gf.compile(
        scaled(), assume={"x": given}, options=gf.Options(check_assumes=True, threads=1)
    )
    trusting = gf.compile(scaled(), assume={"x": given}, options=gf.Options(threads=1))
    x = np.full((2, 3), good[0], np.float32)
    x.reshape(-1)[: len(good)] = good
    np.testing.assert_array_equal(checked.run({"x": x})["y"], x * np.float32(2))
    for value in bad:
        y = x.copy()
        y[1, 1:] = value
        with pytest.raises(InvalidModel, match=r"input x was assumed to be .*x\[1, 1\] is "):
            checked.run({"x": y})
        trusting.run({"x": y})


def test_what_does_not_fit_is_refused_as_without_checks() -> None:
    exe = gf.compile(scaled(), assume={"x": "finite"}, options=gf.Options(check_assumes=True))
    with pytest.raises(InvalidModel, match="float64"):
        exe.run({"x": np.full((2, 3), np.nan)})
    with pytest.raises(InvalidModel, match="missing"):
        exe.run({})


def test_report_explanation_and_file_keep_it(tmp_path: Path) -> None:
    exe = gf.compile(
        scaled(), assume={"x": (0, 1)}, options=gf.Options(check_assumes=True, threads=1)
    )
    (said,) = exe.report()["assumed"]
    assert said["tensor"] == "x" and said["assumption"] == "finite and in [0.0, 1.0]"
    assert said["checked"] is True
    assert "assumed   finite and in [0.0, 1.0], by the user" in exe.explain("x")
    exe.save(tmp_path / "m.gfx")
    loaded = gf.load(tmp_path / "m.gfx")
    assert loaded.report()["assumed"] == [said]
    with pytest.raises(InvalidModel, match=r"x\[0, 2\] is 3.0"):
        loaded.run({"x": np.array([[0, 1, 3], [0, 0, 9]], np.float32)})


def test_open_shapes_keep_it_for_each_shape() -> None:
    build = ModelBuilder()
    build.output(build.node("Neg", [build.input("x", ("n", 2))], ["y"]))
    exe = gf.compile(
        build.model(), assume={"x": "finite"}, options=gf.Options(check_assumes=True, threads=1)
    )
    for n in (1, 3):
        exe.run({"x": np.zeros((n, 2), np.float32)})
        with pytest.raises(InvalidModel, match=r"x\[0, 0\] is inf"):
            exe.run({"x": np.full((n, 2), np.inf, np.float32)})
