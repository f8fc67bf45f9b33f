"""How much a run of a program with sizes executes, counted and not timed.

In: a compiled program and the values of its sizes.  Out: how many elements its kernels store and
reduce in a run, by the iterations of its portions and the conditions on sizes in its kernels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from graphflow import arith, tir
from graphflow.kernels.lowering import LoweredKernel
from graphflow.lower import Lowered
from graphflow.program import Portion, ProgramStep


def executed_work(lowered: Lowered, sizes: Mapping[str, int]) -> int:
    """The elements that all steps of a run store and reduce; `sizes` by the names of inputs."""
    numbers = {name: number for number, name in enumerate(lowered.physical.inputs)}
    values = {numbers[name]: size for name, size in sizes.items()}
    return sum(
        _work_of_step(lowered.kernels[step.symbol], step, values)
        for call, step in lowered.calls
        if not call.prepare
    )


def executed_iterations(part: Portion, values: Mapping[int, int]) -> list[int]:
    """The numbers of the iterations that run where inputs hold these values."""
    chosen = np.ones((), bool)
    for digit in part.digits:
        chosen = np.logical_and.outer(chosen, np.arange(digit.count) < digit.executed(values))
    return [int(number) for number in np.flatnonzero(chosen)]


def _work_of_step(kernel: LoweredKernel, step: ProgramStep, values: Mapping[int, int]) -> int:
    refs = step.buffers[len(step.buffers) - len(kernel.sizes) :]
    sizes = {p.buffer: values[ref.position] for p, ref in zip(kernel.sizes, refs, strict=True)}
    chosen = (
        list(range(step.extent))
        if step.portion is None
        else executed_iterations(step.portion, values)
    )
    return _Counting(sizes, chosen).work(kernel.func.body, {})


@dataclass
class _Counting:
    """The elements that the bodies of a kernel store and reduce, for these sizes and iterations of
    its parallel loops.

    `_known` has them for each body and the values of the variables that decide about them.
    """

    sizes: Mapping[tir.Buffer, int]
    chosen: list[int]
    _known: dict[tuple[int, ...], int] = field(default_factory=dict)
    _deciding: dict[int, tuple[tir.Body, tuple[arith.Var, ...]]] = field(default_factory=dict)

    def work(self, body: tir.Body, at: Mapping[arith.Var, int]) -> int:
        """For the iteration of the loops around the body in which variables have these values."""
        key = (id(body), *(at[var] for var in self._decided_by(body) if var in at))
        if key not in self._known:
            self._known[key] = sum(self._work(stmt, at) for stmt in body)
        return self._known[key]

    def _work(self, stmt: tir.Stmt, at: Mapping[arith.Var, int]) -> int:
        match stmt:
            case tir.Store() | tir.Reduce():
                return 1
            case tir.If() if (size := _size_read(stmt, self.sizes)) is not None:
                holds = arith.evaluate(_compared(stmt), at) < size
                return self.work(stmt.then if holds else stmt.orelse, at)
            case tir.For():
                first = arith.evaluate(stmt.start, at)
                last = arith.evaluate(stmt.stop, at)
                # The value that a matched loop looks for is that of one iteration at the most.
                is_matched = tir.matched_value(stmt) is not None
                runs = range(first, min(first + 1, last) if is_matched else last)
                if stmt.kind is tir.LoopKind.PARALLEL:
                    return sum(
                        self.work(stmt.body, {**at, stmt.var: first + k}) for k in self.chosen
                    )
                if runs and stmt.var not in self._decided_by(stmt.body):
                    return len(runs) * self.work(stmt.body, {**at, stmt.var: first})
                return sum(self.work(stmt.body, {**at, stmt.var: k}) for k in runs)
            case _:
                return sum(self.work(below, at) for below in tir.sub_bodies(stmt))

    def _decided_by(self, body: tir.Body) -> tuple[arith.Var, ...]:
        """The variables in the conditions on sizes and in the bounds of loops below a body."""
        if id(body) not in self._deciding:  # with the body, so that no other one gets its id
            self._deciding[id(body)] = body, tuple(self._found_in(body))
        return self._deciding[id(body)][1]

    def _found_in(self, body: tir.Body) -> dict[arith.Var, None]:
        found: dict[arith.Var, None] = {}
        for stmt in tir.walk(body):
            if isinstance(stmt, tir.For):
                read = [stmt.start, stmt.stop]
            elif isinstance(stmt, tir.If) and _size_read(stmt, self.sizes) is not None:
                read = [_compared(stmt)]
            else:
                continue
            for index in read:
                found |= dict.fromkeys(arith.variables(index))
        return found


def _compared(stmt: tir.If) -> arith.IndexExpr:
    """What a condition compares with a size."""
    assert isinstance(stmt.condition, tir.Comparison)
    assert isinstance(stmt.condition.left, tir.IndexValue)
    return stmt.condition.left.index


def _size_read(stmt: tir.If, sizes: Mapping[tir.Buffer, int]) -> int | None:
    """The value of the size that a condition reads, if it reads one."""
    condition = stmt.condition
    if not isinstance(condition, tir.Comparison) or not isinstance(condition.right, tir.Load):
        return None
    return sizes.get(condition.right.buffer)
