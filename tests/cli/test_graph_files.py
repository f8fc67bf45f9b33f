"""Tests of `graphflow inspect --onnx FILE` and `--dot FILE`, and of what they refuse."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.cli import main
from graphflow.models import ModelBuilder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    build = ModelBuilder(seed=1)
    build.output(build.relu(build.input("x", ("N", 4))))
    path = tmp_path_factory.mktemp("models") / "model.onnx"
    onnx.save(build.model(), path)
    return str(path)


def test_a_model_and_a_saved_one_write_the_same_files(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = str(tmp_path / "model.gfx")
    assert main(["compile", model, "-o", saved, "--shape", "x=2x4"]) == 0
    contents = []
    for name, shape in ((model, ["--shape", "x=2x4"]), (saved, [])):
        files = [tmp_path / "graph.onnx", tmp_path / "graph.dot"]
        options = [f"--{file.suffix[1:]}={file}" for file in files]
        capsys.readouterr()
        assert main(["inspect", name, *shape, *options]) == 0
        assert capsys.readouterr().out == "".join(f"wrote {file}\n" for file in files)
        onnx.checker.check_model(files[0])
        contents.append([file.read_bytes() for file in files])
    assert contents[0] == contents[1]


def test_a_saved_model_with_several_programs_says_what_to_do(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    exe = gf.compile(model, threads=1)
    exe.precompile([{"x": (1, 4)}])
    exe.save(tmp_path / "one.gfx")
    graph = str(tmp_path / "graph.onnx")
    assert main(["inspect", str(tmp_path / "one.gfx"), "--onnx", graph]) == 0
    assert main(["inspect", str(tmp_path / "one.gfx"), "--json", "--edge", "x"]) == 0
    assert json.loads(capsys.readouterr().out.partition("\n")[2])["logical_shape"] == [1, 4]
    exe.run({"x": np.zeros((3, 4), np.float32)})
    exe.save(tmp_path / "two.gfx")
    for options in (["--onnx", graph], ["--dot", graph], [], ["--json", "--edge", "x"]):
        assert main(["inspect", str(tmp_path / "two.gfx"), *options]) == 1
        assert "there are programs for" in capsys.readouterr().err
    assert main(["inspect", str(tmp_path / "two.gfx"), "--json"]) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--onnx", "graph"], "has to end with .onnx, or viewers such as Netron do not know"),
        (["--onnx", "missing/graph.onnx"], "error: cannot write the ONNX graph missing/graph.onnx"),
        (["--dot", "missing/graph.dot"], "error: cannot write the Graphviz text"),
        (["--dot", "."], "error: cannot write the Graphviz text"),
        (["--json", "--dot", "graph.dot"], "--json prints and --dot writes a file"),
        (["--edge", "x", "--onnx", "graph.onnx"], "--edge prints and --onnx writes a file"),
        (["--all", "--dot", "graph.dot"], "--all says what the table shows, and --dot asks"),
    ],
)
def test_refusals(
    options: list[str],
    message: str,
    model: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["inspect", model, "--shape", "x=2x4", *options]) == 1
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == "" and not [*tmp_path.iterdir()]


def test_the_model_is_not_overwritten(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "link.onnx"
    other.symlink_to(model)
    content = Path(model).read_bytes()
    for option in ("--onnx", "--dot", "--html"):
        assert main(["inspect", model, option, str(other)]) == 1
        assert f"{option} would overwrite the model" in capsys.readouterr().err
    assert Path(model).read_bytes() == content
