"""The model's own weights are released as a program packs them.

In: a compiled model.  Out: the same results of all stages, in which large constants have their
shapes and element types, and no contents; and the constants of its program, or where they can be
read again.  What always holds: runs, reports, explanations and saved files are the same; whoever
asks for released contents gets an error, never other numbers.

Programs of later shapes pack weights again.  Their compilations read them again, from the file or
the proto that the model was given as, and constants that were released are compared by where they
were read, or by digests.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from hashlib import sha256
from math import prod
from typing import Any, NoReturn, cast

import numpy as np
from msgspec import Struct

from graphflow.base.errors import GraphflowError
from graphflow.base.fields import replace
from graphflow.flow import PinPrices, PinTrials
from graphflow.frontends import READ_AGAIN_BYTES, StoredArray, stored_part
from graphflow.graph import Array, OperatorGraph, contents, read_by_elements
from graphflow.physical import PhysicalGraph
from graphflow.pipeline.compiler import Compiled
from graphflow.runtime import Initial

LARGE = READ_AGAIN_BYTES
"""The least bytes of a constant whose contents are released; smaller ones can still be looked
at."""


class ReleasedConstant(Struct, frozen=True, eq=False):
    """What is known of a constant after its contents were released.

    Comparing it is an error as well: constants of equal shapes may have other contents.  `origin`
    is what can be compared instead, if that was asked for: constants of equal shapes, types and
    origins have the same bits.
    """

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    origin: StoredArray | bytes | None = None

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


def parted_from_weights(compiled: Compiled, comparable: bool = False) -> tuple[Compiled, Initial]:
    """The results of the stages, with the contents of large constants released; and by their
    positions the constants of the program.  Those that can be read again from a file are not in
    memory any more, if the caller keeps nothing else of the model.

    With `comparable` the constants of the program have origins.  The defaults of graph inputs are
    kept: runs use them.
    """
    lowered = compiled.lowered
    weights: Initial = {
        offset: (stored_part(array) or array) if array.nbytes >= LARGE else array
        for offset, array in compiled.spec.constants
    }
    constants = tuple(
        (offset, _released(array, origin=_origin if comparable else None))
        for offset, array in compiled.spec.constants
    )
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
    return rest, weights


def _origin(array: Array) -> StoredArray | bytes:
    """Where a large constant was read, or the digest of its elements."""
    return stored_part(array) or contents_digest(array)


def contents_digest(array: Array) -> bytes:
    """A digest of the elements, in row-major order.  It takes 1 s for a gigabyte."""
    return sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).digest()


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


def _released(
    array: Array, kept: bool = False, origin: Callable[[Array], StoredArray | bytes] | None = None
) -> Array:
    if kept or array.nbytes < LARGE:
        return array
    found = None if origin is None else origin(array)
    return cast("Array", ReleasedConstant(array.shape, array.dtype, found))
