"""The memory that this process may use.

In: what the system says.  Out: a number of bytes.
"""

from __future__ import annotations

import os
import resource


def available_memory() -> int:
    """The physical memory of this machine in bytes, or the address space limit of this process if
    less.
    """
    physical = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return physical if soft == resource.RLIM_INFINITY else min(physical, soft)
