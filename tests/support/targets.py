"""The targets of tests: fixed processors, so that no decision is taken from the machine.

What always holds: `host_target()` is the processor that GRAPHFLOW_HOST names, with instructions
of this machine, and `USUAL` unless the variable is set.  Tests of decisions take `processors`, with
the width that those have; tests of values in generated code may take the two vector widths
`in_turn`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import pytest

from graphflow.base.options import assumed_host
from graphflow.base.processors import PROCESSORS
from graphflow.codegen import avx2_target, host_target

USUAL = "zen4"
"""Its caches are the defaults of `Target`."""

DIFFERENT = ("broadwell-guest", "zen3", "rocketlake-guest", USUAL)
"""Processors that differ in most: both widths and makers, small and large caches."""


def processors(*, light: bool = False) -> pytest.MarkDecorator:
    """Parametrizes `target` with the processors for which a plan, a price or a tile is expected.

    The ordinary run takes those in `DIFFERENT`, and for a test that is `light` all; the others are
    slow.  Where the environment names a processor other than the usual one, only that one is taken;
    it is slow if the ordinary run takes it anyway.
    """
    assumed = assumed_host()
    other = assumed not in (None, USUAL)
    names = [assumed] if other else [*PROCESSORS]
    ordinary = {name for name in names if (light or name in DIFFERENT) != other}
    return pytest.mark.parametrize(
        "target",
        [
            pytest.param(
                PROCESSORS[name], id=name, marks=[pytest.mark.slow] * (name not in ordinary)
            )
            for name in names
        ],
    )


def in_turn(
    names: str, *axes: Iterable[Any], targets: Sequence[Any] | None = None
) -> pytest.MarkDecorator:
    """Parametrizes `names` with all combinations of the values of the axes, and `target`.

    The targets are the host and AVX2 unless they are given.  The ordinary run takes one of them for
    each combination, so that each value of an axis has several beside another axis; the slow run
    takes the others.
    """
    targets = (host_target(), avx2_target()) if targets is None else targets
    numbered = product(*(enumerate(axis) for axis in axes))
    cases = []
    for combination in numbered:
        turn = sum(number for number, _ in combination) % len(targets)
        values = [value for _, value in combination]
        for number, target in enumerate(targets):
            texts = (str(getattr(x, "name", getattr(x, "__name__", x))) for x in (*values, target))
            marks = [pytest.mark.slow] * (number != turn)
            cases.append(pytest.param(*values, target, marks=marks, id="-".join(texts)))
    return pytest.mark.parametrize([*names.split(), "target"], cases)
