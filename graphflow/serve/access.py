"""Who may ask a server: those who know its token, and no web page.

In: an ASGI application.  Out: the application with a condition.  What always holds: comparing
tokens takes the same time wherever two differ; health can be asked without one, so that whoever
starts and stops servers needs none.
"""

from __future__ import annotations

import hmac
from pathlib import Path

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from graphflow.base.errors import GraphflowError

REFUSED_PAGE = "a web page may not ask this server: the request has the header Origin"

WITHOUT_TOKEN = ("/v2/health/live", "/v2/health/ready")

LEAST_CHARACTERS = 16


class NoPages:
    """An ASGI application that answers 403 to requests of scripts in web pages.

    A server that listens on this machine alone is reached by the pages that a browser on it shows,
    whoever they are from.  Browsers name the page in each request that may change something.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and any(name == b"origin" for name, _ in scope["headers"]):
            await JSONResponse({"error": REFUSED_PAGE}, 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


class TokenRequired:
    """An ASGI application that answers 401 to requests without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = b"bearer " + token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] == "http" and scope["path"] not in WITHOUT_TOKEN:
            given = next((v for k, v in scope["headers"] if k == b"authorization"), b"")
            scheme, _, token = given.partition(b" ")
            if not hmac.compare_digest(scheme.lower() + b" " + token.strip(), self._expected):
                refusal = JSONResponse(
                    {"error": "this server needs the header Authorization: Bearer TOKEN"},
                    401,
                    {"WWW-Authenticate": "Bearer"},
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def read_token(path: Path) -> str:
    """The token in a file; GraphflowError if it is short, or has other characters than letters,
    digits and punctuation."""
    try:
        token = path.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        raise GraphflowError(f"cannot read a token from {path}: {error}") from error
    if len(token) < LEAST_CHARACTERS or not token.isprintable() or " " in token:
        raise GraphflowError(
            f"the token in {path} has {len(token)} characters; it needs at least "
            f"{LEAST_CHARACTERS}, and no spaces, such as `openssl rand -hex 32` prints"
        )
    return token
