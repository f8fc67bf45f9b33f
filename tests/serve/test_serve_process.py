"""Tests of the server: TLS, tokens, addresses, a graceful end, and load with faults."""

import asyncio
import http.client
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import trustme

from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.base.fields import replace
from graphflow.serve.model_files import ModelFile, ModelFiles
from graphflow.serve.serve_process import ModelServer, ServeOptions, listening, require_access
from support.serving.faults import load_with_faults
from support.serving.served import (
    LIMITS,
    ScaledRows,
    inference,
    loads_a_factor,
    served,
    served_program,
    wait_until_ready,
)

TOKEN = "0123456789abcdef"


def files(folder: Path, factor: str = "2") -> ModelFiles:
    path = folder / "m.gfx"
    path.write_text(factor)
    return ModelFiles((ModelFile("m", "1", path),))


def test_a_token(tmp_path: Path) -> None:
    options = ServeOptions(files(tmp_path), port=0, limits=LIMITS, token=TOKEN)
    with served(options, loads_a_factor) as server:
        wait_until_ready(server)  # which needs none
        path = "/v2/models/m/infer"
        for wrong in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": TOKEN}):
            for method, where in (("POST", path), ("GET", "/metrics"), ("GET", "/none")):
                status, found, about = server.answer(method, where, inference([1.0]), wrong)
                assert (status, about["www-authenticate"]) == (401, "Bearer") and "error" in found
        right = {"Authorization": f"bearer {TOKEN}"}
        assert server.request("POST", path, inference([1.0]), right)[0] == 200


def test_tls(tmp_path: Path) -> None:
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    own = authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.ECDSA)
    own.private_key_pem.write_to_path(tmp_path / "key.pem")
    own.cert_chain_pems[0].write_to_path(tmp_path / "own.pem")
    certificate, key = tmp_path / "own.pem", tmp_path / "key.pem"
    options = ServeOptions(files(tmp_path), port=0, limits=LIMITS, certificate=certificate, key=key)
    context = ssl.create_default_context()
    authority.configure_trust(context)
    with served(options, loads_a_factor) as server:
        client = http.client.HTTPSConnection("127.0.0.1", server.port, context=context)
        client.request("GET", "/v2/health/live")
        assert client.getresponse().read() == b'{"live":true}'
        client.close()
        with pytest.raises((OSError, http.client.HTTPException)):
            server.request("GET", "/v2/health/live")
    with pytest.raises(GraphflowError, match="certificate and its key"):
        require_access(replace(options, key=None))


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_addresses_of_this_machine_need_no_token(host: str) -> None:
    require_access(ServeOptions(ModelFiles(()), host=host))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_other_addresses_need_a_token(host: str) -> None:
    options = ServeOptions(ModelFiles(()), host=host)
    with pytest.raises(GraphflowError, match="no token"):
        require_access(options)
    require_access(replace(options, token=TOKEN))
    require_access(replace(options, allows_anyone=True))


def test_an_address_that_is_taken() -> None:
    with listening("127.0.0.1", 0) as one:
        one.listen()
        port = one.getsockname()[1]
        with pytest.raises(GraphflowError, match=f"port {port}.*give another --port"):
            listening("127.0.0.1", port)


def test_a_model_that_cannot_be_loaded_ends_the_server(tmp_path: Path) -> None:
    async def serve() -> None:
        options = ServeOptions(files(tmp_path, "damaged"), port=0, limits=LIMITS)
        await ModelServer(options, loads_a_factor).serve(listening("127.0.0.1", 0))

    with pytest.raises(InvalidModel, match="has no factor"):
        asyncio.run(serve())


def test_the_end_finishes_what_was_accepted(tmp_path: Path) -> None:
    program = ScaledRows()
    program.gate.clear()
    with ThreadPoolExecutor(5) as pool:
        with served_program(program, tmp_path) as server:
            sent = [pool.submit(server.infer, [float(k)]) for k in range(5)]
            while sum(program.runs) < 1:
                threading.Event().wait(0.01)
            threading.Event().wait(0.1)  # the others are accepted, too
            server.server.stop()
            while True:  # until it takes no connections any more
                try:
                    server.request("GET", "/v2/health/live")
                except OSError:
                    break
            program.gate.set()
        for k, one in enumerate(sent):
            status, found = one.result()
            assert status == 200 and found["outputs"][0]["data"] == [2.0 * k] * 4


def test_seconds_of_load_with_faults(tmp_path: Path) -> None:
    """The slow test in test_model_loading.py does the same for long, with real models."""
    limits = replace(LIMITS, queue=64, body_bytes=1 << 20, head_seconds=0.5, body_seconds=0.5)
    path = tmp_path / "m.gfx"
    path.write_text("2")
    options = ServeOptions(
        ModelFiles((ModelFile("m", "1", path),)), port=0, limits=limits, reloads=True
    )
    with served(options, loads_a_factor) as server:
        wait_until_ready(server)
        found = load_with_faults(
            server.port, 1.5, swap=lambda k: path.write_text("2" + " " * k), stale=0.25
        )
    assert found.wrong == [] and found.lost == 0
    assert found.answered > 50 and found.swapped > 2 and set(found.faults.values()) != {0}
