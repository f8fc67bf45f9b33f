"""Tests of copies between layouts: which moves are priced, and scheduled, as copies of vectors."""

from random import Random

import numpy as np
import pytest

from graphflow.base.dtypes import DTYPES
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.kernels.definitions.movements.segments import Segment, copied
from graphflow.kernels.lowering import remove_assume, remove_undef
from graphflow.kernels.recipes import KernelVariant, kernel_variants
from graphflow.kernels.recipes.schedules.staged import staged
from graphflow.tir import LoopKind, PrimFunc, loops_of
from graphflow.validation.parameter_positions import PlacedParameter
from support.native import Array, Native
from support.seeds import seeds

pytestmark = pytest.mark.decisions

TARGET = avx2_target()
SHAPE = (1, 32, 5, 5)
ALTERNATING = (Segment(0, 0, 4, 0, 1, 8), Segment(1, 1, 2, 0, 1, 16), Segment(0, 2, 4, 8, 1, 8))
BEHIND = (Segment(0, 0, 1, 0, 1, 16), Segment(1, 16, 1, 0, 1, 16))
UNALIGNED = (Segment(0, 0, 1, 0, 1, 13), Segment(1, 13, 1, 0, 1, 19))
STRIDED = (Segment(0, 0, 1, 0, 2, 16), Segment(1, 16, 1, 0, 1, 16))
MANY_TURNS = tuple(Segment(0, k, 16, k, 1, 2) for k in range(16))


def variant(func: PrimFunc, name: str) -> KernelVariant:
    return next(v for v in kernel_variants(func, frozenset(), TARGET) if v.name == name)


def cycles(segments: tuple[Segment, ...], given: str, made: str) -> float:
    """Cycles for each element."""
    func = copied([SHAPE, SHAPE], segments, "float32")
    return variant(func, f"copied from {given} to {made}").work.cycles / func.outputs[0].size


@pytest.mark.parametrize(
    ("segments", "given", "made"),
    [
        (BEHIND, "NHWC", "NHWC"),
        (BEHIND, "NCHW8c", "NCHW8c"),
        (BEHIND, "NCHW8c", "NHWC"),
        (ALTERNATING, "NHWC", "NHWC"),
    ],
)
def test_copies_of_vectors(segments: tuple[Segment, ...], given: str, made: str) -> None:
    assert cycles(segments, given, made) == 2.0 / 8


@pytest.mark.parametrize(
    ("segments", "given", "made"),
    [
        (UNALIGNED, "NCHW8c", "NCHW8c"),
        (ALTERNATING, "NCHW8c", "NHWC"),
        (ALTERNATING, "NHWC", "NCHW8c"),
        (STRIDED, "NHWC", "NHWC"),
        (MANY_TURNS, "NHWC", "NHWC"),
    ],
)
def test_copies_of_single_elements(segments: tuple[Segment, ...], given: str, made: str) -> None:
    assert cycles(segments, given, made) > 2.0 / 8


@pytest.mark.parametrize(
    ("segments", "vectors"), [(ALTERNATING, True), (BEHIND, True), (MANY_TURNS, False)]
)
def test_what_is_priced_in_vectors_is_scheduled_in_vectors(
    segments: tuple[Segment, ...], vectors: bool
) -> None:
    func = copied([SHAPE, SHAPE], segments, "float32")
    layouts = variant(func, "copied from NHWC to NHWC").layouts
    made = staged(func, tuple((name, layout, None) for name, layout in layouts.items()), TARGET)
    kinds = [loop.kind for loop in loops_of(made.func.body)]
    assert (LoopKind.VECTORIZED in kinds) == vectors


def test_stages_are_joined_beside_one_that_writes_the_padding() -> None:
    """Where they were not, a shuffle into a part of a larger buffer copied single elements."""
    halves = (Segment(0, 0, 2, 0, 1, 9), Segment(1, 1, 2, 0, 1, 9))
    func = copied([(1, 19, 5, 6)] * 2, halves, "float32")
    layouts = variant(func, "copied from NHWC to NHWC padded to 24").layouts
    made = staged(func, tuple((name, layout, None) for name, layout in layouts.items()), TARGET)
    copies = [loop for loop in loops_of(made.func.body[:1]) if loop.kind is LoopKind.VECTORIZED]
    assert copies and all(len(loop.body) == 2 for loop in copies)  # both segments in each
    assert len(made.func.body) == 2  # the stage about the padding stays behind


DTYPES_MOVED = ("float32", "float64", "int8", "bool", "int64", "uint16", "float16", "int4")


def random_segments(random: Random) -> tuple[Segment, ...]:
    """Segments of up to three tensors that cover each channel once: by turns, at two strides, or
    one behind the other."""

    def segment(at: int, stride: int, count: int) -> Segment:
        begin, step = random.randrange(4), random.choice((1, 1, 2))
        return Segment(random.randrange(3), at, stride, begin, step, count)

    kind, count = random.randrange(3), random.randint(1, 19)
    if kind == 0:
        turns, more = random.randint(2, 9), random.randrange(2)
        found = [segment(k, turns, count + (k < more)) for k in range(turns)]
    elif kind == 1:
        turns, parts = random.randint(2, 3), random.randint(2, 3)
        found = [segment(k, turns, count * parts) for k in range(1, turns)]
        found += [segment(turns * k, turns * parts, count) for k in range(parts)]
    else:
        found, at = [], 0
        for _ in range(random.randint(2, 4)):
            found.append(segment(at, 1, random.randint(1, 19)))
            at += found[-1].count
    random.shuffle(found)
    return tuple(found)


@pytest.mark.parametrize("seed", seeds(8, 16))
def test_random_segments_are_moved_in_every_layout(seed: int) -> None:
    random = Random(seed)
    segments, dtype = random_segments(random), DTYPES_MOVED[seed % len(DTYPES_MOVED)]
    batch, rest = (
        random.randint(1, 2),
        [random.choice((1, 1, 2, 3, 5)) for _ in range(seed % 3 + 1)],
    )
    lengths = [
        max((s.begin + s.step * (s.count - 1) + 1 for s in segments if s.source == k), default=1)
        for k in range(3)
    ]
    func = copied([(batch, length, *rest) for length in lengths], segments, dtype)
    rng = np.random.default_rng(seed)
    arrays = {b.name: rng.integers(0, 7, b.shape).astype(DTYPES[dtype]) for b in func.inputs}
    expected = np.zeros(func.outputs[0].shape, DTYPES[dtype])
    for s in segments:
        read = arrays[f"x{s.source}"][:, s.begin :: s.step][:, : s.count]
        expected[:, s.at : s.at + s.stride * s.count : s.stride] = read
    target = (avx2_target(), host_target())[seed // 2 % 2]
    found = kernel_variants(func, frozenset(), target)
    for made in random.sample(found, min(3, len(found))):
        assert_moves(func, made, target, arrays, expected)


def assert_moves(
    func: PrimFunc, made: KernelVariant, target: Target, arrays: dict[str, Array], expected: Array
) -> None:
    """The variant's kernel, natively, on operands whose padding holds ones."""
    layouts = made.layouts
    schedule = staged(func, tuple((n, layout, None) for n, layout in layouts.items()), target)
    lowered = remove_assume(remove_undef(schedule.func))
    places = {p.buffer.name: PlacedParameter(p.buffer, layouts[p.buffer.name], "undef")
              for p in func.params}  # fmt: skip
    boxes = {b.name: b.shape for b in lowered.inputs}
    packed = {n: places[n].packed(array, 1).reshape(boxes[n]) for n, array in arrays.items()}
    parallel = [
        loop.extent or 1 for loop in loops_of(lowered.body) if loop.kind is LoopKind.PARALLEL
    ]
    got = Native(lowered, target)(packed, ((0, parallel[0] if parallel else 1),))["y"]
    elements = got.reshape(-1)[places["y"].positions].reshape(expected.shape)
    np.testing.assert_array_equal(elements, expected, made.name)
