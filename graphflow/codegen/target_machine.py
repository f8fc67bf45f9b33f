"""The processors that code is made for, and LLVM's way from IR text to an object file.

In: a `Target` and the text of a module.  Out: ELF bytes, optimized IR or assembly.  What always
holds: two of LLVM's passes are off.  The machine scheduler, because the emitter's order of
instructions is the schedule and reordering a register tile makes it spill; and loop strength
reduction, because addresses are already a moving part plus a constant, and its search takes most
of the time in unrolled bodies and gives each of them pointers of its own.

LLVM has switches for these passes only for the whole process, not for a target machine.  They are
off while an object or assembly is emitted, and on again afterwards, so that other users of LLVM in
this process get LLVM's own defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from llvmlite import binding as llvm

from graphflow.base.errors import CodegenError
from graphflow.base.target import Target
from graphflow.codegen.host_caches import host_caches
from graphflow.processes.shared_scope import SharedScope

AVX512 = ("avx512f", "avx512vl", "avx512dq", "avx512bw")
AVX2_CPUS = {"Intel": "haswell", "AMD": "znver2"}
AVX2_MASKED_STORE = {"Intel": 2.0, "AMD": 12.0}
"""Cycles of vmaskmovps to memory; AMD's processors execute it in microcode."""


def _switch_passes_off() -> Callable[[], None]:
    """Switch the two passes off; the result switches them on, as they are by default."""
    _set_options("-enable-misched=false", "-disable-lsr=true")
    return lambda: _set_options("-enable-misched=true", "-disable-lsr=false")


def _set_options(*options: str) -> None:
    for option in options:
        llvm.set_option("", option)  # some 20 microseconds


_PASSES_OFF = SharedScope(_switch_passes_off)


@lru_cache(maxsize=1)
def _initialize() -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


@lru_cache(maxsize=1)
def host_target() -> Target:
    """The processor this process runs on, with its caches as far as the system tells them."""
    _initialize()
    cpu = llvm.get_host_cpu_name()
    features = llvm.get_host_cpu_features()
    wide = all(features.get(name) for name in AVX512)
    if not wide and not (features.get("avx2") and features.get("fma")):
        raise CodegenError(f"the processor {cpu} has neither AVX-512 nor AVX2 with FMA")
    return Target(
        name=f"{cpu}-{'avx512' if wide else 'avx2'}",
        cpu=cpu,
        features=features.flatten(),
        vector_bytes=64 if wide else 32,
        vector_registers=32 if wide else 16,
        fmas_per_cycle=1.0 if wide else 2.0,
        cycles_per_vector_load=1.0 if wide else 0.5,
        cycles_per_masked_store=1.0 if wide else AVX2_MASKED_STORE[_vendor(cpu)],
        peak_factor=2.0 if wide and cpu == "znver5" else 1.0,
        # The units of Zen 5 are 64 bytes wide: a narrower vector takes as long as a whole one.
        narrowest_share=1.0 if wide and cpu == "znver5" else 0.5,
        cycles_per_blend=1.0 if wide and _vendor(cpu) == "Intel" else 0.0,
        **host_caches(),
    )


@lru_cache(maxsize=1)
def avx2_target() -> Target:
    """The host restricted to AVX2: 32-byte vectors, 16 registers.

    Its caches are the documented defaults, so that its plans depend on the maker alone.
    """
    host = host_target()
    features = [
        f"-{name[1:]}" if name[1:].startswith(("avx512", "avx10", "evex")) else name
        for name in host.features.split(",")
    ]
    vendor = _vendor(host.cpu)
    return Target(
        name=f"{host.cpu}-avx2",
        cpu=AVX2_CPUS[vendor],
        features=",".join(features),
        vector_bytes=32,
        vector_registers=16,
        fmas_per_cycle=2.0,
        cycles_per_vector_load=0.5,
        cycles_per_masked_store=AVX2_MASKED_STORE[vendor],
    )


def _vendor(cpu: str) -> str:
    return "AMD" if cpu.startswith("znver") else "Intel"


@lru_cache(maxsize=8)
def _machine(cpu: str, features: str) -> Any:
    _initialize()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=3, reloc="pic", codemodel="small"
    )


def optimized(text: str, target: Target) -> tuple[Any, Any]:
    """A module of IR after LLVM's passes, and the machine that emits it.

    CodegenError where LLVM does not accept the text.
    """
    machine = _machine(target.cpu, target.features)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise CodegenError(f"LLVM refused the emitted module: {error}") from error
    module.triple = machine.triple
    module.data_layout = str(machine.target_data)
    # The emitter writes vectors and unrolled code itself; what LLVM would add spills registers.
    tuning = llvm.create_pipeline_tuning_options(speed_level=3)
    tuning.loop_vectorization = False
    tuning.slp_vectorization = False
    tuning.loop_unrolling = False
    tuning.loop_interleaving = False
    passes = llvm.create_pass_builder(machine, tuning)
    passes.getModulePassManager().run(module, passes)
    return module, machine


def object_code(text: str, target: Target) -> bytes:
    """A module of IR as an ELF object; `CodegenError` where LLVM does not accept it."""
    module, machine = optimized(text, target)
    with _PASSES_OFF.entered():
        code: bytes = machine.emit_object(module)
    return code


def assembly(text: str, target: Target) -> str:
    """A module of IR as optimized assembly."""
    module, machine = optimized(text, target)
    with _PASSES_OFF.entered():
        code: str = machine.emit_assembly(module)
    return code
