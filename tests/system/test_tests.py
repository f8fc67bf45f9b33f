"""The tests themselves: a module's test is found by its name."""

from __future__ import annotations

import ast
from pathlib import Path

from support.paths import TESTS
from support.source import MODULES

APART = ("support", "system")
"""Folders that mirror no package: what tests share, and what runs the compiler end to end."""

WITHOUT_MODULE = {
    "frontends/test_data_extents.py": "operators of several modules, alike in what data decides",
    "frontends/test_operators.py": "each attribute of the operators, whichever module imports them",
    "frontends/test_transposed.py": "one operator of ops_window.py, at length",
}
"""Test modules beside a package that are named after none of its modules, and why."""


def test_modules() -> list[Path]:
    return sorted(path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))


test_modules.__test__ = False  # type: ignore[attr-defined]


def is_found_by_its_name(path: Path) -> bool:
    """Whether `a/test_b.py` tests graphflow/a/b.py, or `a/test_a.py` the package a as a whole."""
    package = ".".join(("graphflow", *path.parent.parts))
    subject = path.stem.removeprefix("test_")
    return f"{package}.{subject}" in MODULES or (package in MODULES and path.parent.name == subject)


def test_folders_mirror_the_packages() -> None:
    found = [path for path in test_modules() if path.parts[0] not in APART]
    assert len(found) > 70
    strays = {path.as_posix() for path in found if not is_found_by_its_name(path)}
    assert strays == set(WITHOUT_MODULE), "move these to where their subject is, or say why not"


def test_support_has_no_tests_and_other_folders_nothing_else() -> None:
    for path in sorted(TESTS.rglob("*.py")):
        place = path.relative_to(TESTS)
        is_support = place.parts[0] == "support" or place.name == "conftest.py"
        assert is_support != place.name.startswith("test_"), f"{place} is in the wrong folder"


def test_no_test_module_imports_another_one() -> None:
    wrong = [
        f"{path.relative_to(TESTS)}:{node.lineno} imports {node.module}"
        for path in sorted(TESTS.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and "test_" in node.module
    ]
    assert not wrong, "what tests share is in support/"
