"""Tests of extras: what is missing is named, and nothing of an extra is imported without it."""

import re
import subprocess
import sys
import tomllib

import pytest

from graphflow.base.errors import GraphflowError
from graphflow.base.extras import EXTRAS, require_extra
from graphflow.cli import main
from graphflow.distributed import map_batches
from support.paths import ROOT


def test_an_extra_that_is_there_is_not_imported() -> None:
    code = (
        "import sys\n"
        "import graphflow as gf, graphflow.distributed\n"
        "from graphflow.base.extras import EXTRAS, require_extra\n"
        "import graphflow.api.executable, graphflow.cli\n"
        "require_extra('serve', 'a test')\n"
        "print(sorted({p for ps in EXTRAS.values() for p in ps} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_the_error_names_what_is_missing_and_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("uvicorn", "orjson", "distributed", "ray"):
        monkeypatch.setitem(sys.modules, package, None)  # as if it was not installed
    with pytest.raises(GraphflowError, match="a test needs uvicorn, orjson, which is not inst"):
        require_extra("serve", "a test")
    for command, extra in (
        (["serve", "model.gfx"], "serve"),
        (["map", "model.gfx", "--input", "*.npy", "--output", "out"], "distributed"),
        (["tune", "model.onnx", "--dask", "local"], "distributed"),
    ):
        assert main(command) == 1
        assert f"pip install 'graphflow-compiler[{extra}]'" in capsys.readouterr().err
    for package, extra in (("dask", "distributed"), ("ray", "ray")):
        collection = type("Dataset", (), {"__module__": f"{package}.data"})()
        with pytest.raises(GraphflowError, match=rf"graphflow-compiler\[{extra}\]"):
            map_batches(collection, "model.gfx")


def test_the_project_has_these_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for extra, packages in EXTRAS.items():
        listed = {re.split(r"[\[>]", need)[0] for need in project["optional-dependencies"][extra]}
        assert {name.replace("_", "-") for name in packages} == listed
