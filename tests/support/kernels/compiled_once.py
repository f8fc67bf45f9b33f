"""LLVM IR and native code that are made once by the tests: hundreds of them compile the same small
kernels, with and without poison, and LLVM takes a quarter of their time.

In: a kernel, a symbol and a target, or the text of a module and a target.  Out: the text, which a
process keeps, or its object code, which the processes of all runs share in a folder: most kernels
of two processors are the same.  What always holds: equal kernels have equal texts, and equal texts
equal objects for equal processors (tests of the emitter say so, without this), so that a test runs
the same code as without; an error is not kept.  A mistake that a test plants in the emitter makes
another text: `mutated` empties the cache of texts like those of the compiler.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import llvmlite

from graphflow.base import shared_scope
from graphflow.base.target import Target
from graphflow.codegen import target_machine
from graphflow.processes.store import EntryStore
from graphflow.tir import PrimFunc

EmitIr = Callable[[PrimFunc, str, Target], str]
ObjectCode = Callable[[str, Target], bytes]

MOST_OBJECTS = 8192
"""The most objects that a process keeps, some 40 MB."""

MOST_TEXTS = 512
"""The most texts that are kept, some 15 MB: tests of one module share kernels, others hardly do."""


def emitted_once(emit: EmitIr) -> EmitIr:
    """The function `emit`, called once for each kernel, symbol and target."""
    return lru_cache(maxsize=MOST_TEXTS)(emit)


def compiled_once(make: ObjectCode, folder: Path) -> ObjectCode:
    """The function `make`, called once for each text and for what LLVM is told of each target; the
    texts are not kept."""
    known: OrderedDict[str, bytes] = OrderedDict()
    store = EntryStore(folder)
    store.trim()
    maker = llvm_digest()

    def made(text: str, target: Target) -> bytes:
        about = "\0".join((maker, target.cpu, target.features, text))
        key = blake2b(about.encode(), digest_size=20).hexdigest()
        found = known.get(key)
        if found is None:
            found = store.get(key)
            if found is None:
                found = make(text, target)
                store.put(key, found)
            known[key] = found
            if len(known) > MOST_OBJECTS:
                known.popitem(last=False)
        return found

    return made


def llvm_digest() -> str:
    """A digest of what makes objects of texts: LLVM's version, and graphflow's modules that call
    it."""
    sources = [Path(str(module.__file__)).read_bytes() for module in (target_machine, shared_scope)]
    return blake2b(b"\0".join((llvmlite.__version__.encode(), *sources))).hexdigest()
