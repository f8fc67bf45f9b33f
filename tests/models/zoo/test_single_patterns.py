"""Tests of the probes' reports: no conversion inside the graph, and vectorized kernels.

Each is compiled as `graphflow inspect --json` does, for vectors of both widths.
"""

from __future__ import annotations

import json

import pytest

from graphflow.cli import main
from graphflow.models.zoo.single_patterns import PATTERNS

CHANNELS = (8, 9, 15, 16, 17, 18, 20, 24, 30, 32, 58)
PROBES = [
    f"zoo:probe:{pattern}:{channels}"
    for pattern, (_, divisor) in PATTERNS.items()
    for channels in CHANNELS
    if channels % divisor == 0
]
TIES = {"zoo:probe:concat:9": 1, "zoo:probe:squeeze_excite:8": 1}
"""Where plans with one conversion and without any have the same price, to half a hundredth: a
conversion of a few kilobytes, which takes a quarter of a microsecond."""

VECTOR_SHARE = 0.9
"""Of the multiply-adds; all of these numbers of channels are at least half a vector."""


@pytest.mark.parametrize("target", ["host", pytest.param("avx2", marks=pytest.mark.slow)])
@pytest.mark.parametrize("probe", PROBES)
def test_nothing_moves_inside(probe: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", probe, "--json", "--threads", "2", "--target", target]) == 0
    summary = json.loads(capsys.readouterr().out)["summary"]
    assert summary["inner_conversions"] <= TIES.get(probe, 0)
    assert summary["vectorized_share"] >= VECTOR_SHARE
