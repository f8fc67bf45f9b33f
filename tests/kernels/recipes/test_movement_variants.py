"""Tests of copies between layouts: which moves are priced, and scheduled, as copies of vectors."""

from __future__ import annotations

import pytest

from graphflow.codegen import avx2_target
from graphflow.kernels.definitions import Segment, copied
from graphflow.kernels.recipes import KernelVariant, kernel_variants
from graphflow.kernels.recipes.staged import staged
from graphflow.tir import LoopKind, PrimFunc, loops_of

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
