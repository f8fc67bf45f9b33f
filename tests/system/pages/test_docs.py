"""Tests that every path, name, option and command in README.md and docs/ exists."""

import ast
import importlib
import re
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest

from graphflow.api.executable import Executable
from graphflow.base.options import Options
from graphflow.cli import main
from support.paths import ROOT, TESTS
from support.source import nodes, trees

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def text_of(page: Path) -> str:
    """The text of a page; of the glossary without the last column, the words of other projects."""
    text = page.read_text(encoding="utf-8")
    if page.name != "glossary.md":
        return text
    return re.sub(r"^(\|.*\|)[^|\n]*\|$", r"\1", text, flags=re.MULTILINE)


TEXTS = {page.name: text_of(page) for page in PAGES}
SOURCES = "\n".join(
    path.read_text(encoding="utf-8")
    for folder in ("graphflow", "kernels", "frontends", "models", "tests", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
FILES = [
    path.relative_to(ROOT).as_posix()
    for folder in ("graphflow", "kernels", "frontends", "models", "tests", "benchmarks", "docs")
    for path in sorted((ROOT / folder).rglob("*"))
]

NOT_IN_THE_CHECKOUT = {
    "graphflow/kernels": "a folder of the user's cache",
    "kernels/k0.definition.txt": "a file of a dump",
}
NOT_OF_GRAPHFLOW = {"If", "Loop", "Scan", "None", "NCHW16c"}
"""Words in the form of class names: operators of ONNX, Python's None, a layout."""

every_page = pytest.mark.parametrize("page", TEXTS)


def spans(text: str) -> list[str]:
    """The code spans of a page, outside of its code blocks."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"`([^`\n]+)`", outside)


def paths_of(text: str) -> set[str]:
    """Paths in code spans, and paths below a top folder anywhere in the page."""
    folders = "graphflow|kernels|frontends|models|tests|benchmarks|docs"
    written = {span for span in spans(text) if re.fullmatch(r"[\w.*/-]+(/|\.py|\.md)", span)}
    below = re.findall(rf"(?<![\w./])(?:{folders})/[\w/.*]*[\w/*]", text)
    return {path.rstrip("/") for path in written | set(below)}


def exists(path: str) -> bool:
    """Whether a path leads anywhere from the root, or is the end of a file's path."""
    if list(ROOT.glob(path)):
        return True
    return any(f"/{file}".endswith(f"/{path}") for file in FILES)


@cache
def defined_names() -> set[str]:
    """Every class, function and assigned name of the package."""
    found = set()
    for tree in trees().values():
        for node in nodes(tree):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
    return found


def resolves(dotted: str) -> bool:
    """Whether `graphflow.a.b` is a module, or an attribute of one."""
    first, *rest = dotted.split(".")
    found = importlib.import_module(first)
    for depth, name in enumerate(rest):
        if not hasattr(found, name):
            try:
                importlib.import_module(".".join([first, *rest[: depth + 1]]))
            except ImportError:
                return False
        found = getattr(found, name)
    return True


@every_page
def test_paths_exist(page: str) -> None:
    missing = {path for path in paths_of(TEXTS[page]) if not exists(path)}
    assert missing <= set(NOT_IN_THE_CHECKOUT)


@every_page
def test_links_lead_to_files(page: str) -> None:
    folder = ROOT if page == "README.md" else ROOT / "docs"
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", TEXTS[page])
    assert [target for target in targets if not (folder / target).exists()] == []


@every_page
def test_dotted_names_exist(page: str) -> None:
    dotted = re.findall(r"(?<![\w./])graphflow(?:\.[a-z_]\w*|\.[A-Z]\w*)+", TEXTS[page])
    short = re.findall(r"(?<![\w.])gf((?:\.[A-Za-z_]\w*)+)", TEXTS[page])
    names = {*dotted, *(f"graphflow{name}" for name in short)}
    assert {name for name in names if not resolves(name)} == set()


@every_page
def test_attributes_of_executables_and_fields_of_options_exist(page: str) -> None:
    text = TEXTS[page]
    attributes = set(re.findall(r"\bexe\.(\w+)", text))
    assert {name for name in attributes if not hasattr(Executable, name)} == set()
    given = re.findall(r"\bOptions\((\w+)=", text) + re.findall(r"\bOptions\.(\w+)", text)
    assert set(given) <= {field.name for field in fields(Options)}


@every_page
def test_names_of_classes_and_constants_exist(page: str) -> None:
    words = {span for span in spans(TEXTS[page]) if re.fullmatch(r"[A-Z]\w+", span)}
    ours = {word for word in words - NOT_OF_GRAPHFLOW if not word.startswith("GRAPHFLOW_")}
    assert ours <= defined_names()


@every_page
def test_other_names_occur_in_the_sources(page: str) -> None:
    words = {span for span in spans(TEXTS[page]) if re.fullmatch(r"[a-z]+(_\w+)+", span)}
    assert words <= known_words()


@cache
def known_words() -> set[str]:
    """The names of test modules, and the words of the sources."""
    return {path.stem for path in TESTS.rglob("*.py")} | set(re.findall(r"\w+", SOURCES))


def commands_of(text: str) -> list[tuple[str, list[str]]]:
    """Each command line in a page, as the command and its options."""
    lines = re.findall(r"(?:^|`)(?:\S*/)?graphflow ([a-z]+)( [^`\n]*)?", text, flags=re.MULTILINE)
    return [(name, re.findall(r"(?<=\s)(--[a-z]+|-[a-z])\b", rest)) for name, rest in lines]


def test_commands_and_their_options_exist(capsys: pytest.CaptureFixture[str]) -> None:
    wanted: dict[str, set[str]] = {}
    for text in TEXTS.values():
        blocks = "\n".join(re.findall(r"^```\w*\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL))
        quoted = "\n".join(span for span in spans(text) if span.startswith("graphflow "))
        for command, options in commands_of(f"{blocks}\n{quoted}"):
            wanted.setdefault(command, set()).update(options)
    assert {"check", "compile", "run", "explain", "tune"} <= set(wanted)
    for command, options in wanted.items():
        with pytest.raises(SystemExit) as ended:
            main([command, "--help"])
        assert ended.value.code == 0, f"no command {command}"
        known = set(re.findall(r"(?<![\w-])--?[a-z]+", capsys.readouterr().out))
        assert options <= known, f"graphflow {command}"


def test_names_that_do_not_exist_are_noticed() -> None:
    """A trap for the tests themselves."""
    assert paths_of("in `graphflow/flow/nothing.py`, ops.py, kernels/none/") == {
        "graphflow/flow/nothing.py",
        "kernels/none",
    }
    assert not exists("graphflow/flow/nothing.py") and exists("flow/solve.py")
    assert not resolves("graphflow.nothing") and resolves("graphflow.graph.interpret_graph")
    assert "Alternative" not in defined_names()
    assert commands_of("graphflow run a.onnx --shape x") == [("run", ["--shape"])]
    assert Path(ROOT / "README.md") in PAGES
