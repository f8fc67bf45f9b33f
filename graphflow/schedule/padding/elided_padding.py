"""Padded buffers whose padding nothing touches, as flat memory without it.

In: a kernel, and a buffer in the box of a layout.  Out: the kernel with the buffer in its logical
shape again, which is the same memory less the padding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from graphflow import arith, effects, tir
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.layout import Layout, logical_vars
from graphflow.schedule.buffers.relocation import relocated
from graphflow.schedule.conditions.conditions import simplify
from graphflow.schedule.facts.padding import PaddingKind, padding_kind, padding_stages
from graphflow.schedule.places import obligations, places
from graphflow.schedule.steps.frame import Rewrite


def elide_padding(func: tir.PrimFunc, buffer: str, layout: Layout) -> Rewrite:
    """`S[a'[p]]` → `S[a[logical(p)]]`, for a buffer a' in the box of `layout`: a is its memory
    without the padding, which nothing touches.

    The reverse of `transform_layout`, where a is the memory of a' without its padding.  Stages that
    only state the padding go.  The interface changes if the buffer is a parameter.

    1. *Box*: a' has the physical shape of the layout, and no separators.
    2. *One piece*: the box holds the elements of a one behind the other, in row-major order; so a
       begins at a fixed offset in the memory of a'.
    3. *Untouched*: nothing reads or writes the padding, or assumes anything of it, but stages that
       say what it is; of an output, no stage writes a value there, which the caller reads.

    ScheduleError, which names the clause, with a point where one is refuted.
    """
    old = places.find_buffer(func, buffer)
    if old.shape != layout.physical_shape or old.separators:
        raise ScheduleError(
            f"box: {buffer} is {list(old.shape)}{' with separators' if old.separators else ''}, "
            f"and the box of {layout.describe()} is {list(layout.physical_shape)}"
        )
    proofs = [
        obligations.require(
            in_one_piece(layout), f"one piece: {buffer} holds its elements in order"
        )
    ]
    stages = padding_stages(func, old)
    bare = replace(func, body=tuple(stmt for stmt in func.body if stmt not in stages))
    inside = [stage.name for stage in stages if stage not in func.body]
    if inside:
        raise ScheduleError(f"untouched: {inside[0]}, a stage of {buffer}, stands inside a loop")
    proofs += _untouched(func, bare, old, layout, stages)
    new = replace(old, shape=layout.logical_shape)

    def element(indices: tuple[arith.IndexExpr, ...]) -> tuple[arith.IndexExpr, ...]:
        return layout.logical_index(indices)

    params = tuple(replace(p, buffer=new) if p.buffer == old else p for p in func.params)
    body = relocated(bare.body, old, new, element)
    done = simplify(replace(bare, params=params, body=body)).func
    return Rewrite(done, tuple(proofs))


def in_one_piece(layout: Layout) -> arith.Proof:
    """Whether the box holds the tensor's elements one behind the other, in row-major order."""
    names = logical_vars(len(layout.logical_shape))
    there = _position(layout.physical_index(names), layout.physical_shape)
    first = _position(layout.physical_index([arith.const(0)] * len(names)), layout.physical_shape)
    here = _position(names, layout.logical_shape)
    return arith.prove(arith.equal(there, here + first), arith.box(names, layout.logical_shape))


def _position(indices: Sequence[arith.IndexExpr], shape: tuple[int, ...]) -> arith.IndexExpr:
    """The position of an element in a row-major box."""
    steps = list(accumulate(reversed(shape), mul, initial=1))[-2::-1]
    total: arith.IndexExpr = arith.const(0)
    for index, step in zip(indices, steps, strict=True):
        total = total + index * step
    return total


def _untouched(
    func: tir.PrimFunc,
    bare: tir.PrimFunc,
    buffer: tir.Buffer,
    layout: Layout,
    stages: tuple[tir.Block, ...],
) -> list[arith.Proof]:
    """Proofs that nothing but the stages touches the padding; ScheduleError else."""
    for stage in stages:
        writes = not any(isinstance(stmt, tir.Assume) for stmt in tir.walk((stage,)))
        if buffer in func.outputs and writes and padding_kind(stage) is PaddingKind.VALUE:
            raise ScheduleError(f"untouched: {stage.name} writes what the caller reads")
    axes = layout.physical_axes
    padding = arith.negation(layout.is_logical())
    claim = f"untouched: the padding of {buffer.name} is not touched"
    proofs = [obligations.require(effects.never_touched(bare, buffer, axes, padding), claim)]
    for access in effects.statements_of(bare).of(buffer):
        if access.is_claim:
            stays = arith.prove(layout.is_logical(access.access.indices), access.domain)
            proofs.append(
                obligations.require(stays, f"untouched: {access} is no assumption about padding")
            )
    return proofs
