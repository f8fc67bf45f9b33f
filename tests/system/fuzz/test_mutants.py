"""Fuzzing of damaged models: each gives onnxruntime's result or a GraphflowError, never a crash, a
hang, another exception or gigabytes of memory.  Damaged saved models are refused, or run as before.
"""

from collections import Counter
from collections.abc import Iterable

import pytest

from support.mutants.mutant_processes import MutantProcess


def assert_all_end_well(kind: str, seeds: Iterable[int]) -> None:
    """Try all; prints how many ended how, by the parity of their seeds."""
    child = MutantProcess(kind)
    try:
        ends = [(seed, child.attempt(seed)) for seed in seeds]
    finally:
        child.close()
    for odd in (0, 1):
        counts = Counter(end.how for seed, end in ends if seed % 2 == odd)
        print(f"{kind}, {'odd' if odd else 'even'} seeds: {dict(counts.most_common())}")
    wrong = [end.wrong for _, end in ends if end.wrong]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("kind", "count"), [("model", 60), ("saved", 40)])
def test_mutants_end_well(kind: str, count: int) -> None:
    assert_all_end_well(kind, range(count))
