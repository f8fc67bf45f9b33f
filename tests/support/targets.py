"""The targets of tests: fixed processors, so that no decision is taken from the machine.

What always holds: `host_target()` is the processor that GRAPHFLOW_HOST names, with instructions
of this machine, and `USUAL` unless the variable is set.  Tests of decisions take `processors`, with
the width that those have; tests of values in generated code may take the two vector widths
`in_turn`.  What the ordinary run leaves out of a product of cases is slow.
"""

from collections.abc import Iterable, Sequence
from itertools import product, starmap
from typing import Any

import pytest

from graphflow.base.options import assumed_host
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target

USUAL = "zen4"
"""Its caches are the defaults of `Target`."""

DIFFERENT = ("broadwell-guest", "zen3", "rocketlake-guest", USUAL)
"""Processors that differ in most: both widths and makers, small and large caches."""


def processors() -> pytest.MarkDecorator:
    """Parametrizes `target` with all processors, for a plan or a price that is expected of each.

    Where the environment names a processor other than the usual one, only that one is taken, and
    it is slow, as the ordinary run takes it anyway.
    """
    targets, other = _expected()
    marks = [pytest.mark.slow] * other
    return pytest.mark.parametrize(
        "target", [pytest.param(target, id=target.name, marks=marks) for target in targets]
    )


def processors_in_turn(names: str, *axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrizes `names` with all combinations of the values of the axes, and `target` with all
    processors.

    Of those in `DIFFERENT`, the ordinary run takes two for each combination, one of each width; the
    others are slow.  Where the environment names a processor other than the usual one, only that
    one is taken; it is slow if it is one of those.  A value that is a `pytest.param` keeps its
    marks.
    """
    targets, other = _expected()
    places = {name: place for place, name in enumerate(DIFFERENT)}
    cases = []
    for combination in product(*map(enumerate, axes)):
        turn = sum(place for place, _ in combination) % 2
        values = [value for _, value in combination]
        kept = [mark for v in values for mark in getattr(v, "marks", ())]
        plain = [getattr(v, "values", (v,))[0] for v in values]
        for target in targets:
            place = places.get(target.name)
            taken = place is None if other else place is not None and place % 2 == turn
            marks = kept + [pytest.mark.slow] * (not taken)
            name = "-".join((*(_text(k, v) for k, v in enumerate(plain)), target.name))
            cases.append(pytest.param(*plain, target, marks=marks, id=name))
    return pytest.mark.parametrize([*names.split(), "target"], cases)


def _expected() -> tuple[list[Target], bool]:
    """The processors that tests of decisions take, and whether that is another one than the usual
    one, which the environment names."""
    assumed = assumed_host()
    other = assumed not in (None, USUAL)
    return [PROCESSORS[name] for name in ([assumed] if other else PROCESSORS)], other


def in_turn(
    names: str, *axes: Iterable[Any], targets: Sequence[Any] | None = None
) -> pytest.MarkDecorator:
    """Parametrizes `names` with all combinations of the values of the axes, and `target`.

    The targets are the host and AVX2 unless they are given.  The ordinary run takes one of them for
    each combination, so that each value of an axis has several beside another axis; the slow run
    takes the others.
    """
    targets = (host_target(), avx2_target()) if targets is None else targets
    return by_turns(f"{names} target", *axes, targets)


def by_turns(names: str, *axes: Iterable[Any]) -> pytest.MarkDecorator:
    """Parametrizes `names` with all combinations of the values of the axes.

    The ordinary run takes one value of the last axis for each combination of the others, by turns;
    the slow run takes the others.
    """
    *_, last = listed = [tuple(axis) for axis in axes]
    cases = []
    for combination in product(*map(enumerate, listed)):
        *places, number = (place for place, _ in combination)
        marks = [pytest.mark.slow] * (number != sum(places) % len(last))
        name = "-".join(starmap(_text, combination))
        cases.append(pytest.param(*(value for _, value in combination), marks=marks, id=name))
    return pytest.mark.parametrize(names.split(), cases)


def _text(place: int, value: Any) -> str:
    """A value in the name of a test, or its place where it has no short name."""
    named = getattr(value, "name", getattr(value, "__name__", value))
    return str(named) if isinstance(named, str | int | float | None) else f"case{place}"
