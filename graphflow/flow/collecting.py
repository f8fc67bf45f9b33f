"""Planning without passes of the cyclic garbage collector.

A plan's candidates, terms and expressions are kept until it is made, and hardly any of them is in a
cycle, so passes over all that is alive find nothing.  The collector is switched off for the whole
process, so it stays off until the last of several threads has planned.  What is alive then has
survived as much as passes would tell, so it counts as old: the next full pass looks at it.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_planning = 0
_was_enabled = False


@contextmanager
def collection_deferred() -> Iterator[None]:
    """Cyclic garbage made inside is collected afterwards; where nobody collects, nobody will."""
    global _planning, _was_enabled
    with _lock:
        if not _planning:
            _was_enabled = gc.isenabled()
            gc.disable()
        _planning += 1
    try:
        yield
    finally:
        with _lock:
            _planning -= 1
            if not _planning and _was_enabled:
                _call_all_old()
                gc.enable()


def _call_all_old() -> None:
    """Objects of all generations join the oldest one, without a pass over them."""
    if not gc.get_freeze_count():  # others may have frozen what they want to stay so
        gc.freeze()
        gc.unfreeze()
