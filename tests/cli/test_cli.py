"""Tests of the command line: output, stream and exit code of each command."""

import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import webbrowser
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.api import layer_costs
from graphflow.base.decisions import byte_count
from graphflow.base.options import CACHES_VARIABLE, KERNELS_VARIABLE, rates_file
from graphflow.base.processors import PROCESSORS, TARGET_NAMES
from graphflow.base.version import VERSION
from graphflow.bench import Protocol
from graphflow.cli import comparison, main, measure_commands
from graphflow.codegen import avx2_target, kept_rates, kind_of, named_target
from graphflow.models import ModelBuilder
from support.shown_pages import page_data
from support.texts import parsed


@pytest.fixture
def model(tmp_path: Path) -> str:
    build = ModelBuilder(seed=1)
    x = build.input("x", (1, 3, 6, 6))
    build.output(build.relu(build.conv(x, 5, 3)))
    path = tmp_path / "small.onnx"
    onnx.save(build.model(), path)
    return str(path)


@pytest.fixture
def symbolic(tmp_path: Path) -> str:
    build = ModelBuilder(seed=1)
    build.output(build.relu(build.input("x", ("N", 4))))
    path = tmp_path / "symbolic.onnx"
    onnx.save(build.model(), path)
    return str(path)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are timed by a single run, whatever its time says: tests look at what is printed."""
    once = partial(Protocol, blocks=1, idle=0.0, discarded=0.0, measured=0.0)
    for module in (comparison, layer_costs):
        monkeypatch.setattr(module, "Protocol", once)


def test_compile_prints_the_summary_and_the_stages(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["compile", model, "--threads", "1", "--dump", str(tmp_path / "dump")]) == 0
    out = capsys.readouterr().out
    assert "tensors;" in out and "codegen" in out
    assert (tmp_path / "dump" / "timings.json").exists()


def test_compile_for_a_narrower_target(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", model, "--json", "--target", "avx2"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == avx2_target().name


@pytest.mark.parametrize("name", ["graniterapids", "zen3"])
def test_decisions_for_a_processor_that_this_one_need_not_be(
    model: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", model, "--json", "--target", name]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["target"] == name and found["summary"]["edges"] > 0
    assert main(["explain", model, "relu_1", "--target", name]) == 0
    assert "relu_1" in capsys.readouterr().out


def test_saved_models_run_and_answer_like_the_model(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    saved = str(tmp_path / "small.gfx")
    assert main(["compile", model, "-o", saved]) == 0
    assert f"saved to {saved}, " in capsys.readouterr().out
    for command in (["run"], ["inspect"], ["inspect", "--json"], ["inspect", "--edge", "relu_1"]):
        outputs = []
        for name in (model, saved):
            assert main([command[0], name, *command[1:]]) == 0
            outputs.append(capsys.readouterr().out)
        assert outputs[0] == outputs[1] != ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--target", "avx2"], "--target decides how a model is compiled"),
        (["inspect", "--dump", "d"], "--dump decides how"),
        (["run", "--reseed", "1"], "--reseed decides how"),
        (["run", "--shape", "x=1x3x6x7"], "x=(1, 3, 6, 7) does not fit the inputs"),
        (["run", "--size", "N=1:8"], "--size decides how"),
        (["inspect", "--layout", "relu_1=NHWC"], "--layout decides how"),
        (["run", "--assume", "x=finite"], "--assume decides how"),
        (["compile"], "needs the ONNX model"),
        (["bench"], "needs the ONNX model"),
    ],
)
def test_saved_models_are_not_compiled_again(
    arguments: list[str],
    message: str,
    model: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    saved = str(tmp_path / "small.gfx")
    assert main(["compile", model, "-o", saved]) == 0
    assert main([*arguments, saved]) == 1
    assert message in capsys.readouterr().err


def test_saving_before_the_shapes_are_known_asks_for_them(
    symbolic: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    saved = str(tmp_path / "symbolic.gfx")
    assert main(["compile", symbolic, "-o", saved]) == 1
    error = capsys.readouterr().err
    assert "--shape x=1x" in error and " or --size " in error and "input_shapes" not in error
    assert main(["compile", symbolic, "-o", saved, "--shape", "x=3x4"]) == 0
    assert main(["run", saved]) == 0
    assert "[3, 4]" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_one_message(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["compile", model, "-o", str(tmp_path / "missing" / "small.gfx")]) == 1
    captured = capsys.readouterr()
    assert "there is no folder" in captured.err and captured.out == ""  # nothing was compiled


@pytest.mark.parametrize("command", ["compile", "quantize"])
def test_a_model_is_not_overwritten_by_what_is_made_of_it(
    command: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path(model).read_bytes()
    extra = ["--random-data", "1"] if command == "quantize" else []
    assert main([command, model, "-o", model, *extra]) == 1
    assert "-o would overwrite the model" in capsys.readouterr().err
    assert Path(model).read_bytes() == before


def test_large_numbers_of_bytes_have_a_larger_unit_too() -> None:
    assert byte_count(1023) == "1023 bytes"
    assert byte_count(3 << 29) == "1610612736 bytes (1.5 GiB)"


def test_a_program_of_a_saved_model_is_chosen_by_its_shape(
    symbolic: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    exe = gf.compile(symbolic)
    exe.precompile([{"x": (3, 4)}, {"x": (5, 4)}])
    saved = str(tmp_path / "two.gfx")
    exe.save(saved)
    assert main(["inspect", saved]) == 1
    assert "or by --shape" in capsys.readouterr().err
    assert main(["inspect", saved, "--shape", "x=3x4"]) == 0
    assert "3×4" in capsys.readouterr().out
    assert main(["run", saved, "--shape", "x=5x4"]) == 0
    assert "[5, 4]" in capsys.readouterr().out
    assert main(["run", saved, "--shape", "x=6x4"]) == 1
    assert "and none for x: [6, 4]" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["bench", "profile"])
def test_measurements_have_one_shape(
    command: str, symbolic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, symbolic, "--size", "N=1:8"]) == 1
    assert "give --shape instead of --size" in capsys.readouterr().err


def test_nothing_is_explained_before_the_shapes_are_known(
    symbolic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", symbolic, "x"]) == 1
    captured = capsys.readouterr()
    assert "compile with --shape x=" in captured.err and captured.out == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--input", "x.npy"], "'x.npy' is not NAME=FILE.npy"),
        (["run", "--shape", "1x3"], "'1x3' is not NAME="),
        (["serve", "--port", "99999"], "'99999' is no port"),
    ],
)
def test_arguments_of_another_form_are_wrong_usage(
    arguments: list[str], message: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, model])
    assert message in capsys.readouterr().err


def test_an_encoding_without_all_characters_ends_no_command(model: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "graphflow", "explain", model, "relu_1"],
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "?s" in done.stdout and "relu_1 is stored" in done.stdout


def test_run_takes_files_and_writes_files(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 6, 6), np.float32))
    arguments = ["run", model, "--input", f"x={tmp_path / 'x.npy'}", "--save", f"{tmp_path}/out_"]
    assert main(arguments) == 0
    assert "relu_1: float32[1, 5, 4, 4], from" in capsys.readouterr().out
    assert np.load(tmp_path / "out_relu_1.npy").shape == (1, 5, 4, 4)


def test_random_inputs_depend_on_the_seed(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts = []
    for seed in ("0", "0", "1"):
        assert main(["run", model, "--seed", seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]


STATED = {
    "a bounded number": (
        "g (float[4,20] x, int64[1] k) => (float[4,m] v, int64[4,m] i) { v, i = TopK(x, k) }",
        ["--size", "k=3:5"],
        r"v: float32\[4, [345]\]",
    ),
    "one that equals an extent": (
        """g (float[n] x, int64 k) => (float[n] v) {
        zero = Constant<value=int64 {0}>() one = Constant<value=int64 {1}>()
        r = Range(zero, k, one) f = Cast<to=1>(r) v = Add(x, f) }""",
        ["--size", "k=2:60", "--size", "n=2:60", "--shape", "x=37"],
        r"v: float32\[37\]",
    ),
}


@pytest.mark.parametrize(("text", "options", "expected"), STATED.values(), ids=STATED)
def test_integers_that_state_sizes_are_drawn_within_their_bounds(
    text: str,
    options: list[str],
    expected: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "stated.onnx")
    onnx.save(parsed(text), path)
    for seed in range(4):
        assert main(["run", path, *options, "--seed", str(seed), "--strict"]) == 0
        assert re.search(expected, capsys.readouterr().out)


def test_symbolic_shapes_come_from_an_option_or_from_an_input(
    symbolic: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["run", symbolic]) == 1
    assert "symbolic" in capsys.readouterr().err
    assert main(["run", symbolic, "--shape", "x=2x4"]) == 0
    assert "relu_1: float32[2, 4]" in capsys.readouterr().out
    np.save(tmp_path / "x.npy", np.zeros((3, 4), np.float32))
    assert main(["run", symbolic, "--input", f"x={tmp_path / 'x.npy'}"]) == 0
    assert "relu_1: float32[3, 4]" in capsys.readouterr().out


def test_inspect_as_a_table_as_json_and_for_one_tensor(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", model]) == 0
    assert "relu_1" in capsys.readouterr().out
    assert main(["inspect", model, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert {edge["name"] for edge in report["edges"]} >= {"x", "conv_1", "relu_1"}
    assert main(["inspect", model, "--json", "--edge", "relu_1"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "relu_1"
    assert main(["inspect", model, "--edge", "relu_1"]) == 0
    story = capsys.readouterr().out
    assert main(["explain", model, "relu_1"]) == 0
    assert capsys.readouterr().out == story
    assert story.startswith("relu_1 is stored as ") and "float32[1, 5, 4, 4], stored" in story


def test_inspect_writes_a_page_and_view_opens_one(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page.html"
    assert main(["inspect", model, "--html", str(path)]) == 0
    assert capsys.readouterr().out == f"wrote {path}\n"
    page = path.read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url) or True)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["view", model]) == 0
    [url] = opened
    assert url.startswith(tmp_path.as_uri()) and "wrote" in capsys.readouterr().out
    assert Path(url.removeprefix("file://")).read_text(encoding="utf-8") == page
    monkeypatch.setattr(webbrowser, "open", lambda url: False)
    assert main(["view", model]) == 0
    assert "open the file in one" in capsys.readouterr().out


def test_diff_writes_a_page(model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", model, "--json"]) == 0
    report = tmp_path / "report.json"
    report.write_text(capsys.readouterr().out, encoding="utf-8")
    page = tmp_path / "page.html"
    assert main(["diff", str(report), str(report), "--html", str(page)]) == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["diff", str(report), model, "--html", str(page)]) == 2
    assert "error:" in capsys.readouterr().err
    unwritable = str(tmp_path / "missing" / "page.html")
    assert main(["diff", str(report), str(report), "--html", unwritable]) == 2


def test_a_page_that_cannot_be_written_is_one_error(
    model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", model, "--html", str(tmp_path / "missing" / "page.html")]) == 1
    assert "error: cannot write the page" in capsys.readouterr().err
    saved = str(tmp_path / "model.gfx")
    assert main(["compile", model, "-o", saved]) == 0
    assert main(["view", saved]) == 1
    assert "give the ONNX model instead" in capsys.readouterr().err


def test_pins_and_assumptions_come_from_options(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for stated in ("nonnegative", "0:6", "0.5:inf", "-1:1.5", "2", "-0.25"):
        pin = ["--layout", "relu_1=NHWC", f"--assume=x={stated}"]
        assert main(["inspect", model, "--json", *pin]) == 0
        report = json.loads(capsys.readouterr().out)
        assert [(one["edge"], one["layout"]) for one in report["pinned"]] == [("relu_1", "NHWC")]
        assert [one["tensor"] for one in report["assumed"]] == ["x"]
    assert "equal to -0.25" in report["assumed"][0]["assumption"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--layout=relu_9=NHWC", "has no tensor 'relu_9'; similar names are"),
        (
            "--layout=conv_1=NHWC",
            "in registers and it has no memory; pin what that node writes, re",
        ),
        ("--layout=relu_1=NHCW", "cannot pin relu_1 to 'NHCW'; it can be one of ['NCHW', "),
        ("--assume=relu_1=finite", "about inputs only; the inputs are x"),
        ("--assume=x=3:1", "no float32 value satisfies it"),
        ("--assume=x=nan:1", "a bound is NaN"),
    ],
)
def test_pins_and_assumptions_that_do_not_fit_the_model(
    option: str, message: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", model, option]) == 1
    assert message in capsys.readouterr().err


def test_an_option_says_one_thing_of_a_tensor(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", model, "--layout=relu_1=NHWC", "--layout=relu_1=NCHW"]) == 1
    expected = "--layout names 'relu_1' 2 times, with 'NHWC', 'NCHW'; give it once"
    assert expected in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["inspect", "missing.onnx"], "error: cannot read the model"),
        (["run", "light:no_such_net"], "error: onnx has no light model no_such_net"),
        (["run", "missing.onnx", "--reseed", "1"], "--reseed is for models named light:NAME"),
        (["run", "missing.onnx", "--input", "x=nothing.npy"], "error: cannot read the input"),
        (["run", "missing.onnx", "--threads", "0"], "error: Options.threads is 0"),
    ],
)
def test_errors_are_one_message_and_exit_code_1(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    captured = capsys.readouterr()
    assert message in captured.err and captured.out == ""
    assert "Traceback" not in captured.err


def test_an_unknown_tensor_is_refused_in_every_variant(
    model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for variant in ([], ["--json"]):
        assert main(["inspect", model, "--edge", "relu_9", *variant]) == 1
        captured = capsys.readouterr()
        assert "similar names are" in captured.err and captured.out == ""


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["fly"],
        ["run", "m.onnx", "--shape", "x=2xtwo"],
        ["bench", "m.onnx", "--against", "tensorflow"],
        ["compile", "m.onnx", "--target", "z80"],
        ["compile", "m.onnx", "--layout", "relu_1"],
        ["compile", "m.onnx", "--layout", "=NHWC"],
        ["compile", "m.onnx", "--assume", "x=finit"],
        ["compile", "m.onnx", "--assume", "finite"],
        ["compile", "m.onnx", "--assume", "x=1:"],
    ],
)
def test_wrong_arguments_exit_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: graphflow" in capsys.readouterr().err


def test_bench_prints_one_json_object_a_line(
    hurried: None, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", model, "--json", "--threads", "1"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["model"] == model and found["max_rel_error"] < 1e-6


def test_profile_measures_the_steps_of_a_run(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    trace = tmp_path / "trace.json"
    arguments = ["profile", model, "--threads", "1", "--trace", str(trace)]
    assert main([*arguments, "--json", "--against", "onnxruntime"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["steps"] and found["seconds"] > 0 and found["peer"]["operators"]
    assert json.loads(trace.read_text())["traceEvents"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert found["steps"][0]["name"] in out and "by operator" in out


def test_profile_is_of_this_processor_and_for_a_page(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    wanted = ["--html", str(page), "--profile", "--against", "onnxruntime"]
    assert main(["inspect", model, *wanted]) == 0
    assert page_data(page.read_text())["run"]["profile"]["peer"]["name"] == "onnxruntime"
    assert main(["inspect", model, "--profile"]) == 1
    assert "give --html FILE" in capsys.readouterr().err
    assert main(["view", model, "--against", "onnxruntime"]) == 1
    assert "give --profile too" in capsys.readouterr().err
    assert main(["profile", model, "--target", "zen4"]) == 1
    assert "this processor only" in capsys.readouterr().err
    assert main(["profile", model, "--trace", str(tmp_path / "no" / "trace.json")]) == 1
    assert "cannot write the trace" in capsys.readouterr().err


def test_the_demo_shows_checks_and_measures(
    hurried: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    for text in ("58", "conversions are executed", "because", "speedup", "agree with onnxruntime"):
        assert text in out
    for story in (
        r"A tensor that keeps its padding: \w+ is stored as .* of it padding that holds",
        r"A crop and a pad that are cancelled, of \w+: [^.]*needed\s+none",
        r"A crop and a pad that are refused, of powers: [^.]*\(ReduceSum\)\s+without a mask needs",
    ):
        assert re.search(story, out)


def test_an_unsupported_model_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    build = ModelBuilder()
    build.output(build.node("RandomNormalLike", [build.input("x", (2, 2))]))
    path = tmp_path / "random.onnx"
    onnx.save(build.model(), path)
    assert main(["compile", str(path), "--strict"]) == 1
    error = capsys.readouterr().err
    assert "RandomNormalLike" in error and "(in stage import)" in error


@pytest.fixture
def reshaping(tmp_path: Path) -> str:
    build = ModelBuilder(opset=18)
    x, shape = build.input("x", (2, 3, 4)), build.input("shape", (2,), "int64")
    build.output(build.node("Reshape", [x, shape]), shape=("n", "m"))
    path = tmp_path / "reshape.onnx"
    onnx.save(build.model(), path)
    return str(path)


def test_values_that_decide_shapes_come_from_an_option_or_from_an_input(
    reshaping: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for command in ("run", "inspect", "bench", "tune", "compile"):
        assert main([command, reshaping]) == 1
        error = capsys.readouterr().err
        assert "--value NAME=[2,3]" in error and "input_values" not in error, command
    np.save(tmp_path / "shape.npy", np.array([4, 6]))
    for option in ("--value=shape=[4,6]", f"--value=shape={tmp_path / 'shape.npy'}"):
        assert main(["run", reshaping, option]) == 0
        assert "reshape_1: float32[4, 6]" in capsys.readouterr().out
    assert main(["run", reshaping, "--input", f"shape={tmp_path / 'shape.npy'}"]) == 0
    assert "reshape_1: float32[4, 6]" in capsys.readouterr().out
    saved = str(tmp_path / "reshape.gfx")
    assert main(["compile", reshaping, "--value", "shape=[8,3]", "-o", saved]) == 0
    assert main(["run", saved]) == 0
    assert "reshape_1: float32[8, 3]" in capsys.readouterr().out
    assert main(["run", saved, "--value", "shape=[8,3]"]) == 1
    assert "--value decides how" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["run", reshaping, "--value", "shape=[4,"])


def test_quantize_writes_a_model_and_what_each_layer_costs(
    hurried: None, model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    np.save(tmp_path / "x.npy", np.ones((2, 3, 6, 6), np.float32))
    out, costs = str(tmp_path / "q.onnx"), tmp_path / "costs.json"
    data = ["--data", str(tmp_path / "x.npy")]
    assert main(["quantize", model, "-o", out, *data, "--json", str(costs), "--threads=1"]) == 0
    text = capsys.readouterr().out
    assert "1 of 1 products add up integers" in text and f"saved to {out}" in text
    assert "Ranges are of 2 samples; errors of 2 samples of these." in text
    (layer,) = json.loads(costs.read_text())["layers"]
    assert layer["operator"] == "Conv" and layer["integers"] and layer["error"] < 0.1
    assert main(["run", out, "--input", f"x={tmp_path / 'x.npy'}"]) == 1
    assert main(["run", out]) == 0
    capsys.readouterr()
    for arguments, message in (
        ([model], "needs samples of the inputs: give --data"),
        ([model, "--data", str(tmp_path / "missing")], "there is no file or folder"),
        ([model, *data, "--exclude", "none"], "no node 'none' to exclude"),
        ([out, *data], "is quantized already"),
    ):
        assert main(["quantize", *arguments, "-o", str(tmp_path / "other.onnx")]) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "other.onnx").exists()
    assert main(["quantize", model, "-o", out, "--dynamic"]) == 0
    assert "nothing is measured" in capsys.readouterr().out


def test_an_input_that_has_an_initializer_is_given_where_it_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    build = ModelBuilder()
    x = build.input("x", (2,))
    build.input("w", (2,))
    build.constant(np.float32([1, 2]), "w")
    build.output(build.add(x, "w"))
    model, value = str(tmp_path / "model.onnx"), str(tmp_path / "w.npy")
    onnx.save(build.model(), model)
    np.save(value, np.float32([5, 5]))
    given = ["--input", f"w={value}", "--input", f"x={value}"]
    assert main(["run", model, *given]) == 1
    assert "overridable=['w']" in capsys.readouterr().err
    assert main(["run", model, *given, "--overridable", "w"]) == 0
    assert "from 10 to 10" in capsys.readouterr().out
    assert main(["run", model, "--overridable", "x"]) == 1
    assert "overridable names ['x']" in capsys.readouterr().err


def test_outputs_that_cannot_be_written_are_an_error(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["run", model, "--save", str(tmp_path / "missing" / "out_")]) == 1
    assert "cannot write" in capsys.readouterr().err
    assert main(["compile", model, "-o", "/dev/null"]) == 1
    assert "no regular file" in capsys.readouterr().err
    assert not Path("/dev/null").is_file()


HEAVY = {
    *("numpy", "llvmlite", "onnx", "onnxruntime", "openvino", "islpy", "networkx", "rich", "scipy"),
}


def imported_by(*arguments: str) -> tuple[str, set[str]]:
    """What a command prints in a process of its own, and the modules that it imports: heavy
    libraries, and those of graphflow."""
    code = (
        "import sys; from graphflow.cli import main\n"
        "try: code = main(sys.argv[1:])\n"
        "except SystemExit as end: code = end.code\n"
        "assert not code, code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    names = done.stderr.split()
    return done.stdout, {name for name in names if name in HEAVY or name.startswith("graphflow.")}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--help"], "usage: graphflow"),
        (["bench", "--help"], "--against"),
        (["--version"], f"graphflow {VERSION}\n"),
        (["operators"], "# Operators"),
    ],
)
def test_commands_without_a_model_import_no_library(arguments: list[str], text: str) -> None:
    out, imported = imported_by(*arguments)
    assert text in out and not imported & HEAVY
    assert {name.split(".")[1] for name in imported} == {"base", "cli"}


@pytest.mark.parametrize("command", ["run", "explain"])
def test_cached_programs_are_found_without_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv(KERNELS_VARIABLE, str(tmp_path / "cache"))
    build = ModelBuilder()
    build.output(build.relu(build.input("x", (2, 3))))
    path = str(tmp_path / "m.onnx")
    onnx.save(build.model(), path)
    gf.compile(path)
    _, imported = imported_by(command, path, *(["relu_1"] if command == "explain" else []))
    assert not imported & (HEAVY - {"numpy"})
    assert "graphflow.pipeline.compiler" not in imported


def test_a_model_is_compiled_without_other_runtimes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take as long to import as the compiler itself."""
    monkeypatch.setenv(KERNELS_VARIABLE, "off")
    build = ModelBuilder()
    build.output(build.relu(build.input("x", (2, 3))))
    onnx.save(build.model(), tmp_path / "m.onnx")
    _, imported = imported_by("compile", str(tmp_path / "m.onnx"))
    assert "graphflow.pipeline.compiler" in imported
    assert not imported & {"onnxruntime", "openvino", "graphflow.bench"}


def test_the_package_runs_as_a_module() -> None:
    command = [sys.executable, "-P", "-m", "graphflow", "--version"]
    assert subprocess.check_output(command, text=True) == f"graphflow {VERSION}\n"


@pytest.mark.parametrize("started", ["run_process", "main"])
def test_a_process_of_commands_ends_without_passes_of_the_collector(started: str) -> None:
    """The last pass finds a cycle where `main` is one of many things that a process does."""
    code = textwrap.dedent(f"""
        import os, sys
        from graphflow.cli import {started}

        class Cycle:
            def __del__(self, write=os.write):
                write(1, b"found")

        cycle = Cycle()
        cycle.itself = cycle
        sys.argv[1:] = ["operators"]
        {started}()
        sys.stdout.flush()
        del cycle
    """)
    out = subprocess.check_output([sys.executable, "-P", "-c", code])
    assert out.endswith(b"found") == (started == "main")


def test_a_saved_model_runs_without_the_compiler(
    model: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    saved = str(tmp_path / "small.gfx")
    assert main(["compile", model, "-o", saved]) == 0
    for arguments in (["run", saved], ["explain", saved, "relu_1"], ["inspect", saved, "--json"]):
        capsys.readouterr()
        out, imported = imported_by(*arguments)
        assert imported & HEAVY == {"numpy"}
        assert "graphflow.pipeline" not in imported and "graphflow.tir" not in imported
        assert main(arguments) == 0
        assert capsys.readouterr().out == out


def test_every_target_that_is_offered_can_be_made() -> None:
    assert [named_target(name).vector_bytes for name in TARGET_NAMES]


def test_calibrate_keeps_what_it_measures_of_this_kind_of_processor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(CACHES_VARIABLE, str(tmp_path))
    monkeypatch.setattr(measure_commands, "uncalibrated_host", lambda: PROCESSORS["zen4"])
    monkeypatch.setattr(measure_commands, "measured_rates", lambda *_: {"clock_ghz": 2.5})
    assert main(["calibrate"]) == 0
    out = capsys.readouterr().out
    assert rates_file() in out and "3.65" in out and "2.5" in out
    assert kept_rates(rates_file()) == {kind_of(PROCESSORS["zen4"]): {"clock_ghz": 2.5}}
    assert main(["calibrate", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rates"] == {"clock_ghz": 2.5}
    assert main(["calibrate", "--forget"]) == 0
    assert "no rates of znver4" in capsys.readouterr().out and kept_rates(rates_file()) == {}
