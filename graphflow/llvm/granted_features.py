"""The instructions that this processor has and this process may execute.

In: the flags that Linux shows of the processor.  Out: the same under LLVM's names of features.
What always holds: matrix registers (AMX) are among them only where the system has given this
process the right to use them, which a process has to ask for once.

LLVM knows some features that Linux shows nobody, all without use for numbers (such as shadow
stacks); they count as missing.  So a process that only runs programs needs no LLVM to know whether
it can.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path

from graphflow.base.errors import CodegenError

SHOWN = Path("/proc/cpuinfo")

_NAMES = {
    "3dnowprefetch": "prfchw",
    "abm": "lzcnt",
    "bmi1": "bmi",
    "lahf_lm": "sahf",
    "lm": "64bit",
    "pclmulqdq": "pclmul",
    "pni": "sse3",
    "rdrand": "rdrnd",
    "sha_ni": "sha",
    "sse4_1": "sse4.1",
    "sse4_2": "sse4.2",
}
"""LLVM's names of flags that it spells otherwise; of all others it leaves underscores out, and
begins those of matrix registers with `amx-`."""

MATRIX_FEATURES = "amx-"
"""The beginning of the names of features that need matrix registers."""

SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18
"""Of Linux on x86-64: the system call, the request for a part of the processor's state, and the
number of the part that holds matrix registers (the kernel's documentation, arch/x86/xstate)."""


@lru_cache(maxsize=1)
def host_features(shown: Path = SHOWN) -> frozenset[str]:
    """The features, by LLVM's names, that this processor has and this process may use.

    CodegenError where the system does not show them in the file `shown`.
    """
    try:
        lines = shown.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise CodegenError(
            f"{shown} cannot be read ({error}), which says what this processor can execute; "
            "mount /proc"
        ) from error
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split()
    found = {_llvm_name(flag) for flag in flags}
    if "sse4_2" in flags:
        found.add("crc32")
    matrices = {name for name in found if name.startswith(MATRIX_FEATURES)}
    return frozenset(found if matrices and _may_use_matrices() else found - matrices)


def _llvm_name(flag: str) -> str:
    return _NAMES.get(flag) or flag.replace("amx_", MATRIX_FEATURES).replace("_", "")


def _may_use_matrices() -> bool:
    """Whether the system lets all threads of this process use matrix registers from here on.

    It refuses where it is older than 5.16, where a filter of system calls does, and where a thread
    has a stack for signals that is too small for the registers.
    """
    try:
        system = ctypes.CDLL(None).syscall
    except (AttributeError, OSError):
        return False
    system.restype = ctypes.c_long
    request = (SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)
    return bool(system(*map(ctypes.c_long, request)) == 0)
