"""Results of earlier compilations that functions remember are cleared.

A compilation asks the same questions many times: proofs, layouts, tilings and schedules are
remembered by module-level caches, whose bounds are for the largest networks.  The next shape of a
model has mostly other questions, so it can use little of them, while each shape of a small
convolutional network leaves some 2 MB in them.  What always holds:
clearing changes no result; what is asked again is computed again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import _lru_cache_wrapper
from typing import Any

from graphflow.arith import forget_unused

PACKAGES = (
    "arith",
    "cost",
    "effects",
    "flow",
    "graph",
    "kernels",
    "layout",
    "plan",
    "schedule",
    "tir",
)
"""The packages whose caches are about one model.  Those of all others, such as `codegen` and
`runtime`, are about the processor or the process."""


def clear_caches() -> None:
    """Clear the caches of all modules that plan and make kernels; other threads may compile."""
    for cache in caches():
        cache.cache_clear()
    forget_unused()


def caches() -> Iterator[_lru_cache_wrapper[Any]]:
    """The caches that `clear_caches` clears, each once."""
    roots = tuple(f"graphflow.{package}" for package in PACKAGES)
    for name, module in tuple(sys.modules.items()):
        if name.startswith(roots):
            for value in tuple(vars(module).values()):
                if isinstance(value, _lru_cache_wrapper) and value.__module__ == name:
                    yield value
