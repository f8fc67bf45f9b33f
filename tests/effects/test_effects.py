"""The effect analysis beside an enumeration of all instances, on small random kernels."""

from collections import Counter

from graphflow.arith import Verdict
from support.fuzz.effect_questions import check

CASES = 150
"""Seeds of the ordinary run; others are those of the fuzz test `effects`."""


def shares(found: Counter[tuple[bool, str, Verdict]]) -> dict[str, float]:
    """The share of unknown answers about kernels without conditions on data, by question."""
    asked: Counter[str] = Counter()
    unknown: Counter[str] = Counter()
    for (data, question, verdict), count in found.items():
        if not data:
            asked[question] += count
            unknown[question] += count * (verdict is Verdict.UNKNOWN)
    return {question: unknown[question] / asked[question] for question in asked}


def compare(seeds: range) -> None:
    found: Counter[tuple[bool, str, Verdict]] = Counter()
    for seed in seeds:
        found += check(seed)
    for (data, question, verdict), count in sorted(found.items(), key=str):
        print("data" if data else "affine", question, verdict.value, count)
    print("unknown on affine kernels:", shares(found))
    for question, share in shares(found).items():
        assert share < 0.05, (question, share)


def test_answers_agree_with_enumeration() -> None:
    compare(range(CASES))
