"""The targets of tests: fixed processors, so that no decision is taken from the machine.

What always holds: `host_target()` is the processor that GRAPHFLOW_HOST names, with instructions
of this machine, and `USUAL` unless the variable is set.  Tests of decisions take `processors`, with
the width that those have.
"""

from __future__ import annotations

import pytest

from graphflow.base.options import assumed_host
from graphflow.base.processors import PROCESSORS

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
