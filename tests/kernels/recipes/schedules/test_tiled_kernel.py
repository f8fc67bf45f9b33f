"""Tests that build every variant of small kernels, and compare its contract with what it does."""

import itertools
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from graphflow.arith import TRUE, IndexExpr, Var
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.graph import Node, OperatorGraph, Value, fuse_groups
from graphflow.kernels.definitions import elementwise
from graphflow.kernels.definitions.interpolation import resize
from graphflow.kernels.definitions.linear_algebra import linear
from graphflow.kernels.definitions.movements import movement, selection
from graphflow.kernels.definitions.movements.segments import (
    ReadThrough,
    Segment,
    copied,
    reduced_through,
)
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.definitions.windows import convolution, pooling
from graphflow.kernels.definitions.windows.window import Window
from graphflow.kernels.lowering import LoweredKernel
from graphflow.kernels.recipes import (
    NOTHING,
    KernelContext,
    KernelVariant,
    KnownContents,
    Offers,
    Padding,
    Tiled,
    View,
    kernel_variants,
)
from graphflow.kernels.recipes.tile_kinds.broadcast_tiles import BroadcastTile
from graphflow.kernels.recipes.tile_kinds.row_tiles import RowTile
from graphflow.kernels.recipes.tile_kinds.sliding_tiles import SlidingTile
from graphflow.layout import (
    Constant,
    Equal,
    Fact,
    IndexMap,
    Layout,
    fact_of,
    families,
    output_facts,
    row_major,
)
from graphflow.lower import lower_call
from graphflow.schedule import replay
from graphflow.tir import Allocate, For, LoopKind, PrimFunc, Reduce, Store, interpret, sites, walk
from support.kernels.attributed_convolutions import attributed_convolution
from support.kernels.covering_variants import covering
from support.placing import (
    SENTINEL,
    Native,
    call_of,
    in_order,
    interpret_boxes,
    outside,
    place,
    positions,
    region_contents,
    unplace,
)

Array = np.ndarray[Any, Any]
SHORT = replace(
    PROCESSORS["zen3"],
    name="short vectors",
    vector_bytes=16,
    vector_registers=8,
    fmas_per_cycle=1.0,
)
"""Four lanes and few registers: kernels of a handful of channels have every kind of tail."""
LONG = host_target()
AVX2 = avx2_target()


@dataclass(frozen=True)
class Case:
    """A definition, its constant inputs, and the vectors for which its variants are made."""

    definition: PrimFunc
    constants: frozenset[str] = frozenset()
    target: Target = SHORT
    offered: Offers = ()
    known: KnownContents = NOTHING


def renamed(func: PrimFunc) -> tuple[Layout, ...]:
    """The layouts of no family that the output has where the movement is a view."""
    variants = kernel_variants(func, frozenset(), SHORT)
    output = func.outputs[0]
    found = [
        variant.layouts[output.name] for variant in variants if isinstance(variant.recipe, View)
    ]
    return tuple(layout for layout in found if layout != row_major(output.shape))


def shuffled(shape: tuple[int, ...], groups: int) -> Layout:
    """Channels-last as a channel shuffle leaves it, where it moves nothing."""
    each = shape[1] // groups

    def place(*i: Var) -> list[IndexExpr]:
        return [i[0], *i[2:], i[1] % groups * each + i[1] // groups]

    return Layout.of(IndexMap.from_function(len(shape), place, shape), shape)


def fused(anchor: PrimFunc, *tails: tuple[PrimFunc, int], constants: str = "") -> Case:
    """`anchor` with elementwise kernels behind it; each reads it at the stated position."""
    graph = OperatorGraph()
    known = frozenset(constants.split())
    names: list[str] = []
    last = ""
    for k, (func, position) in enumerate(((anchor, -1), *tails)):
        inputs = []
        for slot, buffer in enumerate(func.inputs):
            name = last if slot == position else f"{buffer.name}{k}"
            if slot != position:
                graph.add_value(Value(name, buffer.dtype, buffer.shape))
                names.append(name)
            inputs.append(name)
        last = f"v{k}"
        graph.add(Node(f"n{k}", "op", func, tuple(inputs), (last,)))
    for name in [n for n in names if n in known]:
        value = graph.values[name]
        graph.add_initializer(name, np.zeros(value.shape, value.dtype))
    graph.set_inputs(n for n in names if n not in known)
    graph.set_outputs([last])
    (node,) = fuse_groups(graph).nodes
    bound = zip(node.func.inputs, node.inputs, strict=True)
    return Case(node.func, frozenset(b.name for b, v in bound if v in known))


def conv(x: tuple[int, ...], w: tuple[int, ...], target: Target = SHORT, **options: Any) -> Case:
    func = attributed_convolution(x, w, **options)
    return Case(func, frozenset({"w", "b"} & {p.name for p in func.inputs}), target)


def reading(
    func: PrimFunc, sources: list[tuple[int, ...]], segments: list[Segment], target: Target = SHORT
) -> Case:
    """`func` with its first operand read as segments of `sources`."""
    made = reduced_through(func, func.inputs[0].name, sources, segments)
    assert isinstance(made, ReadThrough)
    bound = zip(made.func.inputs, made.inputs, strict=True)
    return Case(made.func, frozenset(b.name for b, v in bound if not isinstance(v, int)), target)


def transposed(
    x: tuple[int, ...],
    w: tuple[int, ...],
    out: tuple[int, ...],
    target: Target = SHORT,
    **options: Any,
) -> Case:
    func = convolution.transposed_convolution(x, w, out, **options)
    return Case(func, frozenset({"w", "b"} & {p.name for p in func.inputs}), target)


def starting_above(x: tuple[int, ...], w: tuple[int, ...], **options: Any) -> Case:
    """A convolution whose weights are finite and whose bias is never −0.0."""
    case = conv(x, w, bias=True, **options)
    return replace(
        case, known=KnownContents(finite=frozenset("w"), excludes_negative_zero=frozenset("b"))
    )


def halved(rank: int) -> list[resize.Coordinates]:
    """Images twice as large, whose pixels lie between those of the smaller ones."""
    same = resize.Coordinates(Fraction(1), Fraction(0))
    between = resize.Coordinates(Fraction(1, 2), Fraction(-1, 4))
    return [same] * 2 + [between] * (rank - 2)


RELU, ADD, MUL = "relu", "add", "mul"
HALVING = Window.of((3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
"""The window of a pool with half as many outputs as inputs along each axis."""

CASES: dict[str, Case] = {
    "conv 1 to 3": conv((1, 1, 4, 5), (3, 1, 3, 3), pads=(1, 1, 1, 1), bias=True),
    "conv 3 to 1": conv((1, 3, 4, 5), (1, 3, 1, 1)),
    "conv 6 to 7, batch 2": conv((2, 6, 3, 4), (7, 6, 3, 1), pads=(1, 0, 1, 0)),
    "conv 8 to 12": conv((1, 8, 3, 5), (12, 8, 1, 1), bias=True),
    "conv strided, pads differ": conv(
        (1, 5, 7, 6), (9, 5, 3, 2), strides=(2, 3), pads=(2, 0, 1, 1), bias=True
    ),
    "conv dilated": conv((1, 3, 5, 6), (6, 3, 2, 2), dilations=(2, 3), pads=(1, 2, 1, 0)),
    "conv, more border than image": conv((1, 2, 2, 2), (5, 2, 3, 3), pads=(2, 2, 2, 2)),
    "conv of an image larger than its tiles": conv(
        (1, 2, 12, 13), (5, 2, 3, 3), pads=(1, 1, 1, 1), bias=True
    ),
    "conv of a row": conv((1, 5, 9), (6, 5, 3), pads=(1, 1), bias=True),
    "conv of a volume": conv((1, 2, 3, 3, 4), (5, 2, 2, 2, 2), pads=(0, 1, 0, 0, 0, 1)),
    "conv 17 to 18": conv((1, 17, 3, 4), (18, 17, 1, 1), LONG, bias=True),
    "conv 5 to 12, rows share vectors": conv((1, 5, 3, 17), (12, 5, 1, 1), AVX2, bias=True),
    "conv 3 to 12, rows share vectors, borders": conv(
        (1, 3, 5, 37), (12, 3, 3, 3), AVX2, strides=(2, 1), pads=(1, 1, 1, 1), bias=True
    ),
    "conv 2 to 24, rows share vectors, strided": conv(
        (1, 2, 5, 95), (24, 2, 3, 3), LONG, strides=(2, 2), pads=(1, 1, 0, 0), bias=True
    ),
    "conv 7 to 20, rows share vectors": conv((2, 7, 3, 30), (20, 7, 1, 1), LONG),
    "conv 3 to 58": conv((1, 3, 3, 4), (58, 3, 2, 2), LONG, pads=(1, 0, 0, 1)),
    "conv over a halo, with bias": starting_above((1, 4, 4, 5), (6, 4, 3, 3), pads=(1, 1, 1, 1)),
    "conv over a halo, strided": starting_above(
        (1, 5, 5, 4), (4, 5, 3, 2), strides=(2, 1), pads=(1, 0, 1, 1)
    ),
    "conv with weights that vary": Case(
        attributed_convolution((1, 3, 4, 5), (6, 3, 3, 3), pads=(1, 1, 1, 1), bias=True)
    ),
    "conv of two segments": reading(
        convolution.convolution((1, 11, 4, 5), (7, 11, 1, 1), bias=True),
        [(1, 6, 4, 5), (1, 5, 4, 5)],
        [Segment(0, 0, 1, 0, 1, 6), Segment(1, 6, 1, 0, 1, 5)],
    ),
    "conv of interleaved segments": reading(
        attributed_convolution((1, 7, 5, 6), (6, 7, 3, 3), pads=(1, 1, 1, 1), bias=True),
        [(1, 9, 5, 6), (1, 4, 5, 6)],
        [Segment(0, 0, 2, 3, 1, 3), Segment(1, 1, 2, 3, -1, 3), Segment(0, 6, 1, 0, 1, 1)],
    ),
    "conv of segments 17 to 18": reading(
        convolution.convolution((1, 17, 3, 9), (18, 17, 1, 1)), [(1, 15, 3, 9), (1, 20, 3, 9)],
        [Segment(1, 0, 1, 11, 1, 9), Segment(0, 9, 1, 0, 2, 8)], LONG,
    ),
    "gemm of two segments": reading(
        linear.gemm((3, 10), (10, 7), (7,)), [(3, 6), (3, 5)],
        [Segment(0, 0, 1, 0, 1, 6), Segment(1, 6, 1, 1, 1, 4)],
    ),
    "segments": Case(
        copied(
            [(1, 9, 3, 5), (1, 4, 3, 5)],
            [Segment(0, 0, 2, 3, 1, 3), Segment(1, 1, 2, 1, 1, 3), Segment(0, 6, 1, 0, 1, 1)],
            "float32",
        )
    ),
    "conv in double": conv((1, 3, 3, 4), (5, 3, 2, 2), pads=(1, 0, 0, 1), dtype="float64"),
    "depthwise": conv((1, 6, 5, 6), (6, 1, 3, 3), pads=(1, 1, 1, 1), groups=6, bias=True),
    "depthwise 18": conv((1, 18, 3, 4), (18, 1, 3, 3), LONG, pads=(1, 1, 1, 1), groups=18),
    "depthwise, two each": conv((1, 3, 4, 4), (6, 1, 2, 2), groups=3),
    "grouped": conv((1, 6, 4, 5), (10, 3, 2, 2), pads=(1, 0, 0, 1), groups=2, bias=True),
    "grouped in fives": conv((1, 10, 4, 5), (10, 5, 3, 3), pads=(1, 1, 1, 1), groups=2, bias=True),
    "grouped in tens": conv((1, 20, 3, 4), (20, 10, 1, 1), LONG, groups=2),
    "grouped in fifteens": conv((1, 30, 5, 4), (30, 15, 2, 2), LONG, groups=2, bias=True),
    "grouped in threes": conv((1, 9, 3, 4), (6, 3, 1, 1), groups=3),
    "transposed conv": transposed((1, 5, 3, 4), (5, 6, 2, 2), (6, 8), strides=(2, 2), bias=True),
    "transposed conv of three taps": transposed(
        (1, 3, 4, 5), (3, 7, 3, 3), (8, 10), strides=(2, 2), pads_begin=(1, 1)
    ),
    "transposed conv, phases do not divide": transposed(
        (2, 3, 3, 3), (3, 6, 3, 4), (7, 10), strides=(2, 3), pads_begin=(0, 1), bias=True
    ),
    "transposed conv, taps fewer than phases": transposed(
        (1, 2, 3, 3), (2, 5, 1, 2), (6, 9), strides=(2, 3)
    ),
    "transposed conv dilated": transposed(
        (1, 2, 3, 4), (2, 5, 2, 3), (6, 8), strides=(2, 2), dilations=(3, 2), pads_begin=(1, 0)
    ),
    "transposed conv in groups": transposed(
        (1, 6, 3, 3), (6, 2, 2, 2), (6, 6), strides=(2, 2), groups=3, bias=True
    ),
    "conv+relu": fused(
        attributed_convolution((1, 3, 4, 5), (6, 3, 3, 3), pads=(1, 1, 1, 1), bias=True),
        (elementwise.unary(RELU, (1, 6, 4, 5)), 0),
        constants="w0 b0",
    ),
    "conv+residual+relu": fused(
        attributed_convolution((1, 3, 4, 5), (6, 3, 3, 3), pads=(1, 1, 1, 1), bias=True),
        (elementwise.binary(ADD, (1, 6, 4, 5), (1, 6, 4, 5)), 1),
        (elementwise.unary(RELU, (1, 6, 4, 5)), 0),
        constants="w0 b0",
    ),
    "grouped conv+residual+relu": fused(
        convolution.convolution((1, 10, 3, 4), (10, 5, 1, 1), groups=2, bias=True),
        (elementwise.binary(ADD, (1, 10, 3, 4), (1, 10, 3, 4)), 1),
        (elementwise.unary(RELU, (1, 10, 3, 4)), 0),
        constants="w0 b0",
    ),
    "conv+scale+sigmoid": fused(
        convolution.convolution((1, 3, 3, 5), (6, 3, 1, 1)),
        (elementwise.binary(MUL, (1, 6, 3, 5), (6, 1, 1)), 0),
        (elementwise.unary("sigmoid", (1, 6, 3, 5)), 0),
        constants="w0 b1",
    ),
    "conv+scale that varies": fused(
        convolution.convolution((1, 3, 3, 5), (6, 3, 1, 1)),
        (elementwise.binary(MUL, (1, 6, 3, 5), (1, 6, 1, 1)), 0),
        constants="w0",
    ),
    "conv+batch norm": fused(
        attributed_convolution((1, 3, 3, 5), (7, 3, 2, 2), pads=(1, 0, 0, 1)),
        (elementwise.scale_and_shift((1, 7, 3, 5)), 0),
        constants="w0 scale1 shift1",
    ),
    "depthwise+clip": fused(
        attributed_convolution((1, 6, 3, 5), (6, 1, 3, 3), pads=(1, 1, 1, 1), groups=6),
        (elementwise.clip((1, 6, 3, 5), 0.25, 0.5), 0),
        constants="w0",
    ),
    "max pool": Case(pooling.max_pool((1, 6, 5, 6), HALVING)),
    "max pool, ceil": Case(
        pooling.max_pool((1, 5, 6, 6), Window.of((3, 3), strides=(2, 2), ceil_mode=True))
    ),
    "max pool, ceil and pads": Case(
        pooling.max_pool(
            (2, 3, 5, 7), Window.of((2, 3), strides=(2, 2), pads=(0, 1, 1, 0), ceil_mode=True)
        )
    ),
    "max pool in rows": Case(
        pooling.max_pool((1, 3, 9, 11), HALVING)
    ),
    "average pool in long rows": Case(
        pooling.average_pool((1, 2, 3, 45), Window.of((2, 3), strides=(1, 1), pads=(0, 1, 1, 1)))
    ),
    "max pool, every fourth, dilated": Case(
        pooling.max_pool((1, 2, 6, 37), Window.of((2, 2), strides=(1, 4), dilations=(2, 3)))
    ),
    "max pool 17": Case(pooling.max_pool((1, 17, 4, 5), Window.of((2, 2))), target=LONG),
    "average pool": Case(
        pooling.average_pool((1, 6, 5, 6), HALVING)
    ),
    "average pool, ceil, with pads": Case(
        pooling.average_pool((1, 5, 6, 6), replace(HALVING, ceil_mode=True), count_include_pad=True)
    ),
    "global average pool": Case(pooling.global_average_pool((2, 6, 3, 5))),
    "global max pool": Case(pooling.global_max_pool((1, 7, 3, 5))),
    "exp": Case(elementwise.unary("exp", (2, 6, 3, 5))),
    "sigmoid 18": Case(elementwise.unary("sigmoid", (1, 18, 2, 3)), target=LONG),
    "relu of a row": Case(elementwise.unary(RELU, (37,))),
    "relu of a matrix": Case(elementwise.unary(RELU, (3, 7))),
    "relu of a scalar": Case(elementwise.unary(RELU, ())),
    "tanh of one channel": Case(elementwise.unary("tanh", (1, 1, 4, 5))),
    "cast": Case(elementwise.cast((1, 6, 3, 2), "int32", "float32")),
    "add": Case(elementwise.binary(ADD, (1, 6, 3, 5), (1, 6, 3, 5))),
    "add of integers": Case(elementwise.binary(ADD, (1, 6, 3, 5), (1, 6, 3, 5), "int32")),
    "add per channel": Case(elementwise.binary(ADD, (1, 6, 3, 5), (6, 1, 1)), frozenset({"b"})),
    "add per channel, varying": Case(elementwise.binary(ADD, (1, 6, 3, 5), (6, 1, 1))),
    "add of a scale to all": Case(elementwise.binary(ADD, (1, 6, 3, 5), (1,)), frozenset({"b"})),
    "add of a scalar": Case(elementwise.binary(ADD, (1, 6, 3, 5), ()), frozenset({"b"})),
    "scale per channel and image": Case(elementwise.binary(MUL, (2, 6, 3, 5), (2, 6, 1, 1))),
    "scale by one channel": Case(elementwise.binary(MUL, (1, 6, 3, 5), (1, 1, 3, 5))),
    "scale by a row": Case(elementwise.binary(MUL, (1, 6, 3, 5), (3, 5))),
    "both broadcast": Case(elementwise.binary(ADD, (1, 6, 1, 5), (1, 1, 3, 1))),
    "divide": Case(elementwise.binary("div", (1, 6, 2, 3), (1, 6, 2, 3))),
    "sum of three": Case(elementwise.variadic(ADD, [(1, 5, 2, 3)] * 3)),
    "sum over channels": Case(reduction.reduce("sum", (1, 6, 3, 5), (1,))),
    "sum over 18 channels": Case(reduction.reduce("sum", (1, 18, 2, 3), (1,)), target=LONG),
    "max over channels": Case(reduction.reduce("max", (2, 7, 3, 2), (1,))),
    "min over channels": Case(reduction.reduce("min", (1, 7, 3, 2), (1,))),
    "product over channels": Case(reduction.reduce("prod", (1, 5, 3, 2), (1,))),
    "mean over channels": Case(reduction.reduce("mean", (1, 6, 3, 5), (1,))),
    "mean over space": Case(reduction.reduce("mean", (1, 6, 3, 5), (2, 3))),
    "max over space": Case(reduction.reduce("max", (1, 6, 3, 5), (2, 3), False)),
    "mean over space, axes dropped": Case(
        reduction.reduce("mean", (2, 18, 3, 2), (2, 3), False), target=LONG
    ),
    "sum over channels, axis dropped": Case(
        reduction.reduce("sum", (1, 18, 2, 3), (1,), False), target=LONG
    ),
    "sum over a row": Case(reduction.reduce("sum", (1, 6, 3, 5), (3,))),
    "sum over all": Case(reduction.reduce("sum", (1, 6, 2, 3), (0, 1, 2, 3))),
    "gemm": Case(linear.gemm((3, 10), (10, 7), (7,)), frozenset({"b", "c"})),
    "gemm transposed": Case(
        linear.gemm((3, 10), (7, 10), transpose_b=True, alpha=0.5), frozenset({"b"})
    ),
    "gemm of varying operands": Case(linear.gemm((3, 10), (10, 7), (3, 1))),
    "gemm of flattened images": Case(
        linear.gemm((3, 48), (48, 7), (7,)), frozenset({"b", "c"}),
        offered=(("a", renamed(movement.reshape((3, 8, 2, 3), (3, 48)))),)
    ),
    "gemm of a flattened image, transposed": Case(
        linear.gemm((1, 36), (9, 36), (9,), transpose_b=True), frozenset({"b", "c"}),
        offered=(("a", renamed(movement.reshape((1, 6, 2, 3), (1, 36)))),)
    ),
    "depthwise of shuffled channels": Case(
        attributed_convolution(
            (2, 12, 5, 6), (12, 1, 3, 3), pads=(1, 1, 1, 1), bias=True, groups=12
        ),
        frozenset({"w", "b"}), offered=(("x", (shuffled((2, 12, 5, 6), 3),)),),
    ),
    "depthwise strided of shuffled channels": Case(
        attributed_convolution((1, 18, 7, 6), (18, 1, 3, 3), strides=(2, 2), groups=18),
        frozenset({"w"}), offered=(("x", (shuffled((1, 18, 7, 6), 2),)),),
    ),
    "grouped conv of shuffled channels": Case(
        convolution.convolution((1, 24, 4, 5), (16, 12, 1, 1), bias=True, groups=2),
        frozenset({"w", "b"}), offered=(("x", (shuffled((1, 24, 4, 5), 4),)),),
    ),
    "conv of shuffled channels": Case(
        attributed_convolution((1, 10, 5, 6), (7, 10, 3, 3), pads=(1, 1, 1, 1)),
        frozenset({"w"}), offered=(("x", (shuffled((1, 10, 5, 6), 5),)),),
    ),
    "max pool of shuffled channels": Case(
        pooling.max_pool((1, 6, 5, 6), HALVING),
        offered=(("x", (shuffled((1, 6, 5, 6), 2),)),),
    ),
    "add of shuffled channels": Case(
        elementwise.binary(ADD, (1, 6, 3, 5), (1, 6, 3, 5)),
        offered=(("a", (shuffled((1, 6, 3, 5), 2),)),),
    ),
    "matmul of turned matrices": Case(
        linear.matmul((2, 4, 5), (5, 6)), frozenset({"b"}),
        offered=(("a", renamed(movement.transpose((5, 2, 4), (1, 2, 0)))),)
    ),
    "matmul": Case(linear.matmul((2, 3, 5), (5, 6)), frozenset({"b"})),
    "matmul in blocks of rows": Case(linear.matmul((224, 2), (2, 13)), frozenset({"b"}), LONG),
    "sum between rows in blocks and lanes": Case(
        reduction.reduce("sum", (61, 5, 13), (1,), keepdims=True), target=LONG
    ),
    "matmul in blocks of rows, the last of fewer": Case(
        linear.matmul((223, 2), (2, 13)), frozenset({"b"}), LONG
    ),
    "matmul batched": Case(linear.matmul((2, 3, 5), (2, 5, 6))),
    "scores of keys": Case(
        linear.matmul((2, 3, 9, 7), (2, 3, 7, 10)),
        offered=(("b", (in_order((2, 3, 7, 10), (0, 3, 1, 2)),)),),
    ),
    "scores of keys 197": Case(
        linear.matmul((1, 2, 5, 20), (1, 2, 20, 197)), target=LONG,
        offered=(("b", (in_order((1, 2, 20, 197), (0, 3, 1, 2)),)),),
    ),
    "scores of keys, one head": Case(
        linear.matmul((1, 1, 9, 58), (1, 1, 58, 128)), target=LONG,
        offered=(("b", (in_order((1, 1, 58, 128), (0, 1, 3, 2)),)),),
    ),
    "scores of keys, shared by all": Case(
        linear.matmul((3, 9, 6), (1, 6, 11)), offered=(("b", (in_order((1, 6, 11), (2, 0, 1)),)),),
    ),
    "keys and queries turned": Case(
        linear.matmul((2, 3, 9, 7), (2, 3, 7, 10)),
        offered=(
            ("a", (in_order((2, 3, 9, 7), (0, 2, 1, 3)),)),
            ("b", (in_order((2, 3, 7, 10), (0, 3, 1, 2)),)),
        ),
    ),
    "matmul with a vector": Case(linear.matmul((3, 5), (5,))),
    "softmax": Case(reduction.softmax((2, 37), (1,))),
    "softmax over channels": Case(reduction.softmax((1, 6, 2, 3), (1,))),
    "concat": Case(movement.concat([(1, 6, 2, 3), (1, 5, 2, 3)], 1)),
    "concat along rows": Case(movement.concat([(1, 6, 2, 3), (1, 6, 1, 3)], 2)),
    "transpose of the image": Case(movement.transpose((1, 6, 3, 4), (0, 1, 3, 2))),
    "slice of the image": Case(
        selection.take_slice((1, 6, 5, 6), [range(1), range(6), range(1, 5, 2), range(4, 0, -1)])
    ),
    "slice of channels": Case(
        selection.take_slice((1, 9, 2, 3), [range(1), range(2, 9), range(2), range(3)])
    ),
    "pad with zeros": Case(selection.pad((1, 6, 3, 4), [0, 0, 1, 2], [0, 0, 2, 1], "constant")),
    "pad, mirrored": Case(selection.pad((1, 6, 3, 4), [0, 0, 1, 2], [0, 0, 2, 1], "reflect")),
    "pad with the edge": Case(selection.pad((1, 7, 3, 4), [0, 0, 1, 2], [0, 0, 2, 1], "edge")),
    "pad the channels": Case(selection.pad((1, 6, 2, 3), [0, 1, 0, 0], [0, 4, 0, 0], "constant")),
    "depth to space": Case(selection.depth_to_space((1, 20, 2, 3), 2)),
    "depth to space, columns and rows": Case(selection.depth_to_space((1, 20, 2, 3), 2, True)),
    "space to depth": Case(selection.space_to_depth((1, 5, 4, 6), 2)),
    "resize, nearest": Case(resize.resize_nearest((1, 6, 3, 4), (1, 6, 6, 8), halved(4), "floor")),
    "resize, linear": Case(resize.resize_linear((1, 7, 3, 4), (1, 7, 6, 8), halved(4))),
    "transpose": Case(movement.transpose((2, 5, 3, 4), (0, 2, 3, 1))),
    "reshape": Case(movement.reshape((2, 5, 6), (10, 6))),
    "flatten": Case(movement.reshape((1, 6, 2, 3), (1, 36))),
    "conv of long rows": conv((2, 3, 3, 24), (5, 3, 3, 3), pads=(1, 1, 1, 1), bias=True),
    "conv of long rows, one border": conv(
        (1, 2, 2, 24), (4, 2, 1, 3), pads=(0, 0, 0, 4), dilations=(1, 2)
    ),
    "conv of long rows, no taps": conv((1, 5, 3, 12), (7, 5, 1, 1), bias=True),
    "conv of one long row": conv((1, 3, 32), (3, 3, 5), pads=(2, 2), bias=True),
    "conv of long rows+residual+relu": fused(
        attributed_convolution((1, 3, 2, 16), (5, 3, 3, 3), pads=(1, 1, 1, 1), bias=True),
        (elementwise.binary(ADD, (1, 5, 2, 16), (1, 5, 2, 16)), 1),
        (elementwise.unary(RELU, (1, 5, 2, 16)), 0),
        constants="w0 b0",
    ),
    "conv of joined rows": conv((2, 5, 6, 6), (7, 5, 1, 1), bias=True),
    "conv of joined rows+residual+relu": fused(
        convolution.convolution((1, 3, 8, 6), (5, 3, 1, 1), bias=True),
        (elementwise.binary(ADD, (1, 5, 8, 6), (1, 5, 8, 6)), 1),
        (elementwise.unary(RELU, (1, 5, 8, 6)), 0),
        constants="w0 b0",
    ),
    "conv of joined rows of three axes": conv((1, 3, 3, 2, 6), (4, 3, 1, 1, 1)),
    "conv of long rows of two segments": reading(
        attributed_convolution((1, 7, 2, 16), (5, 7, 1, 3), pads=(0, 1, 0, 1)),
        [(1, 4, 2, 16), (1, 3, 2, 16)],
        [Segment(0, 0, 1, 0, 1, 4), Segment(1, 4, 1, 0, 1, 3)],
    ),
    "conv of one long row that ends within a vector": conv(
        (1, 2, 35), (3, 2, 3), pads=(2, 0), bias=True
    ),
    "conv of a strided long row": conv((1, 2, 101), (4, 2, 5), strides=(3,), pads=(2, 1)),
    "conv of strided long rows": conv(
        (1, 2, 5, 40), (3, 2, 3, 3), strides=(2, 2), pads=(1, 1, 1, 0), bias=True
    ),
    "transposed conv to one channel": transposed(
        (1, 3, 37), (3, 1, 4), (74,), strides=(2,), pads_begin=(1,), bias=True
    ),
    "transposed conv to one channel, three phases": transposed(
        (2, 2, 16), (2, 1, 5), (48,), strides=(3,), pads_begin=(1,)
    ),
    "transposed conv of an image to two channels": transposed(
        (1, 3, 2, 16), (3, 2, 2, 2), (4, 32), strides=(2, 2), bias=True
    ),
    "transposed conv to four channels of long rows": transposed(
        (1, 3, 160), (3, 4, 8), (644,), LONG, strides=(4,)
    ),
    "transposed conv, depthwise": transposed(
        (1, 3, 2, 16), (3, 1, 4, 4), (4, 32), strides=(2, 2), pads_begin=(1, 1), groups=3
    ),
    "transposed conv to one channel of short rows": transposed(
        (1, 3, 4, 5), (3, 1, 4, 4), (8, 10), strides=(2, 2), pads_begin=(1, 1), bias=True
    ),
    "transposed conv to one channel of rows that end within a phase": transposed(
        (1, 3, 37), (3, 1, 4), (73,), strides=(2,), pads_begin=(1,), bias=True
    ),
    "transposed conv to one channel of images that end within three phases": transposed(
        (1, 2, 2, 16), (2, 1, 2, 3), (4, 47), strides=(2, 3), pads_begin=(0, 1), dilations=(1, 2)
    ),
    "transposed conv to two channels of rows that end within a phase": transposed(
        (1, 3, 2, 17), (3, 2, 3, 3), (3, 33), strides=(2, 2), pads_begin=(1, 1), bias=True
    ),
    "transposed conv to four channels of long rows that end within a phase": transposed(
        (1, 3, 160), (3, 4, 8), (641,), LONG, strides=(4,)
    ),
    "conv of rows of 96": conv((1, 5, 2, 96), (7, 5, 3, 3), LONG, pads=(1, 1, 1, 1), bias=True),
}  # fmt: skip
SELDOM = frozenset((
    "average pool", "conv 1 to 3", "conv 17 to 18", "conv 2 to 24, rows share vectors, strided",
    "conv 3 to 12, rows share vectors, borders", "conv 7 to 20, rows share vectors",
    "conv of a row", "conv of joined rows+residual+relu", "conv of long rows of two segments",
    "conv of long rows+residual+relu", "conv of long rows, no taps", "conv of one long row",
    "conv of rows of 96", "conv of segments 17 to 18", "conv of shuffled channels",
    "conv of strided long rows", "conv of two segments", "conv over a halo, with bias",
    "conv+batch norm", "conv+residual+relu", "conv+scale that varies",
    "depthwise strided of shuffled channels", "depthwise+clip", "grouped in fifteens",
    "grouped in fives", "max over channels", "max pool of shuffled channels", "max pool, ceil",
    "max pool, ceil and pads", "mean over channels", "scores of keys", "scores of keys 197",
    "scores of keys, shared by all", "transposed conv", "transposed conv of three taps",
    "transposed conv to one channel",
))  # fmt: skip
"""Cases for the slow run: graphflow and its recipes take each branch for the others, too, and each
of these has a case of its kind among them."""

ALONG_ROWS = [name for name in CASES if name.startswith("conv of ") and "long row" in name]


def numbers(definition: PrimFunc, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    found = {}
    for buffer in definition.inputs:
        values = rng.standard_normal(buffer.shape)
        if np.dtype(buffer.dtype).kind != "f":
            values = rng.integers(-50, 50, buffer.shape)
        found[buffer.name] = np.asarray(values).astype(buffer.dtype)
    return found


def kernels_of(case: Case) -> list[KernelVariant]:
    """The variants that run."""
    context = KernelContext(case.known, case.offered)
    variants = kernel_variants(case.definition, case.constants, case.target, context)
    return [variant for variant in variants if not isinstance(variant.recipe, View)]


Made = tuple[KernelVariant, LoweredKernel]


def made(case: Case, variants: Iterable[KernelVariant]) -> Iterator[Made]:
    """Variants with their kernels, which leave anything in the output's padding."""
    for variant in variants:
        yield variant, lower_call(call_of(case.definition, variant), case.target, "k")


@lru_cache(maxsize=8)
def kernels(name: str) -> tuple[Made, ...]:
    """Variants of a case that have each layout of each operand, with their kernels."""
    case = CASES[name]
    return tuple(made(case, covering(kernels_of(case), turn=[*CASES].index(name))))


def by_case(names: Iterable[str], seldom: Container[str] = SELDOM) -> pytest.MarkDecorator:
    """Tests of cases by name, of which the slow run alone takes some.  Those of one case run one
    after the other, and so make its kernels once."""
    marked = [pytest.param(n, marks=[pytest.mark.slow] * (n in seldom)) for n in names]
    return pytest.mark.parametrize("name", marked, scope="module")


def demanded(variant: KernelVariant, name: str) -> float:
    """What the padding of an input holds in a test: what is demanded, else NaN."""
    demand = variant.demands.get(name)
    return float(demand.literal.value) if isinstance(demand, Equal) else np.nan


def run(
    kernel: LoweredKernel, layouts: dict[str, Layout], arrays: dict[str, Array],
    fills: Callable[[str], float], undefined: float = np.nan,
) -> Array:  # fmt: skip
    """The box that the kernel leaves, from logical inputs and what is around them."""
    placed = {name: place(layouts[name], a, fills(name)) for name, a in arrays.items()}
    output = kernel.func.outputs[0].name
    box = interpret_boxes(kernel.func, placed, undefined)[output]
    return box.reshape(layouts[output].physical_shape)


def close(got: Array, want: Array) -> None:
    tolerance = 2e-5 if want.dtype == np.float32 else 1e-9
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


REPLAYED = [
    "transposed conv, phases do not divide",
    "keys and queries turned",
    "conv 6 to 7, batch 2", "conv of an image larger than its tiles", "grouped", "conv+relu",
    "max pool", "average pool", "exp", "add per channel", "sum over channels", "gemm", "matmul",
    "softmax", "concat", "reshape",
]  # fmt: skip
WRITING_PADDING = [
    "conv 3 to 58", "conv strided, pads differ", "conv of a row", "depthwise",
    "conv+residual+relu", "conv+batch norm", "depthwise+clip", "max pool, ceil",
    "average pool, ceil, with pads", "global average pool", "sigmoid 18", "add",
    "add per channel, varying", "scale by one channel", "sum over a row", "transpose",
]  # fmt: skip


def compute_the_definition(case: Case, kernels: Iterable[Made]) -> None:
    arrays = numbers(case.definition)
    output = case.definition.outputs[0].name
    want = interpret(case.definition, arrays)[output]
    for variant, kernel in kernels:
        assert set(variant.layouts) == {p.buffer.name for p in case.definition.params}, variant.name
        layouts = dict(variant.layouts)
        box = run(kernel, layouts, arrays, lambda n, f=variant: demanded(f, n))
        close(unplace(layouts[output], box), want)


@by_case(CASES)
def test_every_recipe_and_layout_computes_its_definition(name: str) -> None:
    compute_the_definition(CASES[name], kernels(name))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_every_variant_computes_its_definition(name: str) -> None:
    compute_the_definition(CASES[name], made(CASES[name], kernels_of(CASES[name])))


@by_case([name for name, case in CASES.items() if case.offered])
def test_an_operand_is_read_in_the_layout_that_is_offered(name: str) -> None:
    for buffer, offered in CASES[name].offered:
        assert offered
        read = [variant.layouts[buffer] for variant, _ in kernels(name)]
        assert all(layout in read for layout in offered)


@by_case([name for name in CASES if name.startswith("scores of keys")])
def test_operands_across_the_lanes_are_transposed_in_blocks(name: str) -> None:
    """All of a plane before its tiles, or of a panel where there is one plane."""
    found = [
        (variant, kernel)
        for variant, kernel in kernels(name)
        if isinstance(variant.recipe, Tiled)
        and isinstance(variant.recipe.kind, BroadcastTile)
        and variant.recipe.kind.transposed
    ]
    assert found
    for _, kernel in found:
        steps = {refusal.step.split("(")[0] for refusal in kernel.schedule.refusals}
        masks = {"lift_conditions", "remove_branching_through_overcompute"}
        assert steps <= masks, "those of the last lanes alone"
        made = [s.buffer for s in walk(kernel.func.body) if isinstance(s, Allocate)]
        assert sum(b.scope == "scratch" for b in made) == 1
        assert any(b.name.startswith("rows_") and b.scope == "register" for b in made)


@by_case(REPLAYED)
def test_the_steps_make_the_same_kernel_again(name: str) -> None:
    for variant, kernel in kernels(name):
        schedule = kernel.schedule
        assert replay(schedule.definition, schedule.steps) == schedule.func, variant.name


@by_case(CASES)
def test_padding_is_what_the_variant_claims(name: str) -> None:
    """EVALUATED: what analysis finds is what is there; NONE: there is nothing to leave."""
    case = CASES[name]
    arrays = numbers(case.definition, 1)
    output = case.definition.outputs[0]
    for variant, kernel in kernels(name):
        layout = variant.layouts[output.name]
        if not layout.is_padded:
            continue
        if variant.padding in (Padding.KEPT, Padding.NONE):
            box = run(kernel, dict(variant.layouts), arrays, lambda n: np.nan, SENTINEL)
            assert (outside(layout, box) == SENTINEL).all(), variant.name
        if variant.padding is not Padding.EVALUATED:
            continue
        for held in (0.0, 1.0, -2.0):
            facts: dict[tuple[str, str], Fact] = {}
            for buffer in case.definition.inputs:
                if buffer.name not in case.constants:
                    for region in variant.layouts[buffer.name].regions():
                        facts[buffer.name, region.name] = fact_of(
                            int(held) if np.dtype(buffer.dtype).kind == "i" else held, buffer.dtype
                        )
            for key in [k for k in facts if k[1] == "logical"]:
                del facts[key]
            claims = output_facts(case.definition, variant.layouts, facts)
            fills = {b.name: held for b in case.definition.inputs if b.name not in case.constants}
            placed = {
                n: place(variant.layouts[n], a, fills.get(n, np.nan)) if a.dtype.kind == "f"
                else np.where(place(variant.layouts[n], a, 0) == -99, a.dtype.type(int(held)),
                              place(variant.layouts[n], a, 0))
                for n, a in arrays.items()
            }  # fmt: skip
            box = interpret_boxes(kernel.func, placed)[output.name]
            box = box.reshape(layout.physical_shape)
            for region, found in region_contents(layout, box).items():
                claim = claims[output.name, region]
                if isinstance(claim, Constant):
                    want = np.array([claim.literal.value], output.dtype)
                    assert (found.view(np.uint8) == np.tile(want.view(np.uint8), found.size)).all()


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@by_case(WRITING_PADDING, seldom=())
def test_the_epilogue_writes_the_padding_it_is_asked_for(name: str, every: bool) -> None:
    case = CASES[name]
    arrays = numbers(case.definition, 2)
    output = case.definition.outputs[0].name
    want = interpret(case.definition, arrays)[output]
    padded = [variant for variant in kernels_of(case) if variant.layouts[output].is_padded]
    assert padded
    taken = padded if every else covering(padded)
    for variant, held in zip(taken, itertools.cycle((0.0, -np.inf))):
        layout = variant.layouts[output]
        kernel = lower_call(call_of(case.definition, variant, held), case.target, "k")
        box = run(kernel, dict(variant.layouts), arrays, lambda n, f=variant: demanded(f, n))
        close(unplace(layout, box), want)
        assert (outside(layout, box) == held).all(), variant.name


@by_case([*CASES][::2], seldom={*SELDOM, *[*CASES][::4]})
def test_variants_without_padding_stay_inside_a_window(name: str) -> None:
    """Parameters in the middle of other tensors' memory: nothing around them is used or written."""
    case = CASES[name]
    arrays = numbers(case.definition, 3)
    output = case.definition.outputs[0].name
    want = interpret(case.definition, arrays)[output]
    for variant, _ in kernels(name):
        if any(
            layout.is_padded for n, layout in variant.layouts.items() if n not in variant.private
        ):
            continue
        placed = {
            n: layout if n in case.constants or not layout.physical_shape
            else layout.halo([1] * len(layout.physical_shape), [2] * len(layout.physical_shape))
            for n, layout in variant.layouts.items()
        }  # fmt: skip
        kernel = lower_call(call_of(case.definition, variant, None, placed), case.target, "k")
        box = run(kernel, placed, arrays, lambda n: np.nan, SENTINEL)
        close(unplace(placed[output], box), want)
        around = outside(placed[output], box)
        assert (around == (SENTINEL if around.dtype.kind == "f" else around[:1])).all(), (
            variant.name
        )


IN_PHASES = {
    "transposed conv to one channel": (None, 2),
    "transposed conv to one channel, three phases": (None, 3),
    "transposed conv of an image to two channels": (1, 2),
    "transposed conv to four channels of long rows": (1, 4),
    "transposed conv, depthwise": (None, 2),
    "transposed conv to one channel of short rows": (None, 2),
    "transposed conv to one channel of rows that end within a phase": (None, 2),
    "transposed conv to one channel of images that end within three phases": (None, 3),
    "transposed conv to two channels of rows that end within a phase": (1, 2),
    "transposed conv to four channels of long rows that end within a phase": (1, 4),
}


@by_case(IN_PHASES)
def test_phases_of_the_lanes_are_rows_that_store_by_turns(name: str) -> None:
    """Each row reads neighbouring elements, and the loop over lanes stores a run of all phases;
    where rows end within a phase, a single last lane stores those that there are."""
    axis, phases = IN_PHASES[name]
    (variant, kernel) = next(pair for pair in kernels(name) if "along rows" in pair[0].name)
    assert isinstance(variant.recipe, Tiled)
    assert variant.recipe.kind == RowTile(axis, phases=phases)
    assert all(panels.mr % phases == 0 for panels in variant.recipe.tiling.panels)
    vectors = [
        loop for loop in walk(kernel.func.body)
        if isinstance(loop, For) and loop.kind is LoopKind.VECTORIZED
    ]  # fmt: skip
    output = case_output(name)
    stores = [[x for x in walk(loop.body) if isinstance(x, Store)] for loop in vectors]
    stored = [found for found in stores if found and found[0].buffer.name == output]
    columns, rest = divmod(CASES[name].definition.outputs[0].shape[-1], phases)
    ends_alone = rest > 0 and columns % CASES[name].target.lanes("float32") == 0
    assert stored and all(len(found) == phases for found in stored[: -1 if ends_alone else None])
    assert len(stored[-1]) == (rest if ends_alone else phases)


def case_output(name: str) -> str:
    return CASES[name].definition.outputs[0].name


def test_more_phases_than_registers_hold_are_no_rows() -> None:
    case = transposed((1, 3, 16), (3, 1, 8), (64,), strides=(4,))
    assert not any("along rows" in variant.name for variant in kernels_of(case))


@by_case(["conv of a strided long row", "conv of strided long rows"])
def test_strided_lanes_read_rows_in_phases(name: str) -> None:
    (variant, kernel) = next(pair for pair in kernels(name) if "along rows" in pair[0].name)
    stride = 3 if name == "conv of a strided long row" else 2
    extent = variant.layouts["x"].logical_shape[-1]
    assert variant.layouts["x"].physical_shape[-2:] == (stride, -(-extent // stride))
    sums = [site for site in sites(kernel.func.body) if isinstance(site.stmt, Reduce)]
    assert any(site.domain.where == TRUE for site in sums)


@by_case(ALONG_ROWS)
def test_lanes_along_rows_hold_channels_and_lend_masks_to_borders_only(name: str) -> None:
    """Weights of a tile's channels lie together; between the borders no step has a condition."""
    (variant, kernel) = next(pair for pair in kernels(name) if "along rows" in pair[0].name)
    assert isinstance(variant.recipe, Tiled) and variant.vectorized
    assert variant.recipe.kind == RowTile(1)
    tile = variant.recipe.tiling.panels[0].mr
    packed = [layout for n, layout in variant.layouts.items() if n in variant.private]
    assert packed and all(layout.physical_shape[-1] == tile for layout in packed)
    sums = [site for site in sites(kernel.func.body) if isinstance(site.stmt, Reduce)]
    assert any(site.domain.where == TRUE for site in sums)


JOINED = [name for name in CASES if name.startswith("conv of joined rows")]


def joined_axes(definition: PrimFunc, constants: frozenset[str], runs: bool = True) -> set[int]:
    """How many axes the variants with lanes along rows have joined with the innermost one."""
    variants = kernel_variants(definition, constants, SHORT, KernelContext(runs=runs))
    kinds = [v.recipe.kind for v in variants if isinstance(v.recipe, Tiled)]
    return {kind.joined for kind in kinds if isinstance(kind, RowTile)}


@pytest.mark.parametrize("name", JOINED)
def test_rows_that_end_within_a_vector_are_one_where_memory_goes_on(name: str) -> None:
    case = CASES[name]
    assert joined_axes(case.definition, case.constants) == {1}
    (_, kernel) = next(pair for pair in kernels(name) if "along rows" in pair[0].name)
    sums = [site for site in sites(kernel.func.body) if isinstance(site.stmt, Reduce)]
    assert sums and all(site.domain.where == TRUE for site in sums)
    assert not joined_axes(case.definition, case.constants, runs=False)


@pytest.mark.parametrize(
    "definition",
    [
        pytest.param(convolution.convolution((1, 3, 2, 7), (5, 3, 1, 1)), id="no whole vectors"),
        pytest.param(
            attributed_convolution((1, 3, 2, 6), (5, 3, 1, 3), pads=(0, 1, 0, 1)), id="borders"
        ),
        pytest.param(convolution.convolution((1, 3, 2, 8), (5, 3, 1, 3)), id="gaps in the data"),
        pytest.param(
            attributed_convolution((1, 3, 4, 6), (5, 3, 1, 1), strides=(2, 1)), id="rows left out"
        ),
    ],
)
def test_rows_are_not_joined_across_borders_and_gaps(definition: PrimFunc) -> None:
    assert not joined_axes(definition, frozenset("w"))


def test_rows_are_not_joined_where_what_is_added_differs_between_them() -> None:
    case = fused(
        convolution.convolution((1, 3, 2, 6), (5, 3, 1, 1)),
        (elementwise.binary(ADD, (1, 5, 2, 6), (1, 1, 2, 1)), 0),
        constants="w0",
    )
    assert not joined_axes(case.definition, case.constants)


def rows_of(definition: PrimFunc, target: Target = SHORT) -> KernelVariant:
    """The variant with all parameters row-major that is made of tiles."""
    return next(
        variant
        for variant in kernel_variants(definition, frozenset(), target)
        if isinstance(variant.recipe, Tiled)
        and all(x == row_major(x.logical_shape) for x in variant.layouts.values())
    )


def test_windows_along_rows_have_masks_known_beforehand() -> None:
    """Whatever the width, no loop runs over panels, so each lane's place in the row is known."""
    for width in (5, 11, 45, 90):
        variant = rows_of(pooling.max_pool((1, 3, 9, width), Window.of((3, 3), pads=(1, 1, 1, 1))))
        assert isinstance(variant.recipe, Tiled)
        assert all(panels.count == 1 for panels in variant.recipe.tiling.panels)
    (panel,) = rows_of(pooling.max_pool((1, 3, 40, 11), Window.of((3, 3)))).recipe.tiling.panels  # type: ignore[union-attr]
    assert panel.mr * panel.nr_vectors * 4 <= SHORT.vector_registers * 2


def test_windows_of_products_or_far_apart_are_no_windows_along_rows() -> None:
    """A product shares its weights between rows, long rows need panels, lanes far apart gather."""
    near = rows_of(pooling.max_pool((1, 3, 9, 44), Window.of((1, 3), strides=(1, 4)))).work.cycles
    far = rows_of(pooling.max_pool((1, 3, 9, 55), Window.of((1, 3), strides=(1, 5)))).work.cycles
    assert far > 3 * near
    long = rows_of(pooling.max_pool((1, 3, 9, 4 * 8 * 4 + 3), Window.of((1, 3))))
    assert any(p.count > 1 for p in long.recipe.tiling.panels)  # type: ignore[union-attr]
    product = rows_of(convolution.convolution((1, 3, 9, 44), (3, 1, 1, 3), groups=3))
    assert max(p.mr for p in product.recipe.tiling.panels) > 1  # type: ignore[union-attr]


NATIVE = [
    "max pool in rows", "average pool in long rows", "max pool, every fourth, dilated",
    "conv of rows of 96", "conv of long rows", "conv of long rows+residual+relu",
    "conv of joined rows+residual+relu", *IN_PHASES, "conv of a strided long row",
    "conv 6 to 7, batch 2", "conv strided, pads differ", "conv 17 to 18", "conv 3 to 58",
    "transposed conv of three taps", "grouped", "depthwise 18", "conv+residual+relu", "max pool 17",
    "average pool, ceil, with pads", "global max pool", "sum over 18 channels",
    "softmax over channels", "add per channel", "scale per channel and image", "gemm", "concat",
    "transpose", "matmul in blocks of rows", "matmul in blocks of rows, the last of fewer",
]  # fmt: skip


OTHER_PIECES = {
    "transposed conv, taps fewer than phases": "phases of a row are not shared",
    "transposed conv dilated": "phases of a row are not shared",
    "matmul of turned matrices": "one variant is built stage by stage",
    "flatten": "built stage by stage",
}
"""Cases in which the price counts other pieces than the kernel has, and why."""


@by_case([name for name in CASES if name not in OTHER_PIECES])
def test_the_price_of_a_tile_counts_the_pieces_that_threads_share(name: str) -> None:
    """Panels that run outermost are shared as well: one plane may be many pieces."""
    for variant, kernel in kernels(name):
        if isinstance(variant.recipe, Tiled):
            assert variant.work.rows == kernel.extent, variant.name


@pytest.mark.parametrize(
    ("name", "target"),
    [
        pytest.param(name, target, marks=[pytest.mark.slow] * (k % 2 != t))
        for k, name in enumerate(NATIVE)
        for t, target in enumerate((LONG, AVX2))
    ],
    ids=lambda item: getattr(item, "name", item),
)
def test_native_code_does_the_same(name: str, target: Target) -> None:
    case = replace(CASES[name], target=target)
    arrays = numbers(case.definition, 4)
    output = case.definition.outputs[0].name
    want = interpret(case.definition, arrays)[output]
    variants = kernels_of(case)
    for variant in variants[:: max(len(variants) // 4, 1)]:
        kernel = lower_call(call_of(case.definition, variant), target, "k")
        layouts = variant.layouts
        placed = {n: place(layouts[n], a, demanded(variant, n)) for n, a in arrays.items()}
        box = Native(kernel, target)(placed, np.nan)[output]
        close(unplace(layouts[output], box), want)


def check_outward(definition: PrimFunc, variant: KernelVariant) -> None:
    """The output is read where its elements are in the input's box."""
    assert isinstance(variant.recipe, View)
    (link,) = variant.recipe.links
    whole, part = variant.layouts[link.input], variant.layouts[definition.outputs[0].name]
    source = next(b for b in definition.inputs if b.name == link.input)
    given = np.arange(np.prod(source.shape), dtype=np.float32).reshape(source.shape)
    want = interpret(definition, {source.name: given})[definition.outputs[0].name]
    box = place(whole, given, np.nan).reshape(-1)
    if link.offset is not None:
        assert np.array_equal(box[positions(part) + link.offset], want), variant.name
    if link.window is not None:
        assert np.array_equal(box[positions(link.window)], want), variant.name


def test_views_place_every_element_where_the_movement_would() -> None:
    """A view's window of the output's storage is where its input's elements belong."""
    seen = 0
    for case in CASES.values():
        for variant in kernel_variants(case.definition, case.constants, case.target):
            if not isinstance(variant.recipe, View):
                continue
            seen += 1
            output = case.definition.outputs[0].name
            if variant.recipe.outward:
                check_outward(case.definition, variant)
                continue
            numbered = {b.name: np.arange(np.prod(b.shape)).reshape(b.shape) + 1000.0 * k
                        for k, b in enumerate(case.definition.inputs)}  # fmt: skip
            arrays = {n: a.astype(np.float32) for n, a in numbered.items()}
            want = interpret(case.definition, arrays)[output]
            whole = variant.layouts[output]
            box = np.zeros(int(np.prod(whole.physical_shape)), np.float32)
            for link in variant.recipe.links:
                part = variant.layouts[link.input]
                at = [positions(part) + link.offset] if link.offset is not None else []
                at += [positions(link.window)] if link.window is not None else []
                assert at and all(np.array_equal(at[0], other) for other in at)
                box[at[0]] = arrays[link.input]
            assert np.array_equal(unplace(whole, box), want), variant.name
    assert seen >= 6


@by_case(["conv 6 to 7, batch 2", "conv+scale+sigmoid", "max pool", "sum over channels"])
def test_claims_are_kept_for_data_that_is_not_finite(name: str) -> None:
    """Inf and NaN in logical data come out exactly where the definition puts them."""
    case = CASES[name]
    arrays = numbers(case.definition, 5)
    rng = np.random.default_rng(5)
    for key, a in arrays.items():
        if key not in case.constants:
            flat = a.reshape(-1)
            places = rng.permutation(flat.size)[:4]
            flat[places] = np.array([np.inf, -np.inf, np.nan, 1e38], np.float32)
    output = case.definition.outputs[0].name
    want = interpret(case.definition, arrays)[output]
    for variant, kernel in kernels(name):
        layouts = dict(variant.layouts)
        box = run(kernel, layouts, arrays, lambda n, f=variant: demanded(f, n))
        got = unplace(layouts[output], box)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
        np.testing.assert_array_equal(np.isinf(got), np.isinf(want))


DEPTHWISE = attributed_convolution((1, 6, 12, 16), (6, 1, 3, 3), pads=(1, 1, 1, 1), groups=6)
"""Rows of whole vectors, with few channels."""


def row_major_variant(
    definition: PrimFunc, constants: frozenset[str] = frozenset()
) -> KernelVariant:
    """The first tiled variant all of whose operands are row-major."""
    return next(
        v
        for v in kernel_variants(definition, constants, SHORT)
        if isinstance(v.recipe, Tiled)
        and all(x == row_major(x.logical_shape) for n, x in v.layouts.items() if n not in constants)
    )


def agrees(definition: PrimFunc, variant: KernelVariant) -> None:
    """The kernel of a variant computes what its definition does, on random numbers."""
    arrays = numbers(definition, 7)
    output = definition.outputs[0].name
    kernel = lower_call(call_of(definition, variant), SHORT, "k")
    box = run(kernel, variant.layouts, arrays, lambda n: np.nan, SENTINEL)
    close(unplace(variant.layouts[output], box), interpret(definition, arrays)[output])


@pytest.mark.parametrize(
    "definition",
    [DEPTHWISE, attributed_convolution((1, 2, 9, 7), (40, 2, 3, 3), pads=(1, 1, 1, 1))],
    ids=["depthwise", "weights larger than the data"],
)
def test_rows_of_an_image_slide_over_the_taps_across_them(definition: PrimFunc) -> None:
    variant = row_major_variant(definition)
    assert isinstance(variant.recipe, Tiled) and isinstance(variant.recipe.kind, SlidingTile)
    agrees(definition, variant)


def test_rows_do_not_slide_where_lanes_gather_or_no_tap_steps_like_them() -> None:
    strided = attributed_convolution(
        (1, 6, 12, 16), (6, 1, 3, 3), strides=(2, 2), pads=(1, 1, 1, 1), groups=6
    )
    pointwise = convolution.convolution((1, 6, 12, 16), (6, 6, 1, 1))
    for definition in (strided, pointwise):
        variant = row_major_variant(definition)
        assert isinstance(variant.recipe, Tiled)
        assert not isinstance(variant.recipe.kind, SlidingTile)
        agrees(definition, variant)


def test_a_batched_product_in_rows_costs_what_one_in_channels_does() -> None:
    """Its rows share the vectors that a step loads, unlike those of an image."""
    definition = linear.matmul((3, 16, 8), (3, 8, 16))
    variant = row_major_variant(definition)
    others = [v for v in kernel_variants(definition, frozenset(), SHORT) if v.vectorized]
    assert variant.vectorized
    assert variant.work.cycles <= 1.1 * min(v.work.cycles for v in others)


@pytest.mark.parametrize(
    ("definition", "weights"),
    [
        (attributed_convolution((1, 6, 5, 5), (10, 6, 3, 3), pads=(1, 1, 1, 1)), "w"),
        (linear.matmul((7, 9), (9, 18)), "b"),
    ],
    ids=["convolution", "product"],
)
def test_weights_given_at_run_time_may_be_read_packed(definition: PrimFunc, weights: str) -> None:
    variants = kernel_variants(definition, frozenset(), SHORT)
    packed = [
        variant
        for variant in variants
        if isinstance(variant.recipe, Tiled)
        and variant.layouts[weights] != row_major(variant.layouts[weights].logical_shape)
        and variant.layouts[weights].physical_shape[-1] == variant.recipe.tiling.panels[0].width
    ]
    assert packed and all(not v.private for v in packed)
    for variant in packed[:3]:
        agrees(definition, variant)


def test_weights_of_each_image_are_not_packed_at_run_time() -> None:
    """Each element would be moved once for a few uses, and a bias is contiguous as it is."""
    batched = linear.matmul((3, 16, 8), (3, 8, 16))
    families_of_b = {family.instantiate((3, 8, 16)) for family in families(3, 4)}
    for variant in kernel_variants(batched, frozenset(), SHORT):
        assert variant.layouts["b"] in families_of_b
    biased = attributed_convolution((1, 6, 5, 5), (10, 6, 3, 3), pads=(1, 1, 1, 1), bias=True)
    for variant in kernel_variants(biased, frozenset(), SHORT):
        assert variant.layouts["b"] == row_major((10,))
