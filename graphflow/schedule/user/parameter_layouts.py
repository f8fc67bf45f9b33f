"""The layouts that a schedule gave to parameters of its kernel.

In: a schedule.  Out: for each parameter that it transformed, the layout from the parameter of the
definition to that of the kernel, and what is known of its padding.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from inspect import signature

from msgspec import Struct

from graphflow import tir
from graphflow.base.errors import ScheduleError
from graphflow.layout import Fact, Layout, NoAccess, Undefined, join
from graphflow.schedule.buffers.layouts import layout_of, transform_layout
from graphflow.schedule.facts.padding import (
    PaddingKind,
    padding_kind,
    padding_stages,
    stated_elements,
)
from graphflow.schedule.padding.elided_padding import elide_padding
from graphflow.schedule.user.methods import Schedule


class ParameterLayout(Struct, frozen=True):
    """A parameter's layout, and the fact of its padding; `Undefined` where several are stated."""

    layout: Layout
    padding: Fact


def parameter_layouts(schedule: Schedule) -> Mapping[str, ParameterLayout]:
    """The layouts of the parameters that the schedule transformed, by name.

    Without those whose transformation was undone, or was followed by another kind of step that
    changes the shape.
    """
    given: dict[str, list[Layout]] = {}
    for step in schedule.steps:
        if step.primitive not in (transform_layout, elide_padding):
            continue
        bound = signature(step.primitive).bind(None, *step.arguments, **dict(step.options))
        name, layout = bound.arguments["buffer"], bound.arguments["layout"]
        stack = given.setdefault(name, [])
        if step.primitive is elide_padding:
            stack[:] = stack[:-1] if stack and stack[-1] == layout else []
        elif stack or name in {p.buffer.name for p in schedule.definition.params}:
            shape = stack[-1].physical_shape if stack else schedule.definition.param(name).shape
            stack.append(layout_of(layout, shape))
    found: dict[str, ParameterLayout] = {}
    for param in schedule.func.params:
        layouts = given.get(param.buffer.name)
        if layouts and layouts[-1].physical_shape == param.buffer.shape:
            whole = reduce(_followed, layouts)
            found[param.buffer.name] = ParameterLayout(whole, _padding(schedule.func, param.buffer))
    return found


def _followed(first: Layout, second: Layout) -> Layout:
    """The layout of what is in the second one once it is in the first one."""
    index_map = first.index_map.then(second.index_map)
    return Layout.of(index_map, first.logical_shape, second.physical_shape, second.separators)


def _padding(func: tir.PrimFunc, buffer: tir.Buffer) -> Fact:
    facts = [fact for stage in padding_stages(func, buffer) for fact in _stated(stage, buffer)]
    return reduce(join, facts) if facts else Undefined()


def _stated(stage: tir.Block, buffer: tir.Buffer) -> list[Fact]:
    """What a stage states of padding; `Undefined` if later steps left nothing that locates it.

    So it is where data decide, or where a condition never holds.
    """
    if padding_kind(stage) is PaddingKind.NONE:
        return [NoAccess()]
    try:
        return [one.fact for one in stated_elements(stage, buffer)]
    except ScheduleError:
        return [Undefined()]
