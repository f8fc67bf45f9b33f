"""The kernels as the page shows them: what each step of a schedule changed, and the native code.

In: a `Compiled` model.  Out: a `ShownKernel` for each kernel that runs, by symbol.  What always
holds: a step is what the schedule recorded, applied again; IR and assembly are those of the kernel
that runs.  Long texts are given to the kernels that take most of a run, until the page has enough
of them, so that it stays small and is made quickly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher

from graphflow.codegen import emit_assembly, emit_ir
from graphflow.inspect.page.page_data import ShownEdit, ShownKernel, ShownNode, ShownStep
from graphflow.kernels.lowering import LoweredKernel
from graphflow.pipeline.compiler import Compiled
from graphflow.schedule import replayed
from graphflow.tir import to_text

STEP_CHARACTERS = 4_000_000
"""The most characters of all kernels after each of their steps: one or two seconds of work."""

CODE_CHARACTERS = 1_500_000
"""The most characters of LLVM IR and assembly together: 0.3 MB of a page."""

COMPARED_LINES = 300
"""Longer parts of a text that differ count as replaced: comparing takes time in the square."""


def shown_kernels(compiled: Compiled, nodes: Sequence[ShownNode]) -> dict[str, ShownKernel]:
    """The kernels of these nodes of the program."""
    shares = _shares(nodes)
    kernels = [(s, k) for s, k in compiled.lowered.kernels.items() if s in shares]
    texts = _Texts(compiled)
    made = {
        symbol: texts.of(symbol, kernel)
        for symbol, kernel in sorted(kernels, key=lambda pair: -shares[pair[0]])
    }
    return {symbol: made[symbol] for symbol, _ in kernels}


def _shares(nodes: Sequence[ShownNode]) -> Mapping[str, float]:
    """The share of a run of all calls of each kernel."""
    shares: dict[str, float] = {}
    for node in nodes:
        if node.kernel is not None:
            shares[node.kernel] = shares.get(node.kernel, 0.0) + node.share
    return shares


class _Texts:
    """Makes the texts of kernels, the long ones until there are enough of them."""

    def __init__(self, compiled: Compiled) -> None:
        self.target = compiled.target
        self.steps_left, self.code_left = STEP_CHARACTERS, CODE_CHARACTERS

    def of(self, symbol: str, kernel: LoweredKernel) -> ShownKernel:
        ir, assembly = self._code(symbol, kernel)
        return ShownKernel(
            definition=to_text(kernel.schedule.definition),
            schedule=kernel.schedule.trace(proofs=True),
            lowered=to_text(kernel.func),
            steps=self._steps(kernel),
            ir=ir,
            assembly=assembly,
        )

    def _code(self, symbol: str, kernel: LoweredKernel) -> tuple[str | None, str | None]:
        if self.code_left <= 0:
            return None, None
        ir = emit_ir(kernel.func, symbol, self.target)
        assembly = emit_assembly(kernel.func, symbol, self.target)
        self.code_left -= len(ir) + len(assembly)
        return ir, assembly

    def _steps(self, kernel: LoweredKernel) -> tuple[ShownStep, ...] | None:
        """The steps with what each changed, then what makes a kernel for the emitter of the
        result; None if the page has enough of them."""
        if self.steps_left <= 0:
            return None
        return tuple(self._changes(kernel))

    def _changes(self, kernel: LoweredKernel) -> Iterator[ShownStep]:
        schedule = kernel.schedule
        before = to_text(schedule.definition).splitlines()
        for step, func in zip(
            schedule.steps, replayed(schedule.definition, schedule.steps), strict=True
        ):
            after = self._lines(to_text(func))
            yield ShownStep(str(step), tuple(map(str, step.proofs)), _edits(before, after))
            before = after
        last = _edits(before, self._lines(to_text(kernel.func)))
        if last:
            yield ShownStep("lowering", (), last)

    def _lines(self, text: str) -> list[str]:
        self.steps_left -= len(text)
        return text.splitlines()


def _edits(before: Sequence[str], after: Sequence[str]) -> tuple[ShownEdit, ...]:
    """The lines that differ, from the first on."""
    first, shorter = 0, min(len(before), len(after))
    while first < shorter and before[first] == after[first]:
        first += 1
    last = 0
    while last < shorter - first and before[-1 - last] == after[-1 - last]:
        last += 1
    old, new = before[first : len(before) - last], after[first : len(after) - last]
    if max(len(old), len(new)) > COMPARED_LINES:
        return (ShownEdit(first, len(old), tuple(new)),)
    opcodes = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return tuple(
        ShownEdit(first + start, stop - start, tuple(new[new_start:new_stop]))
        for kind, start, stop, new_start, new_stop in opcodes
        if kind != "equal"
    )
