"""Tests of conversions between any two layouts, by register blocks where these apply."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphflow as gf
from graphflow.base.errors import ScheduleError
from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.trace import Trace
from graphflow.codegen import host_target
from graphflow.kernels.conversion import computed_in, conversion, ends_in_turns
from graphflow.kernels.definitions.linear_algebra import linear, scaled_sum
from graphflow.kernels.definitions.reductions import reduction
from graphflow.kernels.lowering import KernelTask, LoweredKernel, make_kernel
from graphflow.kernels.recipes import BlockTranspose, Recipe, Staged, kernel_schedule
from graphflow.layout import IndexMap, Layout, channels_last, channels_last_padded, row_major
from graphflow.models import ModelBuilder
from graphflow.tir import EXPANDED, Allocate, For, Literal, interpret, rename_buffers, walk
from support.placing import SENTINEL, Native, outside, place, unplace
from support.strategies import transformed

HOST = host_target()
EXTENTS = {1: (0, 1, 2, 7, 13, 33), 2: (1, 3, 7, 9, 17), 3: (1, 2, 3, 5, 9), 4: (1, 2, 3, 5, 7)}
"""By rank."""

LARGEST = 4000
"""Elements of a box."""


def any_layout(rng: random.Random, shape: tuple[int, ...]) -> Layout:
    """Up to four steps, each of one of the constructors of index maps, or a longer box."""
    layout = Layout.of(IndexMap.identity(len(shape)), shape)
    for _ in range(rng.randint(0, 4)):
        try:
            wider = step(rng, layout)
        except ScheduleError:
            continue  # no inverse was found: two indices would share a place
        if np.prod(wider.physical_shape) <= LARGEST:
            layout = wider
    return layout


def step(rng: random.Random, layout: Layout) -> Layout:
    box = layout.physical_shape
    rank = len(box)
    axis, other = rng.randrange(rank), rng.randrange(rank)
    match rng.randrange(8):
        case 0 | 1:
            return transformed(layout, IndexMap.permute(rng.sample(range(rank), rank)))
        case 2:
            width, last = rng.choice([1, 2, 3, 4, 8]), rng.random() < 0.5
            return transformed(layout, IndexMap.split(rank, axis, width, inner_last=last))
        case 3:
            return transformed(layout, IndexMap.offset(rank, axis, rng.randint(1, 3)))
        case 4:
            amounts = [rng.randint(0, 2) for _ in box]
            return transformed(layout, IndexMap.shift(amounts))
        case 5:
            return layout.boxed([n + rng.randint(0, 2) for n in box])
        case 6:  # every second or third place
            spread = rng.choice([2, 3])
            return transformed(
                layout,
                IndexMap.from_function(
                    rank, lambda *i: [spread * v if k == axis else v for k, v in enumerate(i)], box
                ),
            )
    if axis == other:
        return layout
    if rng.random() < 0.5:  # two axes as one
        flat = lambda *i: [  # noqa: E731
            i[axis] * box[other] + i[other],
            *(v for k, v in enumerate(i) if k not in (axis, other)),
        ]
        return transformed(layout, IndexMap.from_function(rank, flat, box))
    skewed = lambda *i: [v + i[other] if k == axis else v for k, v in enumerate(i)]  # noqa: E731
    return transformed(layout, IndexMap.from_function(rank, skewed, box))


def made(
    source: Layout, target: Layout, dtype: str, fill: int | None, recipe: Recipe
) -> LoweredKernel:
    value = float(fill) if fill is not None and dtype.startswith("float") else fill
    written = None if value is None else Literal(value, dtype)
    definition = conversion(source, target, dtype, written, "kernel")
    return make_kernel(KernelTask("convert", definition, (), recipe, HOST), Trace(Options()))


def check(
    source: Layout, target: Layout, dtype: str, fill: int | None, recipe: Recipe
) -> LoweredKernel:
    """Natively and by the interpreter: elements arrive, and padding is filled or left alone."""
    kernel = made(source, target, dtype, fill, recipe)
    shape = source.logical_shape
    x = np.random.default_rng(sum(shape)).integers(-99, 99, shape).astype(dtype)
    given = {"src": place(source, x, np.nan)}
    left = SENTINEL if x.dtype.kind == "f" else -99
    for got, kept in (
        (Native(kernel, HOST)(given, SENTINEL)["dst"], left),
        (interpret(kernel.func, given, undefined=SENTINEL)["dst"], SENTINEL),
    ):
        np.testing.assert_array_equal(unplace(target, got), x)
        assert (outside(target, got) == (kept if fill is None else fill)).all()
    return kernel


PAIRS = given(
    st.integers(0, 10**9),
    st.sampled_from(["float32", "float32", "float64", "int32", "int8"]),
    st.sampled_from([None, 3]),
)


@settings(max_examples=120)
@PAIRS
def test_every_pair_of_layouts(seed: int, dtype: str, fill: int | None) -> None:
    check_a_pair(seed, dtype, fill)


def check_a_pair(seed: int, dtype: str, fill: int | None) -> None:
    rng = random.Random(seed)
    rank = rng.randint(1, 4)
    shape = tuple(rng.choice(EXTENTS[rank]) for _ in range(rank))
    source, target = any_layout(rng, shape), any_layout(rng, shape)
    for recipe in (BlockTranspose(), Staged()):
        check(source, target, dtype, fill, recipe)


@pytest.mark.parametrize("dtype", ["int8", "int16", "float16", "float32"])
@pytest.mark.parametrize("channels", [2, 3, 4, 8])
@pytest.mark.parametrize("padded", [False, True])
def test_few_channels_are_stored_by_turns(channels: int, padded: bool, dtype: str) -> None:
    """Lanes run along the rows of the image: all stores of an iteration fill whole vectors."""
    shape = (2, channels, 5, 150)
    target = channels_last_padded(shape, 4) if padded else channels_last(shape)
    whole = target.physical_shape[-1]
    kernel = check(row_major(shape), target, dtype, 3 if whole > channels else None, Staged())
    lanes = [s for s in walk(kernel.func.body) if isinstance(s, For) and s.kind in EXPANDED]
    assert lanes and all(len(s.body) == whole for s in lanes)
    assert max(s.extent or 0 for s in lanes) >= HOST.lanes(dtype)


def test_only_padding_of_few_neighbours_is_written_with_them() -> None:
    shape = (1, 3, 6, 10)
    assert ends_in_turns(channels_last_padded(shape, 4))
    assert not ends_in_turns(channels_last(shape)), "there is no padding"
    assert not ends_in_turns(channels_last_padded(shape, 16)), "most of the box is padding"
    assert not ends_in_turns(row_major(shape).boxed((1, 3, 6, 16)))
    assert not ends_in_turns(channels_last(shape).boxed((1, 6, 12, 4))), "around rows, too"


OFFSET_SPLIT = IndexMap.offset(2, 1, 2).then(IndexMap.split(2, 1, 4))
ODD = Layout.of(OFFSET_SPLIT.then(IndexMap.permute((2, 0, 1))), (3, 7))
PLAIN = Layout.of(IndexMap.identity(2), (3, 7))


@pytest.mark.parametrize(("source", "target"), [(PLAIN, ODD), (ODD, PLAIN)])
def test_a_split_behind_an_offset_is_no_box(source: Layout, target: Layout) -> None:
    """The loop over blocks begins where the loop over their elements says: it cannot be moved."""
    kernel = check(source, target, "float32", None, BlockTranspose())
    assert not any(isinstance(stmt, Allocate) for stmt in walk(kernel.func.body))


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("amount", [1, 2, 5])
def test_offset_split_and_permuted(order: tuple[int, ...], amount: int) -> None:
    shifted = IndexMap.offset(2, 1, amount).then(IndexMap.split(2, 1, 4))
    for shape in ((3, 7), (9, 17)):
        layout = Layout.of(shifted.then(IndexMap.permute(order)), shape)
        plain = Layout.of(IndexMap.identity(2), shape)
        for pair in ((plain, layout), (layout, plain), (layout, layout)):
            check(*pair, "float32", None, BlockTranspose())


def test_a_box_beside_is_still_transposed_in_blocks() -> None:
    """Without the offset all loops are over boxes, and registers hold them."""
    target = Layout.of(IndexMap.permute((1, 0)), (16, 24))
    source = Layout.of(IndexMap.identity(2), (16, 24))
    kernel = check(source, target, "float32", None, BlockTranspose())
    assert any(isinstance(stmt, Allocate) for stmt in walk(kernel.func.body))
    plain = kernel_schedule(conversion(source, target, "float32", None), (), Staged(), HOST)
    assert not any(isinstance(stmt, Allocate) for stmt in walk(plain.func.body))


def test_such_a_layout_can_be_pinned_between_two_softmaxes() -> None:
    builder = ModelBuilder()
    first = builder.node("Softmax", [builder.input("x", (3, 7))], ["v"], axis=-1)
    builder.output(builder.node("Softmax", [first], ["y"], axis=-1))
    executable = gf.compile(builder.model(), layouts={"v": ODD}, threads=2)
    x = np.random.default_rng(0).standard_normal((3, 7)).astype("float32")
    expected = x
    for _ in range(2):
        powers = np.exp(expected - expected.max(-1, keepdims=True))
        expected = powers / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(executable.run({"x": x})["y"], expected, rtol=1e-5)


@pytest.mark.parametrize("steps", range(4))
def test_an_elementwise_kernel_computes_in_a_layout(steps: int) -> None:
    """The scaled weights, where a layout has them, and the fill value in the padding."""
    shape = (5, 3, 2)
    layout = any_layout(random.Random(steps), shape)
    func = scaled_sum.scaled_weight(shape, (3,), (1,), "float32")
    made = computed_in(func, layout, Literal(0.0, "float32"))
    assert made is not None
    rng = np.random.default_rng(0)
    w, a = rng.standard_normal(shape, np.float32), rng.standard_normal(3, np.float32)
    (got,) = interpret(made, {"w": w, "a": a}).values()
    np.testing.assert_array_equal(unplace(layout, got), w * a[:, None])
    np.testing.assert_array_equal(outside(layout, got), 0.0)


def test_a_kernel_that_is_not_elementwise_is_not_computed_in_a_layout() -> None:
    layout = Layout.of(IndexMap.identity(2), (4, 4))
    zero = Literal(0.0, "float32")
    assert computed_in(linear.matmul((4, 3), (3, 4)), layout, zero) is None
    assert computed_in(reduction.softmax((4, 4), (1,)), layout, zero) is None


@pytest.mark.parametrize("name", ["src", "dst"])
def test_an_operand_may_be_called_as_the_result_of_a_copy_is(name: str) -> None:
    func = scaled_sum.scaled_weight((4, 6), (4,), (0,), "float32")
    (w, _) = func.inputs
    renamed = type(func)(
        func.name,
        tuple(
            replace(p, buffer=replace(w, name=name)) if p.buffer == w else p for p in func.params
        ),
        rename_buffers(func.body, {w: replace(w, name=name)}),
    )
    made = computed_in(renamed, row_major((4, 6)), Literal(0.0, "float32"))
    assert made is not None
    arrays = {name: np.ones((4, 6), np.float32), "a": np.arange(4, dtype=np.float32)}
    (found,) = interpret(made, arrays).values()
    np.testing.assert_array_equal(found, arrays[name] * arrays["a"][:, None])
