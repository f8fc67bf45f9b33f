"""How much a run of a program with sizes executes, counted and not timed.

In: a compiled program and the values of its sizes.  Out: how many elements its kernels store and
reduce in a run, by the iterations of its portions and the conditions on sizes in its kernels.
"""

from collections.abc import Mapping

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
    return _work(kernel.func.body, sizes, chosen, {})


def _work(
    body: tir.Body, sizes: Mapping[tir.Buffer, int], chosen: list[int], at: Mapping[arith.Var, int]
) -> int:
    total = 0
    for stmt in body:
        match stmt:
            case tir.Store() | tir.Reduce():
                total += 1
            case tir.If() if (size := _size_read(stmt, sizes)) is not None:
                condition = stmt.condition
                assert isinstance(condition, tir.Comparison)
                assert isinstance(condition.left, tir.IndexValue)
                holds = arith.evaluate(condition.left.index, at) < size
                total += _work(stmt.then if holds else stmt.orelse, sizes, chosen, at)
            case tir.For():
                first = arith.evaluate(stmt.start, at)
                last = arith.evaluate(stmt.stop, at)
                # The value that a matched loop looks for is that of one iteration at the most.
                is_matched = tir.matched_value(stmt) is not None
                runs = list(range(first, min(first + 1, last) if is_matched else last))
                if stmt.kind is tir.LoopKind.PARALLEL:
                    runs = [first + number for number in chosen]
                elif runs and not _depends(stmt, sizes):
                    total += len(runs) * _work(stmt.body, sizes, chosen, {**at, stmt.var: first})
                    continue
                for value in runs:
                    total += _work(stmt.body, sizes, chosen, {**at, stmt.var: value})
            case _:
                total += sum(_work(b, sizes, chosen, at) for b in tir.sub_bodies(stmt))
    return total


def _depends(loop: tir.For, sizes: Mapping[tir.Buffer, int]) -> bool:
    """Whether some iterations of a loop may do more than others."""
    inside = tir.walk(loop.body)
    return any(
        (isinstance(stmt, tir.If) and _size_read(stmt, sizes) is not None)
        or (isinstance(stmt, tir.For) and stmt.extent is None)
        for stmt in inside
    )


def _size_read(stmt: tir.If, sizes: Mapping[tir.Buffer, int]) -> int | None:
    """The value of the size that a condition reads, if it reads one."""
    condition = stmt.condition
    if not isinstance(condition, tir.Comparison) or not isinstance(condition.right, tir.Load):
        return None
    return sizes.get(condition.right.buffer)
