"""LLVM IR and native code that are made once in a process of the tests: hundreds of tests compile
the same small kernels, with and without poison, and LLVM takes a quarter of their time.

In: a kernel, a symbol and a target, or the text of a module and a target.  Out: the text, or its
object code.  What always holds: equal kernels have equal texts, and equal texts for equal targets
equal objects (tests of the emitter say so, without this), so that a test runs the same code as
without; an error is not kept.  A mistake that a test plants in the emitter makes another text:
`mutated` empties the cache of texts like those of the compiler.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b

from graphflow.base.target import Target
from graphflow.tir import PrimFunc

EmitIr = Callable[[PrimFunc, str, Target], str]
ObjectCode = Callable[[str, Target], bytes]

MOST_OBJECTS = 8192
"""The most objects that are kept, some 40 MB."""

MOST_TEXTS = 512
"""The most texts that are kept, some 15 MB: tests of one module share kernels, others hardly do."""


def emitted_once(emit: EmitIr) -> EmitIr:
    """The function `emit`, called once for each kernel, symbol and target."""
    return lru_cache(maxsize=MOST_TEXTS)(emit)


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
