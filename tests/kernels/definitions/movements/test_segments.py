"""Tests of segments: alternating ones are divided without changing what they move."""

from random import Random

import pytest

from graphflow.kernels.definitions.movements.segments import Segment, in_turns
from support.seeds import seeds


def moved(segments: tuple[Segment, ...]) -> dict[int, tuple[int, int]]:
    """The source and its channel for each channel."""
    found = {}
    for s in segments:
        for k in range(s.count):
            assert s.at + k * s.stride not in found
            found[s.at + k * s.stride] = (s.source, s.begin + k * s.step)
    return found


def alternating(number: Random) -> tuple[Segment, ...]:
    """Segments that halve what is left, as shuffles in a row leave it."""
    total, at, stride, found = number.randint(4, 70), 0, 1, []
    while len(found) < number.randint(1, 4) and at + 2 * stride < total:
        at_once = at + stride
        found.append((at_once, 2 * stride))
        stride *= 2
    found.append((at, stride))
    return tuple(
        Segment(source, first, step, number.randint(0, 9), number.randint(1, 3),
                len(range(first, total, step)))
        for source, (first, step) in enumerate(found)
    )  # fmt: skip


@pytest.mark.parametrize("seed", seeds(30, 100))
def test_dividing_keeps_what_is_moved(seed: int) -> None:
    given = alternating(Random(seed))
    assert moved(in_turns(given)) == moved(given)


def test_as_many_segments_of_one_length_as_their_stride() -> None:
    given = (Segment(0, 0, 4, 0, 1, 15), Segment(1, 1, 2, 3, 1, 29), Segment(2, 2, 4, 0, 1, 14))
    divided = in_turns(given)
    assert [(s.at, s.stride, s.count) for s in divided[:4]] == [(k, 4, 14) for k in range(4)]
    assert [(s.source, s.begin, s.step) for s in divided[:4]] == [
        (0, 0, 1), (1, 3, 2), (2, 0, 1), (1, 4, 2),
    ]  # fmt: skip
    assert [(s.source, s.at, s.begin, s.count) for s in divided[4:]] == [
        (0, 56, 14, 1), (1, 57, 31, 1),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "given",
    [
        (Segment(0, 0, 1, 0, 1, 5), Segment(1, 5, 1, 0, 1, 5)),
        (Segment(0, 0, 2, 0, 1, 3), Segment(1, 1, 2, 0, 1, 3), Segment(2, 6, 1, 0, 1, 4)),
        (Segment(0, 0, 16, 0, 1, 1), Segment(1, 1, 1, 0, 1, 7)),
    ],
    ids=["one behind the other", "alternating in part", "less than one round"],
)
def test_segments_that_do_not_alternate_stay(given: tuple[Segment, ...]) -> None:
    assert in_turns(given) == given
