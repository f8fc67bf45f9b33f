"""Checks of the LLVM intrinsics that users' instructions name.

In: the declaration of an intrinsic with the types of a definition's windows, and the target.  Out:
nothing, or a CodegenError that says what is wrong.  What always holds: LLVM knows the intrinsic
with this signature, it touches no memory and has no other effect, and LLVM can select it for the
target.  Where it cannot, LLVM ends the process, so that is tried in a process of its own.
"""

from __future__ import annotations

import subprocess
import sys
from difflib import get_close_matches
from functools import lru_cache

from llvmlite import binding as llvm

from graphflow.base.errors import CodegenError
from graphflow.base.target import Target
from graphflow.codegen.target_machine import feature_names, stated_alone
from graphflow.llvm import IrValue
from graphflow.processes.uninterrupted import uninterrupted
from graphflow.tir import Intrinsic

PATIENCE = 60.0
"""Seconds for LLVM to select one instruction in a new process, which takes a fifth of one."""

_SELECT = """
import sys
from llvmlite import binding as llvm
llvm.initialize_native_target()
llvm.initialize_native_asmprinter()
cpu, features = sys.argv[1:]
machine = llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features)
machine.emit_object(llvm.parse_assembly(sys.stdin.read()))
"""


def require_intrinsic(
    intrinsic: Intrinsic, result: str, operands: tuple[IrValue, ...], target: Target
) -> None:
    """CodegenError unless a target performs an intrinsic on operands of these types."""
    passed = tuple((one.type, one.text if one.is_constant else "") for one in operands)
    _require_known(intrinsic.name, result, tuple(kind for kind, _ in passed))
    _require_selected(intrinsic.name, result, passed, target.cpu, stated_alone(target.features))


def require_feature(intrinsic: Intrinsic, target: Target) -> None:
    """CodegenError where a feature is the name of none: a target would lack it for ever."""
    known = {name[1:] for name in target.features.split(",")} | set(feature_names())
    if intrinsic.feature is not None and intrinsic.feature not in known:
        similar = ", ".join(get_close_matches(intrinsic.feature, sorted(known)))
        hint = f"; it has {similar}" if similar else ""
        raise CodegenError(f"LLVM has no target feature {intrinsic.feature!r}{hint}")


@lru_cache(maxsize=256)
@uninterrupted
def _require_known(name: str, result: str, operands: tuple[str, ...]) -> None:
    declaration = f"declare {result} @{name}({', '.join(operands)})"
    try:
        module = llvm.parse_assembly(declaration)
        module.verify()
    except RuntimeError as error:
        raise CodegenError(f"LLVM refuses `{declaration}`: {error}") from None
    text = str(module)  # LLVM adds the attributes of intrinsics whose name and types it knows
    if "; Unknown intrinsic" in text:
        raise CodegenError(f"LLVM has no intrinsic {name}")
    if "Function Attrs:" not in text:
        signature = f"({', '.join(operands)}) to {result}"
        raise CodegenError(
            f"the intrinsic {name} does not take {signature}, the types of the instruction's "
            "windows"
        )
    if "memory(none)" not in text:
        raise CodegenError(f"the intrinsic {name} has effects beyond its result")


@lru_cache(maxsize=256)
def _require_selected(
    name: str, result: str, operands: tuple[tuple[str, str], ...], cpu: str, features: str
) -> None:
    kinds = ", ".join(kind for kind, _ in operands)
    params = ", ".join(f"{kind} %{k}" for k, (kind, text) in enumerate(operands) if not text)
    passed = ", ".join(f"{kind} {text or f'%{k}'}" for k, (kind, text) in enumerate(operands))
    module = (
        f"declare {result} @{name}({kinds})\n"
        f"define {result} @selected({params}) {{\n"
        f"  %result = call {result} @{name}({passed})\n  ret {result} %result\n}}\n"
    )
    command = [sys.executable, "-c", _SELECT, cpu, features]
    try:
        done = subprocess.run(
            command, input=module, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CodegenError(f"whether LLVM selects {name} cannot be tried: {error}") from None
    if done.returncode:
        said = next((x for x in done.stderr.splitlines() if "error" in x.lower()), "")
        raise CodegenError(
            f"LLVM cannot select {name} for {cpu}; state the target feature that it needs, as "
            f'feature="avx2": {said}'
        )
