"""Random applications of the primitives on configuration state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from graphflow import tir
from graphflow.schedule import bind_config, delete_config, write_config
from support.kernels.random_kernels import Number
from support.primitives.primitive_cases import PrimitiveCase, effect_kernel
from support.primitives.statement_places import addressed

MODE = tir.Config("mode", {"a": "int64", "b": "int64"})
FIELDS = tuple(map(MODE.field, MODE.fields))

Arguments = tuple[Any, ...] | None


def config_kernel(number: Number) -> tir.PrimFunc:
    """A random kernel with configuration state."""
    return with_state(effect_kernel(number), number)


def with_state(func: tir.PrimFunc, number: Number) -> tir.PrimFunc:
    """A kernel of int64 in which some stores read a field, and one is written before some."""
    at_once = [loop for loop in tir.loops_of(func.body) if loop.kind in tir.AT_ONCE]
    inside = {id(stmt) for loop in at_once for stmt in tir.walk(loop.body)}

    def change(stmt: tir.Stmt) -> tir.Body:
        if not isinstance(stmt, tir.Store | tir.Reduce) or id(stmt) in inside:
            return (stmt,)
        if number(0, 2) == 0 and stmt.buffer.dtype == "int64":
            read = tir.Load(FIELDS[number(0, 1)], ())
            stmt = replace(stmt, value=tir.Binary("add", stmt.value, read))
        write = tir.Store(FIELDS[number(0, 1)], (), tir.Literal(number(0, 1), "int64"))
        return (write, stmt) if number(0, 2) == 0 else (stmt,)

    return replace(func, body=tir.map_body(func.body, change))


def write_arguments(func: tir.PrimFunc, number: Number) -> Arguments:
    places = [place for place, _ in addressed(func)]
    if not places:
        return None
    place = places[number(0, len(places) - 1)]
    return place, FIELDS[number(0, 1)], number(0, 1), number(0, 1) == 1


def delete_arguments(func: tir.PrimFunc, number: Number) -> Arguments:
    found = [
        place
        for place, stmt in addressed(func, tir.Store)
        if isinstance(stmt, tir.Store) and stmt.buffer.is_field
    ]
    return (found[number(0, len(found) - 1)],) if found else None


def bind_arguments(func: tir.PrimFunc, number: Number) -> Arguments:
    found = [
        (place, node)
        for place, stmt in addressed(func, tir.Store, tir.Reduce)
        if isinstance(stmt, tir.Store | tir.Reduce) and not stmt.buffer.is_field
        for node in tir.walk_expr(stmt.value)
        if node.dtype == "int64"
    ]
    if not found:
        return None
    place, node = found[number(0, len(found) - 1)]
    return place, node, FIELDS[number(0, 1)]


CONFIG_CASES = (
    PrimitiveCase(bind_config, bind_arguments, config_kernel),
    PrimitiveCase(delete_config, delete_arguments, config_kernel),
    PrimitiveCase(write_config, write_arguments, config_kernel),
)
