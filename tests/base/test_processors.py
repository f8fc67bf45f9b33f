"""Tests of the table of processors, and of restricting one of them to AVX2."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from graphflow.base.offered_names import TARGET_NAMES
from graphflow.base.processors import PROCESSORS, core_of, narrowed
from graphflow.base.target import Target
from support.source import MODULES


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_processor_is_described_sensibly(name: str) -> None:
    """Caches grow from level to level, and their sets are whole, as the cost model assumes."""
    target = PROCESSORS[name]
    assert target.name == name
    assert target.l1_bytes % (target.l1_ways * target.line_bytes) == 0
    assert target.l1_bytes < target.l2_bytes < target.l3_bytes
    assert (target.vector_bytes == 64) == ("+avx512f" in target.features.split(","))


def test_the_table_has_processors_that_differ() -> None:
    both = {(t.vector_bytes, t.cycles_per_masked_store) for t in PROCESSORS.values()}
    assert both == {(32, 2.0), (32, 12.0), (64, 1.0)}
    sizes = [target.l2_bytes for target in PROCESSORS.values()]
    assert (min(sizes), max(sizes)) == (256 << 10, 4 << 20)
    assert max(target.l3_bytes for target in PROCESSORS.values()) > 480 << 20
    assert ("host", "avx2", *PROCESSORS) == TARGET_NAMES


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_restricted_processor_keeps_its_caches(name: str) -> None:
    target = PROCESSORS[name]
    narrow = narrowed(target)
    assert narrow.vector_bytes == 32 and not re.search(r"\+(avx512|avx10|evex)", narrow.features)
    assert narrowed(narrow) is narrow
    rates = {*core_of(target.cpu, wide=False), "name", "cpu", "features"}
    for field in fields(Target):
        if field.name not in rates:
            assert getattr(narrow, field.name) == getattr(target, field.name)
    assert (narrow == target) == (target.vector_bytes == 32)


def test_no_other_module_names_a_processor() -> None:
    """Tiles and prices follow from the fields of a target; the command line offers the names."""
    names = {target.cpu for target in PROCESSORS.values()} | {"znver2"}
    quoted = [f'"{name}"' for name in names]
    found = [
        module
        for module, path in MODULES.items()
        if any(name in path.read_text(encoding="utf-8") for name in quoted)
    ]
    assert found == ["graphflow.base.offered_names", "graphflow.base.processors"]
