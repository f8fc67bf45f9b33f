"""Tests of the kernel cache: programs are equal with and without it, and its keys cover everything
that a kernel depends on."""

import ast
import json
import os
import pickle
import signal
import subprocess
import sys
import time
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.errors import CodegenError
from graphflow.base.fields import replace
from graphflow.base.options import KERNELS_VARIABLE, Options, kernel_folder
from graphflow.base.processors import PROCESSORS
from graphflow.base.trace import Trace
from graphflow.codegen import compile_object, executed_as, host_target, make_object, renamed
from graphflow.codegen.symbols import ANONYMOUS
from graphflow.inspect import report
from graphflow.kernels.lowering import KernelTask, LoweredKernel
from graphflow.models import ModelBuilder
from graphflow.pipeline import kernel_cache
from graphflow.pipeline.compiler import Compiled, Shared, compile_graph
from graphflow.pipeline.kernel_cache import KernelCache, source_files
from graphflow.pipeline.request import CompileRequest
from graphflow.processes.digest import Digests
from graphflow.runtime import Program
from graphflow.tir import Literal, to_text
from support.disk import read_only
from support.source import MODULES, own_imports, trees


def network(channels: int = 6, batch: int = 1) -> onnx.ModelProto:
    build = ModelBuilder(seed=1, name="network")
    x = build.input("x", (batch, 3, 7, 7))
    x = build.relu(build.conv(x, channels, 3, pads=[1, 1, 1, 1]))
    build.output(build.node("Softmax", [build.node("GlobalAveragePool", [x])], axis=1))
    return build.model()


def compiled(model: onnx.ModelProto, cache: Path | str, **options: Any) -> Compiled:
    return compile_graph(
        CompileRequest(model, options=Options(cache=str(cache), workers=0, **options))
    )


def texts(made: Compiled) -> list[tuple[Any, ...]]:
    """Everything about the kernels of a program."""
    return [
        (
            symbol,
            to_text(kernel.func),
            to_text(kernel.schedule.definition),
            kernel.schedule.trace(proofs=True),
            [step.places for step in kernel.schedule.steps],
            kernel.proofs,
            kernel.extent,
            kernel.workspace,
            kernel.task,
        )
        for symbol, kernel in made.lowered.kernels.items()
    ]


# The same as without -----------------------------------------------------------------------------


def test_a_program_from_the_cache_is_the_same_program(tmp_path: Path) -> None:
    without, first, second = (compiled(network(), c) for c in ("off", tmp_path, tmp_path))
    assert without.cached == first.cached == 0
    assert second.cached == len(second.lowered.kernels) > 2
    assert without.spec.objects == first.spec.objects == second.spec.objects
    assert without.spec.run == second.spec.run and without.spec.prepare == second.spec.prepare
    assert texts(without) == texts(first) == texts(second)
    assert json.dumps(report(without)) == json.dumps(report(second))
    x = np.linspace(-1, 1, 147, dtype=np.float32).reshape(1, 3, 7, 7)
    results = [Program(made.spec).run({"x": x}) for made in (without, second)]
    assert all(np.array_equal(results[0][name], results[1][name]) for name in results[0])


def test_dumps_and_validation_are_the_same_from_the_cache(tmp_path: Path) -> None:
    folders = tmp_path / "first", tmp_path / "second"
    made = [
        compiled(network(), tmp_path / "cache", dump=str(folder), validate=True)
        for folder in folders
    ]
    assert made[1].cached == len(made[1].lowered.kernels)
    checks = [made_.validation.checks for made_ in made if made_.validation is not None]
    assert len(checks) == 2 and checks[0] == checks[1]
    files = [sorted(p.name for p in (f / "kernels").iterdir()) for f in folders]
    assert files[0] == files[1]
    for name in files[0]:
        assert (folders[0] / "kernels" / name).read_text() == (
            folders[1] / "kernels" / name
        ).read_text()


def test_another_model_finds_the_kernels_that_it_shares_under_its_own_symbols(
    tmp_path: Path,
) -> None:
    compiled(network(), tmp_path)
    build = ModelBuilder(seed=1, name="longer")
    x = build.input("x", (1, 3, 7, 7))
    y = build.relu(build.conv(build.node("Tanh", [x]), 6, 3, pads=[1, 1, 1, 1]))
    build.output(build.node("Softmax", [build.node("GlobalAveragePool", [y])], axis=1))
    second, without = (compiled(build.model(), cache) for cache in (tmp_path, "off"))
    assert 0 < second.cached < len(second.lowered.kernels)
    assert second.spec.objects == without.spec.objects and texts(second) == texts(without)


def test_what_a_compilation_asks_again_starts_no_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    monkeypatch.setattr(
        "graphflow.processes.workers.Workers.start",
        lambda self, count, trace: started.append(count),
    )
    options = Options(cache=str(tmp_path), workers=3)
    compile_graph(CompileRequest(network(), options=options))
    assert started[0] == 3
    started.clear()
    compile_graph(CompileRequest(network(), options=options))
    assert started == []
    for path in entries(tmp_path):
        path.unlink()
    compile_graph(CompileRequest(network(), options=options))
    assert started == [3]


# The key -----------------------------------------------------------------------------------------


@pytest.fixture
def task() -> KernelTask:
    kernels = compiled(network(), "off").lowered.kernels
    return next(kernel.task for kernel in kernels.values() if kernel.task.placements)


def key(task: KernelTask) -> bytes:
    return Digests().of(task)


def test_every_part_of_a_task_is_in_its_digest(task: KernelTask) -> None:
    assert key(task) == key(replace(task))
    name, layout, pad = task.placements[0]
    others = [
        replace(task, definition=replace(task.definition, name="other")),
        replace(task, definition=replace(task.definition, body=task.definition.body[:-1])),
        replace(task, placements=task.placements[1:]),
        replace(task, placements=((name, layout, 1.0), *task.placements[1:])),
        replace(task, placements=((name, layout, -0.0), *task.placements[1:])),
        replace(task, placements=((name, layout, 0.0), *task.placements[1:])),
        replace(task, placements=((name, layout, 0), *task.placements[1:])),
        replace(task, claimed="something"),
        replace(task, target=PROCESSORS["haswell"]),
    ]
    for field in fields(task.target):
        value = getattr(task.target, field.name)
        more = {str: "x", tuple: ("x",)}.get(type(value), 1)
        other = replace(task.target, **{field.name: more if value is None else value + more})
        others.append(replace(task, target=other))
    keys = [key(other) for other in (task, *others)]
    assert len(set(keys)) == len(keys), "pad may be one of those above"
    assert pad not in (1.0, 0.0)


def test_fields_that_equality_ignores_are_in_the_digest(task: KernelTask) -> None:
    name, layout, pad = task.placements[0]
    other = replace(layout, separators=(1,))
    assert other == layout
    assert key(replace(task, placements=((name, other, pad),))) != key(
        replace(task, placements=((name, layout, pad),))
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0.0, -0.0),
        ("a", b"a"),
        (("a", "b"), ("ab",)),
        (((1,), 2), (1, (2,))),
        ((), None),
        ((1, 2), [1, 2]),
        (Literal(0.0, "float32"), Literal(-0.0, "float32")),
        (Literal(float("nan"), "float32"), Literal(float("inf"), "float32")),
    ],
)
def test_values_that_differ_have_different_digests(one: object, other: object) -> None:
    assert Digests().of(one) != Digests().of(other)


def test_what_nobody_can_name_has_no_digest() -> None:
    for value in (lambda: 0, object(), np.zeros(2), test_what_nobody_can_name_has_no_digest):
        with pytest.raises(TypeError):
            Digests().of((value,))


def test_digests_do_not_depend_on_the_process(task: KernelTask) -> None:
    program = (
        "import pickle, sys\n"
        "from graphflow.processes.digest import Digests\n"
        "import graphflow.kernels.lowering\n"
        "sys.stdout.write(Digests().of(pickle.load(sys.stdin.buffer)).hex())\n"
    )
    value = (task, frozenset({"a", "b", "c"}))
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-P", "-c", program],
            input=pickle.dumps(value),
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        assert done.stdout.decode() == Digests().of(value).hex()


def test_the_sources_that_make_kernels_are_in_the_key() -> None:
    """Everything that lowering and code generation import, but what only runs or talks."""
    innocent = {
        "graphflow",
        "graphflow.base.options",
        "graphflow.base.trace",
        "graphflow.base.version",
    }
    innocent |= {"graphflow.base", "graphflow.kernels"}
    known = {path.resolve() for path in source_files()}
    todo, seen = ["graphflow.kernels.lowering", "graphflow.codegen"], set[str]()
    while todo:
        module = todo.pop()
        if module in seen or module in innocent:
            continue
        seen.add(module)
        assert MODULES[module].resolve() in known, module
        todo += [name for node, name in own_imports(module) if _runs(module, node)]
    assert len(seen) > 80


def _runs(module: str, node: ast.stmt) -> bool:
    """Whether an import is not for type checkers alone."""
    for stmt in trees()[module].body:  # type: ignore[attr-defined]
        if isinstance(stmt, ast.If) and "TYPE_CHECKING" in ast.unparse(stmt.test):
            return node not in stmt.body
    return True


def test_other_makers_find_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled(network(), tmp_path)
    monkeypatch.setattr(kernel_cache, "makers", lambda: b"others")
    assert compiled(network(), tmp_path).cached == 0


def test_another_target_finds_nothing(tmp_path: Path) -> None:
    options = Options(cache=str(tmp_path), workers=0)
    compile_graph(CompileRequest(network(), options=options))
    other = replace(host_target(), name="other")
    assert compile_graph(CompileRequest(network(), target=other, options=options)).cached == 0
    assert compile_graph(CompileRequest(network(), target=other, options=options)).cached > 0


# Symbols -----------------------------------------------------------------------------------------


def test_an_object_renamed_is_the_object_made_under_that_name() -> None:
    kernel = next(iter(compiled(network(), "off").lowered.kernels.values()))
    trace, target = Trace(Options()), host_target()
    short = make_object((kernel.func, "k0", target), trace)
    long = make_object((kernel.func, "k12345678901234", target), trace)
    assert renamed(short, "k0", "k12345678901234") == long
    assert renamed(long, "k12345678901234", "k0") == short
    assert renamed(short, "k0", "k0") is short
    with pytest.raises(CodegenError, match="does not define other"):
        renamed(short, "other", "k1")
    with pytest.raises(CodegenError, match="longer than"):
        renamed(short, "k0", "k" * (len(ANONYMOUS) + 1))
    with pytest.raises(CodegenError, match="damaged"):
        renamed(short[:50], "k0", "k1")


def test_a_symbol_that_has_no_room_is_compiled_as_it_is() -> None:
    kernel = next(iter(compiled(network(), "off").lowered.kernels.values()))
    symbol = "a_symbol_that_is_rather_long"
    made = make_object((kernel.func, symbol, host_target()), Trace(Options()))
    assert made == compile_object(kernel.func, symbol, host_target())


# Whatever happens to the folder ------------------------------------------------------------------


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.stat().st_size > 1000)


def test_damaged_entries_are_made_again(tmp_path: Path) -> None:
    first = compiled(network(), tmp_path)
    damaged, truncated = entries(tmp_path)[:2]
    data = bytearray(damaged.read_bytes())
    data[len(data) // 2] ^= 4
    damaged.write_bytes(data)
    truncated.write_bytes(truncated.read_bytes()[:-1])
    second = compiled(network(), tmp_path)
    assert second.cached == len(second.lowered.kernels) - 2 and not second.notices
    assert second.spec.objects == first.spec.objects
    assert compiled(network(), tmp_path).cached == len(second.lowered.kernels)


def test_an_entry_that_cannot_be_read_is_told_and_made_again(tmp_path: Path) -> None:
    first = compiled(network(), tmp_path)
    store = kernel_cache.EntryStore(tmp_path)
    store.put(entries(tmp_path)[0].stem, b"not a pickle")
    second = compiled(network(), tmp_path)
    assert second.cached == len(second.lowered.kernels) - 1
    assert "cannot be read" in second.notices[0]
    assert second.spec.objects == first.spec.objects


def test_a_folder_that_cannot_be_written_to_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only(monkeypatch)
    made = compiled(network(), tmp_path)
    assert made.notices == (f"the kernel cache {tmp_path} cannot be written",)
    assert made.spec.objects == compiled(network(), "off").spec.objects


def test_a_folder_that_is_none_is_told(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    made = compiled(network(), file)
    assert made.cached == 0 and made.notices == (f"no kernels are cached: {file} is not a folder",)


def test_the_bound_is_kept(tmp_path: Path) -> None:
    trace = Trace(Options())
    kernels = compiled(network(), "off")
    cache = KernelCache(str(tmp_path), trace, most_bytes=20_000)
    tasks = {symbol: kernel.task for symbol, kernel in kernels.lowered.kernels.items()}
    assert not cache.kernels(tasks)
    cache.keep(kernels.lowered.kernels, dict(kernels.spec.objects))
    assert 0 < sum(path.stat().st_size for path in tmp_path.iterdir()) <= 20_000


def test_what_cannot_be_pickled_is_left_out(tmp_path: Path) -> None:
    class Odd:
        def __reduce__(self) -> str:
            raise ValueError("no")

    made = compiled(network(), "off")
    kernels: dict[str, LoweredKernel] = dict(made.lowered.kernels)
    symbol = next(iter(kernels))
    odd: Any = (*kernels[symbol].proofs, Odd())
    cache = KernelCache(str(tmp_path), Trace(Options()))
    cache.kernels({symbol: kernel.task for symbol, kernel in kernels.items()})
    kernels[symbol] = replace(kernels[symbol], proofs=odd)
    cache.keep(kernels, dict(made.spec.objects))
    assert len(entries(tmp_path)) == len(kernels) - 1


# In memory ---------------------------------------------------------------------------------------


TARGET = executed_as(PROCESSORS["zen3"])


def shaped(width: int, earlier: list[Compiled] | None, cache: str | Path = "off") -> Compiled:
    """A network of one input width; `TARGET` packs weights of sums alike for 7 and 16."""
    build = ModelBuilder(seed=1, name="shaped")
    x = build.input("x", (1, 16, 7, width))
    build.output(build.relu(build.conv(x, 32, 3, pads=[1, 1, 1, 1])))
    options = Options(cache=str(cache), workers=0, threads=2, winograd=False)
    shared = None if earlier is None else Shared()
    return compile_graph(
        CompileRequest(build.model(), target=TARGET, options=options),
        shared=shared,
        earlier=earlier or [],
    )


def test_kernels_of_another_shape_are_taken_from_memory_as_they_would_be_made() -> None:
    first = shaped(7, [])
    second = shaped(16, [first])
    assert first.cached == 0 and 0 < second.cached < len(second.lowered.kernels)
    again, alone = shaped(16, [first, second]), shaped(16, None)
    assert again.cached == len(again.lowered.kernels) and alone.cached == 0
    assert alone.spec.objects == second.spec.objects == again.spec.objects
    assert texts(alone) == texts(second) == texts(again)


def test_memory_and_folder_keep_the_same_kernels(tmp_path: Path) -> None:
    made = shaped(7, [], tmp_path)
    for found in (shaped(7, [made]), shaped(7, None, tmp_path)):
        assert found.cached == len(made.lowered.kernels)
        assert found.spec.objects == made.spec.objects and texts(found) == texts(made)


def test_a_kernel_is_there_while_any_program_has_it() -> None:
    first = shaped(7, [])
    second = shaped(16, [first])
    assert 0 < second.cached == shaped(7, [second]).cached


def test_a_model_of_open_shapes_makes_no_kernel_twice() -> None:
    build = ModelBuilder(seed=1, name="open")
    x = build.input("x", (1, 16, 7, 7))
    build.output(build.relu(build.conv(x, 32, 3, pads=[1, 1, 1, 1])))
    proto = build.model()
    for value in (*proto.graph.input, *proto.graph.output):
        value.type.tensor_type.shape.dim[3].dim_param = "W"
    del proto.graph.value_info[:]
    options = Options(cache="off", workers=0, threads=2, winograd=False)
    exe = gf.compile(proto, target=TARGET, options=options)
    for width in (7, 16):
        exe.precompile({"x": (1, 16, 7, width)})
    first, second = (program.compiled for program in exe.specializations)
    assert first.cached == 0 < second.cached


COMPILE = """
import sys
from graphflow.pipeline.compiler import compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.base.options import Options
from graphflow.base.processors import PROCESSORS
options = Options(cache=sys.argv[1], workers=0)
made = compile_graph(CompileRequest(bytes.fromhex(sys.argv[2]), options=options))
print(made.cached, len(made.lowered.kernels), hash(made.spec.objects), flush=True)
"""


def compiling(folder: Path) -> subprocess.Popen[bytes]:
    model = network().SerializeToString().hex()
    return subprocess.Popen(
        [sys.executable, "-P", "-c", COMPILE, str(folder), model],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )


def test_processes_that_compile_at_once_share_what_they_made(tmp_path: Path) -> None:
    both = [compiling(tmp_path), compiling(tmp_path)]
    outputs = [process.communicate(timeout=120)[0].split() for process in both]
    assert all(process.returncode == 0 for process in both)
    assert outputs[0][2] == outputs[1][2]
    assert compiled(network(), tmp_path).cached == int(outputs[0][1])


def test_a_compilation_that_is_killed_leaves_entries_that_are_sound(tmp_path: Path) -> None:
    process = compiling(tmp_path)
    ends = time.monotonic() + 60
    while not (tmp_path.exists() and any(tmp_path.iterdir())) and time.monotonic() < ends:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    made = compiled(network(), tmp_path)
    assert made.spec.objects == compiled(network(), "off").spec.objects and not made.notices


# Where -------------------------------------------------------------------------------------------


def test_option_and_environment_say_where(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(KERNELS_VARIABLE)
    assert kernel_folder(None) == str(tmp_path / "graphflow" / "kernels")
    for off in ("", "off"):
        monkeypatch.setenv(KERNELS_VARIABLE, off)
        assert kernel_folder(None) is None
        assert kernel_folder("here") == "here"
    monkeypatch.setenv(KERNELS_VARIABLE, str(tmp_path / "there"))
    assert kernel_folder(None) == str(tmp_path / "there")
    assert kernel_folder("off") is None and kernel_folder("") is None


def test_the_environment_decides_about_a_compile(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(KERNELS_VARIABLE, str(tmp_path))
    gf.compile(network())
    assert entries(tmp_path)
    assert gf.compile(network()).compiled.cached > 0
    monkeypatch.setenv(KERNELS_VARIABLE, "off")
    assert gf.compile(network()).compiled.cached == 0
