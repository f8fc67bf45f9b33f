"""Tests of the file that keeps what was measured of processors."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import graphflow.codegen.host.targets as targets
from graphflow.base.errors import GraphflowError
from graphflow.base.fields import replace
from graphflow.base.options import CACHES_VARIABLE, HOST_VARIABLE, rates_file
from graphflow.base.processors import PROCESSORS, Caches, Rates
from graphflow.codegen import host_target, kept_rates, kind_of, uncalibrated_host

HERE = Caches(l1_bytes=48 << 10, l1_ways=12, l2_bytes=2 << 20, l3_bytes=96 << 20)


@pytest.fixture
def file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Where rates are kept, for this machine with the caches of `HERE`."""
    monkeypatch.setenv(CACHES_VARIABLE, str(tmp_path))
    monkeypatch.delenv(HOST_VARIABLE)
    monkeypatch.setattr(targets, "host_caches", lambda: HERE)
    targets.described_host.cache_clear()
    kept = Path(rates_file())
    kept.parent.mkdir()
    yield kept
    targets.described_host.cache_clear()


def test_the_host_has_the_rates_that_were_measured_of_its_kind(file: Path) -> None:
    known = uncalibrated_host()
    assert host_target() == known, "there is no file"
    targets.described_host.cache_clear()
    rates = Rates(clock_ghz=2.5, dram_gbps=11.0, dram_cores=3)
    file.write_text(json.dumps({kind_of(known): rates}))
    assert host_target() == replace(known, **rates)


def test_where_the_file_cannot_be_read_nothing_was_measured(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.touch()
    monkeypatch.setenv(CACHES_VARIABLE, str(file))  # no folder
    assert host_target() == uncalibrated_host()


def test_rates_of_other_kinds_do_not_count(file: Path) -> None:
    known = uncalibrated_host()
    other = replace(known, l2_bytes=known.l2_bytes // 2)
    file.write_text(json.dumps({kind_of(other): {"l3_gbps": 5.0}, "z80": {"clock_ghz": 0.004}}))
    assert host_target() == known
    assert kept_rates(str(file))[kind_of(other)] == {"l3_gbps": 5.0}


def test_fixed_targets_have_none(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(json.dumps({kind_of(uncalibrated_host()): {"clock_ghz": 1.0}}))
    monkeypatch.setenv(HOST_VARIABLE, "zen3")
    assert host_target().clock_ghz == PROCESSORS["zen3"].clock_ghz


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "Expecting"),
        ("[1]", "items"),
        ({"k": {"speed": 1.0}}, "'speed' is no rate"),
        ({"k": {"clock_ghz": 0.0}}, "clock_ghz is 0.0"),
        ({"k": {"clock_ghz": "fast"}}, "clock_ghz is 'fast'"),
        ({"k": {"l2_gbps": float("nan")}}, "l2_gbps is nan"),
        ({"k": 3}, "items"),
    ],
)
def test_a_damaged_file_is_refused_by_name(file: Path, content: Any, why: str) -> None:
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(GraphflowError, match="graphflow calibrate") as raised:
        host_target()
    assert str(file) in str(raised.value) and why in str(raised.value)
