"""Bypassing a concatenation: a kernel reads the concatenated tensors instead of the result.

In: a kernel, one of its operands, and the `Segment`s that make up the channels (axis 1) of that
operand.  Out: the kernel with the other tensors as operands.  A reduction over the channels becomes
one reduction for each segment, with its part of the weights; a copy becomes one store for each
segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import lcm

from msgspec import Struct

from graphflow import tir
from graphflow.arith import Var, const, predicate_variables, variables
from graphflow.base.fields import replace
from graphflow.kernels.definitions import stages
from graphflow.kernels.definitions.stages import Shape

CHANNELS = 1
"""The axis of the channels."""


class Segment(Struct, frozen=True):
    """Channels `at + k·stride` of the operand are channels `begin + k·step` of tensor `source`, k <
    `count`.

    `source` is a position in a list of tensors that accompanies the segments.
    """

    source: int
    at: int
    stride: int
    begin: int
    step: int
    count: int


class Weight(Struct, frozen=True):
    """The part of another operand `name` that belongs to a segment: the elements whose index along
    `axis` is one of its channels."""

    name: str
    axis: int
    segment: Segment


class ReadThrough(Struct, frozen=True):
    """A kernel that reads segments.

    `inputs` says what is bound to each of its inputs: the number of a source, a part of an old
    operand, or an old operand by name.
    """

    func: tir.PrimFunc
    inputs: tuple[int | Weight | str, ...]


def copied(sources: Sequence[Shape], segments: Sequence[Segment], dtype: str) -> tir.PrimFunc:
    """A kernel that concatenates segments; one stage writes each, and they cover each channel once.

    Segments that alternate are divided into some of one stride, whose loops can be made one.
    """
    total = sum(segment.count for segment in segments)
    segments = in_turns(segments)
    y = tir.Buffer("y", (sources[0][0], total, *sources[0][CHANNELS + 1 :]), dtype)
    operands = [tir.Buffer(f"x{k}", shape, dtype) for k, shape in enumerate(sources)]
    parts = []
    for k, segment in enumerate(segments):
        loops = stages.loops_over(
            f"i{k}_", (*y.shape[:CHANNELS], segment.count, *y.shape[CHANNELS + 1 :])
        )
        before, (channel, *behind) = (
            stages.indices_of(loops[:CHANNELS]),
            stages.indices_of(loops[CHANNELS:]),
        )
        target = (*before, segment.at + segment.stride * channel, *behind)
        origin = (*before, segment.begin + segment.step * channel, *behind)
        value = tir.Load(operands[segment.source], origin)
        parts.append(stages.store_stage(f"segment{k}", y, loops, target, value))
    return stages.kernel_of_stages("segments", operands, (y,), parts)


def in_turns(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """Alternating segments, divided into as many as their new stride, of one number of channels.

    The new stride is the least common multiple of the given ones.  Channels behind the last whole
    round are segments of their own.  In the order of the first channels; as they are where the
    segments do not alternate over the whole range.
    """
    turns = lcm(*(segment.stride for segment in segments))
    rounds = sum(segment.count for segment in segments) // turns
    divided: list[Segment] = []
    for segment in segments:
        parts = turns // segment.stride
        if not rounds or segment.at >= segment.stride or segment.count < rounds * parts:
            return tuple(segments)
        for k in range(parts):
            part = replace(
                segment,
                at=segment.at + k * segment.stride,
                stride=turns,
                begin=segment.begin + k * segment.step,
                step=segment.step * parts,
                count=len(range(k, segment.count, parts)),
            )
            divided += _cut(part, rounds)
    return tuple(sorted(divided, key=lambda segment: segment.at))


def _cut(segment: Segment, count: int) -> Iterator[Segment]:
    """The first `count` channels of a segment, and those behind if there are any."""
    yield replace(segment, count=count)
    if segment.count > count:
        at, begin = segment.at + segment.stride * count, segment.begin + segment.step * count
        yield replace(segment, at=at, begin=begin, count=segment.count - count)


def reduced_through(
    func: tir.PrimFunc, operand: str, sources: Sequence[Shape], segments: Sequence[Segment]
) -> ReadThrough | str:
    """`func` with the reduction over the channels of `operand` split by segments; or why that is
    impossible.

        for c: y ⊕= f(operand[…, c, …], w[…, c, …])
            →  one such loop for each segment, over its source and its part of w
    """
    data = func.param(operand)
    found = _reduction_over(func, data)
    if isinstance(found, str):
        return found
    nest, channel = found
    weights = _weights(nest, data, channel)
    if isinstance(weights, str):
        return weights
    for weight in weights:
        if weight not in func.inputs:
            return f"{func.name} computes {weight.name} itself, of which no part is bound"
    taken = {p.buffer.name for p in func.params}
    operands = [
        tir.Buffer(stages.fresh(f"{operand}{k}", taken), shape, data.dtype)
        for k, shape in enumerate(sources)
    ]
    parts: dict[tuple[tir.Buffer, int], tir.Buffer] = {}
    body: list[tir.Stmt] = []
    for number, segment in enumerate(segments):
        for weight, axis in weights.items():
            shape = (*weight.shape[:axis], segment.count, *weight.shape[axis + 1 :])
            name = stages.fresh(f"{weight.name}{number}", taken)
            parts[weight, number] = tir.Buffer(name, shape, weight.dtype)
        exchanged = {weight: parts[weight, number] for weight in weights}
        source = operands[segment.source]
        body += _one_segment(nest, channel, number, segment, data, source, exchanged)
    written = tir.map_body(func.body, lambda stmt: tuple(body) if stmt is nest else stmt)
    left = {load.buffer for load in tir.loads_in(written)}
    bound: list[tuple[tir.Buffer, int | Weight | str]] = []
    for buffer in func.inputs:
        if buffer == data:
            bound += [(made, k) for k, made in enumerate(operands)]
        elif buffer in weights:
            bound += [
                (parts[buffer, k], Weight(buffer.name, weights[buffer], segment))
                for k, segment in enumerate(segments)
            ]
            bound += [(buffer, buffer.name)] if buffer in left else []
        else:
            bound.append((buffer, buffer.name))
    params = [tir.Param(buffer, tir.Role.INPUT) for buffer, _ in bound]
    params += [tir.Param(buffer, tir.Role.OUTPUT) for buffer in func.outputs]
    return ReadThrough(
        tir.PrimFunc(func.name, tuple(params), written), tuple(what for _, what in bound)
    )


def _reduction_over(func: tir.PrimFunc, data: tir.Buffer) -> tuple[tir.For, Var] | str:
    """The loop nest that reduces over the channels of `data`, and the variable of the channel
    loop."""
    reads = [a for a in tir.accesses(func.body) if a.buffer == data]
    if len(reads) != 1 or len(data.shape) <= CHANNELS:
        return f"{data.name} is read in {len(reads)} places of {func.name}, and not in one"
    channel = reads[0].indices[CHANNELS]
    if not isinstance(channel, Var):
        return f"{func.name} does not count the channels of {data.name} by one loop"
    for nest in tir.loops_of(func.body):
        updates = [s for s in tir.walk(nest.body) if isinstance(s, tir.Reduce)]
        inside = {loop.var for loop in (nest, *tir.loops_of(nest.body))}
        if len(updates) != 1 or channel not in inside or not any(_reads(updates[0], data)):
            continue
        target = {v for e in updates[0].indices for v in variables(e)}
        if not inside & target:
            return nest, channel
    return f"{func.name} does not reduce over the channels of {data.name}"


def _reads(update: tir.Reduce, data: tir.Buffer) -> Iterator[bool]:
    return (load.buffer == data for load in tir.loads_in((update,)))


def _weights(nest: tir.For, data: tir.Buffer, channel: Var) -> dict[tir.Buffer, int] | str:
    """The other operands whose index depends on the channel, each with the axis that does."""
    for stmt in tir.walk((nest,)):
        if isinstance(stmt, tir.If) and (
            not tir.is_predicate(stmt.condition) or channel in predicate_variables(stmt.condition)  # type: ignore[arg-type]
        ):
            return f"a condition inside the reduction over {data.name} depends on its channels"
    found: dict[tir.Buffer, int] = {}
    whole: set[tir.Buffer] = set()
    for load in tir.loads_in((nest,)):
        axes = [k for k, e in enumerate(load.indices) if channel in variables(e)]
        if load.buffer == data or not axes:
            whole.add(load.buffer)
            continue
        again = found.get(load.buffer, axes[0]) != axes[0]
        if len(axes) != 1 or load.indices[axes[0]] is not channel or again:
            return f"{load.buffer.name} is indexed by more than the channels of {data.name}"
        found[load.buffer] = axes[0]
    both = sorted(buffer.name for buffer in whole & found.keys())
    return f"{', '.join(both)} is read by channels and otherwise" if both else found


def _one_segment(
    nest: tir.For,
    channel: Var,
    number: int,
    segment: Segment,
    data: tir.Buffer,
    source: tir.Buffer,
    weights: dict[tir.Buffer, tir.Buffer],
) -> tir.Body:
    """The loop nest over the channels of one segment; loops of later segments are renamed."""

    def exchanged(expr: tir.Expr) -> tir.Expr:
        if not isinstance(expr, tir.Load):
            return expr
        if expr.buffer in weights:
            return tir.Load(weights[expr.buffer], expr.indices)
        if expr.buffer != data:
            return expr
        place = list(expr.indices)
        place[CHANNELS] = segment.begin + segment.step * channel
        return tir.Load(source, tuple(place))

    body = tir.map_expressions((nest,), exchanged)

    def counted(stmt: tir.Stmt) -> tir.Stmt:
        if isinstance(stmt, tir.For) and stmt.var is channel:
            return replace(stmt, start=const(0), stop=const(segment.count))
        return stmt

    body = tir.map_body(body, counted)
    if not number:
        return body
    names = {loop.var: Var(f"{loop.var.name}_s{number}") for loop in tir.loops_of(body)}

    def renamed(stmt: tir.Stmt) -> tir.Stmt:
        return replace(stmt, var=names[stmt.var]) if isinstance(stmt, tir.For) else stmt

    return tir.map_body(tir.substitute_body(body, dict(names)), renamed)
