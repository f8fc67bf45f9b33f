"""Planning without passes of the cyclic garbage collector.

A plan's candidates, terms and expressions are kept until it is made, and hardly any of them is in a
cycle, so passes over all that is alive find nothing.  The collector is switched off for the whole
process, so it stays off until the last of several threads has planned.
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
                gc.enable()
