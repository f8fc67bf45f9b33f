"""The modules of graphflow as files and syntax trees, with what they import."""

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from support.paths import ROOT, TESTS


def modules() -> dict[str, Path]:
    """Every module by dotted name, with the folders mapped as in the package."""
    found = {}
    for folder in ("graphflow", "kernels", "frontends", "models"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = list(path.relative_to(ROOT).with_suffix("").parts)
            if folder != "graphflow":
                parts.insert(0, "graphflow")
            if parts[-1] == "__init__":
                parts.pop()
            found[".".join(parts)] = path
    return found


MODULES = modules()


@cache
def trees() -> dict[str, ast.Module]:
    """The syntax tree of every module: seconds and 200 MB, which most runs of tests do without.

    The collector of garbage is not to pass over what the process keeps: a pass takes a second.
    """
    found = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in MODULES.items()}
    gc.freeze()
    return found


@cache
def trees_of_tests() -> dict[Path, ast.Module]:
    """The syntax tree of every module of the tests, as `trees` has those of graphflow."""
    paths = sorted(TESTS.rglob("*.py"))
    found = {path: ast.parse(path.read_text(encoding="utf-8")) for path in paths}
    gc.freeze()
    return found


@cache
def nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """All nodes of a tree.  A dozen tests look through those of every module, and to walk through
    all trees takes a second."""
    return tuple(ast.walk(tree))


NAMESPACES = (
    "graphflow",
    "graphflow.api",
    "graphflow.base",
    "graphflow.kernels",
    "graphflow.kernels.definitions",
    "graphflow.kernels.definitions.data_dependent",
    "graphflow.kernels.definitions.interpolation",
    "graphflow.kernels.definitions.linear_algebra",
    "graphflow.kernels.definitions.movements",
    "graphflow.kernels.definitions.reductions",
    "graphflow.kernels.definitions.windows",
    "graphflow.pipeline",
    "graphflow.processes",
)
"""Packages that export nothing (early): what is imported from them is a module."""


def part_of(module: str) -> str:
    """The folder or file directly below graphflow that a module belongs to; `python -m graphflow`
    is the command line's."""
    part = [*module.split("."), ""][1]
    return "cli" if part == "__main__" else part


@cache
def exported(package: str) -> frozenset[str]:
    """The names that a package itself imports or defines."""
    names: set[str] = set()
    for node in trees()[package].body if package in trees() else ():
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return frozenset(names)


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Imported modules; `from graphflow import x` counts as graphflow.x where that is a module."""
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                # A package may export a name that one of its modules has too.
                is_module = whole in MODULES and alias.name not in exported(str(node.module))
                yield node, whole if is_module else str(node.module)


@cache
def own_imports(module: str) -> tuple[tuple[ast.stmt, str], ...]:
    """What a module of graphflow imports of graphflow; half a dozen tests ask for it of each."""
    return tuple(
        (node, name) for node, name in imports(trees()[module]) if name.split(".")[0] == "graphflow"
    )
