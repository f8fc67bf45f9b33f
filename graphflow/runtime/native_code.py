"""The kernels of a program, linked, and how tables of their steps are executed.

In: a `ProgramSpec`.  What always holds: tables are executed without the interpreter lock, from any
Python thread and in forked children, and a run that an exception ends leaves its arena free.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from graphflow.base.errors import GraphflowError
from graphflow.program import ProgramSpec, ProgramStep, Signature
from graphflow.runtime.cpus import default_threads
from graphflow.runtime.driver import ORPHANED, Driver, driver
from graphflow.runtime.linking import link
from graphflow.runtime.pool import POOLS
from graphflow.runtime.step_table import PATIENCE_NS, Arena, StepTable, step_table

_MOST_THREADS = 1024
"""A larger number of threads is taken for a mistake."""


class NativeCode:
    """The linked kernels of a program, and the threads that execute them.

    threads: how many a run uses; by default the processors that this process may use.
    flush_denormals: whether every thread treats denormals as zero while it runs kernels.
    native: the native code that walks the steps; by default the one of this process.
    patience_ns: how long native code keeps signals waiting, if no step takes longer.

    Raises CodegenError for unusable object code, GraphflowError if the threads cannot be started.
    """

    def __init__(
        self,
        spec: ProgramSpec,
        threads: int | None = None,
        flush_denormals: bool = False,
        native: Driver | None = None,
        patience_ns: int = PATIENCE_NS,
    ) -> None:
        self.threads = default_threads() if threads is None else threads
        if not 1 <= self.threads <= _MOST_THREADS:
            raise GraphflowError(f"threads is {threads}, must be from 1 to {_MOST_THREADS}")
        self.flush_denormals = flush_denormals
        self._inputs = len(spec.inputs)
        self._run = (driver() if native is None else native).run
        self._patience_ns = patience_ns
        self._code = link(spec.objects)

    def table(
        self,
        steps: tuple[ProgramStep, ...],
        constants: NDArray[np.uint8],
        apart: Mapping[int, int],
        signatures: Mapping[str, Signature] = MappingProxyType({}),
    ) -> StepTable:
        """The table of native steps, which read constants in a block, or `apart` from it; its other
        parameters are those of `step_table`."""
        addresses, inputs = self._code.addresses, self._inputs
        return step_table(steps, addresses, constants, inputs, self.threads, apart, signatures)

    def arena(self, spec: ProgramSpec, tables: Sequence[StepTable]) -> Arena:
        """The memory of a run of `spec`, which is not kept, that executes these tables."""
        return Arena(spec, tables, self.flush_denormals, self._patience_ns)

    def walk(self, arena: Arena, job: int) -> None:
        """Execute a table of an arena by the number of its job there.

        Long runs pause between steps, so that a signal handler can end them by an exception.
        """
        address = arena.jobs[job]
        try:
            while (given := self._run(address)) > 0 or given == ORPHANED:
                # A signal handler may fork between two calls, or just before one: the job has a
                # pool of the parent then.
                if given == ORPHANED:
                    arena.share(job, POOLS.address(self.threads))
        except BaseException:
            arena.abandon()
            raise
        assert given == 0, "an arena serves one run at a time"
