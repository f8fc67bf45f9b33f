"""Answers of the effect analysis beside an enumeration of all instances.

In: a kernel, or the seed of a random one.  Out: how many answers had which verdict; AssertionError
for a wrong one.
"""

from collections import Counter
from collections.abc import Iterator
from random import Random

from graphflow.arith import Proof, Var, Verdict, holds
from graphflow.effects import never_touched, no_carried_flow, overwritten_unread, stores_known_value
from graphflow.tir import For, PrimFunc, Store, buffers_of, to_text
from support.kernels.effect_kernels import EffectKernel, Path, Trace, each_path, inside, traced
from support.kernels.random_kernels import random_predicate

RUNS = 3
"""Runs of a kernel with conditions on data, each with other outcomes."""


def unread(path: Path, trace: Trace) -> bool:
    """Whether a run sees nothing of what the statement at `path` writes.

    Another reduction does not see what it finds, but passes it on.
    """
    held: set[object] = set()
    for event in trace.events:
        if inside(path, event.path):
            held |= {event.element} if event.is_write else set()
        elif event.op is None:
            if not event.is_write and event.element in held:
                return False
            held -= {event.element} if event.is_write else set()
    return not any(buffer.name == "y" for buffer, *_ in held)  # type: ignore[misc, has-type]


def hands_on_none(path: Path, level: int, trace: Trace) -> bool:
    """Whether no iteration of a loop reads what an earlier one wrote."""
    return not any(
        inside(path, event.path)
        and event.source is not None
        and inside(path, event.source.path)
        and event.instance[:level] == event.source.instance[:level]
        and event.instance[level] != event.source.instance[level]
        for event in trace.events
        if not event.is_write
    )


def questions(func: PrimFunc, random: Random) -> Iterator[tuple[str, Proof, object]]:
    """Answers of the analysis, each with a function of a trace that says whether it holds."""
    places = list(each_path(func.body))
    for path, stmt in places:
        yield "unread", overwritten_unread(func, path), lambda t, p=path: unread(p, t)
        if isinstance(stmt, Store):
            yield (
                "known value",
                stores_known_value(func, path),
                lambda t, p=path: all(old == new for q, old, new in t.stores if q == p),
            )
        if isinstance(stmt, For):
            level = sum(isinstance(s, For) and p != path and inside(p, path) for p, s in places)
            yield (
                "carried flow",
                no_carried_flow(func, path),
                lambda t, p=path, n=level: hands_on_none(p, n, t),
            )
    for buffer in buffers_of(func):
        names = [Var(f"d{axis}") for axis in range(len(buffer.shape))]
        region = random_predicate(random.randint, names, 1)
        yield (
            "touched",
            never_touched(func, buffer, names, region),
            lambda t, b=buffer, r=region, v=names: (
                not any(
                    e.element[0] == b and holds(r, dict(zip(v, e.element[2], strict=True)))
                    for e in t.events
                )
            ),
        )


def check(seed: int) -> Counter[tuple[bool, str, Verdict]]:
    """Asks all questions about one kernel; AssertionError for a wrong answer."""
    random = Random(seed)
    data = seed % 4 == 0
    func = EffectKernel.of(random.randint, data).func()
    traces = [traced(func, lambda: random.random() < 0.5) for _ in range(RUNS if data else 1)]
    found: Counter[tuple[bool, str, Verdict]] = Counter()
    for question, answer, true in questions(func, random):
        found[data, question, answer.verdict] += 1
        truths = [true(trace) for trace in traces]  # type: ignore[operator]
        wrong = any(truths) if answer.verdict is Verdict.REFUTED else not all(truths)
        assert answer.verdict is Verdict.UNKNOWN or not wrong, (
            f"seed {seed}: {answer}, and in the runs {truths}\n{to_text(func)}"
        )
    return found
