"""Groups of neighbouring steps of one iteration each that threads run concurrently.

In: steps of a program, and the signatures of their kernels.  Out: which of them form groups.

What always holds: no step of a group writes memory that another one of it touches.  What a step
writes is not known here, so no two of them touch the same memory but constants and inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from graphflow.program.program_steps import BufferRef, ProgramStep, Signature

LEAST_BYTES = 64 * 1024
"""The least that a step of a group touches: it takes longer than the threads take to meet."""


def may_run_concurrently(extent: int, sizes: Iterable[int]) -> bool:
    """Whether a step with so many iterations, whose kernel touches buffers of these sizes, leaves
    threads idle for long enough that another step is worth running meanwhile."""
    return extent == 1 and sum(sizes) >= LEAST_BYTES


def concurrent_steps(
    steps: Sequence[ProgramStep], signatures: Mapping[str, Signature]
) -> Iterator[range]:
    """The numbers of the steps of each group, which has at least two.

    They are steps of a run, in which no constant is written.
    """
    group: list[int] = []
    for number, step in enumerate(steps):
        is_free = _is_free(step, signatures)
        if is_free and all(_are_apart(steps[k], step, signatures) for k in group):
            group.append(number)
            continue
        if len(group) > 1:
            yield range(group[0], number)
        group = [number] if is_free else []
    if len(group) > 1:
        yield range(group[0], len(steps))


def _is_free(step: ProgramStep, signatures: Mapping[str, Signature]) -> bool:
    """Whether any thread may run a step, whenever that is, and it is worth it."""
    signature = signatures.get(step.symbol)
    plain = step.threads == 0 and step.portion is None and step.jump is None
    return plain and signature is not None and may_run_concurrently(step.extent, signature.sizes)


def _are_apart(one: ProgramStep, other: ProgramStep, signatures: Mapping[str, Signature]) -> bool:
    """Whether two steps touch no memory in common that any of them may write."""
    ours, theirs = (
        [*zip(step.buffers, signatures[step.symbol].sizes, strict=True)] for step in (one, other)
    )
    return not any(_meet(a, m, b, n) for a, m in ours for b, n in theirs)


def _meet(a: BufferRef, size: int, b: BufferRef, other: int) -> bool:
    """Whether two buffers, of `size` and `other` bytes, may share memory that is written.

    An output may be the memory of an input, where a run keeps states.
    """
    spaces = {a.space, b.space}
    if "constant" in spaces or spaces == {"input"}:
        return False
    if len(spaces) > 1:
        return spaces == {"input", "output"}
    if a.space == "output" and a.position != b.position:
        return False
    first, second = (ref.offset + (ref.position if ref.space == "arena" else 0) for ref in (a, b))
    return first < second + other and second < first + size
