"""Answers other than success: the status, the reason, and what the client may do.

In: what is wrong with a request, or why it cannot be served now.  Out: an exception, which `routes`
turns into a response whose body is `{"error": …}`.
"""

from __future__ import annotations

from http import HTTPStatus

from graphflow.base.errors import GraphflowError

RETRY_AFTER = 1
"""After how many seconds a client that was refused for want of room may try again."""


class RefusedRequest(GraphflowError):
    """A request that gets no result; `status` is the response's, `why` a short name for metrics."""

    def __init__(self, status: HTTPStatus, message: str, why: str = "invalid") -> None:
        super().__init__(message)
        self.status = status
        self.why = why

    @property
    def headers(self) -> dict[str, str]:
        """When to try again, if trying again can help."""
        busy = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)
        return {"Retry-After": str(RETRY_AFTER)} if self.status in busy else {}


def malformed(message: str) -> RefusedRequest:
    """The refusal of a request that no server could answer."""
    return RefusedRequest(HTTPStatus.BAD_REQUEST, message)


def unavailable(message: str, why: str) -> RefusedRequest:
    """The refusal of a request that can be answered at another time."""
    return RefusedRequest(HTTPStatus.SERVICE_UNAVAILABLE, message, why)
