"""Seeds of random tests: a small constant corpus, more with `-m slow`, or fresh ones."""

import pytest

FRESH: list[int] = []
"""The seeds of `--fuzz-seeds`, which take the place of the constant ones."""


def seeds(ordinary: int, slow: int) -> list[object]:
    """Parameters from 0 on; those from `ordinary` to `slow` are marked slow."""
    later = (pytest.param(seed, marks=pytest.mark.slow) for seed in range(ordinary, slow))
    return [*FRESH] or [*range(ordinary), *later]
