"""The processors that object code is compiled for, and whether the host is one of them.

In: the name and the features of the processor that code was compiled for.  Out: a `Processor` that
can be stored, and `CodegenError` if the host lacks a feature: otherwise the first instruction that
the host does not have would end the process.
"""

from __future__ import annotations

from importlib import import_module

from msgspec import Struct

from graphflow.base.errors import CodegenError
from graphflow.base.processors import PORTABLE
from graphflow.llvm import host_features


class Processor(Struct, frozen=True):
    """The processors that code runs on: those with all `features`, which have LLVM's names.

    With `exact` none is stated, since the name `cpu` implies them; then the host must be of that
    very name.
    """

    cpu: str
    features: tuple[str, ...]
    exact: bool = False


def processor_of(cpu: str, features: str) -> Processor:
    """The processor of LLVM's name and feature string, such as "+avx2,-sse4a".

    Code has no other features than those that are stated (codegen/target_machine.py); if none is,
    it may have all that the name implies.  An empty name is that of any x86-64 processor, which
    implies no features.
    """
    stated = [feature for feature in features.split(",") if feature]
    wanted = sorted(feature[1:] for feature in stated if feature.startswith("+"))
    return Processor(cpu, tuple(wanted), exact=bool(cpu) and not stated)


def host_cpu() -> str:
    """LLVM's name of this processor, which takes LLVM."""
    return str(import_module("llvmlite.binding").get_host_cpu_name())


def check_host(needed: Processor, what: str) -> None:
    """Raise CodegenError, which names `what`, if this processor cannot execute code for
    `needed`."""
    missing = sorted(set(needed.features) - host_features())
    repair = (
        "compile the ONNX model on a processor of this kind, or for all that have AVX2 "
        f"(target={PORTABLE!r})"
    )
    if missing:
        raise CodegenError(
            f"{what} was compiled for {needed.cpu}; this processor, {host_cpu()}, lacks "
            f"{', '.join(missing)}; {repair}"
        )
    if needed.exact and needed.cpu != host_cpu():
        raise CodegenError(
            f"{what} was compiled for {needed.cpu} with whatever features that implies; this "
            f"processor is {host_cpu()}, and may lack some; {repair}"
        )
