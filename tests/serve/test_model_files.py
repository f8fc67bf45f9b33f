"""Tests of the files that models are served from: names, folders, digests and changes."""

import hashlib
import os
from pathlib import Path

import pytest

from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.serve.model_files import ModelFile, ModelFiles, named_model

DIGEST = hashlib.sha256(b"one").hexdigest()


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ("a/net.gfx", ModelFile("net", "1", Path("a/net.gfx"))),
        ("m=a/net.gfx", ModelFile("m", "1", Path("a/net.gfx"))),
        ("m:3=net.onnx", ModelFile("m", "3", Path("net.onnx"))),
        (f"net.gfx@sha256:{DIGEST.upper()}", ModelFile("net", "1", Path("net.gfx"), DIGEST)),
        ("m=a=b.gfx", ModelFile("m", "1", Path("a=b.gfx"))),
    ],
)
def test_a_model_of_the_command_line(text: str, file: ModelFile) -> None:
    assert named_model(text) == file


@pytest.mark.parametrize(
    "text", ["a b.gfx", "x/y=net.gfx", "m:0=net.gfx", "m:a=net.gfx", "..=é", "net.gfx@sha256:12"]
)
def test_names_that_are_refused(text: str) -> None:
    with pytest.raises(GraphflowError):
        named_model(text)


def test_models_of_a_folder(tmp_path: Path) -> None:
    for place in ("net/1/model.onnx", "net/2/model.gfx", "net/2/model.onnx", "net/x/model.gfx"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    (tmp_path / "empty/1").mkdir(parents=True)
    (tmp_path / "a file").touch()
    named = ModelFile("other", "1", tmp_path / "a file")
    assert ModelFiles((named,), (tmp_path,)).found() == {
        "other": {"1": named},
        "net": {
            "1": ModelFile("net", "1", tmp_path / "net/1/model.onnx"),
            "2": ModelFile("net", "2", tmp_path / "net/2/model.gfx"),
        },
    }
    with pytest.raises(GraphflowError, match="both version 1 of the model 'net'"):
        ModelFiles((ModelFile("net", "1", Path("x")),), (tmp_path,)).found()
    with pytest.raises(GraphflowError, match="cannot read the folder"):
        ModelFiles((), (tmp_path / "none",)).found()


def test_the_digest_and_changes_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "m.gfx"
    path.write_bytes(b"one")
    file = ModelFile("m", "1", path, DIGEST)
    before = file.identity()
    assert file.digest() == DIGEST and before == file.identity()
    (tmp_path / "new").write_bytes(b"two")
    os.replace(tmp_path / "new", path)
    assert file.identity() != before
    with pytest.raises(InvalidModel, match="only"):
        file.digest()
    path.unlink()
    assert file.identity() is None
    with pytest.raises(InvalidModel, match="cannot read"):
        file.digest()
