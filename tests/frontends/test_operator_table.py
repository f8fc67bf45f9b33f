"""Tests that the page of `graphflow operators` is what the code makes, and of single operators that
it lists."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, defs, helper

import graphflow as gf
from graphflow.base.errors import UnsupportedOp
from graphflow.cli import main
from graphflow.frontends import OPERATORS, import_model, operator_table
from graphflow.frontends.coverage import (
    FOREIGN,
    LATEST,
    Coverage,
    contrib_coverage,
    operator_coverage,
)
from graphflow.frontends.importer import REWRITTEN, VENDOR_OPERATORS
from graphflow.frontends.operator_table import operator_document
from graphflow.frontends.probes import CONTRIB_PROBES
from graphflow.graph import interpret_graph
from support.paths import ROOT
from support.single import assert_same_as_peer, noise, single

PAGE = ROOT / "graphflow" / "cli" / "operators.md"

knows_latest = pytest.mark.skipif(
    defs.onnx_opset_version() < LATEST, reason=f"the installed onnx does not know opset {LATEST}"
)


@knows_latest
def test_the_page_is_what_the_code_makes() -> None:
    made = operator_document()
    assert made == PAGE.read_text(encoding="utf-8"), (
        "graphflow/cli/operators.md is not what the code makes; write it anew with "
        "`graphflow operators --probe > graphflow/cli/operators.md` and look at the difference"
    )
    standard, _ = made.split("## com.microsoft")
    rows = [line.split(" | ") for line in standard.splitlines() if line.startswith("| ")]
    ways = {row[0].removeprefix("| "): row[2] for row in rows}
    others = {name for name in OPERATORS if ways[name] != "kernels"}
    assert others == {"Constant", "EyeLike", "Range", "Shape", "Size"}
    assert (ways["If"], ways["CenterCropPad"]) == ("resolved at import", "the body in its schema")
    assert ways["StringConcat"].startswith("onnxruntime")


def test_the_command_prints_the_page(capsys, monkeypatch) -> None:
    assert main(["operators"]) == 0
    assert capsys.readouterr().out == PAGE.read_text(encoding="utf-8")
    monkeypatch.setattr(operator_table, "operator_document", lambda: "# Probed\n")
    assert main(["operators", "--probe"]) == 0
    assert capsys.readouterr().out == "# Probed\n"


def test_every_contrib_operator_has_a_probe() -> None:
    rewritten = {name for domain, name in REWRITTEN if domain == "com.microsoft"}
    kernels = (name.rpartition(".") for name in VENDOR_OPERATORS)
    native = {name for domain, _, name in kernels if domain == "com.microsoft"}
    assert rewritten | native == set(CONTRIB_PROBES)


def test_what_import_refuses_is_not_listed_as_taken(monkeypatch) -> None:
    """A trap: the table must notice that an operator is gone, or takes fewer types."""

    def only_double(call):
        if call.dtype() != "float64":
            call.refuse("a test", "do nothing")
        OPERATORS["Relu"](call)

    schemas = [
        schema
        for schema in defs.get_all_schemas_with_history()
        if schema.domain == "" and schema.name in ("Abs", "StringConcat")
    ]
    monkeypatch.setattr(defs, "get_all_schemas_with_history", lambda: schemas)
    monkeypatch.setitem(OPERATORS, "Abs", only_double)
    absolute, concat = operator_coverage()
    assert absolute.types == (("T", ("DOUBLE",)),)
    assert (absolute.versions, absolute.refused_versions) == ((), (6, 13))
    assert concat == Coverage("StringConcat", FOREIGN, (20,))
    assert all(row.versions == (1,) and row.types for row in contrib_coverage())


# What the table found ---------------------------------------------------------------------------


def test_element_types_that_differ_are_refused_and_fall_back() -> None:
    """ONNX lets statistics have another type than the input; a kernel of one type must not."""
    arrays = [noise(2, 3).astype("float64"), *(np.abs(noise(3, seed=k)) + 1 for k in range(4))]
    arrays[1:] = [np.asarray(array, "float32") for array in arrays[1:]]
    model = single("BatchNormalization", arrays, 15)
    with pytest.raises(UnsupportedOp, match="input i1 is float32 beside others of float64"):
        import_model(model)
    assert import_model(model, fallback=True).nodes[0].func.callee is not None


@pytest.mark.parametrize(
    "dtype", ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ"]
)
def test_floats_of_8_bits_are_asked_for_nan_and_infinity(dtype: str) -> None:
    kind = helper.tensor_dtype_to_np_dtype(TensorProto.DataType.Value(dtype))
    x = np.arange(256, dtype=np.uint8).view(kind)
    wide = x.astype("float32")
    for op, want in (("IsNaN", np.isnan(wide)), ("IsInf", np.isinf(wide))):
        exe = gf.compile(single(op, [x], 20), options=gf.Options(workers=0, fallback=None))
        np.testing.assert_array_equal(exe(x), want)
    exe = gf.compile(
        single("IsInf", [x], 20, detect_negative=0), options=gf.Options(workers=0, fallback=None)
    )
    np.testing.assert_array_equal(exe(x), np.isposinf(wide))


def test_a_node_that_names_no_output_is_left_out() -> None:
    x, w, r = noise(2, 1, 3), noise(1, 8, 3, seed=1), noise(1, 8, 2, seed=2)
    arrays = dict(zip("xwr", (x, w, r), strict=True))
    infos = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape)
        for name, array in arrays.items()
    ]
    nodes = [
        helper.make_node("LSTM", ["x", "w", "r"], [], hidden_size=2),
        helper.make_node("Relu", ["x"], ["y"]),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, x.shape)
    graph = helper.make_graph(nodes, "g", infos, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert [node.op for node in import_model(model).nodes] == ["Relu"]


def test_stft_without_its_attribute_is_onesided() -> None:
    """ONNX's inference takes another default than its schema, and would refuse the model."""
    x, window = noise(1, 16, 1), np.abs(noise(4, seed=1))
    arrays = [x, window]
    model = single("STFT", arrays, 17, {1: np.int64(4)}, result=(1, 4, 3, 2))
    assert not model.graph.node[0].attribute
    del model.graph.output[:]
    model.graph.output.append(
        helper.make_tensor_value_info("o0", TensorProto.FLOAT, (1, "frames", "bins", 2))
    )
    feeds = {info.name: array for info, array in zip(model.graph.input, arrays, strict=True)}
    assert_same_as_peer(model, feeds)


@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("size", [(1, 1, 3, 4), (2, 5, 4, 2), (1, 2, 2, 3, 4), (1, 1, 1, 1)])
def test_affine_grids_match_the_peer(size: tuple[int, ...], corners: int) -> None:
    """The body in the schema drops the batch axis of one image of two dimensions."""
    rank = len(size) - 2
    theta = noise(size[0], rank, rank + 1)
    sizes = {1: np.array(size, np.int64)}
    result = (size[0], *size[2:], rank)
    model = single("AffineGrid", [theta], 20, sizes, result=result, align_corners=corners)
    if corners and 1 in size[2:]:
        with pytest.raises(UnsupportedOp, match="divides by zero"):
            import_model(model)
        return
    assert_same_as_peer(model, {"i0": theta})


def test_affine_grid_asks_for_its_size() -> None:
    arrays = [noise(2, 2, 3), np.array([2, 1, 3, 4], np.int64)]
    model = single("AffineGrid", arrays, 20, result=("n", "h", "w", "d"))
    feeds = dict(zip(("i0", "i1"), arrays, strict=True))
    given = import_model(model, input_values={"i1": arrays[1]})
    known = import_model(single("AffineGrid", arrays[:1], 20, {1: arrays[1]}, result=(2, 3, 4, 2)))
    (got,) = interpret_graph(given, feeds).values()
    (want,) = interpret_graph(known, {"i0": arrays[0]}).values()
    np.testing.assert_array_equal(got, want)
    assert isinstance(model, onnx.ModelProto)


# What tests/system/fuzz/test_every_operator.py found ----------------------------------------------


@pytest.mark.parametrize("shape", [(3, 0), (2, 3, 0), (0, 3), (1, 0), (3, 0, 2)])
def test_views_of_tensors_without_elements(shape: tuple[int, ...]) -> None:
    """Joining the axes of such a tensor lost the one before the empty one."""
    x = np.zeros(shape, "float32")
    exe = gf.compile(single("Identity", [x], 19), options=gf.Options(workers=0, fallback=None))
    assert exe(x).shape == shape


@pytest.mark.parametrize(
    ("op", "given"), [("HardSigmoid", {"alpha": 0.2, "beta": 0.5}), ("LeakyRelu", {"alpha": 0.01})]
)
def test_an_attribute_left_out_is_its_default_stated(op: str, given: dict[str, float]) -> None:
    x = noise(40).astype("float64")
    results = []
    for attributes in ({}, given):
        graph = import_model(single(op, [x], 16, **attributes))
        results.append(interpret_graph(graph, {"i0": x})["o0"])
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("auto_pad", ["VALID", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize(("op", "opset"), [("AveragePool", 19), ("MaxPool", 12), ("LpPool", 18)])
def test_ceil_mode_counts_with_automatic_pads_too(op: str, opset: int, auto_pad: str) -> None:
    x = noise(1, 2, 5, 8)
    given = {"kernel_shape": [2, 3], "strides": [3, 3], "ceil_mode": 1, "auto_pad": auto_pad}
    assert_same_as_peer(single(op, [x], opset, **given), {"i0": x})


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_remainder_of_zero_has_the_sign_of_the_divisor(dtype: str) -> None:
    """So opset 28 has it; before, ONNX did not say what remainders of floats round to."""
    odd = [0.0, -0.0, 4.0, -4.0, 3.0, -3.0, np.inf, -np.inf, np.nan]
    a = np.array(odd, dtype)[:, None]
    b = np.array([2.0, -2.0, 0.0, -0.0, np.inf, -np.inf, np.nan], dtype)
    exe = gf.compile(single("Mod", [a, b], 13), options=gf.Options(workers=0, fallback=None))
    got = exe.run({"i0": a, "i1": b})["o0"]
    with np.errstate(all="ignore"):
        want = np.mod(a, b)
    np.testing.assert_array_equal(got, want)
    zeros = want == 0
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]))
