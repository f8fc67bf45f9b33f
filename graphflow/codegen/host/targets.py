"""The target of the host, and a target by its name.

In: what LLVM and the system tell of this processor, and the environment.  Out: a `Target`.  What
always holds: the host's target has no feature that this processor lacks, whichever processor the
environment puts in its place.
"""

from __future__ import annotations

from functools import lru_cache

from llvmlite import binding as llvm

from graphflow.base.errors import CodegenError
from graphflow.base.fields import replace
from graphflow.base.options import HOST_VARIABLE, assumed_host, rates_file
from graphflow.base.processors import (
    AVX512,
    NARROW_BYTES,
    PROCESSORS,
    TARGET_NAMES,
    Rates,
    core_of,
    known_cpu,
    narrow_cpu,
    rates_of,
    restricted_to_avx2,
    without_avx512,
)
from graphflow.base.target import Target
from graphflow.codegen.host.host_caches import host_caches
from graphflow.codegen.host.host_rates import kept_rates, kind_of
from graphflow.codegen.target_machine import feature_names, initialize
from graphflow.llvm import host_features


def host_target() -> Target:
    """The processor this process runs on, with its caches as far as the system tells them.

    If GRAPHFLOW_HOST names one of `PROCESSORS`, its caches and rates are in place of the host's.
    Raises CodegenError if it names another one, or if this processor is too old.
    """
    assumed = assumed_host()
    if assumed is None:
        return described_host()
    if assumed in PROCESSORS:
        return executed_as(PROCESSORS[assumed])
    raise CodegenError(
        f"the environment sets {HOST_VARIABLE}={assumed}; it must be one of "
        f"{', '.join(PROCESSORS)}, or not be set"
    )


def avx2_target() -> Target:
    """The host restricted to AVX2: 32-byte vectors, 16 registers.

    As `host_target` if GRAPHFLOW_HOST names a processor: its vectors, caches and rates with AVX2.
    """
    assumed = assumed_host()
    if assumed is not None and assumed in PROCESSORS:
        # First restricted: how its cores do without AVX-512 is known under its own name.
        return executed_as(restricted_to_avx2(PROCESSORS[assumed]))
    return restricted_to_avx2(host_target())


def chosen_target(target: Target | str | None) -> Target:
    """What `target` is: a target, the one of that name, or the host for None."""
    if target is None:
        return host_target()
    return named_target(target) if isinstance(target, str) else target


def named_target(name: str) -> Target:
    """The target of a name among `TARGET_NAMES`; CodegenError for another name."""
    if name not in TARGET_NAMES:
        raise CodegenError(
            f"target is {name!r}; give a graphflow.Target, or one of {', '.join(TARGET_NAMES)}"
        )
    match name:
        case "host":
            return host_target()
        case "avx2":
            return avx2_target()
    return PROCESSORS[name]


@lru_cache(maxsize=2 * len(PROCESSORS))
def executed_as(processor: Target) -> Target:
    """The host with the caches and the rates of another processor.

    Its vectors are those of the other processor, but not wider than the host's.
    """
    cpu, features, wide = _instructions()
    if processor.vector_bytes == NARROW_BYTES or not wide:
        cpu, features = narrow_cpu(cpu) if wide else cpu, without_avx512(features)
        processor = restricted_to_avx2(processor)
    return replace(processor, cpu=cpu, features=features)


@lru_cache(maxsize=1)
def described_host() -> Target:
    """This processor, whatever the environment names, with its rates if they were measured.

    GraphflowError if the file that keeps measured rates is damaged.
    """
    host = uncalibrated_host()
    return replace(host, **kept_rates(rates_file()).get(kind_of(host), Rates()))


def uncalibrated_host() -> Target:
    """This processor, with the rates that are known of its kind."""
    cpu, features, wide = _instructions()
    name = f"{cpu}-{'avx512' if wide else 'avx2'}"
    return Target(name, cpu, features, **core_of(cpu, wide), **rates_of(cpu), **host_caches())


@lru_cache(maxsize=1)
def _instructions() -> tuple[str, str, bool]:
    """LLVM's name of this processor, its features, and whether they include AVX-512.

    CodegenError if they do not include AVX2.
    """
    initialize()
    shown = {name for name, has in llvm.get_host_cpu_features().items() if has}
    cpu = known_cpu(llvm.get_host_cpu_name(), shown)
    features = host_features()
    wide = features.issuperset(AVX512)
    if not wide and not features.issuperset(("avx2", "fma")):
        raise CodegenError(f"the processor {cpu} has neither AVX-512 nor AVX2 with FMA")
    listed = ",".join(f"{'+' if name in features else '-'}{name}" for name in feature_names())
    return cpu, listed, wide
