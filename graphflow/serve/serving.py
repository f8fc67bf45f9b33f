"""One version of a model while it is served: its queue, and the thread that runs it.

In: a `ServedModel`.  Out: results of requests.  What always holds: after `close` every request that
was accepted has its answer, and no thread is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

from numpy.typing import NDArray

from graphflow.serve.batching import Batcher, BatchRules
from graphflow.serve.model_files import ModelFile
from graphflow.serve.serve_limits import ServeLimits
from graphflow.serve.serve_metrics import ServeMetrics
from graphflow.serve.served_model import Arrays, ServedModel


class _Runner:
    """Runs a model in a thread of its own.  It does not know what serves the model, so that a model
    that is served no more is freed at once."""

    def __init__(self, file: ModelFile, model: ServedModel, metrics: ServeMetrics) -> None:
        self._model = model
        self.thread = ThreadPoolExecutor(1, f"graphflow-{file.name}")
        self._seconds = metrics.run_seconds.labels(file.name, file.version)
        self._rows = metrics.run_rows.labels(file.name, file.version)

    async def run(
        self, requests: Sequence[Arrays]
    ) -> Sequence[dict[str, NDArray[Any]] | Exception]:
        """Serve the requests of one run."""
        loop = asyncio.get_running_loop()
        begin = perf_counter()
        try:
            return await loop.run_in_executor(self.thread, self._model.run, requests)
        finally:
            self._seconds.observe(perf_counter() - begin)
            self._rows.observe(sum(map(self._model.interface.rows, requests)))


class Serving:
    """A model with its queue.  Make it on the event loop."""

    def __init__(
        self, file: ModelFile, model: ServedModel, limits: ServeLimits, metrics: ServeMetrics
    ) -> None:
        self.file = file
        self.model = model
        self.output_names = tuple(tensor.name for tensor in model.interface.outputs)
        self.is_closed = False
        self._runner = _Runner(file, model, metrics)
        rules = BatchRules(model.interface.most_rows, limits.delay_seconds, limits.queue)
        self._batcher = Batcher[Arrays, dict[str, NDArray[Any]]](self._runner.run, rules)
        self._batcher.start()

    @property
    def waiting(self) -> int:
        """How many requests wait for a run."""
        return self._batcher.waiting

    async def infer(self, arrays: Arrays, seconds: float) -> dict[str, NDArray[Any]]:
        """The outputs of a request, whose inputs fit the interface; RefusedRequest if there are
        none within so many seconds."""
        interface = self.model.interface
        rows, key = interface.rows(arrays), interface.key(arrays)
        return await self._batcher.submit(arrays, rows, key, seconds)

    async def close(self) -> None:
        """Accept nothing any more, and return when all that was accepted is answered."""
        self.is_closed = True
        await self._batcher.close()
        self._runner.thread.shutdown(wait=False)  # it is idle
