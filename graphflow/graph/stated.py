"""Take the assumptions about graph inputs, and about copies of them, out of kernels that a user
wrote.

In: a graph of such kernels.  Out: the same graph without these assumptions, and the assumptions as
`Assumed` records, by input and elements.  What always holds: an assumption is about a graph input,
since only the caller can keep it, and it can be checked when the model runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow import tir
from graphflow.arith import FALSE, Domain, Predicate, const, negation, prove
from graphflow.base.assumed import Assumed, Stated
from graphflow.base.assumed_elements import AssumedElements
from graphflow.base.dtypes import largest
from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.base.fields import replace
from graphflow.graph.operator_graph import Node, OperatorGraph
from graphflow.layout import Constant, Fact, Layout, Range
from graphflow.schedule import (
    claims,
    derived_stages,
    forbids_access,
    is_finite_claim,
    is_marked,
    is_reciprocal_claim,
    marked_stage,
    require_derived,
)


def take_assumptions(graph: OperatorGraph) -> tuple[OperatorGraph, tuple[Stated, ...]]:
    """The graph without what its kernels assume about graph inputs, and these assumptions.

    `assume_finite` of a whole input stays in the kernel, because planning relies on it, and is
    among the assumptions too.  Assumptions of a kernel about its own buffers stay; planning proves
    or refuses them.  Raises VerifyError where a node assumes something about a value that another
    node computes, or anything but that elements or their reciprocals compare with constants, or
    that elements are equal to values of the index or to other elements of the input.
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


def _about_params(func: tir.PrimFunc) -> Iterator[tuple[tir.Assume, tir.Assume]]:
    """The assumptions about the values of inputs and of their caches, each with the same about the
    inputs alone."""
    if not any(isinstance(stmt, tir.Assume) for stmt in tir.walk(func.body)):
        return  # before domains are made
    caches = _caches(func)
    for site in tir.sites(func.body):
        if isinstance(site.stmt, tir.Assume):
            about = _about_inputs(func, site.stmt, site.domain, caches)
            if about is not None:
                yield site.stmt, about


def _caches(func: tir.PrimFunc) -> dict[tir.Buffer, tuple[tir.Buffer, Layout]]:
    """The caches that stages copy inputs into, each with the input and its layout there."""
    found: dict[tir.Buffer, tuple[tir.Buffer, Layout]] = {}
    if is_marked(func):
        for buffer in func.inputs:
            with suppress(ScheduleError):
                marked = marked_stage(func, buffer.name)
                if marked is not None:
                    found[marked.cache] = buffer, marked.layout
    return found


def _about_inputs(
    func: tir.PrimFunc,
    stmt: tir.Assume,
    domain: Domain,
    caches: dict[tir.Buffer, tuple[tir.Buffer, Layout]],
) -> tir.Assume | None:
    """An assumption with the elements of inputs in the place of their copies; None where it is
    about something else."""
    loads = list(tir.loads_in((stmt,)))
    if not loads or not all(load.buffer in func.inputs or load.buffer in caches for load in loads):
        return None
    if tir.is_predicate(stmt.unless):
        domain = domain.given(negation(stmt.unless))  # type: ignore[arg-type]
    for load in loads:
        if load.buffer in caches:
            _, layout = caches[load.buffer]
            if not prove(layout.is_logical(load.indices), domain).proven:
                return None  # about padding, which the stages state

    def of_input(expr: tir.Expr) -> tir.Expr:
        if not isinstance(expr, tir.Load) or expr.buffer not in caches:
            return expr
        buffer, layout = caches[expr.buffer]
        return tir.Load(buffer, layout.logical_index(expr.indices))

    return replace(stmt, claim=tir.map_expr(stmt.claim, of_input))


def _states_finite(stmt: tir.Assume) -> bool:
    """Whether an assumption says that every element its loops reach is finite."""
    loads = [e for e in tir.walk_expr(stmt.claim) if isinstance(e, tir.Load)]
    return stmt.unless == FALSE and len(loads) == 1 and is_finite_claim(stmt.claim, loads[0])


def _removable(func: tir.PrimFunc) -> list[tir.Assume]:
    return [stmt for stmt, _ in _about_params(func) if not _states_finite(stmt)]


def _without(func: tir.PrimFunc) -> tir.PrimFunc:
    """The kernel without its assumptions about inputs, and without loops that this leaves empty.

    What it assumes of the padding of its outputs may rest on them, so that is proven and goes too.
    """
    gone = _removable(func)
    if not gone:
        return func
    require_derived(func)
    outputs = {buffer.name for buffer in func.outputs}
    stages = [s for s in derived_stages(func) if s.note(tir.BlockNote.PADDING_OF) in outputs]

    def change(stmt: tir.Stmt) -> tir.Body:
        match stmt:
            case tir.Block() if stmt.name in {stage.name for stage in stages}:
                return ()
            case tir.Assume():
                return () if stmt in gone else (stmt,)
            case tir.For():
                return (stmt,) if stmt.body else ()
            case tir.If():
                return (stmt,) if stmt.then or stmt.orelse else ()
            case _:
                return (stmt,)

    return replace(func, body=tir.map_body(func.body, change))


def _stated(graph: OperatorGraph, node: Node, func: tir.PrimFunc) -> Iterator[Stated]:
    bound = dict(zip((b.name for b in func.inputs), node.inputs, strict=True))
    for own, stmt in _about_params(func):
        if _only_about_access(stmt):
            continue
        inverted = _with_reciprocal(stmt)
        if inverted is not None and bound[inverted.buffer.name] in graph.inputs:
            yield _assumed_reciprocal(bound[inverted.buffer.name], func, own, inverted)
            continue
        facts = [(x, fact) for x, fact in claims(stmt.claim) if isinstance(fact, Constant | Range)]
        equation = None if facts else _equation(stmt)
        if not (facts or equation) or not tir.is_predicate(stmt.unless):
            raise VerifyError(
                f"node {node.name}: `{tir.stmt_text(stmt)}` cannot be checked when the model runs; "
                "assume that an element is ==, <= or >= a number, or equal to a value of the index "
                "or to another element of its input, under a condition on indices"
            )
        for load in [load for load, _ in facts] + ([] if equation is None else [equation[0]]):
            value = bound[load.buffer.name]
            if value not in graph.inputs and not _states_finite(stmt):
                raise VerifyError(
                    f"node {node.name}: `{tir.stmt_text(stmt)}` is about {value}, which is "
                    "computed in the graph; assumptions can be made about graph inputs only"
                )
        for load, fact in facts:
            value = bound[load.buffer.name]
            if value in graph.inputs:
                yield _assumed(value, load.buffer, fact, _elements(func, own, load))
        if equation is not None:
            yield _assumed_elements(bound[equation[0].buffer.name], func, own, *equation)


def _with_reciprocal(stmt: tir.Assume) -> tir.Load | None:
    """The element of which an assumption says that its reciprocal is more than -inf."""
    if not tir.is_predicate(stmt.unless):
        return None
    loads = (e for e in tir.walk_expr(stmt.claim) if isinstance(e, tir.Load))
    return next((load for load in loads if is_reciprocal_claim(stmt.claim, load)), None)


def _assumed_reciprocal(
    value: str, func: tir.PrimFunc, stmt: tir.Assume, load: tir.Load
) -> Assumed:
    elements, most = _elements(func, stmt, load), largest(load.dtype)
    about = None if len(elements) == load.buffer.size else elements
    return Assumed(value, load.dtype, -most, most, elements=about, reciprocal=True)


def _equation(stmt: tir.Assume) -> tuple[tir.Load, tir.Expr] | None:
    """The element that an assumption is about, and what it equals: another element of the same
    buffer, or a value without loads."""
    claim = stmt.claim
    if (
        not isinstance(claim, tir.Comparison)
        or claim.op != "eq"
        or not isinstance(claim.left, tir.Load)
    ):
        return None
    right = claim.right
    if isinstance(right, tir.Load):
        return (claim.left, right) if right.buffer == claim.left.buffer else None
    plain = not any(isinstance(e, tir.Load | tir.Undef) for e in tir.walk_expr(right))
    return (claim.left, right) if plain else None


def _assumed_elements(
    value: str, func: tir.PrimFunc, stmt: tir.Assume, load: tir.Load, wanted: tir.Expr
) -> AssumedElements:
    """What an assumption says of each element that it is about."""
    copies = isinstance(wanted, tir.Load)
    if isinstance(wanted, tir.Load):
        pairs = zip(wanted.indices, wanted.buffer.strides, strict=True)
        wanted = tir.IndexValue(sum((i * k for i, k in pairs), start=const(0)), "int64")
    elements = _elements(func, stmt, load)
    values = _marked(func, stmt, load, wanted).reshape(-1)[list(elements)]
    return AssumedElements(value, load.buffer.dtype, elements, tuple(values.tolist()), copies)


def _only_about_access(stmt: tir.Assume) -> bool:
    """Whether an assumption is about access only: that elements may, or may not, be read."""
    sides = (getattr(stmt.claim, "right", None),)
    return forbids_access(stmt.claim) or any(isinstance(side, tir.Undef) for side in sides)


def _assumed(value: str, buffer: tir.Buffer, fact: Fact, elements: tuple[int, ...]) -> Assumed:
    everywhere = len(elements) == buffer.size
    about = None if everywhere else elements
    if isinstance(fact, Constant):
        number = fact.literal.value
        return Assumed(value, buffer.dtype, number, number, True, about)
    assert isinstance(fact, Range)
    return Assumed(value, buffer.dtype, fact.lo, fact.hi, False, about)


def _elements(func: tir.PrimFunc, stmt: tir.Assume, load: tir.Load) -> tuple[int, ...]:
    """The elements that an assumption is about, as flat row-major positions."""
    marked = _marked(func, stmt, load, tir.Literal(True, "bool"))
    return tuple(int(k) for k in np.flatnonzero(marked))


def _marked(func: tir.PrimFunc, stmt: tir.Assume, load: tir.Load, value: tir.Expr) -> NDArray[Any]:
    """An array with `value` at the elements that an assumption is about, zero elsewhere.

    The kernel's loops are interpreted with the assumption replaced by a store to the array.
    """
    mask = tir.Buffer("mask", load.buffer.shape, value.dtype)
    mark = tir.Store(mask, load.indices, value)
    condition: Predicate = negation(stmt.unless)  # type: ignore[arg-type]

    def change(other: tir.Stmt) -> tir.Body:
        match other:
            case tir.Assume():
                return (tir.If(condition, (mark,)),) if other is stmt else ()
            case tir.Block():
                return other.body
            case tir.For():
                return (other,) if other.body else ()
            case tir.If() if tir.is_predicate(other.condition):
                return (other,) if other.then or other.orelse else ()
            case tir.If():
                return (*other.then, *other.orelse)
            case tir.Store():
                return (other,) if other.buffer == mask else ()
            case _:
                return ()

    marking = tir.PrimFunc(
        "elements", (tir.Param(mask, tir.Role.OUTPUT),), tir.map_body(func.body, change)
    )
    return tir.interpret(marking, {}, undefined=0.0)["mask"]
