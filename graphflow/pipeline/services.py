"""What serves the stages of one compilation: its trace, worker processes, kernel cache and limits.

In: tasks of the stages, and their results.  Out: kernels, object code and checks, each from the
cache, from a worker or made in this process.  What always holds: no result depends on where it was
made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from graphflow.base.fields import replace
from graphflow.base.options import Options
from graphflow.base.target import Target
from graphflow.base.trace import PLAN_LEVEL, Trace
from graphflow.codegen import ObjectTask, emit_assembly, emit_ir, make_object
from graphflow.frontends import ReadModel
from graphflow.graph import OperatorGraph
from graphflow.kernels.lowering import KernelTask, LoweredKernel, make_kernel
from graphflow.kernels.recipes import SHARED_NAME, FilteredTiles
from graphflow.lower import Lowered, check_program, check_values
from graphflow.pipeline.kernel_cache import KernelCache
from graphflow.pipeline.making import make_kernel_and_object, remember_steps
from graphflow.processes.workers import Workers
from graphflow.runtime import default_threads
from graphflow.tir import PrimFunc, only_moves, to_text, walk
from graphflow.validation import Check, check_kernel

KERNELS_PER_PROCESS = 16
"""The least number of kernels for each process that makes them: starting one takes 0.6 s, making a
kernel 0.07 s."""

READY_SECONDS = 5.0
"""How long a compilation waits for the worker that runs LLVM in this process's place."""


class Services(Struct, frozen=True):
    """The functions that stages call to have kernels made, and those that are called when a stage
    ends.

    With `apart`, a worker is started for any kernel that the cache lacks, because LLVM shall not
    run in this process.
    """

    target: Target
    options: Options
    trace: Trace
    workers: Workers
    cache: KernelCache
    apart: bool = False

    def hire(self, opened: ReadModel) -> None:
        """If a model will likely need many kernels, workers start now, to be ready for what flow
        foresees; not if a model with such weights was compiled before, whose kernels are cached."""
        weights = [tuple(weight.dims) for weight in opened.proto.graph.initializer]
        if not self.cache.expects(repr(weights), self.target):
            self._start(2 * len(set(weights)))  # of two for a shape of weights, one packs them

    def expect(self, groups: OperatorGraph) -> None:
        """If a fused graph will need many kernels, workers start now and are ready after flow.

        None start if the kernels of such a graph are in the cache, and new ones end.  Raises
        `MemoryLimitExceeded` if one of the tensors is larger than the limit by itself.
        """
        check_values(groups, self.options.memory_limit)
        if self.cache.expects(tuple(node.func for node in groups.nodes), self.target):
            self.workers.dismiss()
        else:
            self._start(promised_kernels(groups))

    def foresee(self, definition: PrimFunc, recipe: FilteredTiles) -> None:
        """A worker makes the steps of a likely kernel that no layout decides, while it has nothing
        else to do."""
        shared = replace(definition, name=SHARED_NAME)
        self.workers.foresee(remember_steps, (shared, recipe), shared)

    def kernels(self, tasks: Mapping[str, KernelTask]) -> dict[str, LoweredKernel]:
        """The kernels of tasks, by symbol; those that the cache has are taken from it.

        If many are missing that were expected there, workers start now.  A worker makes the object
        code of its kernel as well, for the cache.
        """
        found = self.cache.kernels(tasks)
        missing = {symbol: task for symbol, task in tasks.items() if symbol not in found}
        if missing:
            self._start(len(missing), READY_SECONDS)
        first = {symbol: missing[symbol] for symbol in sorted(missing, key=_work(missing))}
        if not self.workers.started:
            kernels = self.workers.map(make_kernel, first, self.trace)
        else:
            make = partial(make_kernel_and_object, make_object)
            here = not self.apart
            # Steps that no layout decides are made once for each definition, in each process.
            made = self.workers.map(make, first, self.trace, here, lambda task: task.definition)
            kernels = {symbol: kernel for symbol, (kernel, _) in made.items()}
            for symbol, (_, code) in made.items():
                if code is not None:
                    self.cache.take(symbol, code)
        return found | {symbol: kernels[symbol] for symbol in missing}

    def require_memory(self, lowered: Lowered) -> None:
        """Raise `MemoryLimitExceeded` if a whole program needs more memory than allowed."""
        check_program(lowered, self.options.memory_limit)

    def objects(self, kernels: Mapping[str, LoweredKernel]) -> dict[str, bytes]:
        """The object code of kernels, by symbol; what the cache lacks is compiled now."""
        tasks: dict[str, ObjectTask] = {
            symbol: (kernel.func, symbol, self.target)
            for symbol, kernel in kernels.items()
            if symbol not in self.cache.objects
        }
        if tasks and self.apart:
            self._start(len(tasks), READY_SECONDS)
        made = self.workers.map(make_object, tasks, self.trace, here=not self.apart)
        return {**self.cache.objects, **made}

    def checks(self, tasks: Mapping[str, tuple[LoweredKernel, bytes]]) -> dict[str, Check]:
        """The comparison of each kernel with its definition, by symbol."""
        return self.workers.map(check_kernel, tasks, self.trace, here=not self.apart)

    def show(self, lowered: Lowered) -> None:
        """Write the texts of each kernel to the trace."""
        for symbol, kernel in lowered.kernels.items():
            self._show(symbol, kernel)

    def _show(self, symbol: str, kernel: LoweredKernel) -> None:
        func, schedule, show = kernel.func, kernel.schedule, partial(self.trace.kernel, symbol)
        show("definition", lambda: to_text(schedule.definition), PLAN_LEVEL)
        show("schedule", lambda: schedule.trace(proofs=True), PLAN_LEVEL)
        show("tir", lambda: to_text(func), PLAN_LEVEL)
        show("ll", lambda: emit_ir(func, symbol, self.target))
        if self.trace.dumps:
            show("s", lambda: emit_assembly(func, symbol, self.target))

    def _start(self, kernels: int, patience: float = 0.0) -> None:
        """Start workers if so many kernels are worth it, or LLVM runs apart; in the latter case
        wait up to `patience` seconds until they are ready."""
        count = worker_count(kernels, self.options, self.apart)
        if self.apart:
            self.workers.start(count, self.trace, patience)
        elif not self.workers.started:
            self.workers.start(count, self.trace)


def _work(tasks: Mapping[str, KernelTask]) -> Callable[[str], int]:
    """A key that sorts tasks by the time they take, the longest first, so that no process begins a
    long one when the others are done.  Definitions of many statements take the longest: transformed
    tiles, of nine stages, ten times as long as plain sums."""
    return lambda symbol: -sum(1 for _ in walk(tasks[symbol].definition.body))


def promised_kernels(graph: OperatorGraph) -> int:
    """An estimate of the number of distinct kernels that the groups of a graph need.

    Each definition counts one, and one more if it has constants to pack.  Groups that only move
    elements count zero: most become views.
    """
    packs = {
        replace(node.func, name=SHARED_NAME): any(map(graph.is_constant, node.inputs))
        for node in graph.nodes
        if not only_moves(node.func)
    }
    return len(packs) + sum(packs.values())


def worker_count(kernels: int, options: Options, apart: bool = False) -> int:
    """The number of worker processes for so many kernels; 0 for none.

    This process makes kernels too, unless they are made `apart` from it.
    """
    if options.workers is not None:
        return options.workers
    processors = default_threads()
    threads = processors if options.threads is None else min(options.threads, processors)
    processes = min(threads, kernels // KERNELS_PER_PROCESS)
    return max(processes, 1) if apart else max(processes - 1, 0)
