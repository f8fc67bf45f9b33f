"""Tests of the protocol over real sockets: every route, refusals, limits, cancellation, metrics."""

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphflow.base.fields import replace
from graphflow.base.version import VERSION
from support.serving.served import (
    BAD_ROW,
    LIMITS,
    WIDTH,
    ScaledRows,
    Served,
    inference,
    served_program,
)


@pytest.fixture(scope="module")
def program() -> ScaledRows:
    return ScaledRows()


@pytest.fixture(scope="module")
def server(program: ScaledRows, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    limits = replace(LIMITS, body_bytes=1 << 16, json_bytes=1 << 13, queue=8)
    with served_program(program, tmp_path_factory.mktemp("models"), limits) as found:
        yield found


def test_health_and_metadata(server: Served) -> None:
    assert server.request("GET", "/v2/health/live") == (200, {"live": True})
    assert server.request("GET", "/v2/health/ready") == (200, {"ready": True})
    status, found = server.request("GET", "/v2")
    assert (status, found["name"], found["version"]) == (200, "graphflow", VERSION)
    assert "binary_tensor_data" in found["extensions"]
    for path in ("/v2/models/m", "/v2/models/m/versions/1"):
        assert server.request("GET", f"{path}/ready") == (200, {"ready": True})
        status, found = server.request("GET", path)
        assert (status, found["name"], found["versions"]) == (200, "m", ["1"])
        assert found["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, WIDTH]}]
        assert found["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, WIDTH]}]


def test_an_inference_in_json(server: Served) -> None:
    status, found = server.infer([1.5, -2.0], id='a"b')
    assert status == 200 and found["id"] == 'a"b'
    assert (found["model_name"], found["model_version"]) == ("m", "1")
    (output,) = found["outputs"]
    assert output["shape"] == [2, WIDTH] and output["data"] == [3.0] * 4 + [-4.0] * 4
    path = "/v2/models/m/versions/1/infer"
    assert server.request("POST", path, inference([1.0]))[0] == 200


def test_an_inference_in_binary_form(server: Served) -> None:
    x = np.arange(3 * WIDTH, dtype=np.float32).reshape(3, WIDTH)
    entry = {"name": "x", "shape": [3, WIDTH], "datatype": "FP32"}
    entry["parameters"] = {"binary_data_size": x.nbytes}
    text = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(text))}
    status, found, about = server.answer("POST", "/v2/models/m/infer", text + x.tobytes(), headers)
    length = int(about["inference-header-content-length"])
    assert status == 200 and about["content-type"] == "application/octet-stream"
    (output,) = json.loads(found[:length])["outputs"]
    assert output["parameters"] == {"binary_data_size": x.nbytes}
    np.testing.assert_array_equal(np.frombuffer(found[length:], np.float32), (2 * x).reshape(-1))


def test_large_answers_come_in_pieces(tmp_path: Path) -> None:
    class Wide(ScaledRows):
        def run(self, inputs: Any) -> dict[str, np.ndarray]:
            return {"y": np.full((1, 1 << 18), 3, np.float32)}

    wanted = {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}
    with served_program(Wide(), tmp_path) as server:
        status, found = server.infer([1.0], **wanted)
        assert status == 200 and found.endswith(np.full(1 << 18, 3, np.float32).tobytes())
        status, found = server.infer([1.0])  # in JSON, which a thread writes
        assert status == 200 and found["outputs"][0]["data"] == [3.0] * (1 << 18)


OTHER_OUTPUT = {**inference([1.0]), "outputs": [{"name": "z"}]}

REFUSED: dict[str, tuple[int, str, str, Any]] = {
    "no route": (404, "GET", "/v3", None),
    "no method": (405, "GET", "/v2/models/m/infer", None),
    "no model": (404, "POST", "/v2/models/none/infer", inference([1.0])),
    "a path for a name": (404, "POST", "/v2/models/..%2F..%2Fetc/infer", inference([1.0])),
    "a path for a model": (404, "POST", "/v2/repository/models/..%2Fm/load", {}),
    "no version": (404, "POST", "/v2/models/m/versions/9/infer", inference([1.0])),
    "no model to load": (404, "POST", "/v2/repository/models/none/load", {}),
    "parameters of a load": (400, "POST", "/v2/repository/models/m/load", {"parameters": {"a": 1}}),
    "no JSON": (400, "POST", "/v2/models/m/infer", b"{"),
    "no body": (400, "POST", "/v2/models/m/infer", None),
    "many rows": (400, "POST", "/v2/models/m/infer", inference([1.0] * 5)),
    "no rows": (400, "POST", "/v2/models/m/infer", inference([])),
    "no output": (400, "POST", "/v2/models/m/infer", OTHER_OUTPUT),
    "a run that fails": (422, "POST", "/v2/models/m/infer", inference([BAD_ROW])),
    "much JSON": (413, "POST", "/v2/models/m/infer", b" " * (1 << 14)),
    "a large body": (413, "POST", "/v2/models/m/infer", b" " * (1 << 17)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_requests_that_are_refused(case: str, server: Served) -> None:
    status, method, path, body = REFUSED[case]
    found, answer = server.request(method, path, body)
    assert found == status and isinstance(answer["error"], str) and answer["error"]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Encoding": "gzip"}, 415),
        ({"Content-Encoding": "identity"}, 200),
        ({"Origin": "https://example.org"}, 403),
        ({"Origin": "null"}, 403),
        ({"Inference-Header-Content-Length": "-1"}, 400),
        ({"Inference-Header-Content-Length": "9" * 30}, 400),
        ({"Inference-Header-Content-Length": "1000000"}, 400),
    ],
)
def test_headers_of_an_inference(headers: dict[str, str], status: int, server: Served) -> None:
    body = inference([1.0])
    assert server.request("POST", "/v2/models/m/infer", body, headers)[0] == status


def test_an_output_that_json_cannot_express(server: Served) -> None:
    status, found = server.infer([3e38])
    assert status == 422 and "binary_data" in found["error"]
    binary = {"outputs": [{"name": "y", "parameters": {"binary_data": True}}]}
    assert server.infer([3e38], **binary)[0] == 200


def test_concurrent_requests_share_runs(server: Served, program: ScaledRows) -> None:
    program.runs.clear()
    program.gate.clear()
    with ThreadPoolExecutor(7) as pool:
        sent = [pool.submit(server.infer, [float(k)]) for k in range(7)]
        wait_for(lambda: waiting(server) >= 3)  # one runs; the client's other threads may be late
        program.gate.set()
        for k, one in enumerate(sent):
            status, found = one.result()
            assert status == 200 and found["outputs"][0]["data"] == [2.0 * k] * WIDTH
    assert len(program.runs) < 7 and sum(program.runs) == 7 and max(program.runs) <= 4


def test_a_full_queue_and_a_deadline(server: Served, program: ScaledRows) -> None:
    program.runs.clear()
    program.gate.clear()
    with ThreadPoolExecutor(16) as pool:
        first = pool.submit(server.infer, [1.0])
        wait_for(lambda: program.runs == [1])
        late = pool.submit(server.infer, [1.0], parameters={"timeout": 1000})
        assert late.result()[0] == 504 and waiting(server) == 0
        kept = [pool.submit(server.infer, [1.0]) for _ in range(8)]
        wait_for(lambda: waiting(server) == 8)
        status, found, headers = server.answer("POST", "/v2/models/m/infer", inference([1.0]))
        assert (status, headers["retry-after"]) == (503, "1") and "8 requests wait" in found[
            "error"
        ]
        program.gate.set()
        assert {one.result()[0] for one in (first, *kept)} == {200}


def test_a_client_that_goes_away_takes_no_part(server: Served, program: ScaledRows) -> None:
    program.runs.clear()
    program.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.infer, [1.0])
        wait_for(lambda: program.runs == [1])
        gone = socket.create_connection(("127.0.0.1", server.port))
        body = json.dumps(inference([1.0])).encode()
        head = f"POST /v2/models/m/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        gone.sendall(head.encode() + body)
        wait_for(lambda: waiting(server) == 1)
        gone.close()
        wait_for(lambda: waiting(server) == 0)
        program.gate.set()
        assert first.result()[0] == 200
    assert server.infer([1.0])[0] == 200
    assert program.runs == [1, 1]


def test_metrics_count_what_happened(server: Served) -> None:
    server.infer([1.0])
    server.request("POST", "/v2/models/no-such-name/infer", inference([1.0]))
    status, text = server.request("GET", "/metrics")
    assert status == 200
    found = metrics(text)
    labels = 'model="m",version="1"'
    assert found['graphflow_requests_total{model="m",status="200",version="1"}'] >= 1
    assert found['graphflow_refused_total{why="unknown_model"}'] >= 1
    assert found[f"graphflow_model_ready{{{labels}}}"] == 1
    assert found[f"graphflow_run_rows_count{{{labels}}}"] >= 1
    assert found["graphflow_held_bytes"] == 0
    assert b"no-such-name" not in text


def metrics(text: bytes) -> dict[str, float]:
    lines = (line for line in text.decode().splitlines() if not line.startswith("#"))
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def waiting(server: Served) -> int:
    """How many requests wait for a run."""
    text = server.request("GET", "/metrics")[1]
    return int(metrics(text)['graphflow_waiting_requests{model="m",version="1"}'])


def wait_for(condition: Any) -> None:
    for _ in range(2000):
        if condition():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it did not happen")


def test_the_repository(server: Served) -> None:
    status, found = server.request("POST", "/v2/repository/index", {"ready": True})
    assert (status, found) == (200, [{"name": "m", "version": "1", "state": "READY", "reason": ""}])
    assert server.request("POST", "/v2/repository/models/m/unload") == (200, {})
    assert server.request("POST", "/v2/repository/index", {"ready": True}) == (200, [])
    assert server.request("GET", "/v2/models/m/ready") == (503, {"ready": False})
    assert server.infer([1.0])[0] == 503
    assert server.request("POST", "/v2/repository/models/m/load", {}) == (200, {})
    assert server.infer([1.0])[0] == 200


def test_what_nobody_expected_is_an_answer_too(tmp_path: Path) -> None:
    class Broken(ScaledRows):
        def run(self, inputs: Any) -> Any:
            raise ZeroDivisionError

    with served_program(Broken(), tmp_path) as server:
        assert server.infer([1.0]) == (500, {"error": "internal error"})
        assert (
            b'graphflow_refused_total{why="internal"} 1.0' in server.request("GET", "/metrics")[1]
        )
