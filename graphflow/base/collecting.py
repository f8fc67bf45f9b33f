"""Defer Python's cyclic garbage collector while models are compiled, and modules imported.

In: a stretch of work, as a context manager.  The objects of a compilation (candidates, terms,
expressions, kernels) live until its stage is done, and hardly any is in a cycle (3,600 of 70,000
for the plan of shufflenet_v2), so passes of the collector take a tenth of the time and find
nothing: resnet50 needs the same memory without them.  What always holds: the collector is off only
while some thread compiles or imports; afterwards it is on if it was on before, with the same
thresholds and frozen objects.

At the end all live objects are moved to the oldest generation, which the next full pass visits.
Otherwise the first allocations afterwards would start a pass over everything that was made, and
later a second and a third one: 0.26 s of 1.7 s of processor time for shufflenet_v2.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib import import_module
from types import ModuleType

from graphflow.base.shared_scope import SharedScope


def collection_deferred() -> AbstractContextManager[None]:
    """A context in which the cyclic collector is off; it is on again afterwards if it was
    before.
    """
    return _COLLECTOR_OFF.entered()


def imported_module(name: str) -> ModuleType:
    """The module of that name, imported without passes of the collector if it was not before.

    What an import makes stays: passes take a seventh of the compiler's, 0.11 of 0.84 s.
    """
    if name in sys.modules:
        return import_module(name)
    with collection_deferred():
        return import_module(name)


def _switch_off() -> Callable[[], None]:
    if not gc.isenabled():
        return lambda: None
    gc.disable()
    return _switch_on


def _switch_on() -> None:
    _move_to_oldest_generation()
    gc.enable()


def _move_to_oldest_generation() -> None:
    """Move all live objects to the oldest generation, without a pass over them."""
    if not gc.get_freeze_count():  # others may have frozen what they want to stay so
        gc.freeze()
        gc.unfreeze()


_COLLECTOR_OFF = SharedScope(_switch_off)
