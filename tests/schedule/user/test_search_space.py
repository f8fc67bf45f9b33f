"""Tests of the spaces of sketches: domains, constraints, and samples that a seed decides."""

import os
import subprocess
import sys

import pytest

from graphflow.base.errors import ScheduleError
from graphflow.schedule import SearchSpace, choices_text
from graphflow.schedule.user.search_space import ENUMERATED

SPACE = SearchSpace.of(
    {"tile": (1, 2, 4, 8), "lanes": (8, 16), "along": ("own", "shared0")},
    ("tile * lanes <= 64", "along == 'own' or tile == 1"),
)


def test_a_sample_has_each_allowed_point_once_and_the_default_first() -> None:
    points = SPACE.sample(100)
    assert points[0] == SPACE.default() == (("tile", 1), ("lanes", 8), ("along", "own"))
    assert len(points) == len(set(points)) == 9  # 4 tiles of 8, 3 of 16, and tile 1 along shared0
    for point in points:
        chosen = dict(point)
        assert int(chosen["tile"]) * int(chosen["lanes"]) <= 64
        assert chosen["along"] == "own" or chosen["tile"] == 1


def test_a_larger_sample_begins_with_the_smaller_one() -> None:
    assert SPACE.sample(5) == SPACE.sample(8)[:5]
    assert SPACE.sample(5, seed=1) != SPACE.sample(5, seed=2)
    assert SPACE.sample(0) == ()


def test_samples_are_the_same_in_every_process() -> None:
    code = "from schedule.user.test_search_space import SPACE\nprint(SPACE.sample(6, 3))"
    path = os.pathsep.join(filter(None, sys.path))
    environment = os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": path}
    found = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    assert found.strip() == str(SPACE.sample(6, 3))


def test_points_of_a_large_space_are_drawn() -> None:
    large = SearchSpace.of({f"c{k}": tuple(range(64)) for k in range(5)}, ("c0 + c1 < 64",))
    assert large.size > ENUMERATED
    points = large.sample(50)
    assert len(set(points)) == 50 and large.sample(20) == points[:20]
    assert all(large.violated(point) is None for point in points)


def test_a_default_that_violates_a_constraint_is_no_point() -> None:
    space = SearchSpace.of({"a": (4, 1), "b": (4, 1)}, ("a * b < 16",))
    assert space.default() not in space.sample(10)
    assert space.violated(space.default()) == "a * b < 16"


@pytest.mark.parametrize(
    ("constraint", "holds"),
    [
        ("a + b == 6", True),
        ("a - b == 2 and b < a", True),
        ("not a % 3 == 1", False),
        ("a // b == 2 or a // 0 == 1", True),
        ("1 < b < a <= 4", True),
        ("a != 4", False),
        ("-a < -3 and b - -b == 4", True),
    ],
)
def test_constraints_are_computed_as_python_does(constraint: str, holds: bool) -> None:
    space = SearchSpace.of({"a": (4,), "b": (2,)}, (constraint,))
    assert (space.violated(space.default()) is None) is holds


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        ("a <", "is no expression"),
        ("a < c", "mentions c, and the choices are a"),
        ("f(a)", "has 'f(a)'"),
        ("a ** 2 < 9", "has 'a ** 2'"),
        ("a.real == 1", "has 'a.real'"),
        ("a < 2.5", "has '2.5'"),
    ],
)
def test_constraints_of_another_form_are_refused(constraint: str, reason: str) -> None:
    with pytest.raises(ScheduleError, match="constraint") as error:
        SearchSpace.of({"a": (1, 2)}, (constraint,))
    assert reason in str(error.value)


def test_a_constraint_without_a_value_is_refused() -> None:
    space = SearchSpace.of({"a": (0, 1)}, ("4 % a == 0",))
    with pytest.raises(ScheduleError, match="has no value for 4 and 0"):
        space.sample(2)


@pytest.mark.parametrize("values", [(), (1, 1), (True, False), (1.5,), ("a, b=2",), ([1],)])
def test_domains_have_distinct_integers_and_names(values: tuple[int, ...]) -> None:
    with pytest.raises(ScheduleError, match="tile"):
        SearchSpace.of({"tile": values})


def test_a_point_as_text() -> None:
    assert choices_text(SPACE.default()) == "tile=1, lanes=8, along=own"
