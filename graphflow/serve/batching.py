"""Dynamic batching: requests that wait for one model are served by as few runs as possible.

In: items, each with a number of rows and a key; those with equal keys can share a run.  Out: for
each its result, or the reason why there is none.  What always holds: at most `most_waiting` items
wait; the first that came is in the next run; an item that nobody waits for any more, or whose
deadline has passed, takes no part in a run; whatever was accepted gets a result or an error.

Everything here runs on the event loop; `run`, which does the work, must not block it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import count
from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from graphflow.serve.refused import RefusedRequest, unavailable

Item = TypeVar("Item")
Result = TypeVar("Result")

Runs: TypeAlias = Callable[[Sequence[Item]], Awaitable[Sequence[Result | Exception]]]
"""Serves some items in one run: a result, or an error, for each."""


class BatchRules(Struct, frozen=True):
    """Which items share a run: at most `most_rows` rows, of items that came within `delay` seconds
    of the first, or that wait anyway; at most `most_waiting` items wait, and `runs` are made at the
    same time."""

    most_rows: int
    delay: float
    most_waiting: int
    runs: int = 1


@dataclass(slots=True, eq=False)
class _Waiting(Generic[Item, Result]):
    item: Item
    rows: int
    key: Hashable
    since: float
    answer: asyncio.Future[Result] = field(repr=False)


class Batcher(Generic[Item, Result]):
    """The queue of one model.  `start` begins to serve, `close` ends it when all is served."""

    def __init__(self, run: Runs[Item, Result], rules: BatchRules) -> None:
        self._run = run
        self._rules = rules
        self._waiting: dict[int, _Waiting[Item, Result]] = {}
        self._numbers = count()
        self._changed = asyncio.Event()
        self._slots = asyncio.Semaphore(rules.runs)
        self._running: set[asyncio.Task[None]] = set()
        self._closing = False
        self._server: asyncio.Task[None] | None = None

    @property
    def waiting(self) -> int:
        """How many items wait for a run."""
        return len(self._waiting)

    def start(self) -> None:
        """Begin to serve."""
        self._server = asyncio.get_running_loop().create_task(self._serve())

    async def close(self) -> None:
        """Refuse new items from now on, and return when all others have their answers."""
        self._closing = True
        self._changed.set()
        if self._server is not None:
            await self._server

    async def submit(self, item: Item, rows: int, key: Hashable, seconds: float) -> Result:
        """The result of an item, which must be there within so many seconds.

        Raises RefusedRequest if the queue is full or closed, or if the time is over, and what `run`
        gave for the item.  If the caller is cancelled while the item waits, no run has it.
        """
        if self._closing:
            raise unavailable("the model is being unloaded; try again", "unloading")
        if len(self._waiting) >= self._rules.most_waiting:
            raise unavailable(
                f"{len(self._waiting)} requests wait for this model, as many as may; try again "
                "later",
                "queue_full",
            )
        loop = asyncio.get_running_loop()
        number = next(self._numbers)
        entry = _Waiting[Item, Result](item, rows, key, loop.time(), loop.create_future())
        self._waiting[number] = entry
        self._changed.set()
        try:
            async with asyncio.timeout(seconds):
                return await entry.answer
        except TimeoutError:
            raise RefusedRequest(
                HTTPStatus.GATEWAY_TIMEOUT,
                f"there was no result within the {seconds:g} seconds of this request",
                "deadline",
            ) from None
        finally:
            if self._waiting.pop(number, None) is not None:
                self._changed.set()

    async def _serve(self) -> None:
        while await self._has_some():
            await self._slots.acquire()
            batch = await self._next_batch()
            if not batch:  # nobody waits for them any more
                self._slots.release()
                continue
            task = asyncio.get_running_loop().create_task(self._answer(batch))
            self._running.add(task)
            task.add_done_callback(self._running.discard)
        while self._running:
            await asyncio.wait(self._running)

    async def _has_some(self) -> bool:
        """Wait for an item; False if there is none any more, and none will come."""
        while not self._waiting:
            if self._closing:
                return False
            await self._change()
        return True

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    async def _next_batch(self) -> list[_Waiting[Item, Result]]:
        """The items of the next run: the first one, and those that may share a run with it, taken
        when they fill it or the delay of the first one is over."""
        loop = asyncio.get_running_loop()
        while self._waiting:
            numbers, is_full = self._chosen()
            rest = self._waiting[numbers[0]].since + self._rules.delay - loop.time()
            if is_full or rest <= 0 or self._closing:
                return [self._waiting.pop(number) for number in numbers]
            try:
                async with asyncio.timeout(rest):
                    await self._change()
            except TimeoutError:
                continue
        return []

    def _chosen(self) -> tuple[list[int], bool]:
        """The numbers of the items that would be served now, and whether no other fits in."""
        numbers: list[int] = []
        key, rows = next(iter(self._waiting.values())).key, 0
        for number, entry in self._waiting.items():
            if entry.key != key:
                continue
            if numbers and rows + entry.rows > self._rules.most_rows:
                return numbers, True
            numbers.append(number)
            rows += entry.rows
        return numbers, rows >= self._rules.most_rows

    async def _answer(self, batch: Sequence[_Waiting[Item, Result]]) -> None:
        try:
            results = await self._run([entry.item for entry in batch])
        except Exception as error:
            results = [error] * len(batch)
        finally:
            self._slots.release()
        for entry, result in zip(batch, results, strict=True):
            if entry.answer.done():  # its caller went away
                continue
            if isinstance(result, Exception):
                entry.answer.set_exception(result)
            else:
                entry.answer.set_result(result)
