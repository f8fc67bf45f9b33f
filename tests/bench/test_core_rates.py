"""Tests of the measured rates of a processor: which there are, and of how many threads."""

import pytest

from graphflow.base.processors import Rates
from graphflow.bench import core_rates, machine_limits, measured_rates
from graphflow.codegen import host_target


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels run for a moment, and read little."""
    monkeypatch.setattr(machine_limits, "SECONDS", 0.01)
    monkeypatch.setattr(core_rates, "MOST_BYTES", 1 << 22)


def test_each_rate_is_measured() -> None:
    rates = measured_rates(host_target(), 1)
    assert rates.keys() == Rates.__annotations__.keys()
    assert all(rate > 0 for rate in rates.values()) and rates["dram_cores"] == 1


@pytest.mark.parametrize(
    ("gbps", "cores"),
    [
        ({1: 10, 2: 19, 4: 34, 6: 35}, 3.5),
        ({1: 10, 2: 10, 4: 9, 6: 9}, 1),
        ({1: 1, 2: 2, 4: 4, 6: 6}, 6),
    ],
)
def test_the_most_bandwidth_of_memory_is_stated_in_that_of_one_core(
    monkeypatch: pytest.MonkeyPatch, gbps: dict[int, float], cores: float
) -> None:
    monkeypatch.setattr(core_rates, "read_bandwidth", lambda _nbytes, _target, n: gbps[n])
    assert measured_rates(host_target(), 6)["dram_cores"] == cores
