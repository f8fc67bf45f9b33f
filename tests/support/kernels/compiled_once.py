"""Native code that LLVM makes once in a process of the tests: hundreds of tests compile the same
small kernels, and LLVM takes a quarter of their time.

In: the text of a module and a target.  Out: its object code.  What always holds: equal texts for
equal targets have equal objects (a test of the emitter says so, without this), so that a test runs
the same code as without; an error is not kept; a mistake that a test plants in the emitter makes
another text.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

from graphflow.base.target import Target

ObjectCode = Callable[[str, Target], bytes]

MOST_OBJECTS = 8192
"""The most objects that are kept, some 40 MB."""


def compiled_once(make: ObjectCode) -> ObjectCode:
    """The function `make`, called once for each text and target; the texts are not kept."""
    known: OrderedDict[tuple[bytes, Target], bytes] = OrderedDict()

    def made(text: str, target: Target) -> bytes:
        key = (blake2b(text.encode(), digest_size=20).digest(), target)
        found = known.get(key)
        if found is None:
            found = known[key] = make(text, target)
            if len(known) > MOST_OBJECTS:
                known.popitem(last=False)
        return found

    return made
