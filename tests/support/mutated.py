"""Deliberate mistakes in the compiler, for tests that must detect them.

A mistake is a patch of something public: a function or a table of a module, a method of a class.
"""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from unittest import mock

Patches = list[tuple[Any, str, Any]]
"""What is patched, the name in it, and what is there instead."""

CACHE = type(lru_cache(len))


def seen_as(module: Any, namespace: str, **names: Any) -> tuple[Any, str, Any]:
    """The patch after which one module finds other values by these names of a namespace that it
    imports; other modules do not."""
    found = SimpleNamespace(**{**vars(getattr(module, namespace)), **names})
    return module, namespace, found


@contextmanager
def mutated(patches: Patches) -> Iterator[None]:
    """Within, the patches are in force, and no cache holds what was found without them."""
    with ExitStack() as stack:
        for patch in patches:
            stack.enter_context(mock.patch.object(*patch))
        forget()
        try:
            yield
        finally:
            forget()


def forget() -> None:
    """Empty the caches of the compiler, so that no mutant meets what was found without it."""
    modules = [m for name, m in sys.modules.items() if name.split(".")[0] == "graphflow"]
    classes = {c for m in modules for c in vars(m).values() if isinstance(c, type)}
    for owner in (*modules, *classes):
        for value in vars(owner).values():
            if isinstance(value, CACHE):
                value.cache_clear()
