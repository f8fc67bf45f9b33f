"""Facts about the contents of values: what is known of the elements in the logical region.

In: a graph, and what the user assumes about its inputs.  Out: a `Fact` for each value, from the
elements of initializers and from evaluating bodies.  Facts are computed on first lookup, since few
variants depend on any.  And the inputs of a node that have what its recipes ask of contents.  What
always holds: layouts, variants and padding play no part, so the facts
hold under every plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from types import MappingProxyType

import numpy as np

from graphflow.base.assumed import Assumed, Assumption, parse_assumptions, require_assumed
from graphflow.base.dtypes import FLOATING, STORED
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.graph.value import Array
from graphflow.kernels.recipes import MOST_EXCLUDED, KnownContents, MaskInput, contents_query
from graphflow.layout import (
    LOGICAL,
    Constant,
    Fact,
    Range,
    Undefined,
    fact_of,
    order_key,
    output_facts,
)
from graphflow.tir import PrimFunc


def assumptions_about(
    graph: OperatorGraph, assumptions: Mapping[str, Assumption] | None
) -> tuple[Assumed, ...]:
    """The user's assumptions about graph inputs, parsed, in the order of the inputs.

    Raises InvalidModel where a name is not an input, where no value meets an assumption, and where
    the default of an input does not.
    """
    dtypes = {name: graph.values[name].dtype for name in graph.inputs}
    found = parse_assumptions(assumptions or {}, dtypes)
    for name, assumed in found.items():
        if name in graph.initializers:
            require_assumed(assumed, graph.initializers[name])
    return tuple(found.values())


def contents(
    graph: OperatorGraph,
    assumed: Sequence[Assumed] = (),
    known: Mapping[str, Fact] = MappingProxyType({}),
) -> Mapping[str, Fact]:
    """The fact about the contents of every value, computed lazily; the graph must not be edited.

    `known` has those of constants whose elements are not looked at.
    """
    return _Contents(graph, {a.tensor: _assumed_fact(a) for a in assumed}, known)


class _Contents(Mapping[str, Fact]):
    """A mapping that computes the fact of a value, and those it depends on, on first lookup."""

    def __init__(
        self, graph: OperatorGraph, said: Mapping[str, Fact], known: Mapping[str, Fact]
    ) -> None:
        self._graph = graph
        self._found = {**known, **{name: said.get(name, Undefined()) for name in graph.inputs}}

    def __getitem__(self, value: str) -> Fact:
        needed = [value]  # a stack, since networks are too deep for recursion
        while needed:
            if needed[-1] in self._found:
                needed.pop()
            else:
                needed += self._find(needed[-1])
        return self._found[value]

    def __iter__(self) -> Iterator[str]:
        return iter(self._graph.values)

    def __len__(self) -> int:
        return len(self._graph.values)

    def _find(self, value: str) -> list[str]:
        """Record the fact of `value`, or return the inputs of its producer whose facts are
        missing.
        """
        node = self._graph.producer(value)
        if node is None:
            self._found[value] = fact_of_array(self._graph.initializers[value])
            return []
        missing = [name for name in node.inputs if name not in self._found]
        if not missing:
            left = _left_by(node.func, tuple(self._found[name] for name in node.inputs))
            self._found.update(zip(node.outputs, left, strict=True))
        return missing


def _assumed_fact(assumed: Assumed) -> Fact:
    boolean = assumed.dtype == "bool"
    lo, hi = (bool(assumed.lo), bool(assumed.hi)) if boolean else (assumed.lo, assumed.hi)
    return fact_of(lo, assumed.dtype) if assumed.exact else Range(lo, hi)


@lru_cache(maxsize=4096)
def _left_by(func: PrimFunc, input_facts: tuple[Fact, ...]) -> tuple[Fact, ...]:
    """The facts of a kernel's outputs that follow from those of its inputs."""
    facts = {(b.name, LOGICAL): fact for b, fact in zip(func.inputs, input_facts, strict=True)}
    left = output_facts(func, {}, facts)
    return tuple(left.get((b.name, LOGICAL), Undefined()) for b in func.outputs)


def fact_of_array(array: Array) -> Fact:
    """The strongest fact that holds for every element; Undefined for empty arrays, NaN and
    infinity.
    """
    if array.size == 0:
        return Undefined()
    dtype = array.dtype.name
    if dtype in STORED:
        array = array.astype("float64" if dtype in FLOATING else "int64")
    lo, hi = array.min().item(), array.max().item()
    if array.dtype.kind != "f":
        return fact_of(lo, dtype) if lo == hi else Range(lo, hi)
    if lo == hi:
        signs = np.signbit(array)
        if signs.all() == signs.any():
            return fact_of(abs(lo) * (-1.0 if signs.any() else 1.0), dtype)
    if not (isfinite(lo) and isfinite(hi)):
        return Undefined()
    return Range(-0.0 if lo == 0 else lo, 0.0 if hi == 0 else hi)


def is_finite(fact: Fact) -> bool:
    """Whether a fact excludes NaN and both infinities."""
    return isinstance(fact, Range) or (isinstance(fact, Constant) and isfinite(fact.literal.value))


def reciprocals_above(fact: Fact, array: Array | None) -> bool:
    """Whether `1/x > −∞` is proven for every element: none is −0.0, or negative and so small that
    1/x overflows.
    """
    if array is not None and array.dtype.kind == "f":
        with np.errstate(all="ignore"):
            return bool((np.divide(1, array, dtype=array.dtype) > -np.inf).all())
    match fact:
        case Range():
            return order_key(fact.lo) >= order_key(0.0) or fact.hi < -1e-30
        case Constant():
            return order_key(fact.literal.value) >= order_key(0.0) or fact.literal.value < -1e-30
    return False


def constant_inputs(graph: OperatorGraph, node: Node) -> frozenset[str]:
    """The parameters of `node` that are bound to constants."""
    return frozenset(name for name, value in node.bound.items() if graph.is_constant(value))


def finite_inputs(node: Node, asked: Collection[str], facts: Mapping[str, Fact]) -> frozenset[str]:
    """Those of the parameters `asked` that are proven to hold neither NaN nor infinity."""
    bound = node.bound
    return frozenset(name for name in asked if name in bound and is_finite(facts[bound[name]]))


def known_inputs(graph: OperatorGraph, node: Node, facts: Mapping[str, Fact]) -> KnownContents:
    """The facts about the contents of a node's inputs that its recipes can use."""
    bound, asked = node.bound, contents_query(node.func)

    def excludes_negative_zero(value: str) -> bool:
        array = graph.initializers.get(value) if graph.is_constant(value) else None
        return reciprocals_above(facts[value], array)

    return KnownContents(
        finite=finite_inputs(node, asked.finite, facts),
        excludes_negative_zero=frozenset(
            name for name in asked.excludes_negative_zero if excludes_negative_zero(bound[name])
        ),
        shown_keys=tuple(
            keys for mask in asked.masks if (keys := _shown_keys(graph, bound, mask)) is not None
        ),
    )


def read_by_elements(nodes: Iterable[Node]) -> set[str]:
    """The values at whose elements `known_inputs` looks, if they are constants."""
    found: set[str] = set()
    for node in nodes:
        bound, asked = node.bound, contents_query(node.func)
        read = (name for mask in asked.masks for name in (mask.name, mask.fill) if name is not None)
        found.update(bound[name] for name in (*asked.excludes_negative_zero, *read))
    return found


def _shown_keys(
    graph: OperatorGraph, bound: Mapping[str, str], mask: MaskInput
) -> tuple[tuple[int, int], ...] | None:
    """For each row of a mask, or for all rows at once, the bounds of the keys that it does not
    exclude; None where its elements are not known."""
    array = graph.initializers.get(bound[mask.name])
    fill = None if mask.fill is None else graph.initializers.get(bound[mask.fill])
    if array is None or (mask.fill is not None and fill is None):
        return None
    if fill is not None and not _excludes(fill).all():
        return None
    shown: Array = np.asarray(
        np.logical_not(_excludes(array)) if mask.shows is None else np.equal(array, mask.shows)
    )
    kept = {axis for axis in (mask.row_axis, mask.key_axis) if axis is not None}
    others = tuple(axis for axis in range(shown.ndim) if axis not in kept)
    rows: Array = np.asarray(np.any(shown, others))
    if mask.row_axis is None:
        rows = rows[None]
    elif mask.row_axis > mask.key_axis:
        rows = rows.T
    some, keys = rows.any(1), rows.shape[1]
    begins = np.where(some, rows.argmax(1), 0)
    ends = np.where(some, keys - rows[:, ::-1].argmax(1), 0)
    return tuple(zip(map(int, begins), map(int, ends), strict=True))


def _excludes(array: Array) -> Array:
    """Where a number that is added to a score, or takes its place, excludes a key."""
    return np.asarray(np.less_equal(array, MOST_EXCLUDED))
