"""Tests of the table of processors, and of restricting one of them to AVX2."""

import re
from dataclasses import fields

import pytest

from graphflow.base.dtypes import DTYPES
from graphflow.base.offered_names import HOST
from graphflow.base.processors import (
    PROCESSORS,
    TARGET_NAMES,
    core_of,
    known_cpu,
    rates_of,
    restricted_to_avx2,
)
from graphflow.base.target import Target, element_bytes
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
    assert (HOST, "avx2", *PROCESSORS) == TARGET_NAMES


@pytest.mark.parametrize("name", PROCESSORS)
def test_a_restricted_processor_keeps_its_caches(name: str) -> None:
    target = PROCESSORS[name]
    narrow = restricted_to_avx2(target)
    assert narrow.vector_bytes == 32 and not re.search(r"\+(avx512|avx10|evex)", narrow.features)
    assert restricted_to_avx2(narrow) is narrow
    rates = {*core_of(target.cpu, wide=False), "name", "cpu", "features"}
    for field in fields(Target):
        if field.name not in rates:
            assert getattr(narrow, field.name) == getattr(target, field.name)
    assert (narrow == target) == (target.vector_bytes == 32)


def test_measured_rates_are_those_of_their_processor_alone() -> None:
    """Vectors of 32 bytes change neither the clock nor the bandwidth."""
    zen4, zen5 = PROCESSORS["zen4"], PROCESSORS["zen5"]
    for field, value in rates_of(zen4.cpu).items():
        assert getattr(restricted_to_avx2(zen4), field) == getattr(zen4, field) == value
        assert getattr(zen5, field) != value
    assert not rates_of(zen5.cpu)


def test_processors_of_one_core_keep_about_as_many_bytes_of_constants() -> None:
    """The time until they are read again decides, not how large the third-level cache is."""
    for name in ("sapphirerapids", "graniterapids"):
        for target in (PROCESSORS[name], restricted_to_avx2(PROCESSORS[name])):
            assert 14e6 < target.l3_bytes // target.constants_kept < 32e6


def test_a_guest_is_known_by_the_features_that_its_stated_model_lacks() -> None:
    """Hypervisors state a model that may be older than the silicon."""
    matrices = {"avx512f", "amx-tile", "amx-int8"}
    assert known_cpu("rocketlake", matrices | {"prefetchi"}) == "graniterapids"
    assert known_cpu("icelake-server", matrices) == "sapphirerapids"
    assert known_cpu("rocketlake", {"avx512f", "prefetchi"}) == "rocketlake"
    for own in ("sapphirerapids", "graniterapids", "diamondrapids", "znver5"):
        assert known_cpu(own, {"avx512f"}) == own
    assert known_cpu("diamondrapids", matrices | {"prefetchi"}) == "diamondrapids"


def test_no_other_module_names_a_processor() -> None:
    """Tiles, prices and instructions follow from the fields of a target."""
    names = {name for target in PROCESSORS.values() for name in (target.name, target.cpu)}
    quoted = [f'"{name}"' for name in names | {"znver2"}]
    found = [
        module
        for module, path in MODULES.items()
        if any(name in path.read_text(encoding="utf-8") for name in quoted)
    ]
    assert found == ["graphflow.base.processors"]


def test_features_are_named_where_instructions_are_made() -> None:
    """The emitter and `math` ask no target for a feature: what needs one is in these modules."""
    named = re.compile(r"\"(llvm\.x86|\+\w+\"|avx512)")
    found = [name for name, path in MODULES.items() if named.search(path.read_text("utf-8"))]
    assert sorted(found) == [
        "graphflow.base.processors",
        "graphflow.codegen.avx512",
        "graphflow.codegen.matrices.matrix_registers",
        "graphflow.codegen.packed_weight_products",
        "graphflow.codegen.statements.packed_bytes",
        "graphflow.codegen.x86_instructions",
        "graphflow.runtime.driver.system",
    ]


def test_elements_have_the_bytes_that_their_names_say() -> None:
    assert {name: element_bytes(name) for name in DTYPES} == {
        name: dtype.itemsize for name, dtype in DTYPES.items()
    }


def test_tiles_are_compared_at_the_rate_of_both_units_where_there_are_two_wide_ones() -> None:
    """Prices of plans have that rate too where the clock was measured."""
    wide = {n for n, t in PROCESSORS.items() if t.vector_bytes == 64 and t.narrowest_share == 1.0}
    assert wide == {
        "skylake-server", "skylake-guest", "cascadelake-server", "icelake-server",
        "sapphirerapids", "graniterapids", "rocketlake-guest", "zen5",
    }  # fmt: skip
    assert {PROCESSORS[name].at_peak.fmas_per_cycle for name in wide} == {2.0}
    at_peak = {name for name in wide if PROCESSORS[name].priced_at_peak}
    assert at_peak == {"cascadelake-server", "sapphirerapids", "graniterapids"}
    assert restricted_to_avx2(PROCESSORS["graniterapids"]).peak_factor == 1.0


def test_few_processors_have_dot_products_of_brain_floats_and_one_has_fast_ones() -> None:
    having = {name for name, target in PROCESSORS.items() if "+avx512bf16" in target.features}
    assert having == {"sapphirerapids", "graniterapids", "zen4", "zen5"}
    fast = {name for name, target in PROCESSORS.items() if target.brain_dot_factor == 1.0}
    assert fast == {"zen4"}
    assert {t.brain_dot_factor for n, t in PROCESSORS.items() if n not in fast} == {4.0}
    assert not any(target.flushes_denormals for target in PROCESSORS.values())
