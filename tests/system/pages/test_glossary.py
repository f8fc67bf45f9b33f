"""docs/glossary.md says what each public term means, and names nothing that does not exist."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

import pytest

from support.paths import ROOT
from support.source import MODULES, nodes, trees

HEADER = "| Term | Code | What it is | In the field |"

OLD_WORDS = {"alternative", "alternatives", "form", "forms", "label", "labels"}
"""Terms that were replaced: by variant, variant and edge type."""

OLD_CLASSES = {"Given", "Lies", "Need"}

NOT_OLD = {"label_extents"}
"""Labels of an Einsum equation, which is ONNX's own word for its letters."""


class Row(NamedTuple):
    """A row of the glossary; `names` are in backquotes in the columns of the term and the code."""

    term: str
    names: tuple[str, ...]
    meaning: str


def read(text: str) -> list[Row]:
    """The rows of all tables of the glossary; AssertionError where one is malformed."""
    rows = []
    for line in text.splitlines():
        if line.startswith("|") and line != HEADER and not line.startswith("|---"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) == HEADER.count("|") - 1, line
            term, code, meaning, _ = cells
            assert term and code and meaning, f"an empty cell: {line}"
            rows.append(Row(term, tuple(re.findall(r"`([^`]+)`", f"{term} {code}")), meaning))
    return rows


TEXT = (ROOT / "docs/glossary.md").read_text(encoding="utf-8")
ROWS = read(TEXT)


def targets(statement: ast.stmt) -> Iterator[str]:
    """The names that a class definition, a function definition or an assignment binds."""
    if isinstance(statement, ast.ClassDef | ast.FunctionDef):
        yield statement.name
    elif isinstance(statement, ast.AnnAssign | ast.Assign):
        places = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for place in places:
            names = place.elts if isinstance(place, ast.Tuple) else [place]
            yield from (name.id for name in names if isinstance(name, ast.Name))


def exported(tree: ast.Module) -> list[str]:
    """The names in `__all__`; none where a module has no such list."""
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and "__all__" in targets(statement):
            return list(ast.literal_eval(statement.value))
    return []


def is_type(name: str) -> bool:
    """Whether a name is spelled as those of classes and type aliases are."""
    return name[0].isupper() and not name.isupper()


def public(names: Iterator[str]) -> set[str]:
    return {name for name in names if not name.startswith("_")}


@cache
def terms() -> frozenset[str]:
    """The names that have rows: types that a package exports, and what `graphflow` does."""
    types = {name for tree in trees().values() for name in exported(tree) if is_type(name)}
    return frozenset(types.union(exported(trees()["graphflow"])))


@cache
def defined() -> frozenset[str]:
    """Modules, and what is defined at the top of one; with its class in front, what is in a class,
    or in a class that it is derived from."""
    found = {part for module in MODULES for part in module.split(".")}
    own: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for tree in trees().values():
        for statement in tree.body:
            found |= public(targets(statement))
            if isinstance(statement, ast.ClassDef):
                members = public(name for member in statement.body for name in targets(member))
                own.setdefault(statement.name, set()).update(members)
                bases[statement.name] = [b.id for b in statement.bases if isinstance(b, ast.Name)]
    for name, members in own.items():
        above = (own.get(base, set()) for base in bases[name])
        found |= {f"{name}.{member}" for member in members.union(*above)}
    return frozenset(found)


def test_every_public_term_has_one_row() -> None:
    where: dict[str, list[str]] = {}
    for row in ROWS:
        for name in row.names:
            where.setdefault(name, []).append(row.term)
    missing = sorted(terms() - where.keys())
    assert not missing, f"docs/glossary.md has no row for {', '.join(missing)}"
    several = {name: terms for name, terms in where.items() if len(terms) > 1}
    assert not several, "a name has its row where it is explained; elsewhere it is no code name"


def test_every_name_in_the_glossary_exists() -> None:
    stale = [(row.term, name) for row in ROWS for name in row.names if name not in defined()]
    assert not stale, "docs/glossary.md names what is not in the code"


def test_explanations_name_classes_that_exist() -> None:
    """Names of other projects are in the last column, which is theirs."""
    prose = [row.meaning for row in ROWS]
    prose += [line for line in TEXT.splitlines() if not line.startswith("|")]
    quoted = {name for text in prose for name in re.findall(r"`(\w+)`", text)}
    assert not sorted(name for name in quoted - defined() if is_type(name))


def test_exported_names_are_bound() -> None:
    """Those of `graphflow` itself are imported for type checkers, and on first use."""
    wrong = []
    for module, tree in trees().items():
        bound = {name for statement in tree.body for name in targets(statement)}
        for node in nodes(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                bound.update(alias.asname or alias.name for alias in node.names)
        wrong += [(module, name) for name in exported(tree) if name not in bound]
    assert not wrong


def words(name: str) -> list[str]:
    """The words of a name in snake case or camel case, in lower case."""
    found = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)
    return [word.lower() for word in found]


def test_replaced_terms_are_gone() -> None:
    names = {part for module in MODULES for part in module.split(".")}
    for tree in trees().values():
        names.update(exported(tree))
        defined = (n for n in nodes(tree) if isinstance(n, ast.ClassDef | ast.FunctionDef))
        names |= public(node.name for node in defined)
    old = {name for name in names if not OLD_WORDS.isdisjoint(words(name))} | names & OLD_CLASSES
    renamed = sorted(old - NOT_OLD)
    assert not renamed, "see docs/glossary.md for the terms that replaced these words"


def test_words_of_a_name() -> None:
    assert words("KernelVariant") == ["kernel", "variant"]
    assert words("label_extents") == ["label", "extents"]
    assert words("EdgeLabel") == ["edge", "label"]
    assert words("LLVMForm") == ["llvm", "form"]
    assert "form" not in words("transform_layout")


@pytest.mark.parametrize(
    "row", ["| a | `B` | |", "| a | | What B is. | |", "| a | `B` | one | two | three |"]
)
def test_a_malformed_row_is_refused(row: str) -> None:
    good = "| a | `B` | What B is. | |"
    assert read(f"{HEADER}\n|---|---|---|---|\n{good}") == [Row("a", ("B",), "What B is.")]
    with pytest.raises(AssertionError):
        read(row)
