"""Tests of the tests: the test of a module is found by its name, and none uses private names."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.paths import TESTS
from support.source import MODULES, nodes, trees_of_tests

APART = ("support", "system")
"""Folders that mirror no package: what tests share, and what runs the compiler end to end."""

BESIDE = ("conftest.py", "explore.py")
"""Modules beside the folders, which are no tests."""

WITHOUT_MODULE = {
    "api/session/test_bound_states.py": "bindings and values together, where states stay in place",
    "frontends/operators/test_data_shapes.py": "operators of several modules, where data decides",
    "frontends/operators/test_quantized_reference.py": "ops_quantized.py, at length",
    "frontends/operators/test_transposed.py": "one operator of ops_window.py, at length",
    "inspect/test_report_schema.py": "graphflow/cli/report.schema.json, which is no module",
    "kernels/recipes/tile_kinds/test_matrix_tiles.py": "one kind of dot_tiles.py, at length",
    "schedule/test_handles.py": "the handles of frame.py, through the primitives of all modules",
    "schedule/test_primitives.py": "every primitive, whichever module it is in, on random kernels",
    "schedule/test_refusals.py": "each clause of primitives' conditions, whichever module",
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
        is_support = place.parts[0] in ("support", "regressions") or place.name in BESIDE
        assert is_support != place.name.startswith("test_"), f"{place} is in the wrong folder"


def test_rooms_are_small() -> None:
    modules = [path for room in APART for path in (TESTS / room).rglob("*.py")]
    sizes = Counter(path.parent.relative_to(TESTS).as_posix() for path in modules)
    assert {room: size for room, size in sizes.items() if size > 25} == {}


def test_no_test_module_imports_another_one() -> None:
    wrong = [
        f"{path.relative_to(TESTS)}:{node.lineno} imports {node.module}"
        for path, tree in trees_of_tests().items()
        for node in nodes(tree)
        if isinstance(node, ast.ImportFrom) and node.module and "test_" in node.module
    ]
    assert not wrong, "what tests share is in support/"


# What tests may touch -----------------------------------------------------------------------------

NAMED = ("setattr", "delattr", "getattr", "object", "setitem", "attrgetter", "methodcaller")
"""Functions that take the name of an attribute, among them `monkeypatch`'s and `mock.patch`'s."""

IN_TEXT = re.compile(r"\b(?!os\._exit\b)\w+(\[\w*\]|\(\))*\._(?!_)\w+")
"""A private attribute in the text of a script, or in a dotted name."""


OF_NOTEBOOKS = ("_repr_html_",)
"""Methods that a notebook calls, which are public for all their underscores."""


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in OF_NOTEBOOKS


def private_uses(tree: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Where a test names what is private to a module or class that is not its own."""
    own = {
        node.attr
        for node in nodes(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    }
    own |= {node.name for node in nodes(tree) if isinstance(node, ast.FunctionDef)}
    for node in nodes(tree):
        match node:
            case ast.ImportFrom(names=names):
                yield from ((node, alias.name) for alias in names if is_private(alias.name))
            case ast.Attribute(attr=attr) if is_private(attr) and attr not in own:
                if ast.unparse(node) != "os._exit":
                    yield node, attr
            case ast.Call(func=func, args=args) if last_name(func) in NAMED:
                yield from private_texts(args)
            case ast.Tuple(elts=[_, ast.Constant() as name, _]):  # what is patched, name, value
                yield from private_texts([name])
            case ast.Constant(value=str(text)):
                yield from ((node, found[0]) for found in IN_TEXT.finditer(text))


def last_name(expr: ast.expr) -> str:
    """The name that is called by `f(…)` or `a.f(…)`; "" where what is called has none."""
    match expr:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def private_texts(nodes: list[ast.expr]) -> Iterator[tuple[ast.AST, str]]:
    for node in nodes:
        match node:
            case ast.Constant(value=str(text)) if is_private(text):
                yield node, text


def test_no_test_touches_a_private_name() -> None:
    """What a test needs to reach is an argument, or has a public name."""
    wrong = [
        f"{path.relative_to(TESTS)}:{getattr(node, 'lineno', 0)}: {name}"
        for path, tree in trees_of_tests().items()
        if path != Path(__file__)
        for node, name in private_uses(tree)
    ]
    assert not wrong


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("from graphflow.schedule.padding.overcompute import _query", ["_query"]),
        ("worker._process.kill()", ["_process"]),
        ("monkeypatch.setattr(module, '_limit', 3)", ["_limit"]),
        ("mock.patch.object(module, '_limit', 3)", ["_limit"]),
        ("PATCHES = [(module, '_limit', 3)]", ["_limit"]),
        ("monkeypatch.setattr('graphflow.processes.store.' + 'x._limit', 3)", ["x._limit"]),
        ("script = 'print(workers.all[0]._process.pid)'", ["all[0]._process"]),
        ("os._exit(0); child = 'os._exit(0)'", []),
        ("class A:\n    def f(self): return self._kept\nA()._kept", []),
        ("name.replace('.', '_dot_'); monkeypatch.setattr(module, 'limit', 3)", []),
        ("x.__name__; 'x.__name__'", []),
    ],
)
def test_private_names_are_found_however_they_are_named(text: str, names: list[str]) -> None:
    assert [name for _, name in private_uses(ast.parse(text))] == names
