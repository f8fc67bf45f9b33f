"""One model, several shapes: a program for each set of input shapes that occurs.

In: a function that compiles for given shapes, and which inputs have symbolic dimensions.  Out: the
compiled model and its program for the shapes asked for.  What always holds: the same shapes give
the same program while it is kept, two threads never compile the same one twice, and a model
without symbolic dimensions has exactly one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from graphflow.compiler import Compiled
from graphflow.errors import InvalidModel
from graphflow.runtime import Program

Shapes: TypeAlias = "Mapping[str, Sequence[int]]"
Key: TypeAlias = "tuple[tuple[str, tuple[int, ...]], ...]"

MOST_KEPT = 16
"""Programs kept; beyond that the one that was used longest ago goes."""


@dataclass(frozen=True)
class Loaded:
    """A compiled model, and its program in this process."""

    compiled: Compiled
    program: Program


class Specializer:
    """Compiles on demand and keeps what it compiled; see the module's text."""

    def __init__(
        self, build: Callable[[Shapes], Compiled], symbolic: tuple[str, ...], given: Shapes
    ) -> None:
        self._build = build
        self._symbolic = tuple(name for name in symbolic if name not in given)
        self._given = dict(given)
        self._kept: OrderedDict[Key, Loaded] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def symbolic(self) -> tuple[str, ...]:
        """The inputs whose shapes are still open."""
        return self._symbolic

    def only(self) -> Loaded:
        """The one program of a model whose shapes are all known.

        InvalidModel for a model with open shapes: there is no single answer.
        """
        if self._symbolic:
            raise InvalidModel(
                f"the shapes of {', '.join(self._symbolic)} are symbolic, so there is no single "
                "program to look at; compile with input_shapes={name: (extents…)}"
            )
        return self._find(())

    def serve(self, shapes: Shapes) -> Loaded:
        """The program for inputs of these shapes; those of inputs that are not open are ignored."""
        missing = [name for name in self._symbolic if name not in shapes]
        if missing:
            raise InvalidModel(f"input {missing[0]!r} is missing; its shape decides the program")
        return self._find(tuple((name, tuple(shapes[name])) for name in self._symbolic))

    def _find(self, key: Key) -> Loaded:
        with self._lock:
            if key not in self._kept:
                compiled = self._build({**self._given, **dict(key)})
                options = compiled.options
                program = Program(compiled.spec, options.threads, options.flush_denormals)
                self._kept[key] = Loaded(compiled, program)
                if len(self._kept) > MOST_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]
