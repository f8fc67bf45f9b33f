"""Tests of the source distribution: it has every file of the checkout, installs in a fresh
environment, and runs tests and how-tos there."""

import subprocess
import tarfile
from pathlib import Path

import pytest

from support.installed import TUTORIAL, Installed, built, installed
from support.pages import pages_with_commands
from support.paths import ROOT

pytestmark = [pytest.mark.release, pytest.mark.timeout(900)]  # an environment takes a minute

TESTED = ("tests/api/test_pickling.py", "tests/system/structure", "tests/system/pages/test_docs.py")
"""Tests that need code, documents and each other, and take seconds."""

OF_THE_WHEEL = (TUTORIAL.name, "deploy.md")
"""Pages that run with the wheel, in test_wheel.py."""


@pytest.fixture(scope="module")
def archive() -> Path:
    return built("*.tar.gz")


@pytest.fixture(scope="module")
def environment(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return installed(f"{archive}[test]", tmp_path_factory.mktemp("sdist"))


def test_it_has_every_file_of_the_checkout(archive: Path) -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("only git knows which files belong to the checkout")
    listed = subprocess.check_output(["git", "-C", ROOT, "ls-files"], text=True).splitlines()
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert [name for name in listed if name not in names and (ROOT / name).exists()] == []


def test_its_tests_run(archive: Path, environment: Installed, tmp_path: Path) -> None:
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    (checkout,) = tmp_path.iterdir()
    out = environment.run("pytest", "-n", "0", *TESTED, folder=checkout)
    assert "failed" not in out


@pytest.mark.parametrize(
    "page",
    [page for page in pages_with_commands() if page.name not in OF_THE_WHEEL],
    ids=lambda page: page.name,
)
def test_a_page_runs(page: Path, environment: Installed, tmp_path: Path) -> None:
    assert environment.page(page, tmp_path) == page.read_text(encoding="utf-8")
