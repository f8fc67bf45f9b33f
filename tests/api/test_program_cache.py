"""Tests of cached programs: what was compiled before is not compiled again, and nothing else is
taken for it."""

import json
import os
import pickle
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.api import program_cache
from graphflow.base.errors import FileOverwritten, GraphflowError, InvalidModel, MemoryLimitExceeded
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.models import ModelBuilder
from support.fresh_interpreters import run_fresh

SHAPE = (1, 3, 8, 8)
X = np.random.default_rng(0).standard_normal(SHAPE, dtype=np.float32)


def convolution(channels: int = 5, batch: int | str = 1, seed: int = 3) -> onnx.ModelProto:
    """A convolution whose channels fill no vector, and a sum over its pixels."""
    build = ModelBuilder(seed=seed, name="kept")
    x = build.input("x", (batch, *SHAPE[1:]))
    features = build.relu(build.conv(x, channels, 3, pads=[1, 1, 1, 1]))
    build.output(features)
    build.output(build.node("GlobalAveragePool", [features]))
    return build.model()


class Compiler:
    """Compiles with one folder, and says whether anything was compiled."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.options = gf.Options(threads=1, cache=str(folder), workers=0, **options)
        self.stages: list[str] = []

    def __call__(self, model: Any, **arguments: Any) -> gf.Executable:
        arguments = {"options": self.options, "progress": self.stages.append, **arguments}
        return gf.compile(model, **arguments)

    def compiled(self) -> bool:
        """Whether stages ran since this was asked before."""
        found = bool(self.stages)
        self.stages.clear()
        return found


@pytest.fixture
def compiler(tmp_path: Path) -> Compiler:
    return Compiler(tmp_path / "cache")


def programs(compiler: Compiler) -> list[Path]:
    return sorted(Path(str(compiler.options.cache), "programs").glob("*.gfx"))


def results(exe: gf.Executable, x: np.ndarray = X) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in exe.run({"x": x}).items()}


def saved(path: Path, model: onnx.ModelProto) -> str:
    onnx.save(model, path)
    return str(path)


def test_what_was_compiled_before_is_not_compiled_again(compiler: Compiler) -> None:
    first = compiler(convolution())
    assert compiler.compiled()
    again = compiler(convolution())
    assert not compiler.compiled()
    assert results(again) == results(first)
    assert again.inputs == first.inputs and again.outputs == first.outputs
    assert again.threads == first.threads and again.title == first.title
    assert len(programs(compiler)) == 1


@pytest.mark.parametrize("kind", ["path", "str", "bytes", "proto"])
def test_a_model_is_known_in_each_form(compiler: Compiler, tmp_path: Path, kind: str) -> None:
    proto = convolution()
    path = Path(saved(tmp_path / "m.onnx", proto))
    model = {"path": path, "str": str(path), "bytes": path.read_bytes(), "proto": proto}[kind]
    expected = results(compiler(model))
    assert compiler.compiled()
    assert results(compiler(model)) == expected
    assert not compiler.compiled()


def test_another_process_has_it_without_the_compiler(compiler: Compiler, tmp_path: Path) -> None:
    path = saved(tmp_path / "m.onnx", convolution())
    np.save(tmp_path / "x.npy", X)
    for name, array in compiler(path).run({"x": X}).items():
        np.save(tmp_path / f"{name}.npy", array)
    run_fresh(
        f"""
        import sys, numpy as np, graphflow as gf
        options = gf.Options(threads=1, cache={compiler.options.cache!r})
        exe = gf.compile({path!r}, options=options)
        found = exe.run({{"x": np.load({str(tmp_path / "x.npy")!r})}})
        for name, array in found.items():
            assert (array == np.load({str(tmp_path)!r} + "/" + name + ".npy")).all()
        assert len(found) == 2
        compiler = {{"onnx", "llvmlite", "networkx", "islpy", "graphflow.pipeline"}}
        assert not compiler & set(sys.modules), compiler & set(sys.modules)
        """
    )


def test_decisions_are_answered_as_before(compiler: Compiler) -> None:
    first, again = compiler(convolution()), compiler(convolution())
    compiler.compiled()
    assert again.report() == first.report()
    assert again.explain("relu_1", full=True) == first.explain("relu_1", full=True)
    assert again.decisions().summary == first.decisions().summary
    assert not compiler.compiled()


def test_what_the_file_has_not_is_compiled_when_it_is_asked_for(compiler: Compiler) -> None:
    first, again = compiler(convolution()), compiler(convolution())
    compiler.compiled()
    assert again.layouts["relu_1"] == first.layouts["relu_1"]
    assert compiler.compiled()
    assert again.page() == first.page()
    assert [k.symbol for k in again.compiled.lowered.kernels.values()] == [
        k.symbol for k in first.compiled.lowered.kernels.values()
    ]
    assert not compiler.compiled(), "once is enough"


def test_cached_programs_are_saved_and_pickled(compiler: Compiler, tmp_path: Path) -> None:
    first = compiler(convolution())
    expected = results(first)
    again = compiler(convolution())
    compiler.compiled()
    first.save(tmp_path / "first.gfx")
    again.save(tmp_path / "m.gfx")
    assert results(gf.load(tmp_path / "m.gfx")) == expected
    assert results(pickle.loads(pickle.dumps(again))) == expected
    assert not compiler.compiled()
    assert (tmp_path / "m.gfx").read_bytes() == (tmp_path / "first.gfx").read_bytes()


OTHERS: list[Mapping[str, Any]] = [
    {"model": convolution(channels=6)},
    {"model": convolution(seed=4)},
    {"layouts": {"relu_1": "NHWC"}},
    {"assume": {"x": "finite"}},
    {"assume": {"x": (0.0, 1.0)}},
    {"target": "avx2"},
    {"threads": 2},
    {"input_shapes": {"x": SHAPE}},
    *(
        {"options": replace(gf.Options(threads=1, workers=0), **{name: value})}
        for name, value in {
            "winograd": False,
            "poison": True,
            "check_assumes": True,
            "flush_denormals": True,
            "fallback": None,
            "memory_limit": 1 << 30,
            "integer_products": False,
            "excess_precision": True,
        }.items()
    ),
]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: "-".join(map(str, other))[:40])
def test_each_argument_makes_another_program(compiler: Compiler, other: Mapping[str, Any]) -> None:
    compiler(convolution())
    compiler.compiled()
    arguments: dict[str, Any] = {"model": convolution(), **other}
    if "options" in arguments:
        arguments["options"] = replace(arguments["options"], cache=compiler.options.cache)
    compiler(**arguments)
    assert compiler.compiled()
    compiler(**arguments)
    assert not compiler.compiled()
    compiler(convolution())
    assert not compiler.compiled()


def test_options_of_the_compiler_alone_make_none(compiler: Compiler) -> None:
    compiler(convolution())
    compiler.compiled()
    compiler(convolution(), options=replace(compiler.options, workers=1, programs=3))
    assert not compiler.compiled()


@pytest.mark.parametrize("option", [{"debug": 1}, {"validate": True}, {"dump": "dumps"}])
def test_who_wants_to_see_the_compiler_sees_it(
    compiler: Compiler, tmp_path: Path, option: dict[str, Any]
) -> None:
    if "dump" in option:
        option = {"dump": str(tmp_path / "dumps")}
    compiler(convolution())
    compiler.compiled()
    compiler(convolution(), options=replace(compiler.options, **option))
    assert compiler.compiled()


ASKED: list[object] = []
"""What objects of these tests were called or asked for."""


@dataclass(frozen=True)
class Offers:
    """Offers nothing, and has no state that tells its code from another one's."""

    def __call__(self, graph: object) -> None:
        ASKED.append(graph)


@dataclass(frozen=True)
class Extents:
    """An array-like that makes its elements."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        ASKED.append(self)
        return np.array([2, 12], np.int64)


@pytest.mark.parametrize("offers", [ASKED.append, Offers()], ids=["function", "dataclass"])
def test_functions_of_the_caller_are_called_each_time(
    compiler: Compiler, offers: Callable[[object], None]
) -> None:
    ASKED.clear()
    for count in (1, 2):
        compiler(convolution(), offers=offers)
        assert len(ASKED) == count


def test_objects_that_make_values_are_asked_each_time(compiler: Compiler) -> None:
    for _ in range(2):
        ASKED.clear()
        compiler(reshaped(), input_values={"shape": Extents()})
        assert ASKED


def test_without_a_cache_nothing_is_kept(tmp_path: Path) -> None:
    compiler = Compiler(tmp_path)
    compiler.options = replace(compiler.options, cache="off")
    for _ in range(2):
        compiler(convolution())
        assert compiler.compiled()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("identity", ["made_by", "host_identity"])
def test_another_compiler_or_processor_compiles_anew(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, identity: str
) -> None:
    compiler(convolution())
    compiler.compiled()
    monkeypatch.setattr(program_cache, identity, lambda: ("another",))
    compiler(convolution())
    assert compiler.compiled()


def test_a_compiler_that_was_changed_since_its_import_keeps_nothing(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_cache, "IMPORTED", 0)
    program_cache.made_by.cache_clear()
    for _ in range(2):
        compiler(convolution())
        assert compiler.compiled()
    assert not programs(compiler)


def test_the_compiler_is_known_by_the_versions_of_its_packages() -> None:
    *_, versions = program_cache.made_by()
    assert f"numpy-{np.__version__}.dist-info" in versions


def test_a_model_that_needs_more_memory_than_there_is_now_is_refused(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(convolution())
    for where in ("graphflow.api.program_cache", "graphflow.lower.limit"):
        monkeypatch.setattr(f"{where}.available_memory", lambda: 100)
    with pytest.raises(MemoryLimitExceeded):
        compiler(convolution())


def test_rates_that_were_measured_since_count(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    compiler(convolution())
    compiler.compiled()
    (tmp_path / "caches" / "graphflow").mkdir(parents=True)
    (tmp_path / "caches" / "graphflow" / "processors.json").write_text("{}")
    compiler(convolution())
    assert compiler.compiled()


def test_a_timing_table_counts_by_its_contents(compiler: Compiler, tmp_path: Path) -> None:
    table = tmp_path / "timings.jsonl"
    gf.tune(convolution(), timings=table, options=compiler.options)
    options = replace(compiler.options, timings=str(table))
    compiler(convolution(), options=options)
    assert compiler.compiled()
    compiler(convolution(), options=options)
    assert not compiler.compiled()
    table.write_text(table.read_text() + table.read_text().splitlines()[-1] + "\n")
    compiler(convolution(), options=options)
    assert compiler.compiled()


@pytest.mark.parametrize("place", [0, 40, 300, -1])
def test_a_damaged_file_is_made_anew(compiler: Compiler, place: int) -> None:
    expected = results(compiler(convolution()))
    (path,) = programs(compiler)
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
    compiler.compiled()
    assert results(compiler(convolution())) == expected
    assert compiler.compiled()
    compiler(convolution())
    assert not compiler.compiled()


@pytest.mark.parametrize(
    "change",
    [None, {"needed": 5}, {"symbolic": ["z"]}, {"declaration": {"inputs": []}}, {"title": "other"}],
)
def test_what_is_known_of_open_shapes_may_be_damaged(
    compiler: Compiler, change: dict[str, Any] | None
) -> None:
    expected = results(compiler(convolution(batch="n")))
    (path,) = Path(str(compiler.options.cache), "programs").glob("*.json")
    known = path.read_text()
    damaged = known[:-9] if change is None else json.dumps({**json.loads(known), **change})
    path.write_text(damaged)
    assert results(compiler(convolution(batch="n"))) == expected
    assert not path.exists()


@pytest.mark.parametrize("kind", ["gfx", "json"])
def test_a_file_of_another_model_is_made_anew(compiler: Compiler, kind: str) -> None:
    folder = Path(str(compiler.options.cache), "programs")
    compiler(convolution(seed=4))
    (other,) = folder.glob(f"*.{kind}")
    expected = results(compiler(convolution()))
    (path,) = set(folder.glob(f"*.{kind}")) - {other}
    path.write_bytes(other.read_bytes())
    compiler.compiled()
    assert results(compiler(convolution())) == expected
    assert compiler.compiled()


def test_without_what_is_known_of_a_model_it_is_compiled_anew(compiler: Compiler) -> None:
    expected = results(compiler(convolution()))
    (path,) = Path(str(compiler.options.cache), "programs").glob("*.json")
    path.unlink()
    compiler.compiled()
    assert results(compiler(convolution())) == expected
    assert compiler.compiled() and path.exists()


def test_a_folder_that_others_may_write_to_is_not_used(compiler: Compiler) -> None:
    compiler(convolution())
    folder = programs(compiler)[0].parent
    folder.chmod(0o777)
    compiler.compiled()
    compiler(convolution())
    assert compiler.compiled()


def test_a_large_program_is_not_kept(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_cache, "LARGEST", 64)
    compiler(convolution())
    assert not programs(compiler)


def test_a_file_that_cannot_be_written_is_no_error(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise GraphflowError("no room")

    monkeypatch.setattr(program_cache, "save_programs", refuse)
    assert results(compiler(convolution()))
    assert not programs(compiler)


# Open shapes ------------------------------------------------------------------------------------


def images(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).standard_normal((batch, *SHAPE[1:]), dtype=np.float32)


def test_programs_of_open_shapes_are_kept_one_by_one(compiler: Compiler) -> None:
    first = compiler(convolution(batch="n"))
    expected = {batch: results(first, images(batch)) for batch in (1, 2)}
    compiler.compiled()
    again = compiler(convolution(batch="n"))
    for batch in (1, 2):
        assert results(again, images(batch)) == expected[batch]
    assert not compiler.compiled()
    third = results(again, images(3))
    assert compiler.compiled()
    assert len(again.specializations) == 3
    assert results(compiler(convolution(batch="n")), images(3)) == third
    assert not compiler.compiled()
    assert again.inputs == first.inputs and again.deciding == first.deciding


def test_a_program_that_was_precompiled_is_found(compiler: Compiler) -> None:
    compiler(convolution(batch="n")).precompile({"x": [np.int64(2), *SHAPE[1:]]})
    assert compiler.compiled()
    again = compiler(convolution(batch="n"))
    assert results(again, images(2))
    again.precompile({"x": (2, *SHAPE[1:])})
    assert not compiler.compiled()


def test_one_program_for_sizes_is_kept(compiler: Compiler) -> None:
    sizes = {"n": (1, 4)}
    first = compiler(convolution(batch="n"), sizes=sizes)
    expected = {batch: results(first, images(batch)) for batch in (1, 4)}
    compiler.compiled()
    again = compiler(convolution(batch="n"), sizes=sizes)
    assert {batch: results(again, images(batch)) for batch in (1, 4)} == expected
    assert not compiler.compiled()
    assert again.report()["sizes"] == first.report()["sizes"]
    compiler(convolution(batch="n"), sizes={"n": (1, 5)})
    assert compiler.compiled()


def test_ranges_without_a_most_are_kept(compiler: Compiler) -> None:
    def served() -> dict[str, bytes]:
        return results(compiler(convolution(batch="n"), sizes={"n": (1, None)}), images(3))

    expected = served()
    assert compiler.compiled()
    assert served() == expected
    assert not compiler.compiled()


def reshaped() -> onnx.ModelProto:
    """A Reshape whose target shape is an input."""
    build = ModelBuilder(name="reshaped")
    x, shape = build.input("x", (2, 3, 4)), build.input("shape", (2,), "int64")
    y = build.relu(build.node("Reshape", [x, shape]))
    build.output(y, shape=["a", "b"])
    return build.model()


def test_values_that_decide_are_part_of_the_key(compiler: Compiler) -> None:
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

    def shape_for(wanted: tuple[int, int], exe: gf.Executable) -> tuple[int, ...]:
        (y,) = exe.run({"x": x, "shape": np.array(wanted, np.int64)}).values()
        return y.shape

    first = compiler(reshaped())
    assert shape_for((4, 6), first) == (4, 6)
    compiler.compiled()
    again = compiler(reshaped())
    assert again.deciding == first.deciding
    assert shape_for((4, 6), again) == (4, 6)
    assert not compiler.compiled()
    assert shape_for((3, 8), again) == (3, 8)
    assert compiler.compiled()


def reshaped_unless_four() -> onnx.ModelProto:
    """A model that reshapes its elements as an input says, unless there are four of them."""
    return onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        kept (float[n] x, int64[2] shape = {2, 3}) => (float[a, b] y)
        <int64 four = {4}, int64[1] first = {0}>
        {
            count = Size(x)
            are_four = Equal(count, four)
            y = If (are_four) <
                then_branch = plain () => (float[c, d] t) { t = Unsqueeze(x, first) },
                else_branch = shaped () => (float[e, f] e) { e = Reshape(x, shape) }
            >
        }
    """)


def test_defaults_decide_that_did_not_before(compiler: Compiler) -> None:
    def extents(exe: gf.Executable, count: int) -> tuple[int, ...]:
        (y,) = exe.run({"x": np.ones(count, np.float32)}).values()
        return y.shape

    model = reshaped_unless_four()
    assert extents(compiler(model, overridable=["shape"]), 4) == (1, 4)
    again = compiler(model, overridable=["shape"])
    assert extents(again, 4) == (1, 4) and extents(again, 6) == (2, 3)
    assert again.deciding == ("x", "shape")


def lost() -> onnx.ModelProto:
    """A model of which no program serves all extents: TopK of as many as a run gives."""
    build = ModelBuilder(name="lost")
    x = build.input("x", ("n", 4))
    unique = build.node("Unique", [x])
    build.output(unique, shape=["m"])
    return build.model()


def test_sizes_that_were_lost_are_told_again(compiler: Compiler) -> None:
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    for round in range(2):
        with pytest.warns(UserWarning, match="serves all sizes"):
            exe = compiler(lost(), sizes={"n": (1, 4)})
        (y,) = exe.run({"x": x}).values()
        assert y.tolist() == x.reshape(-1).tolist()
        assert not exe.report()["sizes"]["n"]["one_program"]
        assert compiler.compiled() == (round == 0)


# Models that change -----------------------------------------------------------------------------


def test_a_file_that_was_replaced_still_serves_further_shapes(
    compiler: Compiler, tmp_path: Path
) -> None:
    path = saved(tmp_path / "m.onnx", convolution(batch="n"))
    expected = results(compiler(path), images(1))
    again = compiler(path)
    assert results(again, images(1)) == expected
    fresh = results(Compiler(tmp_path / "other")(convolution(batch="n")), images(2))
    saved(tmp_path / "next.onnx", convolution(batch="n", seed=9))
    os.replace(tmp_path / "next.onnx", path)
    assert results(again, images(2)) == fresh
    assert results(compiler(path), images(1)) != expected


def test_a_file_that_was_written_into_is_refused(compiler: Compiler, tmp_path: Path) -> None:
    path = Path(saved(tmp_path / "m.onnx", convolution(batch="n")))
    results(compiler(path), images(1))
    again = compiler(path)
    time.sleep(0.02)
    path.write_bytes(convolution(batch="n", seed=9).SerializeToString())
    with pytest.raises(FileOverwritten, match="written to in place"):
        again.run({"x": images(2)})


def test_a_proto_that_was_changed_is_refused(compiler: Compiler) -> None:
    proto = convolution(batch="n")
    results(compiler(proto), images(1))
    again = compiler(proto)
    proto.graph.initializer[0].name += "x"
    with pytest.raises(InvalidModel, match="other contents"):
        again.run({"x": images(2)})


@pytest.mark.parametrize("kind", ["proto", "bytearray"])
def test_an_object_that_changes_while_it_is_compiled_is_not_kept(
    compiler: Compiler, kind: str
) -> None:
    proto = convolution()
    model = proto if kind == "proto" else bytearray(proto.SerializeToString())
    other = convolution(seed=4)

    def change(_: str) -> None:
        if isinstance(model, bytearray):
            model[:] = other.SerializeToString()
        else:
            model.CopyFrom(other)

    compiler(model, progress=change)
    assert not programs(compiler)
    assert results(compiler(convolution())) != results(compiler(other))


def test_a_file_that_changes_within_a_tick_of_the_clock_is_not_kept(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path / "m.onnx", convolution())
    status = os.stat(path)
    monkeypatch.setattr("graphflow.api.model_source.TICK", 10**12)

    def change(_: str) -> None:
        saved(Path(path), convolution(seed=4))
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    compiler(path, progress=change)
    assert not programs(compiler)
    compiler(path)
    assert len(programs(compiler)) == 1


def external(folder: Path, seed: int, name: str = "m.onnx") -> str:
    onnx.save(
        convolution(batch="n", seed=seed),
        folder / name,
        save_as_external_data=True,
        location=f"{name}.data",
        size_threshold=0,
    )
    return str(folder / name)


def test_external_data_is_part_of_the_key(compiler: Compiler, tmp_path: Path) -> None:
    path = external(tmp_path, 3)
    time.sleep(0.02)
    expected = results(compiler(path), images(1))
    compiler.compiled()
    assert results(compiler(path), images(1)) == expected
    assert not compiler.compiled()
    external(tmp_path, 4, "n.onnx")
    os.replace(tmp_path / "n.onnx.data", tmp_path / "m.onnx.data")
    time.sleep(0.02)
    assert results(compiler(path), images(1)) != expected
    assert compiler.compiled()


def test_further_programs_are_kept_with_their_external_data(
    compiler: Compiler, tmp_path: Path
) -> None:
    path, other = external(tmp_path, 3), external(tmp_path, 4, "n.onnx")
    time.sleep(0.02)
    results(compiler(path), images(1))
    expected = results(compiler(path), images(2))
    compiler.compiled()
    again = compiler(path)
    assert results(again, images(2)) == expected and results(again, images(1))
    assert not compiler.compiled()
    os.replace(f"{other}.data", f"{path}.data")
    time.sleep(0.02)
    results(compiler(path), images(1))
    compiler.compiled()
    assert results(compiler(path), images(2)) != expected
    assert compiler.compiled()


@pytest.mark.parametrize("by", ["working directory", "link"])
def test_external_data_is_that_of_the_folder_a_path_leads_to(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    for seed in (3, 4):
        (tmp_path / str(seed)).mkdir()
        external(tmp_path / str(seed), seed)
    time.sleep(0.02)
    found = []
    for seed in (3, 4):
        if by == "link":
            (tmp_path / "next").symlink_to(tmp_path / str(seed))
            os.replace(tmp_path / "next", tmp_path / "current")
        monkeypatch.chdir(tmp_path / ("current" if by == "link" else str(seed)))
        path = tmp_path / "current" / "m.onnx" if by == "link" else "m.onnx"
        found.append(results(compiler(path), images(1)))
        assert compiler.compiled()
    assert found[0] != found[1]


def test_a_changed_working_directory_is_no_matter(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    external(tmp_path, 3)
    time.sleep(0.02)
    monkeypatch.chdir(tmp_path)
    expected = results(compiler("m.onnx"), images(1))
    again = compiler("m.onnx")
    compiler.compiled()
    monkeypatch.chdir("/")
    assert results(again, images(1)) == expected
    assert not compiler.compiled()
    assert results(again, images(2))
    assert compiler.compiled()


def test_external_data_that_changed_meanwhile_is_refused(
    compiler: Compiler, tmp_path: Path
) -> None:
    path = external(tmp_path, 3)
    time.sleep(0.02)
    results(compiler(path), images(1))
    again = compiler(path)
    external(tmp_path, 4, "n.onnx")
    os.replace(tmp_path / "n.onnx.data", tmp_path / "m.onnx.data")
    with pytest.raises(InvalidModel, match="external data"):
        again.run({"x": images(2)})


def test_external_data_that_may_have_changed_since_is_not_kept(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = external(tmp_path, 3)
    monkeypatch.setattr("graphflow.api.model_source.TICK", 10**18)
    results(compiler(path), images(1))
    assert not programs(compiler)


def test_named_processors_have_programs_of_their_own(compiler: Compiler) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for target in (None, "avx2", PROCESSORS["x86-64-v3"]):
            compiler(convolution(), target=target)
    assert len(programs(compiler)) == 3


def test_a_session_finds_what_was_kept(
    compiler: Compiler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAPHFLOW_CACHE", str(compiler.options.cache))
    path = saved(tmp_path / "m.onnx", convolution())
    expected = [array.tobytes() for array in gf.InferenceSession(path).run(None, {"x": X})]
    before = {each: each.stat().st_mtime_ns for each in programs(compiler)}
    session = gf.InferenceSession(path)
    assert [array.tobytes() for array in session.run(None, {"x": X})] == expected
    assert len(before) == 1
    assert {each: each.stat().st_mtime_ns for each in programs(compiler)} == before


def test_values_of_types_that_numpy_does_not_know_are_told_apart(compiler: Compiler) -> None:
    build = ModelBuilder(name="cast", opset=19)
    x = build.input("x", (2,), "float8_e4m3fn")
    build.output(build.node("Cast", [x], to=onnx.TensorProto.FLOAT))
    model, kind = build.model(), ml_dtypes.float8_e4m3fn
    compiler(model, input_values={"x": np.zeros(2, kind)})
    with pytest.raises(InvalidModel, match="float8_e4m3fnuz"):
        compiler(model, input_values={"x": np.zeros(2, ml_dtypes.float8_e4m3fnuz)})


def test_equal_arguments_in_other_words_are_the_same(compiler: Compiler) -> None:
    compiler(convolution())
    compiler.compiled()
    compiler(
        convolution(),
        target="host",
        input_shapes={},
        sizes={},
        layouts={},
        assume={},
        overridable=[],
    )
    assert not compiler.compiled()
    given = {"x": [np.int64(n) for n in SHAPE]}
    compiler(convolution(), input_shapes=given)
    assert compiler.compiled()
    compiler(convolution(), input_shapes={"x": SHAPE})
    assert compiler.compiled(), "another type of numbers is compiled anew, as it may be refused"


def test_programs_that_are_found_are_not_counted_as_compiled_by_each_run(
    compiler: Compiler,
) -> None:
    options = replace(compiler.options, programs=1)
    exe = compiler(convolution(batch="n"), options=options)
    with pytest.warns(UserWarning, match="compiled a program"):
        for batch in (1, 2, 3):
            results(exe, images(batch))
    again = compiler(convolution(batch="n"), options=options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in (1, 2, 3):
            results(again, images(batch))
