"""The model's own weights are released as a program packs them.

In: a compiled model.  Out: the same results of all stages, in which large constants have their
shapes and element types, and no contents; and the constants of its program.  What always holds:
runs, reports, explanations and saved files are the same; whoever asks for released contents gets an
error, never other numbers.

A model with open shapes keeps its weights, because the programs of later shapes pack them again.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NoReturn, cast

import numpy as np

from graphflow.base.errors import GraphflowError
from graphflow.flow import PinPrices, PinTrials
from graphflow.graph import Array, OperatorGraph, contents, read_by_elements
from graphflow.physical import PhysicalGraph
from graphflow.pipeline.compiler import Compiled

LARGE = 1 << 20
"""The least bytes of a constant whose contents are released; all smaller ones of a network take
little memory together, and can still be looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class ReleasedConstant:
    """What is known of a constant after its contents were released.

    Comparing it is an error as well: constants of equal shapes may have other contents.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The bytes that the contents took."""
        return self.size * self.dtype.itemsize

    def __array__(self, *_: object, **__: object) -> NoReturn:
        """GraphflowError: numpy asks for the contents."""
        raise GraphflowError(
            f"the contents of a constant {self.dtype}{list(self.shape)} were released when its "
            "program was ready, so that weights are not held twice; "
            "graphflow.pipeline.compiler.compile_graph returns the results of the stages with them"
        )

    def __array_function__(self, *_: object) -> NoReturn:
        """GraphflowError also in functions such as `np.array_equal`, which take what cannot become
        an array for different."""
        self.__array__()

    def __eq__(self, other: object) -> bool:
        return True if other is self else self.__array__()

    __hash__ = None  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # a protocol that it may have or lack
            raise AttributeError(name)
        return self.__array__()


def parted_from_weights(compiled: Compiled) -> tuple[Compiled, dict[int, Array]]:
    """The results of the stages, with the contents of large constants released; and by their
    positions the constants of the program.

    The defaults of graph inputs are kept: runs use them.
    """
    lowered = compiled.lowered
    constants = tuple((offset, _released(array)) for offset, array in compiled.spec.constants)
    plan = compiled.plan
    trials = None if compiled.pin_trials is None else _trials(compiled.pin_trials)
    if trials is not None and isinstance(plan.price_pins, PinPrices):
        plan = replace(plan, price_pins=replace(plan.price_pins, trials=trials))
    rest = replace(
        compiled,
        plan=plan,
        imported=_graph(compiled.imported),
        graph=_graph(compiled.graph),
        physical=_physical(compiled.physical),
        lowered=replace(lowered, physical=_physical(lowered.physical)),
        spec=replace(compiled.spec, constants=constants),
        pin_trials=trials,
    )
    return rest, dict(compiled.spec.constants)


def _trials(trials: PinTrials) -> PinTrials:
    """The same plans, by what is known of the constants: few are looked at element by element."""
    searched = trials.expansions
    expanded = (each.node for found in searched.of_node.values() for each in found)
    kept = read_by_elements([*searched.graph.nodes, *expanded])
    graph = _graph(searched.graph, kept)
    known = {
        name: trials.facts[name]
        for name, array in graph.initializers.items()
        if isinstance(array, ReleasedConstant)
    }
    return replace(
        trials,
        graph=_graph(trials.graph, kept),
        expansions=replace(searched, graph=graph),
        facts=contents(graph, trials.assumed, known),
    )


def _graph(graph: OperatorGraph, kept: Set[str] = frozenset()) -> OperatorGraph:
    found = graph.copy()
    found.initializers = {
        name: _released(array, kept=name in kept or name in graph.inputs)
        for name, array in graph.initializers.items()
    }
    return found


def _physical(graph: PhysicalGraph) -> PhysicalGraph:
    return replace(
        graph,
        storages={
            name: storage
            if storage.contents is None
            else replace(storage, contents=_released(storage.contents))
            for name, storage in graph.storages.items()
        },
    )


def _released(array: Array, kept: bool = False) -> Array:
    if kept or array.nbytes < LARGE:
        return array
    return cast("Array", ReleasedConstant(array.shape, array.dtype))
