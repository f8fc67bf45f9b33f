"""The bodies of requests, read within the limits of a server.

In: an ASGI request.  Out: its body.  What always holds: a body that is too large is refused before
it is read, as far as its length is stated; what all bodies together hold is bounded; a client that
sends too slowly, or goes away, holds nothing any more.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any

import orjson
from starlette.requests import Request

from graphflow.serve.refused import RefusedRequest, malformed, unavailable
from graphflow.serve.serve_limits import ServeLimits

JSON_LENGTH = "inference-header-content-length"
"""The header with the length of the JSON in front of binary tensors."""


_MOST_SMALL = 64 << 10


class ClientGone(Exception):
    """The client closed the connection: nobody waits for an answer."""


class BodyReader:
    """Reads bodies, and knows how many bytes all of them hold."""

    def __init__(self, limits: ServeLimits) -> None:
        self._limits = limits
        self._held = 0

    @property
    def held(self) -> int:
        """The bytes that are held now."""
        return self._held

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """The body of a request, whose bytes count as held until the context ends.

        Raises RefusedRequest, or ClientGone.
        """
        stated = self._stated_length(request)
        held = 0
        try:
            held = self._hold(stated)
            pieces: list[bytes] = []
            length = 0
            async with asyncio.timeout(self._limits.body_seconds):
                async for piece in _pieces(request):
                    length += len(piece)
                    if length > self._limits.body_bytes:
                        raise self._too_large(length)
                    if length > held:
                        held += self._hold(length - held)
                    pieces.append(piece)
            yield pieces[0] if len(pieces) == 1 else b"".join(pieces)
        except TimeoutError:
            raise RefusedRequest(
                HTTPStatus.REQUEST_TIMEOUT,
                f"the body was not there within {self._limits.body_seconds:g} seconds",
                "slow_body",
            ) from None
        finally:
            self._held -= held

    @contextmanager
    def hold_answer(self, nbytes: int) -> Iterator[None]:
        """Count the bytes of an answer as held until the context ends; it is never refused."""
        self._held += nbytes
        try:
            yield
        finally:
            self._held -= nbytes

    async def small_object(self, request: Request) -> Mapping[str, Any]:
        """The object in the body of a request that is no inference; the body may be empty."""
        async with self.read(request) as body:
            if len(body) > _MOST_SMALL:
                raise self._too_large(len(body))
            try:
                found = orjson.loads(body) if body.strip() else {}
            except orjson.JSONDecodeError as error:
                raise malformed(f"the JSON cannot be read: {error}") from None
        if not isinstance(found, dict):
            raise malformed("the body has to be an object")
        return found

    def json_length(self, request: Request, body: bytes) -> int | None:
        """How many bytes of the body are JSON; None for all."""
        text = request.headers.get(JSON_LENGTH)
        if text is not None and not (text.isascii() and text.isdigit() and len(text) < 20):
            raise malformed(f"Inference-Header-Content-Length is {text!r:.60}, which is no length")
        length = None if text is None else int(text)
        if min(len(body) if length is None else length, len(body)) > self._limits.json_bytes:
            raise RefusedRequest(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                f"the JSON of the request has more than {self._limits.json_bytes} bytes; send "
                "large tensors in binary form",
                "too_large",
            )
        return length

    def _stated_length(self, request: Request) -> int:
        coding = request.headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("", "identity"):
            raise RefusedRequest(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"the body is encoded as {coding!r:.40}; send it as it is",
                "encoded",
            )
        text = request.headers.get("content-length", "0")
        if not (text.isascii() and text.isdigit()) or len(text) > 19:
            raise malformed(f"Content-Length is {text!r:.60}, which is no length")
        if int(text) > self._limits.body_bytes:
            raise self._too_large(int(text))
        return int(text)

    def _hold(self, count: int) -> int:
        if self._held + count > self._limits.held_bytes:
            raise unavailable(
                f"requests of {self._held} bytes are in work, and all may have at most "
                f"{self._limits.held_bytes}; try again later",
                "held_bytes",
            )
        self._held += count
        return count

    def _too_large(self, length: int) -> RefusedRequest:
        return RefusedRequest(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"the body has {length} bytes or more, which is too much; an inference may have "
            f"{self._limits.body_bytes}",
            "too_large",
        )


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        if message.get("body"):
            yield message["body"]
        more = message.get("more_body", False)


async def until_gone(request: Request) -> None:
    """Return when the client has closed the connection; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        continue
