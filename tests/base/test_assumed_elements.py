"""Tests of assumptions about single elements of an input."""

import json
from typing import Any

import numpy as np
import pytest

from graphflow.base.assumed_elements import AssumedElements

COPIES = AssumedElements("x", "float32", (4, 5), (0, 1), True)
VALUES = AssumedElements("x", "float32", (4, 5), (0.0, 2.5), False)


@pytest.mark.parametrize(
    ("assumed", "elements", "wrong"),
    [
        (COPIES, [3, 7, 0, 0, 3, 7], None),
        (COPIES, [np.nan, 7, 0, 0, np.nan, 7], None),
        (COPIES, [3, 7, 0, 0, 3, 3], (1, 2)),
        (COPIES, [0.0, 7, 0, 0, -0.0, 7], (1, 1)),
        (VALUES, [9, 9, 9, 9, 0.0, 2.5], None),
        (VALUES, [9, 9, 9, 9, -0.0, 2.5], (1, 1)),
        (VALUES, [9, 9, 9, 9, 0.0, np.nan], (1, 2)),
    ],
)
def test_the_first_element_outside(assumed: AssumedElements, elements: Any, wrong: Any) -> None:
    assert assumed.first_outside(np.array(elements, "float32").reshape(2, 3)) == wrong


@pytest.mark.parametrize("assumed", [COPIES, VALUES])
def test_plain_values_survive_json(assumed: AssumedElements) -> None:
    plain = json.loads(json.dumps(assumed.plain()))
    assert AssumedElements.from_plain(plain, 6) == assumed
    with pytest.raises(ValueError, match="no such elements among 5"):
        AssumedElements.from_plain(plain, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"values": [1]},
        {"values": [1, 6]},
        {"values": [1, "a"]},
        {"copies": 1},
        {"elements": [-1, 2]},
        {"elements": [], "values": []},
        {"dtype": None},
    ],
)
def test_other_plain_values_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        AssumedElements.from_plain(json.loads(json.dumps(COPIES.plain())) | change, 6)
