"""LLVM's way from IR text to an object file.

In: a `Target` and the text of a module.  Out: ELF bytes, optimized IR or assembly.  What always
holds: three of LLVM's passes are off.  The machine scheduler, because the emitter's order of
instructions is the schedule and reordering a register tile makes it spill; the machine combiner,
which regroups sums of integers with the same effect; and loop strength reduction, because addresses
are already a moving part plus a constant, and its search takes most of the time in unrolled bodies
and gives each of them pointers of its own.

For a target with `whole_jumps` no jump of an object crosses a multiple of 32 bytes.

LLVM has switches for all of this only for the whole process, not for a target machine.  They are
set while an object or assembly is emitted, and reset afterwards, so that other users of LLVM in
this process get LLVM's own defaults; what another thread emits meanwhile for another target may
have whole jumps too, which changes no result.  And object code has no instruction of a feature that
the target does not state, or that a stated one does not imply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import lru_cache
from typing import Any

from llvmlite import binding as llvm

from graphflow.base.errors import CodegenError
from graphflow.base.shared_scope import SharedScope
from graphflow.base.target import Target
from graphflow.processes.uninterrupted import uninterrupted


def _switch_passes_off() -> Callable[[], None]:
    """Switch the three passes off; the result switches them on, as they are by default."""
    _set_options("-enable-misched=false", "-disable-lsr=true", "-x86-machine-combiner=false")
    return lambda: _set_options(
        "-enable-misched=true", "-disable-lsr=false", "-x86-machine-combiner=true"
    )


def _keep_jumps_whole() -> Callable[[], None]:
    """Pad code so that no jump crosses a multiple of 32 bytes; the result switches that off."""
    _set_options("-x86-branches-within-32B-boundaries=true")
    return lambda: _set_options("-x86-branches-within-32B-boundaries=false")


def _set_options(*options: str) -> None:
    for option in options:
        llvm.set_option("", option)  # some 20 microseconds


_PASSES_OFF = SharedScope(_switch_passes_off)
_JUMPS_WHOLE = SharedScope(_keep_jumps_whole)


@contextmanager
def _switches(target: Target) -> Iterator[None]:
    """The context manager inside which LLVM emits as it should for a target."""
    jumps = _JUMPS_WHOLE.entered() if target.whole_jumps else nullcontext()
    with _PASSES_OFF.entered(), jumps:
        yield


@lru_cache(maxsize=1)
def initialize() -> None:
    """Make LLVM know this kind of processor; it does nothing the second time."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()


BASELINE = ("64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2")
"""LLVM's names of the features that every x86-64 processor has."""


@lru_cache(maxsize=1)
def feature_names() -> tuple[str, ...]:
    """The names of all features that LLVM knows of x86-64 processors, in order."""
    return tuple(sorted(llvm.get_host_cpu_features()))


@lru_cache(maxsize=8)
def stated_alone(features: str) -> str:
    """The features, with all that they do not name switched off before them, beyond the baseline.

    The name of a processor implies features; code that used these would need more of the processor
    that it is executed on than its target states.  Features that a stated one implies are on again
    behind it.  An empty list stays empty: then the name alone decides.
    """
    named = {feature[1:] for feature in features.split(",")}
    others = [name for name in feature_names() if name not in (*BASELINE, *named)]
    return ",".join([*(f"-{name}" for name in others), features]) if features else ""


@lru_cache(maxsize=8)
def _machine(cpu: str, features: str) -> Any:
    initialize()
    return llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=stated_alone(features), opt=3, reloc="pic", codemodel="small"
    )


def optimized(text: str, target: Target) -> tuple[Any, Any]:
    """A module of IR after LLVM's passes, and the machine that emits it.

    The passes are those that simplify functions one by one at level 1.  With those of
    level 3, and of whole modules, LLVM takes 1.2 to 1.4 times as long for code that is as fast
    (docs/trials.md): the emitter writes vectors,
    unrolled loops and each value once, and a kernel calls nothing that could be inlined.
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
    tuning = llvm.create_pipeline_tuning_options(speed_level=1)
    tuning.loop_vectorization = False
    tuning.slp_vectorization = False
    tuning.loop_unrolling = False
    tuning.loop_interleaving = False
    # llvmlite 0.50 never frees the callbacks of a builder, 0.1 MB for each module; a builder cannot
    # be used again, as its callbacks refer to the objects of its last run.  Where many modules are
    # expected, a worker process runs LLVM (pipeline/services.py).
    builder = llvm.create_pass_builder(machine, tuning)
    passes = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    return module, machine


@uninterrupted
def object_code(text: str, target: Target) -> bytes:
    """A module of IR as an ELF object; `CodegenError` where LLVM does not accept it."""
    module, machine = optimized(text, target)
    with _switches(target):
        code: bytes = machine.emit_object(module)
    return code


@uninterrupted
def assembly(text: str, target: Target) -> str:
    """A module of IR as optimized assembly."""
    module, machine = optimized(text, target)
    with _switches(target):
        code: str = machine.emit_assembly(module)
    return code
