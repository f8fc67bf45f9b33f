"""The limits of a server: of requests, of connections, of queues, and of times.

What always holds: every limit is positive, so that a server with any of them answers something.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from graphflow.base.errors import GraphflowError


@dataclass(frozen=True, slots=True)
class ServeLimits:
    """How much a server takes at most; a request beyond a limit is refused, and told why.

    body_bytes: of the body of one request.
    json_bytes: of the JSON in it.
    held_bytes: of all bodies that are being read, or whose requests wait or run.
    head_bytes: of the request line and the headers.
    connections: that are open at the same time.
    queue: requests of one model that wait for a run.
    head_seconds, body_seconds: from the first byte of a head, or of a body, to its last one.
    idle_seconds: between requests of a connection; also, how long a client may read nothing.
    request_seconds: the deadline of a request, from when it was read; requests may state less.
    delay_seconds: how long a request waits for others to share a run with it; 0 shares runs only
        among requests that wait anyway.
    stop_seconds: for what was accepted, when the server stops.
    check_seconds: between looks at the files of the models.
    """

    body_bytes: int = 64 << 20
    json_bytes: int = 8 << 20
    held_bytes: int = 1 << 30
    head_bytes: int = 32 << 10
    connections: int = 4096
    queue: int = 512
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    idle_seconds: float = 60.0
    request_seconds: float = 60.0
    delay_seconds: float = 0.0
    stop_seconds: float = 60.0
    check_seconds: float = 1.0

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not (value > 0 or (value == 0 and limit.name == "delay_seconds")):
                raise GraphflowError(f"the limit {limit.name} is {value}, and has to be positive")
