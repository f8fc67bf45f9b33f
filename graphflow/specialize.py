"""One model, several shapes: a program for each set of input shapes that occurs.

In: a function that compiles for given shapes, and which inputs have symbolic dimensions.  Out: the
compiled model and its program for the shapes asked for.  What always holds: the same shapes give
the same program while it is kept, two threads never compile the same one twice, and a model
without symbolic dimensions has exactly one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from graphflow.assumed import Assumed
from graphflow.compiler import Compiled
from graphflow.decisions import Decisions
from graphflow.errors import InvalidModel
from graphflow.inspect import EdgeType, decisions, edge_types, explain, explanations, report
from graphflow.model import Shapes
from graphflow.runtime import Processor, Program, TensorSpec, processor_of

Key: TypeAlias = "tuple[tuple[str, tuple[int, ...]], ...]"

MOST_KEPT = 16
"""Programs kept; beyond that the one that was used longest ago goes."""


@dataclass(frozen=True)
class Loaded:
    """A compiled model, and its program in this process: a `Model`."""

    compiled: Compiled
    program: Program

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The inputs of the program that the model itself has."""
        return self.program.spec.inputs[: len(self.compiled.imported.inputs)]

    @property
    def defaults(self) -> Mapping[str, NDArray[Any]]:
        """The values that the model itself has for inputs."""
        known = self.compiled.imported.initializers
        return {tensor.name: known[tensor.name] for tensor in self.inputs if tensor.name in known}

    @property
    def frozen(self) -> tuple[str, ...]:
        """The graph inputs that are constants."""
        return self.compiled.frozen

    @property
    def assumed(self) -> tuple[Assumed, ...]:
        """What the plan has, and what kernels state."""
        return (*self.compiled.plan.assumed, *self.compiled.stated)

    @property
    def check_assumes(self) -> bool:
        """The option of that name."""
        return self.compiled.options.check_assumes

    @property
    def threads(self) -> int | None:
        """The option of that name."""
        return self.compiled.options.threads

    @property
    def processor(self) -> Processor:
        """The target, as far as object code depends on it."""
        return processor_of(self.compiled.target.cpu, self.compiled.target.features)

    @property
    def poisoned(self) -> int:
        """Elements of undefined padding that a run overwrites."""
        return self.compiled.physical.poisoned

    @property
    def layouts(self) -> Mapping[str, EdgeType]:
        """The decision about each tensor."""
        return edge_types(self.compiled)

    def explain(self, name: str) -> str:
        """The story of one tensor; InvalidModel for an unknown name."""
        return explain(self.compiled, name)

    def explanations(self) -> dict[str, str]:
        """The stories of all tensors."""
        return explanations(self.compiled)

    def report(self) -> dict[str, Any]:
        """What `graphflow inspect --json` prints."""
        return report(self.compiled)

    def decisions(self) -> Decisions:
        """What `graphflow inspect` prints."""
        return decisions(self.compiled)


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
