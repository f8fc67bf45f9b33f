"""Tests of the wheel as a new user has it: what it contains, where it can be installed, and, from a
fresh environment, the tutorial with its picture, a saved model in processes, and the README."""

import email
import json
import re
import sys
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.version import VERSION
from graphflow.models import ModelBuilder
from support.installed import TUTORIAL, Installed, built, installed
from support.paths import ROOT
from support.source import MODULES

pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]  # an environment takes a minute

DEPLOY = ROOT / "docs" / "deploy.md"
README = ROOT / "README.md"

_, _, TABLE = README.read_text(encoding="utf-8").partition("## From the command line\n\n```text\n")

COMMANDS = re.findall(r"^graphflow .*?(?=  |$)", TABLE.partition("```")[0], re.MULTILINE)
"""The commands in the table of README.md, each without its description."""

DECODER = """
import numpy as np
import onnx

from graphflow.models.zoo.sequences.gpt import gpt

onnx.save(gpt(0, layers=1, width=48), "decoder.onnx")
tensor = array = np.ones((1, 3, 16, 16), np.float32)
buffer = np.empty((1, 8, 1, 1), np.float32)
heads, width, prompt = 3, 16, [5, 17, 300]
past_names = [f"past_key_values.0.{part}" for part in ("key", "value")]
"""
"""The names that the README's blocks need, and the model of the second one."""


@pytest.fixture(scope="module")
def wheel() -> Path:
    return built("*.whl")


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return installed(str(wheel), tmp_path_factory.mktemp("wheel"))


def test_the_wheel_is_for_linux_on_x86_64(wheel: Path, environment: Installed) -> None:
    """pip refuses it elsewhere, and takes it where onnxruntime's wheels run."""
    assert wheel.name == f"graphflow_compiler-{VERSION}-py3-none-manylinux_2_28_x86_64.whl"
    for platform, accepts in (
        ("manylinux_2_28_x86_64", True),
        ("manylinux_2_28_aarch64", False),
        ("manylinux_2_17_x86_64", False),
        ("macosx_14_0_arm64", False),
        ("win_amd64", False),
    ):
        options = ("--dry-run", "--no-deps", "--only-binary=:all:", "--target=elsewhere")
        done = environment.process(
            "pip", "install", *options, f"--platform={platform}", str(wheel), folder=wheel.parent
        )
        assert (done.returncode == 0) == accepts, done.stderr
        assert accepts or "not a supported wheel on this platform" in done.stderr


def test_the_wheel_has_the_package_and_the_licences(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        found = email.message_from_bytes(archive.read(metadata))
    assert found["License-Expression"] == "Apache-2.0 AND EPL-2.0"
    licences = {name.partition("/licenses/")[2] for name in names if "/licenses/" in name}
    assert licences == set(found.get_all("License-File", ()))
    assert {"LICENSE", "NOTICE", "graphflow/inspect/page/assets/elk-LICENSE.md"} == licences
    folders = {name.partition("/")[0] for name in names}
    assert folders == {"graphflow", metadata.partition("/")[0]}
    modules = {
        name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for name in names
        if name.endswith(".py")
    }
    assert modules == set(MODULES)
    assets = ROOT / "graphflow" / "inspect" / "page" / "assets"
    data = {f"graphflow/inspect/page/assets/{path.name}" for path in assets.iterdir()}
    assert names >= {*data, "graphflow/py.typed", "graphflow/cli/operators.md"}


def test_what_is_bundled_is_named_in_the_notice() -> None:
    """Files of others are those that no commit here changes: the library and its licence."""
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    page = ROOT / "graphflow" / "inspect" / "page"
    version = re.search(r"elkjs (\S+)", (page / "assets" / "page.html").read_text(encoding="utf-8"))
    assert version and f"elkjs {version[1]}, unchanged" in notice
    for name in ("elk-worker.min.js", "elk-LICENSE.md"):
        assert f"graphflow/inspect/page/assets/{name}" in notice


def test_the_program_runs_by_name_and_as_a_module(environment: Installed, tmp_path: Path) -> None:
    for command in (("graphflow",), ("python", "-m", "graphflow")):
        found = environment.run(*command, "--version", folder=tmp_path)
        assert found == f"graphflow {VERSION}\n"


TYPED = """
import graphflow as gf

exe = gf.compile("model.onnx", options=gf.Options(threads=1))
reveal_type(exe.threads)
gf.compile(3)
"""


def test_a_type_checker_knows_the_interface(environment: Installed, tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED, encoding="utf-8")
    python = environment.run("which", "python", folder=tmp_path).strip()
    command = (sys.executable, "-m", "mypy", "--strict", "--python-executable", python, "typed.py")
    done = environment.process(*command, folder=tmp_path)
    assert 'Revealed type is "int"' in done.stdout, done.stdout + done.stderr
    assert 'Argument 1 to "compile" has incompatible type "int"' in done.stdout
    assert "Found 1 error in 1 file" in done.stdout


def test_the_tutorial_ends_with_a_picture(
    environment: Installed, browser: Any, tmp_path: Path
) -> None:
    shown = environment.page(TUTORIAL, tmp_path)
    assert shown == TUTORIAL.read_text(encoding="utf-8")
    page = browser.new_page()
    errors: list[Any] = []
    page.on("pageerror", lambda error: errors.append(error))
    page.goto((tmp_path / "page.html").as_uri())
    page.wait_for_selector("html[data-ready]", state="attached", timeout=20_000)
    page.click(".item.kernel[aria-label*=conv_2_node]")
    page.wait_for_selector("#panel >> text=conv_2_node")
    assert not errors


def test_a_saved_model_runs_in_a_pool_of_spawned_processes(
    environment: Installed, tmp_path: Path
) -> None:
    assert environment.page(DEPLOY, tmp_path) == DEPLOY.read_text(encoding="utf-8")


# The README ---------------------------------------------------------------------------------------


def network(shape: tuple[int | str, ...]) -> onnx.ModelProto:
    """A model with the names that the README uses."""
    build = ModelBuilder(seed=1)
    x = build.input("x", shape)
    first = build.node("Conv", [x, build.weight(8, 3, 3, 3)], outputs=["conv1_out"])
    hidden = build.node("Relu", [first], outputs=["t"])
    build.output(build.node("GlobalAveragePool", [hidden], outputs=["y"]))
    return build.model()


def network_of(command: str) -> onnx.ModelProto:
    """The model that a command of the README is about."""
    if "--overridable" in command:
        build = ModelBuilder(seed=1)
        x, w = build.input("x", (4, 8)), build.input("w", (8, 8))
        build.constant(np.ones((8, 8), np.float32), w)
        build.output(build.node("MatMul", [x, w]))
        return build.model()
    if "--shape" in command:
        return network(("batch", 3, 224, 224))
    return network(("batch" if "--size" in command else 1, 3, 16, 16))


@pytest.fixture(scope="module")
def report() -> str:
    """What the README's `old.json` and `new.json` may be."""
    return json.dumps(gf.compile(network((1, 3, 16, 16))).report())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_readme(
    command: str, environment: Installed, report: str, tmp_path: Path
) -> None:
    onnx.save(network_of(command), tmp_path / "model.onnx")
    np.save(tmp_path / ("w.npy" if "--overridable" in command else "x.npy"), feed_of(command))
    for name in ("old.json", "new.json"):
        (tmp_path / name).write_text(report, encoding="utf-8")
    environment.run("bash", "-euc", command, folder=tmp_path)


def feed_of(command: str) -> np.ndarray:
    return np.ones((8, 8) if "--overridable" in command else (1, 3, 16, 16), np.float32)


def test_the_blocks_of_the_readme(environment: Installed, tmp_path: Path) -> None:
    onnx.save(network((1, 3, 16, 16)), tmp_path / "model.onnx")
    environment.page(README, tmp_path, DECODER)


def test_the_table_of_the_readme_is_read() -> None:
    assert len(COMMANDS) > 20 and "graphflow check model.onnx" in COMMANDS
    assert all(len(command) < 80 for command in COMMANDS)
