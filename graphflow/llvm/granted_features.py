"""The instructions that this processor has and this process may execute.

In: what LLVM knows of the processor, and the operating system.  Out: LLVM's features.  What always
holds: matrix registers (AMX) are among them only where the system has given this process the right
to use them, which a process has to ask for once.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

from llvmlite import binding as llvm

MATRIX_FEATURES = "amx-"
"""The beginning of the names of features that need matrix registers."""

SYS_ARCH_PRCTL, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA = 158, 0x1023, 18
"""Of Linux on x86-64: the system call, the request for a part of the processor's state, and the
number of the part that holds matrix registers (the kernel's documentation, arch/x86/xstate)."""


@lru_cache(maxsize=1)
def host_features() -> Mapping[str, bool]:
    """LLVM's features of this processor: which ones it has, and this process may use."""
    found: dict[str, bool] = dict(llvm.get_host_cpu_features())
    if any(has and name.startswith(MATRIX_FEATURES) for name, has in found.items()):
        allowed = _may_use_matrices()
        found |= {n: has and allowed for n, has in found.items() if n.startswith(MATRIX_FEATURES)}
    return MappingProxyType(found)


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
