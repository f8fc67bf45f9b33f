"""Tests of the source tree: imports go to lower ranks, of parts and of rooms, and stand at module
top, no folder has many modules, no two modules or classes have one name, the package list equals
the folders on disk, and `import graphflow` stays light."""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from graphlib import TopologicalSorter

import pytest

from support.pages import trees_of_pages
from support.paths import ROOT
from support.source import (
    MODULES,
    NAMESPACES,
    imports,
    nodes,
    own_imports,
    part_of,
    trees,
    trees_of_tests,
)

STOREYS: tuple[tuple[str, ...], ...] = (
    ("base", "arith", "language"),
    ("tir", "foreign", "llvm", "processes"),
    ("layout", "effects", "program", "cost", "reports"),
    ("schedule", "codegen", "runtime"),
    ("kernels",),
    ("graph", "plan", "validation"),
    ("frontends", "flow", "physical"),
    ("convert", "lower", "baselines"),
    ("pipeline",),
    ("inspect", "bench", "quantization"),
    ("api", "tuning", "models"),
    ("cli", "distributed", "serve", ""),
)
"""The parts of each rank, 0 first; "" is `graphflow/__init__.py`.  A module imports from lower
ranks and from its own part.  docs/architecture.md prints this table."""

RANKS = {part: rank for rank, parts in enumerate(STOREYS) for part in parts}

PEERS = ("onnxruntime", "openvino")


def test_imports_go_down_the_ranks() -> None:
    wrong = [
        f"{module} (rank {RANKS[part_of(module)]}) imports {name} (rank {RANKS[part_of(name)]})"
        for module in MODULES
        for _, name in own_imports(module)
        if part_of(name) != part_of(module) and RANKS[part_of(name)] >= RANKS[part_of(module)]
    ]
    assert not wrong


def test_what_follows_a_plan_knows_nothing_of_the_search_for_it() -> None:
    """So that checking a plan and making its program repeat nothing that flow concluded."""
    followers = ("plan", "physical", "convert", "lower", "runtime", "codegen", "program")
    wrong = [
        f"{module} imports {name}"
        for module in MODULES
        if part_of(module) in followers
        for _, name in own_imports(module)
        if part_of(name) == "flow"
    ]
    assert not wrong


def test_other_folders_are_imported_as_packages() -> None:
    wrong = []
    for module in MODULES:
        for _, name in own_imports(module):
            is_package = MODULES[name].name == "__init__.py"
            is_inner = not is_package and name.rpartition(".")[0] not in NAMESPACES
            if part_of(name) != part_of(module) and is_inner:
                wrong.append(f"{module} imports the inner module {name}; import its package")
    assert not wrong


def test_imports_stand_at_module_top() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    wrong = [
        f"{module}:{node.lineno}"
        for module, tree in trees().items()
        for node in nodes(tree)
        if isinstance(node, ast.Import | ast.ImportFrom) and node.col_offset
        for function in nodes(tree)
        if isinstance(function, functions) and function.lineno <= node.lineno
        if node.lineno <= (function.end_lineno or 0)
    ]
    assert not wrong


def test_modules_do_not_import_each_other_in_circles() -> None:
    edges = {
        module: sorted({name for _, name in own_imports(module)} - {module}) for module in MODULES
    }
    # Packages re-export their modules, and a module may ask a sibling through the module's name.
    state: dict[str, int] = {}

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert state.get(module) != 1, f"import cycle: {' -> '.join((*path, module))}"
        if module in state or MODULES[module] == ROOT / "graphflow" / "__init__.py":
            return
        state[module] = 1
        for name in edges[module]:
            visit(name, (*path, module))
        state[module] = 2

    for module in MODULES:
        visit(module, ())


def room_of(module: str) -> str:
    """The folder within its part that holds a module; "" for what the part holds itself."""
    package = module if MODULES[module].name == "__init__.py" else module.rpartition(".")[0]
    return ".".join(package.split(".")[2:])


def test_rooms_of_a_part_import_each_other_in_one_direction() -> None:
    """Of two folders of a part, also by way of others, one is below the other."""
    below: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for module in MODULES:
        part, room = part_of(module), room_of(module)
        for _, name in own_imports(module):
            if part_of(name) == part and room and room_of(name) not in ("", room):
                below.setdefault((part, room), set()).add((part, room_of(name)))
    # Raises CycleError, which has the rooms.
    TopologicalSorter(below).prepare()
    assert below


ROOMS: dict[str, tuple[tuple[str, ...], ...]] = {
    "frontends": (
        ("protos",),
        ("reading",),
        ("tensors",),
        ("nodes",),
        ("control_flow", "rewrites", "operators"),
        ("",),
    ),
    "kernels/definitions": (
        ("",),
        ("linear_algebra", "reductions", "movements"),
        ("windows", "data_dependent"),
        ("interpolation",),
    ),
    "flow": (("candidates",), ("elimination",), ("objective",), ("branch_and_bound",), ("",)),
}
"""The rooms of each rank in large folders, 0 first; "" is what the folder holds itself.  A module
imports from lower ranks and from its own room.  docs/architecture.md prints this table."""


@pytest.mark.parametrize("folder", ROOMS)
def test_imports_go_down_the_ranks_of_rooms(folder: str) -> None:
    package = f"graphflow.{folder.replace('/', '.')}"
    ranks = {room: rank for rank, rooms in enumerate(ROOMS[folder]) for room in rooms}

    def room_within(module: str) -> str:
        """The room of a module of the folder."""
        is_package = MODULES[module].name == "__init__.py"
        holder = module if is_package else module.rpartition(".")[0]
        return holder.removeprefix(package).removeprefix(".")

    modules = [module for module in MODULES if f"{module}.".startswith(f"{package}.")]
    assert {room_within(module) for module in modules} == set(ranks)
    wrong = [
        f"{module} imports {name}"
        for module in modules
        for _, name in own_imports(module)
        if name in modules and room_within(name) != room_within(module)
        if ranks[room_within(name)] >= ranks[room_within(module)]
    ]
    assert not wrong


def test_the_architecture_page_prints_the_rooms() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w/]+)/` \| (\d+) \| ([^|]*) \|", page, re.MULTILINE)
    printed = [(folder, int(rank), re.findall(r"`(\w+)`", rooms)) for folder, rank, rooms in rows]
    assert printed == [
        (folder, rank, [room for room in rooms if room])
        for folder, ranks in ROOMS.items()
        for rank, rooms in enumerate(ranks)
    ]


MOST_MODULES = 25
"""In one folder; `tests` has its own rules."""


def test_folders_have_few_modules() -> None:
    counts = Counter(path.parent.relative_to(ROOT).as_posix() for path in MODULES.values())
    assert not {folder: count for folder, count in counts.items() if count > MOST_MODULES}


RECIPES = "graphflow.kernels.recipes"
MOST_LEVELS = 6
"""Levels of modules in `RECIPES`, each of which imports from lower ones."""


def test_claims_import_no_builders_and_builders_no_claims() -> None:
    edges = {
        module: {name for _, name in own_imports(module) if name != module} for module in MODULES
    }

    def below(module: str) -> set[str]:
        found = {name for name in edges[module] if name.startswith(f"{RECIPES}.")}
        return found.union(*map(below, found))

    for room, other in (("variants", "schedules"), ("schedules", "variants")):
        modules = [module for module in MODULES if module.startswith(f"{RECIPES}.{room}.")]
        assert len(modules) > 5
        for module in modules:
            assert not [x for x in below(module) if x.startswith(f"{RECIPES}.{other}")], module


def test_recipes_have_few_levels_of_imports() -> None:
    modules = {
        module: {name for _, name in own_imports(module) if name.startswith(f"{RECIPES}.")}
        for module, path in MODULES.items()
        if module.startswith(f"{RECIPES}.") and path.name != "__init__.py"
    }
    levels: dict[str, int] = {}
    for module in TopologicalSorter(modules).static_order():
        levels[module] = 1 + max((levels[name] for name in modules[module]), default=0)
    assert max(levels.values()) <= MOST_LEVELS, sorted(levels.items(), key=lambda x: x[1])


def test_every_part_has_a_rank() -> None:
    assert {part_of(module) for module in MODULES} == set(RANKS)
    assert len(RANKS) == sum(map(len, STOREYS)), "no part has two ranks"
    assert len(STOREYS) <= 12


def test_the_architecture_page_prints_the_ranks() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \|", page, re.MULTILINE)
    printed = [(int(rank), tuple(re.findall(r"`(\w+)`", parts))) for rank, parts in rows]
    stated = [tuple(part or "graphflow" for part in parts) for parts in STOREYS]
    assert printed == list(enumerate(stated))


def test_the_package_list_equals_the_folders_on_disk() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = project["tool"]["setuptools"]["packages"]
    on_disk = [name for name, path in MODULES.items() if path.name == "__init__.py"]
    assert sorted(listed) == sorted(on_disk)


def named_twice(names: Iterable[tuple[str, str]]) -> list[str]:
    """Of pairs of a name and the module that has it: the names that several modules have."""
    found: dict[str, list[str]] = {}
    for name, module in names:
        found.setdefault(name, []).append(module)
    return [f"{name}: {', '.join(users)}" for name, users in found.items() if len(users) > 1]


def test_no_class_name_stands_for_two_things() -> None:
    assert named_twice([("A", "m"), ("B", "m"), ("A", "n")]) == ["A: m, n"]
    classes = (
        (node.name, module)
        for module, tree in trees().items()
        for node in nodes(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert not named_twice(classes)


def test_no_two_modules_have_one_name() -> None:
    """A module is spoken of by its own name; only the `__init__.py` of packages are alike."""
    modules = (
        (path.stem, module) for module, path in MODULES.items() if path.name != "__init__.py"
    )
    assert not named_twice(modules)


def test_no_function_name_stands_for_two_things() -> None:
    """Public functions of modules; methods have the names of their interfaces."""
    functions = (
        (node.name, module)
        for module, tree in trees().items()
        for node in tree.body  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    )
    assert not named_twice(functions)


def exports(package: str) -> set[str]:
    """The names in `__all__` of a package."""
    for stmt in trees()[package].body:  # type: ignore[attr-defined]
        if isinstance(stmt, ast.Assign) and ast.unparse(stmt.targets[0]) == "__all__":
            return set(ast.literal_eval(stmt.value))
    return set()


def taken_names(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """The names that a module takes from packages, `from p import n` or `p.n`, with the package."""
    spaces = {}
    for node in nodes(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                yield str(node.module), alias.name
                spaces[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    for node in nodes(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=space), attr=name) if space in spaces:
                yield spaces[space], name


def test_what_a_package_exports_is_imported_by_others() -> None:
    users = {**trees(), **trees_of_pages()}
    users |= {str(path): tree for path, tree in trees_of_tests().items()}
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        users[str(path)] = ast.parse(path.read_text(encoding="utf-8"))
    imported = {
        taken
        for user, tree in users.items()
        for taken in taken_names(tree)
        if not f"{user}.".startswith(f"{taken[0]}.")
    }
    unused = [
        f"{package} exports {name}, and nobody imports it"
        for package, path in MODULES.items()
        if path.name == "__init__.py" and package != "graphflow"
        for name in sorted(exports(package))
        if (package, name) not in imported
    ]
    assert not unused


def test_only_three_parts_import_peers() -> None:
    users = {
        part_of(module)
        for module, tree in trees().items()
        for _, name in imports(tree)
        if name.split(".")[0] in PEERS
    }
    assert users == {"bench", "foreign", "quantization"}


def test_only_options_reads_the_environment() -> None:
    readers = [
        module
        for module, path in MODULES.items()
        if "os.environ" in path.read_text(encoding="utf-8") or "getenv" in path.read_text()
    ]
    assert readers == ["graphflow.base.options"]


def test_importing_graphflow_is_light_and_brings_no_peer() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import graphflow as gf;"
        "print(time.perf_counter() - start);"
        "heavy = {'onnx', 'onnxruntime', 'llvmlite'} & set(sys.modules);"
        "assert not heavy, heavy;"
        "gf.compile;"
        "assert not {'onnxruntime', 'rich'} & set(sys.modules);"
        "assert callable(gf.backend.prepare) and callable(gf.models.reseed)"
    )
    command = [sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(f"import graphflow took {float(done.stdout):.3f} s")
