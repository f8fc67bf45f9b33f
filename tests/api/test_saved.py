"""Tests of saved models: a loaded model runs and answers as the saved one did; damaged files, and
files for other processors, are refused."""

import functools
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from llvmlite import binding as llvm

import graphflow as gf
from graphflow.base.errors import CodegenError, GraphflowError, InvalidModel, VerifyError
from graphflow.base.processors import AVX2, PORTABLE
from graphflow.cli.demo import demo_model
from graphflow.codegen import avx2_target
from graphflow.models import ModelBuilder
from graphflow.program import ALIGNMENT, ProgramSpec, random_inputs
from graphflow.runtime import Program, is_container, load_programs, processor_of
from graphflow.runtime.aligned_memory import data_address, release, zeroed_block
from graphflow.runtime.container import (
    CHUNK,
    FORMAT_VERSION,
    MAGIC,
    PAGE,
    PREAMBLE,
    Container,
    write_container,
)
from graphflow.runtime.processor import Processor, check_host
from support.small_program import padded, small, small_model


@functools.cache
def demo() -> gf.Executable:
    return gf.compile(demo_model(), threads=1)


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "small.gfx"
    small().save(path)
    return path


def assert_same_results(one: gf.Executable, other: gf.Executable, **options: Any) -> None:
    inputs = random_inputs(one.inputs)
    expected, found = one.run(inputs, **options), other.run(inputs, **options)
    assert list(found) == list(expected)
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array), name


# Round trips ------------------------------------------------------------------------------------


def test_a_loaded_model_computes_the_same_bits(tmp_path: Path) -> None:
    demo().save(tmp_path / "demo.gfx")
    loaded = gf.load(tmp_path / "demo.gfx")
    assert isinstance(loaded, gf.Executable)
    assert_same_results(demo(), loaded)
    (image,) = random_inputs(demo().inputs).values()
    assert np.array_equal(loaded(image), demo()(image))
    assert np.array_equal(loaded(image[..., ::-1]), demo()(image[..., ::-1]))


def test_a_loaded_model_answers_the_same(tmp_path: Path) -> None:
    demo().save(tmp_path / "demo.gfx")
    loaded = gf.load(str(tmp_path / "demo.gfx"))
    assert loaded.report() == demo().report()
    assert loaded.decisions() == demo().decisions()
    assert loaded.inputs == demo().inputs and loaded.outputs == demo().outputs
    assert list(loaded.layouts) == list(demo().layouts)
    for name, edge in demo().layouts.items():
        assert loaded.explain(name) == demo().explain(name)
        kept = loaded.layouts[name]
        for field in ("name", "dtype", "logical_shape", "where", "physical_shape", "decided_by",
                      "reason", "producer", "variant", "consumers"):  # fmt: skip
            assert getattr(kept, field) == getattr(edge, field)
        assert kept.describe() == edge.describe()
        assert kept.layout == (None if edge.layout is None else edge.layout.describe())


def test_unknown_tensors_and_wrong_inputs_are_refused_as_before(saved: Path) -> None:
    loaded = gf.load(saved)
    for exe in (small(), loaded):
        with pytest.raises(InvalidModel, match="no tensor 'relu_9'; similar names are relu_1"):
            exe.explain("relu_9")
        with pytest.raises(TypeError, match=r"the name of a tensor is a str, not int \(3\)"):
            exe.explain(3)  # type: ignore[arg-type]
        with pytest.raises(InvalidModel, match="'x' is missing"):
            exe.run({})
    with pytest.raises(GraphflowError, match="compile the ONNX model"):
        _ = loaded.compiled


def test_the_report_of_a_loaded_model_may_be_changed(saved: Path) -> None:
    loaded = gf.load(saved)
    loaded.report()["summary"].clear()
    assert loaded.report() == small().report()


def test_the_same_program_gives_the_same_bytes(saved: Path, tmp_path: Path) -> None:
    small().save(tmp_path / "again.gfx")
    gf.load(saved).save(tmp_path / "loaded.gfx")
    expected = saved.read_bytes()
    assert (tmp_path / "again.gfx").read_bytes() == expected
    assert (tmp_path / "loaded.gfx").read_bytes() == expected


def test_inputs_with_a_default_keep_it(tmp_path: Path) -> None:
    build = ModelBuilder()
    x = build.input("x", (2,))
    for name, value in (("offset", [10, 20]), ("other", [1, 2])):
        build.input(name, (2,))
        build.constant(np.float32(value), name)
    build.output(build.add(build.add(x, "offset"), "other"))
    exe = gf.compile(build.model(), threads=1, overridable=["offset", "other"])
    exe.save(tmp_path / "default.gfx")
    loaded = gf.load(tmp_path / "default.gfx")
    ones = np.float32([1, 1])
    assert loaded(ones).tolist() == [12, 23]
    assert loaded.run({"x": ones, "offset": ones})["add_2"].tolist() == [3, 4]


def test_poison_mode_survives(tmp_path: Path) -> None:
    plain, poisoned = padded()
    poisoned.save(tmp_path / "poisoned.gfx")
    loaded = gf.load(tmp_path / "poisoned.gfx")
    assert loaded.poisoned == poisoned.poisoned > 0
    assert loaded.inputs == poisoned.inputs == plain.inputs
    for value in (float("nan"), -42.0):
        assert_same_results(plain, loaded, poison=value)


def test_options_of_a_run_survive(tmp_path: Path) -> None:
    options = gf.Options(threads=2, flush_denormals=True)
    gf.compile(small_model(), options=options).save(tmp_path / "small.gfx")
    loaded = gf.load(tmp_path / "small.gfx")
    assert loaded.threads == 2 and loaded.program.flush_denormals
    assert gf.load(tmp_path / "small.gfx", threads=1).threads == 1
    assert_same_results(small(), loaded)


def test_other_dtypes_and_models_without_constants(tmp_path: Path) -> None:
    build = ModelBuilder()
    x = build.input("x", (3, 4), "int64")
    build.output(build.node("Add", [x, x]), build.node("Cast", [x], to=onnx.TensorProto.DOUBLE))
    exe = gf.compile(build.model(), threads=1)
    exe.save(tmp_path / "int.gfx")
    assert_same_results(exe, gf.load(tmp_path / "int.gfx"))


def test_code_for_a_narrower_target_is_loaded(tmp_path: Path) -> None:
    exe = gf.compile(small_model(), threads=1, target=avx2_target())
    exe.save(tmp_path / "avx2.gfx")
    needed = load_programs(tmp_path / "avx2.gfx")[0].processor
    assert "avx2" in needed.features and not any("avx512" in name for name in needed.features)
    assert_same_results(exe, gf.load(tmp_path / "avx2.gfx"))


def test_nothing_is_written_before_anything_is_compiled(tmp_path: Path) -> None:
    exe = gf.compile(small_model("N"), threads=1)
    with pytest.raises(InvalidModel, match=r"nothing has been compiled so far.*input_shapes="):
        exe.save(tmp_path / "open.gfx")
    assert not list(tmp_path.iterdir())


def test_a_file_has_a_program_for_each_shape(tmp_path: Path) -> None:
    exe = gf.compile(small_model("N"), threads=1)
    exe.precompile([{"x": (batch, 5, 6, 6)} for batch in (2, 3)])
    exe.save(tmp_path / "open.gfx")
    loaded = gf.load(tmp_path / "open.gfx")
    assert loaded.deciding == ("x",)
    assert loaded.report() == {**exe.report(), "programs": None}  # nothing is compiled any more
    assert loaded.inputs == exe.inputs and loaded.outputs == exe.outputs
    assert loaded.explain("x") == exe.explain("x")
    for batch in (2, 3):
        x = np.random.default_rng(batch).standard_normal((batch, 5, 6, 6)).astype(np.float32)
        assert np.array_equal(loaded(x), exe(x))
    listed = r"programs for \(x: float32\[2, 5, 6, 6\]\); \(x: float32\[3, .*none for x: \[4"
    for refused in (
        lambda: loaded(np.zeros((4, 5, 6, 6), np.float32)),
        lambda: loaded.precompile({"x": (4, 5, 6, 6)}),
    ):
        with pytest.raises(InvalidModel, match=listed):
            refused()
    loaded.precompile({"x": (3, 5, 6, 6)})
    loaded.save(tmp_path / "again.gfx")
    assert (tmp_path / "again.gfx").read_bytes() == (tmp_path / "open.gfx").read_bytes()


def test_a_file_of_one_shape_of_several_still_refuses_others(tmp_path: Path) -> None:
    exe = gf.compile(small_model("N"), threads=1)
    exe(np.zeros((2, 5, 6, 6), np.float32))
    exe.save(tmp_path / "open.gfx")
    loaded = gf.load(tmp_path / "open.gfx")
    assert_same_results(exe.specializations[0], loaded.specializations[0])
    with pytest.raises(InvalidModel, match="none for x"):
        loaded(np.zeros((1, 5, 6, 6), np.float32))
    exe.specializations[0].save(tmp_path / "one.gfx")
    assert gf.load(tmp_path / "one.gfx").inputs[0].shape == (2, 5, 6, 6)


def test_programs_that_pack_their_constants_alike_share_them(tmp_path: Path) -> None:
    exe = gf.compile(small_model("N"), threads=1)
    sizes = []
    for batch in (3, 5):  # two are few enough for AVX2 to pack no weights
        exe.precompile({"x": (batch, 5, 6, 6)})
        exe.save(tmp_path / "open.gfx")
        with Container(tmp_path / "open.gfx") as file:
            sizes.append([name for name in file.names if name.endswith("constants")])
    first, second = load_programs(tmp_path / "open.gfx")
    shared = np.array_equal(first.constants, second.constants)
    assert sizes == [["constants"], ["constants"] + ["1:constants"] * (not shared)]
    assert shared, "the batch does not change how weights are packed"


# What is stored ---------------------------------------------------------------------------------


def test_only_what_runs_need_is_stored(tmp_path: Path) -> None:
    demo().save(tmp_path / "demo.gfx")
    before, after = demo().program.spec, load_programs(tmp_path / "demo.gfx")[0].spec
    assert before.prepare and before.run_constant_bytes < before.constant_bytes
    assert not after.prepare and not after.constants and after.run == before.run
    assert after.constant_bytes == before.run_constant_bytes
    assert {symbol for symbol, _ in after.objects} == {step.symbol for step in after.run}
    assert len(after.objects) < len(before.objects)


def test_constants_are_mapped_at_a_page_and_cannot_be_written(saved: Path) -> None:
    constants = gf.load(saved).program.prepared
    assert len(constants) and data_address(constants) % PAGE == 0
    with pytest.raises(ValueError, match="read-only"):
        constants[0] = 1


def test_a_loaded_model_outlives_its_file(saved: Path) -> None:
    loaded = gf.load(saved)
    demo().save(saved)
    assert_same_results(small(), loaded)
    saved.unlink()
    assert_same_results(small(), loaded)
    loaded.save(saved)
    assert_same_results(small(), gf.load(saved))


def test_memory_behind_what_is_kept_is_given_back() -> None:
    for size, page in ((64 * 1024, 4096), (8 << 20, 2 << 20)):
        block = zeroed_block(size)
        block[:] = 7
        release(block, page - 100)
        assert (block[:page] == 7).all() and not block[page:].any()
        release(block, size)


def test_steps_may_not_read_constants_that_are_dropped() -> None:
    spec = demo().program.spec
    offset = max(b.position for step in spec.run for b in step.buffers if b.space == "constant")
    parts = (spec.objects, (), spec.run, (), spec.constant_bytes, spec.arena_bytes)
    with pytest.raises(VerifyError, match="outside"):
        ProgramSpec(*parts, spec.inputs, spec.outputs, kept_bytes=offset - ALIGNMENT)
    with pytest.raises(VerifyError, match="to be kept"):
        ProgramSpec(*parts, spec.inputs, spec.outputs, kept_bytes=spec.constant_bytes + 1)
    with pytest.raises(VerifyError, match="do not fit"):
        Program(spec, 1, prepared=np.zeros(64, np.uint8))


def test_loading_imports_neither_onnx_nor_llvm_nor_the_compiler(saved: Path) -> None:
    code = textwrap.dedent(f"""
        import sys, graphflow, numpy
        exe = graphflow.load({str(saved)!r})
        exe(numpy.zeros((1, 5, 6, 6), numpy.float32)); exe.report(); exe.explain("x"); exe.layouts
        heavy = {{"onnx", "islpy", "networkx", "llvmlite"}}
        heavy |= {{"graphflow.pipeline.compiler", "graphflow.codegen"}}
        assert not heavy & set(sys.modules), heavy & set(sys.modules)
    """)
    subprocess.run([sys.executable, "-c", code], check=True)


# Files that are refused -------------------------------------------------------------------------


def header_end(path: Path) -> int:
    return PREAMBLE.size + int(PREAMBLE.unpack(path.read_bytes()[: PREAMBLE.size])[3])


def assert_refused(path: Path, why: object) -> None:
    try:
        gf.load(path)
    except InvalidModel:
        return
    pytest.fail(f"{why} was not noticed")


def test_a_flipped_bit_anywhere_is_refused(saved: Path) -> None:
    rng, size = random.Random(0), saved.stat().st_size
    positions = [*range(header_end(saved)), *rng.sample(range(size), 600), size - 1]
    with open(saved, "r+b", buffering=0) as file:
        for position in positions:
            file.seek(position)
            (before,) = file.read(1)
            file.seek(position)
            file.write(bytes([before ^ (1 << rng.randrange(8))]))
            assert_refused(saved, f"the flipped byte {position}")
            file.seek(position)
            file.write(bytes([before]))
    assert_same_results(small(), gf.load(saved))


def test_a_file_that_ends_early_or_late_is_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    rng = random.Random(1)
    lengths = {*range(100), *range(0, len(whole), PAGE), *rng.sample(range(len(whole)), 100)}
    for length in sorted({*lengths, len(whole) - 1}):
        saved.write_bytes(whole[:length])
        assert_refused(saved, f"the end after {length} bytes")
    for tail in (b"\0", bytes(PAGE), whole):
        saved.write_bytes(whole + tail)
        assert_refused(saved, f"a tail of {len(tail)} bytes")


def test_swapped_pages_are_refused(saved: Path) -> None:
    whole = saved.read_bytes()
    pages = [whole[k : k + PAGE] for k in range(0, len(whole), PAGE)]
    for k in range(len(pages) - 1):
        if pages[k] != pages[k + 1]:
            swapped = [*pages[:k], pages[k + 1], pages[k], *pages[k + 2 :]]
            saved.write_bytes(b"".join(swapped))
            assert_refused(saved, f"pages {k} and {k + 1}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no saved model"),
        (b"\x08\x07onnx proto", "is no saved model"),
        (MAGIC.replace(b"\r\n", b"\n") + bytes(100), "is no saved model"),
        (MAGIC, "damaged: it ends after 8 bytes"),
        (MAGIC + bytes(100), "checksum of its first 72 bytes"),
    ],
)
def test_the_reason_says_what_is_wrong(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.gfx"
    path.write_bytes(content)
    with pytest.raises(InvalidModel, match=message) as caught:
        gf.load(path)
    assert str(path) in str(caught.value)


def test_damage_is_located(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    content[-1] ^= 1
    saved.write_bytes(content)
    with pytest.raises(InvalidModel, match="damaged: the checksum of its section 'constants'"):
        gf.load(saved)


def test_another_format_version_is_refused(saved: Path) -> None:
    content = bytearray(saved.read_bytes())
    fields = list(PREAMBLE.unpack(content[: PREAMBLE.size]))
    for version in (FORMAT_VERSION + 1, 0):
        fields[1], fields[-1] = version, 0
        fields[-1] = zlib.crc32(PREAMBLE.pack(*fields)[:-8])
        content[: PREAMBLE.size] = PREAMBLE.pack(*fields)
        saved.write_bytes(content)
        with pytest.raises(InvalidModel, match=f"has format {version}, this graphflow reads"):
            gf.load(saved)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, message in ((".", "no regular file"), ("pipe", "no regular file"), ("x", "No such")):
        assert not is_container(tmp_path / name)
        with pytest.raises(InvalidModel, match=message):
            gf.load(tmp_path / name)


def test_well_formed_files_that_describe_no_program_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.gfx"
    needs = {"cpu": "", "features": [], "exact": False, "programs": 1, "driver_made_of": ""}
    driver = {"driver": b""}
    for header, sections, message in (
        ({}, {}, "does not describe a program"),
        ({**needs, "programs": 0}, driver, "has no program"),
        (needs, {}, "no section 'driver'"),
        (needs, driver, "no section 'program'"),
        (needs, {**driver, "program": b"[]", "code": b""}, "does not describe a program"),
        (needs, {**driver, "program": b"[" * 100_000, "code": b""}, "does not describe a program"),
        (needs, {**driver, "program": b"\xff{", "code": b""}, "does not describe a program"),
    ):
        write_container(path, header, sections)
        with pytest.raises(InvalidModel, match=message):
            gf.load(path)


# Processors -------------------------------------------------------------------------------------


def test_code_for_another_processor_is_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = processor_features()
    lookup = "graphflow.runtime.processor.host_features"
    monkeypatch.setattr(lookup, lambda: host - {"avx2", "fma"})
    with pytest.raises(CodegenError, match=r"lacks avx2, fma; compile the ONNX model on") as caught:
        gf.load(saved)
    assert str(saved) in str(caught.value)
    # More features than the code was made with are no obstacle.
    monkeypatch.setattr(lookup, lambda: host | {"newer"})
    assert_same_results(small(), gf.load(saved))


def processor_features() -> frozenset[str]:
    names = small().compiled.target.features.split(",")
    return frozenset(name[1:] for name in names if name.startswith("+"))


def test_a_program_for_all_processors_with_avx2_needs_no_other_features(tmp_path: Path) -> None:
    exe = gf.compile(small_model(), threads=1, target=PORTABLE)
    exe.save(tmp_path / "portable.gfx")
    (saved,) = load_programs(tmp_path / "portable.gfx")
    assert saved.processor == Processor("x86-64-v3", AVX2)
    assert_same_results(exe, gf.load(tmp_path / "portable.gfx"))


def test_features_that_a_name_implies_need_that_very_processor() -> None:
    target = small().compiled.target
    assert not processor_of(target.cpu, target.features).exact
    assert processor_of(target.cpu, "+avx2,-sse4a") == Processor(target.cpu, ("avx2",))
    check_host(processor_of(llvm.get_host_cpu_name(), ""), "it")
    with pytest.raises(CodegenError, match="it was compiled for nocona with whatever features"):
        check_host(processor_of("nocona", ""), "it")


# Writing that is cut off ------------------------------------------------------------------------

REWRITE = """
import os, signal, sys
from graphflow.base.fields import replace
import graphflow.runtime as runtime

def rewrite(source, path, moment):
    (saved,) = runtime.load_programs(source)
    new = replace(saved, documents={**saved.documents, "extra": b"new" * 2_000_000})

    def killed(): os.kill(os.getpid(), signal.SIGKILL)

    def before(name):
        real, calls = getattr(os, name), []
        def hook(*arguments):
            calls.append(name)
            if moment == f"{name} {len(calls)}": killed()
            return real(*arguments)
        setattr(os, name, hook)

    before("fsync"); before("replace")
    print(os.getpid(), flush=True)
    for _ in range(1 if moment != "any" else 1000): runtime.save_programs(path, [new], "test")
    if moment == "end": killed()

for line in sys.stdin:
    child = os.fork()
    if not child:
        rewrite(*line.strip().split("|"))
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Rewriters:
    """Processes that save a program over a file and are killed, as forks of one interpreter: each
    would import the compiler anew."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-c", REWRITE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _answer(self) -> int:
        assert self._parent.stdout is not None
        return int(self._parent.stdout.readline())

    def killed(self, source: Path, path: Path, moment: str, seconds: float = 0.0) -> None:
        """One that kills itself at this moment, or that is killed after these seconds (`any`)."""
        assert self._parent.stdin is not None
        print(source, path, moment, sep="|", file=self._parent.stdin, flush=True)
        process = self._answer()
        if moment == "any":
            time.sleep(seconds)
            os.kill(process, signal.SIGKILL)
        assert self._answer() == -signal.SIGKILL

    def close(self) -> None:
        self._parent.communicate()


@pytest.fixture(scope="module")
def rewriters() -> Iterator[Rewriters]:
    made = Rewriters()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("moment", "written"),
    [("fsync 1", False), ("replace 1", False), ("fsync 2", True), ("end", True)],
)
@pytest.mark.parametrize("existed", [False, True])
def test_a_kill_between_steps_leaves_the_old_file_or_the_new(
    moment: str, written: bool, existed: bool, saved: Path, tmp_path: Path, rewriters: Rewriters
) -> None:
    path = tmp_path / "target.gfx"
    if existed:
        path.write_bytes(saved.read_bytes())
    rewriters.killed(saved, path, moment)
    assert path.exists() == (existed or written)
    if path.exists():
        assert ("extra" in load_programs(path)[0].documents) == written
        assert_same_results(small(), gf.load(path))


def test_a_kill_at_any_moment_leaves_a_whole_file(
    saved: Path, tmp_path: Path, rewriters: Rewriters
) -> None:
    rng = random.Random(2)
    path = tmp_path / "target.gfx"
    for _ in range(8):
        rewriters.killed(saved, path, "any", rng.uniform(0.0, 0.1))
        if path.exists():
            assert_same_results(small(), gf.load(path))


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refuse(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    yield
    monkeypatch.undo()


def test_a_full_disk_leaves_the_old_file_and_no_draft(saved: Path, full_disk: None) -> None:
    before = saved.read_bytes()
    with pytest.raises(GraphflowError, match="No space left on device; what was there before"):
        demo().save(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


def test_places_that_cannot_be_written_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing" / "small.gfx"):
        with pytest.raises(GraphflowError, match="cannot write"):
            small().save(path)
    assert not list(tmp_path.iterdir())


def test_a_link_keeps_pointing_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "link.gfx").symlink_to(tmp_path / "real.gfx")
    small().save(tmp_path / "link.gfx")
    assert (tmp_path / "link.gfx").is_symlink() and (tmp_path / "real.gfx").is_file()
    assert_same_results(small(), gf.load(tmp_path / "link.gfx"))


def test_only_files_and_new_names_are_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("pipe")
    for path in (tmp_path / "pipe", tmp_path / "link", tmp_path / "folder", Path("/dev/null")):
        before = os.lstat(path).st_ino
        with pytest.raises(
            GraphflowError, match=r"cannot write .* it is (no regular file|a folder)"
        ):
            small().save(path)
        assert os.lstat(path).st_ino == before
    assert len(list(tmp_path.iterdir())) == 3


HOLD_DRAFT = """
import sys
from graphflow.runtime.drafts import replace_file

def write(file):
    file.write(b"begun")
    file.flush()
    print("ready", flush=True)
    sys.stdin.read()

replace_file(sys.argv[1], write)
"""


def test_drafts_of_killed_processes_are_removed_and_those_of_others_kept(tmp_path: Path) -> None:
    path = tmp_path / "small.gfx"
    other = tmp_path / f".other.gfx.{'0' * 16}.tmp"
    for name in (other, tmp_path / ".small.gfx.1234.tmp", tmp_path / ".small.gfx"):
        name.touch()
    strange = tmp_path / f".small.gfx.{'1' * 16}.tmp"
    strange.mkdir()
    expected = {*tmp_path.iterdir(), path}
    (tmp_path / f".small.gfx.{'2' * 16}.tmp").write_bytes(b"from a killed process")
    arguments = [sys.executable, "-c", HOLD_DRAFT, str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        small().save(path)
        drafts = set(tmp_path.iterdir()) - expected
        assert len(drafts) == 1  # that of the live process
        process.kill()
    small().save(path)
    assert set(tmp_path.iterdir()) == expected
    assert_same_results(small(), gf.load(path))


# Files that change ------------------------------------------------------------------------------


def overwrite(path: Path, position: int, content: bytes) -> None:
    with open(path, "r+b", buffering=0) as file:
        file.seek(position)
        file.write(content)
    status = path.stat()  # a later time, however coarse the clock of the file system is
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10_000_000))


def test_a_file_that_is_overwritten_in_place_does_not_run_with_other_weights(saved: Path) -> None:
    mapped, copied = gf.load(saved), gf.load(saved, mmap=False)
    bound = mapped.program.bind(random_inputs(mapped.inputs))
    content = saved.read_bytes()
    overwrite(saved, len(content) - PAGE, bytes(PAGE))
    with pytest.raises(InvalidModel, match=r"overwritten in place .* mmap=False"):
        mapped.run(random_inputs(mapped.inputs))
    with pytest.raises(InvalidModel, match="overwritten in place"):
        bound.run()
    assert_same_results(small(), copied)
    overwrite(saved, 0, content)  # what was checked is there again
    assert_same_results(small(), mapped)


def test_a_file_that_is_cut_off_is_not_touched(saved: Path) -> None:
    mapped = gf.load(saved)
    os.truncate(saved, 100)
    with pytest.raises(InvalidModel, match="overwritten in place"):
        mapped.run(random_inputs(mapped.inputs))


def test_values_that_decide_shapes_are_known_without_a_file_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "shaped.gfx"
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["" : 21]>
    g (float[2,3] x, int64[2] shape) => (float[a,b] y) { y = Reshape (x, shape) }""")
    inputs = {"x": np.ones((2, 3), np.float32), "shape": np.array([3, 2])}
    exe = gf.compile(model, threads=1)
    exe.run(inputs)
    exe.save(path)
    mapped = gf.load(path)
    assert mapped.run(inputs)["y"].shape == (3, 2)
    os.truncate(path, 100)
    with pytest.raises(InvalidModel, match="overwritten in place"):
        mapped.run(inputs)  # reading what is cut off would end the process
    with pytest.raises(InvalidModel, match="none for"):
        mapped.run({**inputs, "shape": np.array([6, 1])})


def test_touching_and_replacing_a_file_changes_nothing(saved: Path) -> None:
    mapped = gf.load(saved)
    os.utime(saved)
    assert_same_results(small(), mapped)
    demo().save(saved)
    assert_same_results(small(), mapped)


def test_a_file_that_changes_while_it_is_loaded_is_refused(
    saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Container.read

    def disturbed(file: Container, name: str) -> bytes:
        os.utime(saved, ns=(1, 1))
        return read(file, name)

    monkeypatch.setattr(Container, "read", disturbed)
    with pytest.raises(InvalidModel, match="changed while it was loaded"):
        gf.load(saved)


def test_a_copy_is_aligned_and_cannot_be_written(saved: Path) -> None:
    loaded = gf.load(saved, mmap=False)
    assert_same_results(small(), loaded)
    constants = loaded.program.prepared
    assert len(constants) and data_address(constants) % ALIGNMENT == 0
    with pytest.raises(ValueError, match="read-only"):
        constants[0] = 1
    loaded.save(saved)
    assert_same_results(small(), gf.load(saved))


def test_a_digest_says_which_file_is_wanted(saved: Path) -> None:
    digest = hashlib.sha256(saved.read_bytes()).hexdigest()
    for wanted in (digest, digest.upper()):
        assert_same_results(small(), gf.load(saved, sha256=wanted))
    with pytest.raises(InvalidModel, match=f"has the SHA-256 {digest}, not 000"):
        gf.load(saved, sha256="0" * 64)
    with pytest.raises(ValueError, match="64 hexadecimal digits"):
        gf.load(saved, sha256="abc")


def test_wrong_types_are_refused_at_once(saved: Path) -> None:
    for arguments in ({"path": 3}, {"path": saved, "threads": "2"}, {"path": None}):
        with pytest.raises(TypeError):
            gf.load(**arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidModel, match="null byte"):
        gf.load("a\0b")


# Tables that disagree, under checksums that fit ---------------------------------------------------


def rewritten(path: Path, change: Callable[[dict[str, Any]], None], section: str) -> None:
    """Change a JSON section of a saved model, and let all checksums fit."""
    with Container(path) as file:
        header = {name: value for name, value in file.header.items() if name != "sections"}
        sections: dict[str, Any] = {name: file.read(name) for name in file.names}
    table = json.loads(sections[section])
    change(table)
    sections[section] = json.dumps(table).encode()
    write_container(path, header, sections)


def first_step(table: dict[str, Any]) -> Any:
    return table["run"][0]


TABLES: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (lambda t: first_step(t)[1].pop(), "the kernel takes"),
    (lambda t: first_step(t)[1].append(["input", 0, 0]), "the kernel takes"),
    (lambda t: first_step(t).__setitem__(2, 1 << 40), "iterations"),
    (lambda t: first_step(t).__setitem__(2, -1), "is not from 0"),
    (lambda t: first_step(t).__setitem__(3, 1.5), "not an integer"),
    (lambda t: first_step(t)[1][0].__setitem__(1, 1 << 40), "outside"),
    (lambda t: first_step(t)[1][0].__setitem__(1, True), "not an integer"),
    (lambda t: first_step(t)[1][0].__setitem__(0, "heap"), "is none of arena"),
    (lambda t: first_step(t)[1][0].__setitem__(0, ["input"]), "is none of arena"),
    (lambda t: first_step(t)[1][0].__setitem__(2, 64), "outside"),
    (lambda t: first_step(t).__setitem__(0, "nothing"), "no object defines"),
    (lambda t: t["signatures"].clear(), "have no signature"),
    (lambda t: t["signatures"][0][2].__setitem__(0, 1 << 40), "outside"),
    (lambda t: t["inputs"][0][2].__setitem__(0, 0), "outside"),
    (lambda t: t["inputs"][0].__setitem__(1, "float16"), "outside"),
    (lambda t: t["inputs"][0].__setitem__(1, "f4"), "no name of an element type"),
    (lambda t: t["outputs"][0][2].__setitem__(1, 1), "outside"),
    (lambda t: t["outputs"].clear(), "outside"),
    (lambda t: t["outputs"][0][2].append(1 << 30), "from beginning to end"),
    (lambda t: t.__setitem__("arena_bytes", 1 << 50), "bytes of an arena"),
    (lambda t: t.__setitem__("constant_bytes", 64), "constant"),
    (lambda t: t.__setitem__("constant_bytes", 10**30), "is not from 0"),
    (lambda t: t["objects"][0].__setitem__(1, 1), "bytes of object code"),
    (lambda t: t.__setitem__("flush_denormals", 1), "neither true nor false"),
    (lambda t: t.__setitem__("arrays", [["x", "float32", [1, 5, 6, 6], 64]]), "buffer"),
    (lambda t: t.__setitem__("arrays", [["w", "float32", [0], 0]]), "no input"),
    (lambda t: t.pop("run"), "'run'"),
    (lambda t: t.__setitem__("objects_out", [["z", "a string", 0]]), "no step makes the output z"),
]


@pytest.mark.parametrize(("change", "reason"), TABLES)
def test_tables_that_disagree_are_refused(
    change: Callable[[dict[str, Any]], None], reason: str, saved: Path
) -> None:
    rewritten(saved, change, "program")
    with pytest.raises(InvalidModel, match="does not describe a program") as caught:
        gf.load(saved)
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("inputs", -1), ("inputs", "all"), ("inputs", 0), ("inputs", 2),
        ("outputs", []), ("outputs", [[], []]), ("outputs", [[0]]), ("outputs", None),
        ("guards", 1), ("guards", None),
        ("threads", 0), ("threads", "two"), ("poisoned", None),
        ("assumed", {}), ("assumed", [{"tensor": "x"}]), ("check_assumes", 0), ("frozen", "x"),
        (
            "assumed",
            [{"tensor": "x", "dtype": "float32", "lo": 0, "hi": 1, "exact": False,
              "elements": [10**6]}],
        ),
        (
            "assumed",
            [{"tensor": "x", "dtype": "float32", "elements": [0], "values": [10**6],
              "copies": True}],
        ),
        (
            "assumed",
            [{"tensor": "x", "dtype": "int8", "elements": [0], "values": [1], "copies": True}],
        ),
        ("scalar_limits", None), ("scalar_limits", [["f", {"x": "x"}, ["x > 0"]]]),
        ("scalar_limits", [["f", {}, ["x > 0"]]]), ("scalar_limits", [["f", {}]]),
    ],
)  # fmt: skip
def test_documents_of_another_variant_are_refused(name: str, value: object, saved: Path) -> None:
    rewritten(saved, lambda table: table.__setitem__(name, value), "document:model")
    with pytest.raises(InvalidModel, match="its document 'model' has an unexpected structure"):
        gf.load(saved)


@pytest.mark.parametrize("content", [b"[]", b"3", b'{"edges": [{}]}', b"\xff", b"", b"[" * 100_000])
def test_answers_of_another_variant_are_refused(content: bytes, saved: Path) -> None:
    with Container(saved) as file:
        header = {name: value for name, value in file.header.items() if name != "sections"}
        sections: dict[str, Any] = {name: file.read(name) for name in file.names}
    for name in ("report", "explanations", "edge_types"):
        sections[f"document:{name}"] = content
    write_container(saved, header, sections)
    loaded = gf.load(saved)
    assert_same_results(small(), loaded)
    for question in (lambda: loaded.layouts, loaded.decisions):
        with pytest.raises(InvalidModel, match="has an unexpected structure"):
            question()


# The container alone ----------------------------------------------------------------------------


def test_sections_of_any_size_come_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = (0, 1, PAGE - 1, PAGE, PAGE + 1, CHUNK - 1, CHUNK, CHUNK + 1, 10 * CHUNK + 5)
    sections = {str(size): rng.integers(0, 256, size, np.uint8).tobytes() for size in sizes}
    write_container(tmp_path / "file", {"answer": 42}, sections)
    with Container(tmp_path / "file") as file:
        assert file.header["answer"] == 42 and file.names == tuple(sections)
        mapped = {name: file.map(name) for name in file.names}
        for name, content in sections.items():
            assert file.read(name) == content
        with pytest.raises(InvalidModel, match="no section 'none'"):
            file.read("none")
    for name, content in sections.items():
        assert mapped[name].tobytes() == content
        assert not content or data_address(mapped[name]) % PAGE == 0


def test_every_chunk_of_a_large_section_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_container(path, {}, {"large": bytes(12 * CHUNK + 1)})
    end = path.stat().st_size
    with open(path, "r+b", buffering=0) as out:
        for position in [*range(PAGE, end, CHUNK), end - 1]:
            out.seek(position)
            out.write(b"\1")
            for take in (Container.read, Container.map):
                with Container(path) as file, pytest.raises(InvalidModel, match="'large'"):
                    take(file, "large")
            out.seek(position)
            out.write(b"\0")


# Sizes --------------------------------------------------------------------------------------------


def test_a_saved_model_with_sizes_serves_all_of_them(tmp_path: Path) -> None:
    exe = gf.compile(small_model("n"), sizes={"n": (1, 5)}, threads=2)
    exe.save(tmp_path / "m.gfx")
    loaded = gf.load(tmp_path / "m.gfx")
    ones = np.ones((5, 5, 6, 6), np.float32)
    for count in (5, 1, 3):
        loaded.run({"x": ones * np.nan})
        found, wanted = (list(one.run({"x": ones[:count]}).values()) for one in (loaded, exe))
        assert found[0].shape == wanted[0].shape == (count, 7, 6, 6)
        assert np.array_equal(found[0], wanted[0])
    assert len(loaded.specializations) == 1
    sizes, again = exe.program.spec.sizes, loaded.program.spec.sizes
    assert sizes == again and len(sizes) == 1
    assert [s.portion for s in exe.program.spec.run] == [s.portion for s in loaded.program.spec.run]


def test_a_loaded_model_with_sizes_refuses_what_it_was_not_compiled_for(tmp_path: Path) -> None:
    exe = gf.compile(small_model("n"), sizes={"n": (2, 5)}, threads=1)
    exe.save(tmp_path / "m.gfx")
    loaded = gf.load(tmp_path / "m.gfx")
    for count in (1, 6):
        with pytest.raises(GraphflowError, match="n from 2 to 5"):
            loaded.run({"x": np.ones((count, 5, 6, 6), np.float32)})
