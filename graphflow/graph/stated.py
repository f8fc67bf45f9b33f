"""Take the assumptions about graph inputs out of kernels that a user wrote.

In: a graph of such kernels.  Out: the same graph without these assumptions, and the assumptions as
`Assumed` records, by input and elements.  What always holds: an assumption is about a graph input,
since only the caller can keep it, and it can be checked when the model runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.arith import FALSE, Predicate, const, negation
from graphflow.base.assumed import Assumed, Stated
from graphflow.base.assumed_elements import AssumedElements
from graphflow.base.errors import VerifyError
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.layout import Constant, Fact, Range
from graphflow.schedule import (
    claims,
    derived_stages,
    forbids_access,
    is_finite_claim,
    require_derived,
)
from graphflow.tir import (
    Assume,
    Block,
    BlockNote,
    Body,
    Buffer,
    Comparison,
    Expr,
    For,
    If,
    IndexValue,
    Literal,
    Load,
    Param,
    PrimFunc,
    Role,
    Stmt,
    Store,
    Undef,
    expressions_of,
    interpret,
    is_predicate,
    map_body,
    stmt_text,
    walk,
    walk_expr,
)


def take_assumptions(graph: OperatorGraph) -> tuple[OperatorGraph, tuple[Stated, ...]]:
    """The graph without what its kernels assume about graph inputs, and these assumptions.

    `assume_finite` of a whole input stays in the kernel, because planning relies on it, and is
    among the assumptions too.  Assumptions of a kernel about its own buffers stay; planning proves
    or refuses them.  Raises VerifyError where a node assumes something about a value that another
    node computes, or anything but that elements compare with constants, or are equal to values of
    the index or to other elements of the input.
    """
    found: dict[Stated, None] = {}
    done = graph.copy()
    for node in graph.nodes:
        kernels = tuple(dict.fromkeys((node.func, *node.offered)))
        for kernel in kernels:
            found |= dict.fromkeys(_stated(graph, node, kernel))
        if any(_removable(kernel) for kernel in kernels):
            bare = replace(
                node, func=_without(node.func), offered=tuple(map(_without, node.offered))
            )
            done.replace(node.name, bare)
    return done, tuple(found)


def _about_params(func: PrimFunc) -> list[Assume]:
    """The assumptions about the values of inputs, without those that only restrict accesses."""
    return [
        stmt
        for stmt in walk(func.body)
        if isinstance(stmt, Assume) and _is_about_inputs(func, stmt)
    ]


def _is_about_inputs(func: PrimFunc, stmt: Assume) -> bool:
    loads = [e for claim in expressions_of(stmt) for e in walk_expr(claim) if isinstance(e, Load)]
    return bool(loads) and all(load.buffer in func.inputs for load in loads)


def _states_finite(stmt: Assume) -> bool:
    """Whether an assumption says that every element its loops reach is finite."""
    loads = [e for e in walk_expr(stmt.claim) if isinstance(e, Load)]
    return stmt.unless == FALSE and len(loads) == 1 and is_finite_claim(stmt.claim, loads[0])


def _removable(func: PrimFunc) -> list[Assume]:
    return [stmt for stmt in _about_params(func) if not _states_finite(stmt)]


def _without(func: PrimFunc) -> PrimFunc:
    """The kernel without its assumptions about inputs, and without loops that this leaves empty.

    What it assumes of the padding of its outputs may rest on them, so that is proven and goes too.
    """
    gone = _removable(func)
    if not gone:
        return func
    require_derived(func)
    outputs = {buffer.name for buffer in func.outputs}
    stages = [s for s in derived_stages(func) if s.note(BlockNote.PADDING_OF) in outputs]

    def change(stmt: Stmt) -> Body:
        match stmt:
            case Block() if stmt.name in {stage.name for stage in stages}:
                return ()
            case Assume():
                return () if stmt in gone else (stmt,)
            case For():
                return (stmt,) if stmt.body else ()
            case If():
                return (stmt,) if stmt.then or stmt.orelse else ()
            case _:
                return (stmt,)

    return replace(func, body=map_body(func.body, change))


def _stated(graph: OperatorGraph, node: Node, func: PrimFunc) -> Iterator[Stated]:
    bound = dict(zip((b.name for b in func.inputs), node.inputs, strict=True))
    for stmt in _about_params(func):
        if _only_about_access(stmt):
            continue
        facts = [(x, fact) for x, fact in claims(stmt.claim) if isinstance(fact, Constant | Range)]
        equation = None if facts else _equation(stmt)
        if not (facts or equation) or not is_predicate(stmt.unless):
            raise VerifyError(
                f"node {node.name}: `{stmt_text(stmt)}` cannot be checked when the model runs; "
                "assume that an element is ==, <= or >= a number, or equal to a value of the index "
                "or to another element of its input, under a condition on indices"
            )
        for load in [load for load, _ in facts] + ([] if equation is None else [equation[0]]):
            value = bound[load.buffer.name]
            if value not in graph.inputs and not _states_finite(stmt):
                raise VerifyError(
                    f"node {node.name}: `{stmt_text(stmt)}` is about {value}, which is computed in "
                    "the graph; assumptions can be made about graph inputs only"
                )
        for load, fact in facts:
            value = bound[load.buffer.name]
            if value in graph.inputs:
                yield _assumed(value, load.buffer, fact, _elements(func, stmt, load))
        if equation is not None:
            yield _assumed_elements(bound[equation[0].buffer.name], func, stmt, *equation)


def _equation(stmt: Assume) -> tuple[Load, Expr] | None:
    """The element that an assumption is about, and what it equals: another element of the same
    buffer, or a value without loads."""
    claim = stmt.claim
    if not isinstance(claim, Comparison) or claim.op != "eq" or not isinstance(claim.left, Load):
        return None
    right = claim.right
    if isinstance(right, Load):
        return (claim.left, right) if right.buffer == claim.left.buffer else None
    plain = not any(isinstance(e, Load | Undef) for e in walk_expr(right))
    return (claim.left, right) if plain else None


def _assumed_elements(
    value: str, func: PrimFunc, stmt: Assume, load: Load, wanted: Expr
) -> AssumedElements:
    """What an assumption says of each element that it is about."""
    copies = isinstance(wanted, Load)
    if isinstance(wanted, Load):
        pairs = zip(wanted.indices, wanted.buffer.strides, strict=True)
        wanted = IndexValue(sum((i * k for i, k in pairs), start=const(0)), "int64")
    elements = _elements(func, stmt, load)
    values = _marked(func, stmt, load, wanted).reshape(-1)[list(elements)]
    return AssumedElements(value, load.buffer.dtype, elements, tuple(values.tolist()), copies)


def _only_about_access(stmt: Assume) -> bool:
    """Whether an assumption is about access only: that elements may, or may not, be read."""
    sides = (getattr(stmt.claim, "right", None),)
    return forbids_access(stmt.claim) or any(isinstance(side, Undef) for side in sides)


def _assumed(value: str, buffer: Buffer, fact: Fact, elements: tuple[int, ...]) -> Assumed:
    everywhere = len(elements) == buffer.size
    about = None if everywhere else elements
    if isinstance(fact, Constant):
        number = fact.literal.value
        return Assumed(value, buffer.dtype, number, number, True, about)
    assert isinstance(fact, Range)
    return Assumed(value, buffer.dtype, fact.lo, fact.hi, False, about)


def _elements(func: PrimFunc, stmt: Assume, load: Load) -> tuple[int, ...]:
    """The elements that an assumption is about, as flat row-major positions."""
    marked = _marked(func, stmt, load, Literal(True, "bool"))
    return tuple(int(k) for k in np.flatnonzero(marked))


def _marked(func: PrimFunc, stmt: Assume, load: Load, value: Expr) -> NDArray[Any]:
    """An array with `value` at the elements that an assumption is about, zero elsewhere.

    The kernel's loops are interpreted with the assumption replaced by a store to the array.
    """
    mask = Buffer("mask", load.buffer.shape, value.dtype)
    mark = Store(mask, load.indices, value)
    condition: Predicate = negation(stmt.unless)  # type: ignore[arg-type]

    def change(other: Stmt) -> Body:
        match other:
            case Assume():
                return (If(condition, (mark,)),) if other is stmt else ()
            case Block():
                return other.body
            case For():
                return (other,) if other.body else ()
            case If() if is_predicate(other.condition):
                return (other,) if other.then or other.orelse else ()
            case If():
                return (*other.then, *other.orelse)
            case Store():
                return (other,) if other.buffer == mask else ()
            case _:
                return ()

    marking = PrimFunc("elements", (Param(mask, Role.OUTPUT),), map_body(func.body, change))
    return interpret(marking, {}, undefined=0.0)["mask"]
