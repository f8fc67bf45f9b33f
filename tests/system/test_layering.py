"""The shape of the source tree: imports go down the ranks and stand at module top, the package
list equals the folders on disk, and `import graphflow` stays light."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib

from support.paths import ROOT
from support.source import MODULES, TREES, imports, own_imports, part_of

RANKS = {
    "errors": 0, "version": 0, "foreign": 0.1, "options": 0.2, "decisions": 0.1, "assumed": 0.1,
    "trace": 0.3, "once": 0.3, "workers": 0.4, "digest": 0.1, "store": 0.1, "plain": 0.1,
    "shared_scope": 0.3, "arguments": 1.1,
    "arith": 1, "target": 1, "cost": 1.5,
    "tir": 2, "layout": 3, "schedule": 4, "kernels": 4.5,
    "graph": 5, "frontends": 5.5,
    "flow": 6, "convert": 7, "runtime": 7.5, "lower": 8, "codegen": 9, "validation": 9.5,
    "kernel_cache": 9.5, "making": 9.5,
    "dumps": 10, "compiler": 11,
    "samples": 12, "inspect": 12, "models": 12,
    "model": 12.2, "specialize": 12.4, "saved": 12.4, "executable": 12.6, "compilation": 13,
    "building": 13, "checking": 13, "language": 0, "dtypes": 0,
    "bench": 13.2, "tuning": 13.3, "demo": 13.4, "backend": 13.4, "cli": 13.6, "": 14,
}  # fmt: skip
"""A module imports from lower ranks, and from its own folder; "" is graphflow itself."""

PEERS = ("onnxruntime", "openvino")


def test_imports_go_down_the_ranks() -> None:
    wrong = [
        f"{module} (rank {RANKS[part_of(module)]}) imports {name} (rank {RANKS[part_of(name)]})"
        for module in MODULES
        for _, name in own_imports(module)
        if part_of(name) != part_of(module) and RANKS[part_of(name)] >= RANKS[part_of(module)]
    ]
    assert not wrong


def test_other_folders_are_imported_as_packages() -> None:
    wrong = []
    for module in MODULES:
        for _, name in own_imports(module):
            inner = name.removeprefix("graphflow.kernels.").removeprefix("graphflow.")
            is_package = MODULES[name].name == "__init__.py"
            if part_of(name) != part_of(module) and "." in inner and not is_package:
                wrong.append(f"{module} imports the inner module {name}; import its package")
    assert not wrong


def test_imports_stand_at_module_top() -> None:
    functions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    wrong = [
        f"{module}:{node.lineno}"
        for module, tree in TREES.items()
        for function in ast.walk(tree)
        if isinstance(function, functions)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
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


def test_every_part_has_a_rank() -> None:
    assert {part_of(module) for module in MODULES} <= set(RANKS)


def test_the_package_list_equals_the_folders_on_disk() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    listed = project["tool"]["setuptools"]["packages"]
    on_disk = [name for name, path in MODULES.items() if path.name == "__init__.py"]
    assert sorted(listed) == sorted(on_disk)


def test_only_bench_and_foreign_parts_import_peers() -> None:
    users = {
        part_of(module)
        for module, tree in TREES.items()
        for _, name in imports(tree)
        if name.split(".")[0] in PEERS
    }
    assert users == {"bench", "foreign"}


def test_only_options_reads_the_environment() -> None:
    readers = [
        module
        for module, path in MODULES.items()
        if "os.environ" in path.read_text(encoding="utf-8") or "getenv" in path.read_text()
    ]
    assert readers == ["graphflow.options"]


def test_importing_graphflow_is_light_and_brings_no_peer() -> None:
    code = (
        "import sys, time; start = time.perf_counter(); import graphflow;"
        "print(time.perf_counter() - start);"
        "heavy = {'onnx', 'onnxruntime', 'scipy', 'llvmlite'} & set(sys.modules);"
        "assert not heavy, heavy;"
        "graphflow.compile;"
        "assert 'onnxruntime' not in sys.modules;"
        "assert callable(graphflow.backend.prepare) and callable(graphflow.models.reseed)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(f"import graphflow took {float(done.stdout):.3f} s")
