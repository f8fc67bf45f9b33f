"""Seeds of random tests: a small constant corpus for the ordinary run, more with `-m slow`."""

from __future__ import annotations

import pytest


def seeds(ordinary: int, slow: int) -> list[object]:
    """Parameters from 0 on; those from `ordinary` to `slow` are marked slow."""
    later = (pytest.param(seed, marks=pytest.mark.slow) for seed in range(ordinary, slow))
    return [*range(ordinary), *later]
