"""Load on a server together with what clients do wrong: for seconds in a test, for minutes in a
slow one.

In: the port of a server of one model `m`, and questions with their answers.  Out: how many were
answered, which answers were wrong, and which requests were lost: sent whole, and neither answered
nor refused.
"""

import asyncio
import itertools
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from support.serving.served import inference

INFER = b"/v2/models/m/infer"
GOOD_CLIENTS = 8

STALE = 5.0
"""Seconds after which a connection is not used for another request: half of the shortest time after
which a server ends one on which nothing is sent.  A client that was stopped, or waits for its turn
on a busy machine, would else send what the server never reads."""


@dataclass(frozen=True)
class Question:
    """The body of a request, and whether the JSON of a response is right."""

    body: bytes
    is_right: Callable[[Any], bool]


@dataclass
class LoadFindings:
    """What came of a load."""

    answered: int = 0
    refused: Counter[int] = field(default_factory=Counter)
    lost: int = 0
    wrong: list[str] = field(default_factory=list)
    swapped: int = 0
    faults: Counter[str] = field(default_factory=Counter)


def doubled_rows() -> list[Question]:
    """Questions for y = 2 · x."""

    def question(rows: list[float]) -> Question:
        wanted = [2 * value for value in rows for _ in range(4)]
        body = json.dumps(inference(rows)).encode()
        return Question(body, lambda found: found["outputs"][0]["data"] == wanted)

    return [question([float(100 + k + n) for n in range(1 + k % 3)]) for k in range(50)]


def load_with_faults(
    port: int,
    seconds: float,
    swap: Callable[[int], object],
    questions: Sequence[Question] = (),
    pause: float = 0.02,
    stale: float = STALE,
) -> LoadFindings:
    """Ask questions from several connections for so long, while others misbehave, and while `swap`
    replaces the file of the model, which is then loaded."""
    load = _Load(port, questions or doubled_rows(), pause, stale)
    asyncio.run(load.run(seconds, swap))
    return load.findings


class _Load:
    def __init__(
        self, port: int, questions: Sequence[Question], pause: float, stale: float
    ) -> None:
        self.findings = LoadFindings()
        self._port, self._questions = port, questions
        self._pause, self._stale = pause, stale
        self._random = random.Random(1)
        self._is_over = False

    async def run(self, seconds: float, swap: Callable[[int], object]) -> None:
        faults = (self._slow, self._cut, self._gone, self._garbage, self._malformed, self._large)
        loops = [self._forever(fault) for fault in (*faults, self._hurried)]
        loops += [self._good() for _ in range(GOOD_CLIENTS)] + [self._swaps(swap)]
        tasks = [asyncio.ensure_future(loop) for loop in loops]
        await asyncio.sleep(seconds)
        self._is_over = True
        await asyncio.gather(*tasks)

    # Clients that do all right ----------------------------------------------------------------

    async def _good(self) -> None:
        while not self._is_over:
            with suppress(ConnectionError):  # where connecting is refused, nothing was sent
                async with self._connection() as (reader, writer):
                    sent = time.monotonic()
                    for _ in range(self._random.randrange(1, 50)):
                        if self._is_over or time.monotonic() - sent > self._stale:
                            break
                        sent = time.monotonic()
                        await self._ask(reader, writer, self._random.choice(self._questions))

    async def _ask(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, question: Question
    ) -> None:
        try:
            status, content = await _answer(reader, writer, b"POST", INFER, question.body)
        except (ConnectionError, asyncio.IncompleteReadError) as error:
            self.findings.lost += 1
            raise ConnectionError("lost") from error
        if status == 200:
            self.findings.answered += 1
            if not question.is_right(json.loads(content)):
                self.findings.wrong.append(f"{question.body[:80]!r}: {content[:200]!r}")
        elif status in (503, 504):
            self.findings.refused[status] += 1
            await asyncio.sleep(self._pause)
        else:
            self.findings.wrong.append(f"{status}: {content[:200]!r}")

    async def _swaps(self, swap: Callable[[int], object]) -> None:
        for number in itertools.count():
            if self._is_over:
                return
            await asyncio.to_thread(swap, number)
            async with self._connection() as (reader, writer):
                path = b"/v2/repository/models/m/load"
                status, content = await _answer(reader, writer, b"POST", path, b"{}")
            if status != 200:
                self.findings.wrong.append(f"load: {status}: {content[:200]!r}")
            self.findings.swapped += 1
            await asyncio.sleep(4 * self._pause)

    # Clients that do something wrong ----------------------------------------------------------

    async def _forever(self, fault: Callable[[], Awaitable[None]]) -> None:
        name = fault.__name__.strip("_")
        while not self._is_over:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await fault()
            self.findings.faults[name] += 1
            await asyncio.sleep(self._pause)

    async def _slow(self) -> None:
        """A head of which a byte comes from time to time, until the server has enough of it."""
        async with self._connection() as (reader, writer):
            for byte in b"POST " + INFER + b" HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 1000:
                writer.write(bytes([byte]))
                await writer.drain()
                if reader.at_eof() or self._is_over:
                    return
                await asyncio.sleep(self._pause)

    async def _cut(self) -> None:
        """The half of a body."""
        async with self._connection() as (_, writer):
            body = self._random.choice(self._questions).body
            writer.write(_request(b"POST", INFER, body)[: -len(body) // 2])
            await writer.drain()

    async def _gone(self) -> None:
        """A whole request, whose client does not wait for the answer."""
        async with self._connection() as (_, writer):
            writer.write(_request(b"POST", INFER, self._random.choice(self._questions).body))
            await writer.drain()
            await asyncio.sleep(self._random.random() * self._pause)

    async def _garbage(self) -> None:
        """Bytes that are no HTTP."""
        async with self._connection() as (reader, writer):
            writer.write(self._random.randbytes(200) + b"\r\n\r\n")
            self._require(await reader.read(12), b"", b"HTTP/1.1 400")

    async def _malformed(self) -> None:
        """A request in which some bytes are others."""
        async with self._connection() as (reader, writer):
            body = bytearray(self._random.choice(self._questions).body)
            for _ in range(3):
                body[self._random.randrange(len(body))] = self._random.randrange(256)
            status, _ = await _answer(reader, writer, b"POST", INFER, b"{" + bytes(body))
            self._require(status, 400)

    async def _large(self) -> None:
        """A body that is larger than may be."""
        async with self._connection() as (reader, writer):
            head = _request(b"POST", INFER, b"")
            writer.write(head.replace(b"Content-Length: 0", b"Content-Length: 9999999999"))
            self._require(await reader.readexactly(12), b"HTTP/1.1 413")

    async def _hurried(self) -> None:
        """A request that is late from the beginning, or almost."""
        async with self._connection() as (reader, writer):
            question = self._random.choice(self._questions)
            timeout = self._random.choice((1, 1000, 5000))
            front, _, back = question.body.partition(b"{")
            body = front + b'{"parameters": {"timeout": %d}, ' % timeout + back
            status, _ = await _answer(reader, writer, b"POST", INFER, body)
            self._require(status, 200, 503, 504)

    def _require(self, found: object, *wanted: object) -> None:
        if found not in wanted:
            self.findings.wrong.append(f"{found!r} instead of {wanted!r}")

    @asynccontextmanager
    async def _connection(self) -> Any:
        """A connection on which a request is in time if it is sent at once."""
        while True:
            began = time.monotonic()
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            if time.monotonic() - began <= self._stale:
                break
            writer.close()
        try:
            yield reader, writer
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()


def _request(method: bytes, path: bytes, body: bytes) -> bytes:
    return b"%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (
        method,
        path,
        len(body),
        body,
    )


async def _answer(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    method: bytes,
    path: bytes,
    body: bytes,
) -> tuple[int, bytes]:
    """Send a request, and read the status and the body of its answer."""
    writer.write(_request(method, path, body))
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    length = next(line for line in lines if line.startswith(b"content-length:"))
    return int(head[9:12]), await reader.readexactly(int(length.partition(b":")[2]))
