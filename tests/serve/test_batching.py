"""Tests of the queue of a model with a run that is told what to do: sharing, the delay, the bound,
deadlines, cancellation and the end."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import Any

import pytest

from graphflow.serve.batching import Batcher, BatchRules
from graphflow.serve.refused import RefusedRequest

RULES = BatchRules(most_rows=4, delay=0.0, most_waiting=8)
LONG = 20.0


class Work:
    """A run that waits for `gate` and doubles its items; those that are negative fail."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def run(self, items: Sequence[int]) -> list[int | Exception]:
        self.batches.append(list(items))
        await self.gate.wait()
        return [2 * item if item >= 0 else ValueError(item) for item in items]


def queued(
    test: Callable[[Work, Batcher[int, int]], Awaitable[None]], rules: BatchRules = RULES
) -> Work:
    """Run a test with a queue; behind it nothing waits and all is answered."""

    async def main() -> Work:
        work = Work()
        batcher = Batcher[int, int](work.run, rules)
        batcher.start()
        await test(work, batcher)
        work.gate.set()
        async with asyncio.timeout(LONG):
            await batcher.close()
        assert batcher.waiting == 0
        return work

    return asyncio.run(main())


async def settled() -> None:
    """Let every task run that can."""
    for _ in range(10):
        await asyncio.sleep(0)


def submitted(batcher: Batcher[int, int], *items: int, key: Any = 0, rows: int = 1) -> list[Any]:
    return [asyncio.ensure_future(batcher.submit(item, rows, key, LONG)) for item in items]


async def occupied(work: Work, batcher: Batcher[int, int]) -> Any:
    """A run that goes on until the gate opens, so that all others wait."""
    work.gate.clear()
    (first,) = submitted(batcher, 100)
    await settled()
    return first


def test_what_waits_shares_runs_in_its_order() -> None:
    async def test(work: Work, batcher: Batcher[int, int]) -> None:
        first = await occupied(work, batcher)
        others = submitted(batcher, 1, 2, 3, 4, 5)
        await settled()
        work.gate.set()
        assert await asyncio.gather(first, *others) == [200, 2, 4, 6, 8, 10]

    assert queued(test).batches == [[100], [1, 2, 3, 4], [5]]


def test_a_run_has_at_most_so_many_rows() -> None:
    async def test(work: Work, batcher: Batcher[int, int]) -> None:
        await occupied(work, batcher)
        submitted(batcher, 1, 2, rows=3)
        submitted(batcher, 3)
        await settled()

    assert queued(test).batches == [[100], [1], [2, 3]]


def test_only_equal_keys_share_a_run() -> None:
    async def test(work: Work, batcher: Batcher[int, int]) -> None:
        await occupied(work, batcher)
        submitted(batcher, 1, key="a")
        submitted(batcher, 2, key="b")
        submitted(batcher, 3, key="a")
        await settled()

    assert queued(test).batches == [[100], [1, 3], [2]]


def test_a_request_waits_for_others_within_the_delay() -> None:
    async def test(work: Work, batcher: Batcher[int, int]) -> None:
        begin = asyncio.get_running_loop().time()
        one = submitted(batcher, 1)
        await asyncio.sleep(0.01)
        assert work.batches == []
        assert await asyncio.gather(*one, *submitted(batcher, 2)) == [2, 4]
        assert asyncio.get_running_loop().time() - begin >= 0.05
        await asyncio.gather(*submitted(batcher, 3, 4, 5, 6))  # full: no delay

    rules = BatchRules(most_rows=4, delay=0.05, most_waiting=8)
    assert queued(test, rules).batches == [[1, 2], [3, 4, 5, 6]]


def test_a_full_queue_refuses_and_recovers() -> None:
    async def test(work: Work, batcher: Batcher[int, int]) -> None:
        await occupied(work, batcher)
        waiting = submitted(batcher, *range(8))
        await settled()
        assert batcher.waiting == 8
        with pytest.raises(RefusedRequest, match="8 requests wait") as refused:
            await batcher.submit(9, 1, 0, LONG)
        assert refused.value.status == HTTPStatus.SERVICE_UNAVAILABLE
        assert refused.value.headers == {"Retry-After": "1"}
        work.gate.set()
        assert await asyncio.gather(*waiting) == [2 * k for k in range(8)]
        assert await batcher.submit(9, 1, 0, LONG) == 18

    queued(test)


def test_what_nobody_waits_for_any_more_takes_no_part() -> None:
    async def test(work: Work, batcher: Batcher[int, int]) -> None:
        first = await occupied(work, batcher)
        gone, late, kept = submitted(batcher, 1, 2, 3)
        await settled()
        gone.cancel()
        late.cancel()
        await settled()
        assert batcher.waiting == 1
        first.cancel()  # its run goes on, and its result is dropped
        work.gate.set()
        assert await kept == 6

    assert queued(test).batches == [[100], [3]]


def test_a_deadline_ends_the_wait() -> None:
    async def test(work: Work, batcher: Batcher[int, int]) -> None:
        await occupied(work, batcher)
        with pytest.raises(RefusedRequest, match=r"within the 0\.01 seconds") as refused:
            await batcher.submit(1, 1, 0, 0.01)
        assert refused.value.status == HTTPStatus.GATEWAY_TIMEOUT
        assert batcher.waiting == 0

    assert queued(test).batches == [[100]]


def test_a_deadline_ends_the_wait_for_a_run_too() -> None:
    async def test(work: Work, batcher: Batcher[int, int]) -> None:
        work.gate.clear()
        with pytest.raises(RefusedRequest, match="no result"):
            await batcher.submit(1, 1, 0, 0.01)
        work.gate.set()
        assert await batcher.submit(2, 1, 0, LONG) == 4

    assert queued(test).batches == [[1], [2]]


def test_an_error_is_that_of_its_item_alone() -> None:
    async def test(work: Work, batcher: Batcher[int, int]) -> None:
        await occupied(work, batcher)
        good, bad = submitted(batcher, 1, -2)
        work.gate.set()
        assert await good == 2
        with pytest.raises(ValueError, match="-2"):
            await bad

    queued(test)


def test_a_run_that_breaks_is_an_error_of_all_its_items() -> None:
    async def main() -> None:
        async def breaks(_: Sequence[int]) -> list[int | Exception]:
            raise RuntimeError("broken")

        batcher = Batcher[int, int](breaks, RULES)
        batcher.start()
        for _ in range(2):  # and the queue goes on
            with pytest.raises(RuntimeError, match="broken"):
                await batcher.submit(1, 1, 0, LONG)
        await batcher.close()

    asyncio.run(main())


def test_the_end_answers_all_and_accepts_none() -> None:
    async def test(work: Work, batcher: Batcher[int, int]) -> None:
        first = await occupied(work, batcher)
        waiting = submitted(batcher, 1, 2)
        await settled()
        closing = asyncio.ensure_future(batcher.close())
        await settled()
        with pytest.raises(RefusedRequest, match="unloaded"):
            await batcher.submit(3, 1, 0, LONG)
        assert not closing.done()
        work.gate.set()
        assert await asyncio.gather(first, *waiting) == [200, 2, 4]
        await closing

    queued(test, BatchRules(1, 0.0, 8))


def test_several_runs_at_a_time() -> None:
    async def test(work: Work, batcher: Batcher[int, int]) -> None:
        work.gate.clear()
        submitted(batcher, 1, 2, 3)
        await settled()
        assert work.batches == [[1], [2]]

    assert queued(test, BatchRules(1, 0.0, 8, runs=2)).batches == [[1], [2], [3]]
