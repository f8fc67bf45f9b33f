"""Tests that every block of code in README.md and docs/ is run by a test: those of pages with
commands by tests/system/release, in an installed package, the others by tests beside this one."""

import re
from pathlib import Path

import pytest

from support.pages import (
    BLOCK,
    IN_THIS_PROCESS,
    INSTALLS,
    MEASUREMENTS,
    code_blocks,
    pages_with_commands,
    run_page,
    with_output,
)
from support.paths import ROOT

DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]

LANGUAGES = {"python", "sh", "text"}
"""Code that is run, commands that are run, and what is neither."""

SCRIPTS = "".join((ROOT / ".ci" / name).read_text(encoding="utf-8") for name in ("run", "release"))

OF_A_CHECKOUT = ("README.md", "CONTRIBUTING.md")
"""Documents whose commands make an environment and check the checkout, as .ci/run does."""


def commands(code: str) -> list[str]:
    """The commands of a block, without what an installation prints and which extras it takes."""
    plain = re.sub(r"'\.\[[a-z,]+\]'", ".", code.replace("--quiet ", ""))
    return [command for line in plain.splitlines() for command in line.split(" && ")]


@pytest.mark.parametrize("page", DOCUMENTS, ids=lambda page: page.name)
def test_every_block_has_a_language(page: Path) -> None:
    fences = re.findall(r"^ *```(.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(fences) % 2 == 0
    assert set(fences[::2]) <= LANGUAGES and set(fences[1::2]) <= {""}


def test_every_page_with_code_is_run() -> None:
    found = {page.name for page in DOCUMENTS if any(code_blocks(page))}
    ours = {*IN_THIS_PROCESS, *MEASUREMENTS, *OF_A_CHECKOUT}
    assert found == ours | {page.name for page in pages_with_commands()}
    sources = "".join(p.read_text(encoding="utf-8") for p in Path(__file__).parent.glob("*.py"))
    assert all(f'"{name}"' in sources for name in IN_THIS_PROCESS)


def test_every_page_of_docs_is_in_the_site() -> None:
    listed = re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.M)
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert pages <= set(listed), "mkdocs.yml names the pages of the site, by use"


@pytest.mark.parametrize("name", OF_A_CHECKOUT)
def test_commands_for_a_checkout_are_those_of_ci(name: str) -> None:
    blocks = [block for block in code_blocks(ROOT / name) if block.language == "sh"]
    found = [command for block in blocks for command in commands(block.code)]
    known = "\n".join(commands(SCRIPTS))
    assert len(found) > 3
    assert [command for command in found if command not in known and command not in SCRIPTS] == []


def test_a_page_is_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that is a file is written, a failing command is an error, and only outputs that the
    page shows are written anew."""
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nx = 3\nprint(x)\n```\n\n```python\n# a_file.py\nprint(4)\n```\n\n"
        "```sh\npython3 a_file.py\n```\n\n```text\nfive\n```\n\n"
        "```python\nprint(x + 3)\n```\n",
        encoding="utf-8",
    )
    outputs = [output for _, output in run_page(page)]
    assert outputs == ["3\n", "", "4\n", "6\n"]
    assert with_output(page, outputs) == page.read_text(encoding="utf-8").replace("five", "4")
    page.write_text("```sh\nfalse\necho\n```\n", encoding="utf-8")
    with pytest.raises(RuntimeError, match="false"):
        run_page(page)


def test_blocks_that_install_are_found() -> None:
    assert INSTALLS.search(".venv/bin/pip install -e .") and not INSTALLS.search("pip list")
    assert BLOCK.search("```sh\nls\n```") and not BLOCK.search("```text\nls\n```")
