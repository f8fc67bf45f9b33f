"""Tests of the host's target, and of the processor that the environment puts in its place."""

from dataclasses import fields

import numpy as np
import pytest

import graphflow as gf
import graphflow.codegen.host.targets as targets
from graphflow.base.errors import CodegenError
from graphflow.base.fields import replace
from graphflow.base.options import HOST_VARIABLE, assumed_host
from graphflow.base.processors import PORTABLE, PROCESSORS, Caches, core_of
from graphflow.codegen import avx2_target, executed_as, host_target, named_target
from graphflow.models import ModelBuilder

CACHES = ("l1_bytes", "l1_ways", "line_bytes", "l2_bytes", "l3_bytes")


def described(monkeypatch: pytest.MonkeyPatch, caches: Caches) -> None:
    """This machine with these caches."""
    monkeypatch.delenv(HOST_VARIABLE)
    monkeypatch.setattr(targets, "host_caches", lambda: caches)
    targets.described_host.cache_clear()


def test_the_host_has_the_caches_that_the_system_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    described(monkeypatch, Caches(l1_bytes=48 << 10, l1_ways=12, l3_bytes=480 << 20))
    host = host_target()
    assert (host.l1_bytes, host.l1_ways, host.l3_bytes) == (48 << 10, 12, 480 << 20)
    default = {field.name: field.default for field in fields(host)}
    assert host.l2_bytes == default["l2_bytes"]
    targets.described_host.cache_clear()


def test_tests_ask_for_no_caches_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a decision that a test expects may be another one on another machine."""
    assert assumed_host() in PROCESSORS
    assert all(
        getattr(host_target(), name) == getattr(PROCESSORS[str(assumed_host())], name)
        for name in CACHES
    )
    monkeypatch.delenv(HOST_VARIABLE)
    targets.described_host.cache_clear()
    with pytest.raises(AssertionError, match="caches of this machine"):
        host_target()


@pytest.mark.parametrize("name", PROCESSORS)
def test_another_processor_is_executed_with_the_instructions_of_the_host(name: str) -> None:
    """Its rates are those of the width that runs here, its maker's with that width."""
    processor, widest = PROCESSORS[name], executed_as(PROCESSORS["zen4"]).vector_bytes
    found = executed_as(processor)
    assert found.vector_bytes == min(processor.vector_bytes, widest)
    assert all(getattr(found, cache) == getattr(processor, cache) for cache in CACHES)
    rates = core_of(processor.cpu, found.vector_bytes == 64)
    assert all(getattr(found, field) == value for field, value in rates.items())
    b = ModelBuilder(0)
    b.output(b.relu(b.conv(b.input("x", (1, 3, 6, 6)), 5, 3)))
    x = np.random.default_rng(0).standard_normal((1, 3, 6, 6)).astype(np.float32)
    want = gf.compile(b.model(), threads=1).run({"x": x})
    got = gf.compile(b.model(), threads=1, target=found).run({"x": x})
    for output, array in want.items():
        np.testing.assert_allclose(got[output], array, rtol=1e-5, atol=1e-6)


def test_the_environment_names_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOST_VARIABLE, "graniterapids")
    assert host_target() == executed_as(PROCESSORS["graniterapids"])
    assert host_target().l3_bytes == 504 << 20
    assert avx2_target().vector_bytes == 32 and avx2_target().l3_bytes == 504 << 20
    assert named_target("zen3") == PROCESSORS["zen3"]
    monkeypatch.setenv(HOST_VARIABLE, "zen4")
    rates = core_of(PROCESSORS["zen4"].cpu, wide=False)
    assert all(getattr(avx2_target(), field) == value for field, value in rates.items())
    monkeypatch.setenv(HOST_VARIABLE, "z80")
    with pytest.raises(CodegenError, match="GRAPHFLOW_HOST=z80; it must be one of x86-64-v3, "):
        host_target()


def test_code_that_this_processor_cannot_execute_is_not_run() -> None:
    """What decides are the features that a target states, and not its name."""
    has = {name[1:] for name in host_target().features.split(",") if name.startswith("+")}
    b = ModelBuilder(0)
    b.output(b.relu(b.conv(b.input("x", (1, 3, 6, 6)), 5, 3)))
    for processor in PROCESSORS.values():
        stated = {name.removeprefix("+") for name in processor.features.split(",")}
        lacking = sorted(stated - has)
        if lacking:
            lacks = f"compiled for {processor.cpu}; .* lacks {', '.join(lacking)}; .*{PORTABLE}"
            with pytest.raises(CodegenError, match=lacks):
                gf.compile(b.model(), threads=1, target=processor)
    absent = replace(PROCESSORS["haswell"], features=f"{PROCESSORS['haswell'].features},+zu")
    with pytest.raises(CodegenError, match=r"the model was compiled for haswell; .* lacks zu; "):
        gf.compile(b.model(), threads=1, target=absent)
