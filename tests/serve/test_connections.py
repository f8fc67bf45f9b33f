"""Tests of connections that send or read too slowly, too much, or too far ahead."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest

from graphflow.base.fields import replace
from support.serving.served import LIMITS, ScaledRows, Served, served_program

LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"

SLOW = replace(
    LIMITS,
    head_seconds=0.3,
    body_seconds=0.3,
    idle_seconds=1.0,
    head_bytes=4096,
    connections=6,
    body_bytes=1 << 20,
)


class Wide(ScaledRows):
    """A model whose output fills the buffers of a connection."""

    def run(self, inputs: Any) -> dict[str, np.ndarray]:
        self.gate.wait(60)
        return {"y": np.zeros((1, 1 << 22), np.float32)}


@pytest.fixture(scope="module")
def program() -> Wide:
    return Wide()


@pytest.fixture(scope="module")
def server(program: Wide, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served_program(program, tmp_path_factory.mktemp("models"), SLOW) as found:
        yield found


def connected(server: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=60)


def rest(connection: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    found = b""
    try:
        while piece := connection.recv(1 << 16):
            found += piece
    except ConnectionResetError:
        pass
    return found


def test_a_head_that_never_ends(server: Served) -> None:
    with closing(connected(server)) as one, closing(connected(server)) as other:
        one.sendall(b"GET /v2/health/live HTTP/1.1\r\nX: ")
        assert rest(one) == b"" and rest(other) == b""


def test_a_head_that_never_ends_behind_another_request(server: Served) -> None:
    with closing(connected(server)) as one:
        one.sendall(LIVE + b"GET /v2/health/live HTTP/1.1\r\nX: ")
        assert rest(one).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("pieces", [1, 8])
def test_a_head_that_is_too_large(pieces: int, server: Served) -> None:
    with closing(connected(server)) as one:
        head = LIVE[:-2] + b"".join(b"X%d: %s\r\n" % (k, b"a" * 1000) for k in range(8)) + b"\r\n"
        step = len(head) // pieces
        try:
            for k in range(0, len(head), step):
                one.sendall(head[k : k + step])
                time.sleep(0.01)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert b" 200 " not in rest(one)


def test_one_long_header_in_pieces(server: Served) -> None:
    with closing(connected(server)) as one, pytest.raises(OSError):
        one.sendall(LIVE[:-2] + b"X: ")
        for _ in range(100):
            one.sendall(b"a" * 1000)
            time.sleep(0.005)


def test_a_body_that_never_ends(server: Served) -> None:
    with closing(connected(server)) as one:
        one.sendall(b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        assert rest(one).startswith(b"HTTP/1.1 408")


def test_a_refused_body_that_never_ends(server: Served) -> None:
    with closing(connected(server)) as one:
        head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n"
        one.sendall(head)
        assert rest(one).startswith(b"HTTP/1.1 413")


def test_a_body_in_chunks_that_is_too_large(server: Served) -> None:
    with closing(connected(server)) as one:
        head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        one.sendall(head)
        chunk = b"%x\r\n%s\r\n" % (1 << 16, b" " * (1 << 16))
        for _ in range(20):
            one.sendall(chunk)
        assert one.recv(100).startswith(b"HTTP/1.1 413")


def test_two_lengths_of_a_body_are_refused(server: Served) -> None:
    """Else a proxy in front may see other requests than this server."""
    with closing(connected(server)) as one:
        one.sendall(
            b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        )
        assert rest(one).startswith(b"HTTP/1.1 400")


def test_requests_far_ahead_of_their_answers(server: Served, program: Wide) -> None:
    program.gate.clear()
    body = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}]}'
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with closing(connected(server)) as one:
        one.sendall(head + body + 100 * LIVE)
        assert rest(one) == b""
    program.gate.set()


def test_a_client_that_reads_nothing(server: Served, program: Wide) -> None:
    body = (
        b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,4],"data":[1,2,3,4]}],'
        b'"parameters":{"binary_data_output":true}}'
    )
    head = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    with closing(socket.socket()) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        one.connect(("127.0.0.1", server.port))
        one.sendall(head + body)
        time.sleep(1.5)  # longer than idle_seconds
        one.settimeout(10)
        assert 0 < len(rest(one)) < 1 << 24


def test_connections_beyond_the_most_are_told(server: Served) -> None:
    held = [connected(server) for _ in range(6)]
    with closing(connected(server)) as one:
        found = rest(one)
        assert found.startswith(b"HTTP/1.1 503") and b"too many connections" in found
    for connection in held:
        connection.close()
    for _ in range(100):
        try:
            assert server.request("GET", "/v2/health/live")[0] == 200
            return
        except (AssertionError, ConnectionError):
            threading.Event().wait(0.02)
    raise AssertionError("the server takes no connections any more")


def test_what_is_no_http(server: Served) -> None:
    for text in (b"\x16\x03\x01" + bytes(50), b"GET\r\n\r\n", b"\0" * 100):
        with closing(connected(server)) as one:
            one.sendall(text)
            assert b" 200 " not in rest(one)
