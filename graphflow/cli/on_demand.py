"""The one place of the command line that imports modules on demand.

Importing the compiler takes most of a second, which `--help`, `operators` and `run` of a saved
model must not wait for.  So a module that needs the compiler, or rich, is imported when a command
that uses it was chosen; every other import stands at the top of its module.
"""

from __future__ import annotations

from types import ModuleType

from graphflow.base.collecting import imported_module


def on_demand(name: str) -> ModuleType:
    """The module of that name below `graphflow`, imported now if it was not before."""
    return imported_module(f"graphflow.{name}")
