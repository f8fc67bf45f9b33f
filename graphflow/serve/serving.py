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


class Serving:
    """A model with its queue.  Make it on the event loop."""

    def __init__(
        self, file: ModelFile, model: ServedModel, limits: ServeLimits, metrics: ServeMetrics
    ) -> None:
        self.file = file
        self.model = model
        self.output_names = tuple(tensor.name for tensor in model.interface.outputs)
        self.is_closed = False
        named = (file.name, file.version)
        self._run_seconds = metrics.run_seconds.labels(*named)
        self._run_rows = metrics.run_rows.labels(*named)
        rules = BatchRules(model.interface.most_rows, limits.delay_seconds, limits.queue)
        self._batcher = Batcher[Arrays, dict[str, NDArray[Any]]](self._run, rules)
        self._thread = ThreadPoolExecutor(rules.runs, f"graphflow-{file.name}")
        metrics.waiting.labels(*named).set_function(lambda: self._batcher.waiting)
        self._batcher.start()

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
        self._thread.shutdown(wait=False)  # it is idle

    async def _run(
        self, requests: Sequence[Arrays]
    ) -> Sequence[dict[str, NDArray[Any]] | Exception]:
        loop = asyncio.get_running_loop()
        begin = perf_counter()
        try:
            return await loop.run_in_executor(self._thread, self.model.run, requests)
        finally:
            self._run_seconds.observe(perf_counter() - begin)
            self._run_rows.observe(sum(map(self.model.interface.rows, requests)))
