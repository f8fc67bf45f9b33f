"""Tests of models that the server loads: what executables let requests do, ONNX models that are
compiled beside it, and the command line with a client of others."""

import asyncio
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.http as triton

import graphflow as gf
from graphflow.base.errors import InvalidModel
from graphflow.cli import main
from graphflow.models import ModelBuilder
from graphflow.serve.model_files import ModelFile
from graphflow.serve.model_loading import LoadOptions, interface_of, load_model
from graphflow.serve.served_model import ServedModel
from support.serving.faults import Question, load_with_faults

ROWS = {"batch": (1, 4)}
OPTIONS = gf.Options(threads=1, workers=0)


def network(rows: int | str = "batch", seed: int = 2) -> onnx.ModelProto:
    build = ModelBuilder(seed=seed, name="small")
    x = build.input("x", (rows, 3, 4))
    flat = build.node("Flatten", [x])
    hidden = build.relu(build.node("MatMul", [flat, build.weight(12, 24)]))
    build.output(build.node("Softmax", [build.node("MatMul", [hidden, build.weight(24, 5)])]))
    return build.model()


def compiled(model: onnx.ModelProto, sizes: dict[str, tuple[int, int]] | None = ROWS) -> Any:
    return gf.compile(model, sizes=sizes, options=OPTIONS)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("saved") / "small.gfx"
    compiled(network()).save(path)
    return path


def test_requests_share_runs_along_a_size_that_is_proven_to_have_independent_rows(
    saved: Path,
) -> None:
    exe = gf.load(saved)
    interface = interface_of(exe)
    assert (interface.most_rows, interface.alone) == (4, "")
    (x,), (y,) = interface.inputs, interface.outputs
    assert (x.shape, x.bounds, y.shape) == ((-1, 3, 4), {0: (1, 4)}, (-1, 5))
    rng = np.random.default_rng(1)
    requests = [{"x": rng.standard_normal((rows, 3, 4), dtype=np.float32)} for rows in (1, 2, 1)]
    shared = ServedModel(interface, exe, "", "").run(requests)
    for one, given in zip(shared, requests, strict=True):
        assert isinstance(one, dict)
        np.testing.assert_allclose(one[y.name], exe.run(given)[y.name], rtol=1e-5)
    assert interface_of(exe, shares_runs=False).most_rows == 1


def test_rows_that_depend_on_each_other_share_no_run() -> None:
    build = ModelBuilder(seed=1)
    x = build.input("x", ("batch", 8))
    build.output(build.node("Softmax", [x], axis=0))
    interface = interface_of(compiled(build.model()))
    assert interface.most_rows == 1
    assert "along batch: node softmax" in interface.alone


def test_a_model_of_one_shape_shares_no_run() -> None:
    interface = interface_of(compiled(network(2), None))
    assert (interface.most_rows, interface.inputs[0].shape) == (1, (2, 3, 4))
    assert "compile it with a size" in interface.alone


def test_programs_for_several_shapes_share_no_run() -> None:
    exe = compiled(network(), None)
    exe.precompile([{"x": (1, 3, 4)}, {"x": (2, 3, 4)}])
    interface = interface_of(exe)
    assert (interface.most_rows, interface.inputs[0].shape) == (1, (-1, 3, 4))
    assert "not one program" in interface.alone


def test_the_rows_have_to_be_the_first_axis() -> None:
    build = ModelBuilder(seed=1)
    x = build.input("x", (8, "batch"))
    build.output(build.relu(x))
    assert (
        "input x does not have it as its first axis" in interface_of(compiled(build.model())).alone
    )


def test_another_input_may_prevent_that_runs_are_shared() -> None:
    build = ModelBuilder(seed=1)
    x, factor = build.input("x", ("batch", 8)), build.input("factor", (8,))
    build.output(build.node("Mul", [x, factor]))
    assert "input factor" in interface_of(compiled(build.model())).alone


def load(file: ModelFile, folder: Path, *options: str) -> ServedModel:
    return asyncio.run(load_model(file, LoadOptions(1, options, folder)))


def test_the_digest_decides_what_is_loaded(saved: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(saved.read_bytes()).hexdigest()
    assert load(ModelFile("m", "1", saved, digest), tmp_path).digest == digest
    with pytest.raises(InvalidModel, match="only 0000"):
        load(ModelFile("m", "1", saved, "0" * 64), tmp_path)
    with pytest.raises(InvalidModel, match="cannot read"):
        load(ModelFile("m", "1", tmp_path / "none"), tmp_path)


def test_an_onnx_model_is_compiled_by_another_process(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    build = ModelBuilder(seed=1)  # one small kernel, which needs no workers
    build.output(build.relu(build.input("x", ("batch", 4))))
    onnx.save(build.model(), path)
    served = load(ModelFile("m", "1", path), tmp_path, "--size", "batch=1:4")
    assert served.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert served.interface.most_rows == 4
    path.write_bytes(b"no model")
    with pytest.raises(InvalidModel, match=r"cannot compile .*small\.onnx"):
        load(ModelFile("m", "1", path), tmp_path)


def test_a_compilation_that_nobody_waits_for_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(network(), path)

    async def main() -> None:
        options = LoadOptions(1, ("--size", "batch=1:4"), tmp_path)
        loading = asyncio.ensure_future(load_model(ModelFile("m", "1", path), options))
        while not compilers(path):
            await asyncio.sleep(0.01)
        loading.cancel()
        await asyncio.wait((loading,))
        assert not compilers(path)

    asyncio.run(main())


def compilers(path: Path) -> list[str]:
    """The processes that compile a model."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(path).encode() in place.read_bytes():
                found.append(place.parent.name)
        except OSError:
            continue
    return found


# The command line -------------------------------------------------------------------------------


@contextmanager
def serving(*arguments: str, folder: Path) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A process of `graphflow serve`, its port, and its first lines."""
    command = [sys.executable, "-P", "-m", "graphflow", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    said = ""
    try:
        while not (port := re.search(r"http://127\.0\.0\.1:(\d+)", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        yield process, int(port[1]), said
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_client_of_others_is_served_until_the_end(saved: Path) -> None:
    """The client of NVIDIA's Triton, from the start of the process to its graceful end."""
    exe = gf.load(saved)
    (y,) = (tensor.name for tensor in exe.outputs)
    arguments = (f"net:3={saved.name}", "--threads", "1")
    with serving(*arguments, folder=saved.parent) as (process, port, _):
        client = triton.InferenceServerClient(f"127.0.0.1:{port}")
        while not client.is_server_ready():
            time.sleep(0.02)
        assert client.is_server_live() and client.is_model_ready("net", "3")
        assert client.get_server_metadata()["name"] == "graphflow"
        metadata = client.get_model_metadata("net")
        assert [entry["shape"] for entry in metadata["inputs"]] == [[-1, 3, 4]]
        x = np.random.default_rng(4).standard_normal((2, 3, 4), dtype=np.float32)
        for is_binary in (True, False):
            given = triton.InferInput("x", list(x.shape), "FP32")
            given.set_data_from_numpy(x, binary_data=is_binary)
            wanted = [triton.InferRequestedOutput(y, binary_data=is_binary)]
            found = client.infer("net", [given], "3", outputs=wanted, request_id="seven")
            np.testing.assert_allclose(found.as_numpy(y), exe.run({"x": x})[y], rtol=1e-5)
            assert found.get_response()["id"] == "seven"
        assert [one["name"] for one in client.get_model_repository_index()] == ["net"]
        client.unload_model("net")
        client.load_model("net")
        with pytest.raises(triton.InferenceServerException, match="no model 'none'"):
            client.infer("none", [given])
        client.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give a model, or a folder"),
        (["none.gfx"], "there is no file none.gfx"),
        (["small.gfx", "small=small.gfx"], "both version 1 of the model 'small'"),
        (["small.gfx", "--host", "0.0.0.0"], "no token"),
        (["small.gfx", "--token-file", "none"], "cannot read a token"),
        (["small.gfx", "--queue", "0"], "queue is 0"),
    ],
)
def test_arguments_that_are_refused(
    arguments: list[str],
    message: str,
    saved: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(saved.parent)
    assert main(["serve", *arguments]) == 1
    assert message in capsys.readouterr().err


def test_a_damaged_model_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "net.gfx").write_bytes(b"\x89GFX\r\n\x1a\n damaged")
    command = [sys.executable, "-P", "-m", "graphflow", "serve", "net.gfx", "--port", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "error: the saved model net.gfx is damaged" in done.stderr


# Load for long ----------------------------------------------------------------------------------

MINUTES = 20


def questions(*models: Any) -> list[Question]:
    """Requests with random rows, whose answer one of the models has to give."""
    rng = np.random.default_rng(1)
    (y,) = (tensor.name for tensor in models[0].outputs)

    def question(rows: int) -> Question:
        x = rng.standard_normal((rows, 3, 4)).astype(np.float32)
        wanted = [model.run({"x": x})[y].reshape(-1) for model in models]
        entry = {"name": "x", "shape": [rows, 3, 4], "datatype": "FP32"}
        body = json.dumps({"inputs": [{**entry, "data": x.reshape(-1).tolist()}]}).encode()

        def is_right(found: Any) -> bool:
            data = found["outputs"][0]["data"]
            return any(np.allclose(data, one, rtol=1e-4, atol=1e-6) for one in wanted)

        return Question(body, is_right)

    return [question(1 + k % 3) for k in range(60)]


def resident_kibibytes(process: subprocess.Popen[str]) -> int:
    text = Path(f"/proc/{process.pid}/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0])


@pytest.mark.slow
@pytest.mark.timeout(60 * (MINUTES + 20))
def test_load_with_faults_for_long(tmp_path: Path) -> None:
    """A real process with models that take each other's place: its memory stays, no answer is
    wrong, and nothing that was accepted is lost."""
    paths = [tmp_path / f"{seed}.gfx" for seed in (2, 3)]
    for seed, path in zip((2, 3), paths, strict=True):
        compiled(network(seed=seed)).save(path)
    served = tmp_path / "m.gfx"
    shutil.copy(paths[0], served)
    memory: list[int] = []

    def swap(number: int) -> None:
        if process.poll() is None and time.monotonic() > begin + 60 * (len(memory) + 1):
            memory.append(resident_kibibytes(process))
            print(f"{len(memory)} minutes: {memory[-1]} KiB", flush=True)
        shutil.copy(paths[number % 2], tmp_path / "next.gfx")
        os.replace(tmp_path / "next.gfx", served)

    arguments = ("m.gfx", "--threads", "1", "--queue", "3", "--max-body", "1")
    with serving(*arguments, folder=tmp_path) as (process, port, _):
        drain = threading.Thread(target=process.stderr.read, daemon=True)  # type: ignore[union-attr]
        drain.start()
        client = triton.InferenceServerClient(f"127.0.0.1:{port}")
        while not client.is_server_ready():
            time.sleep(0.02)
        begin = time.monotonic()
        asked = questions(*map(gf.load, paths))
        found = load_with_faults(port, 60.0 * MINUTES, swap, asked)
        memory.append(resident_kibibytes(process))
        process.send_signal(signal.SIGTERM)
        assert process.wait(600) == 0
    print(found.answered, found.refused, found.swapped, found.faults, memory)
    assert found.wrong == [] and found.lost == 0
    assert found.answered > 1000 and found.swapped > 100 and min(found.faults.values()) > 10
    assert max(memory) < 1.05 * memory[min(1, len(memory) - 1)] + 4096
