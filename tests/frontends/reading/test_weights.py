"""Large initializers are read where they lie in the file, and nothing else changes by that."""

import gc
import os
import resource
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import graphflow as gf
from graphflow.base.errors import FileOverwritten, InvalidModel
from graphflow.frontends import ReadModel, open_model, read_model
from graphflow.frontends.reading.weight_files import MOST_OPEN

_FLOATS = np.arange(32 * 1024, dtype=np.float32).reshape(32, 1024)


def _model(*initializers: TensorProto, opset: int = 17) -> onnx.ModelProto:
    """y = x @ w + b of whatever w and b are, and initializers that nobody reads."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 32])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 1024])
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [x], [y], list(initializers))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def _weights() -> list[TensorProto]:
    return [
        numpy_helper.from_array(np.ones(3, np.float32), "small"),
        numpy_helper.from_array(_FLOATS, "w"),
        helper.make_tensor("fields", TensorProto.FLOAT, [32 * 1024], _FLOATS.reshape(-1)),
        numpy_helper.from_array(np.arange(1 << 14), "int64"),
        numpy_helper.from_array(np.ones(1 << 17, bool), "bool"),
    ]


def test_large_initializers_are_views_of_the_given_bytes() -> None:
    content = _model(*_weights()).SerializeToString()
    opened = open_model(content)
    assert sorted(opened.contents) == [1, 3], "raw data of numpy's element types"
    assert (opened.contents[1] == _FLOATS).all()
    assert (opened.contents[3] == np.arange(1 << 14)).all()
    whole = np.frombuffer(content, np.uint8)
    assert all(np.shares_memory(array, whole) for array in opened.contents.values())
    assert not any(array.flags.writeable for array in opened.contents.values())
    assert opened.proto.ByteSize() < len(content) - _FLOATS.nbytes


def test_large_initializers_of_a_file_are_aligned(tmp_path: Path) -> None:
    for shift in range(4):
        model = _model(*_weights())
        model.producer_name = "p" * (shift + 1)
        path = tmp_path / "model.onnx"
        path.write_bytes(model.SerializeToString())
        opened = open_model(path)
        assert sorted(opened.contents) == [1, 3]
        assert all(array.flags.aligned for array in opened.contents.values())
        assert not any(array.flags.writeable for array in opened.contents.values())
        assert opened.whole() == model


def test_the_whole_proto_is_what_the_parser_gives() -> None:
    model = _model(*_weights())
    assert read_model(model.SerializeToString()) == model
    assert read_model(model) is model


def test_an_initializer_without_its_data_is_marked_as_external() -> None:
    opened = open_model(_model(*_weights()).SerializeToString())
    assert opened.proto.graph.initializer[1].data_location == TensorProto.EXTERNAL
    with pytest.raises(InvalidModel, match="external file"):
        read_model(opened.proto)


def test_a_proto_that_was_given_keeps_its_data_and_is_checked_again() -> None:
    model = _model(*_weights())
    opened = open_model(model)
    assert opened.proto is model
    assert not opened.contents
    model.graph.initializer[1].dims[0] = 31
    with pytest.raises(InvalidModel, match="needs"):
        open_model(opened)


def test_results_are_those_of_a_proto(tmp_path: Path) -> None:
    model = _model(*_weights())
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    x = np.random.default_rng(1).standard_normal((4, 32)).astype(np.float32)
    expected = gf.compile(model)(x)
    assert (gf.compile(path)(x) == expected).all()
    assert (gf.compile(model.SerializeToString())(x) == expected).all()


_LARGE = (np.arange(512 * 1024, dtype=np.float32) % 1000).reshape(512, 1024)
"""Weights that are read again for each program."""


def _save_open_rows(path: Path, is_external: bool = False) -> None:
    """y = x @ w of any number of rows; the weights lie in the file, or in one named data."""
    model = _model(numpy_helper.from_array(_LARGE, "w"))
    for info in (model.graph.input[0], model.graph.output[0]):
        info.type.tensor_type.shape.dim[0].dim_param = "n"
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 512
    named = {"save_as_external_data": True, "location": "data"}
    onnx.save(model, path, **named if is_external else {})


@pytest.mark.parametrize("is_external", [False, True])
@pytest.mark.parametrize("how", ["overwritten", "truncated"])
def test_a_file_that_was_written_to_is_refused_when_weights_are_read(
    how: str, is_external: bool, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    _save_open_rows(path, is_external)
    changed = tmp_path / "data" if is_external else path
    exe = gf.compile(path)
    x = np.ones((2, 512), np.float32)
    assert (exe(x) == x @ _LARGE).all()
    _write_later(changed, b"" if how == "truncated" else bytes(changed.stat().st_size))
    assert (exe(x) == x @ _LARGE).all(), "a program that exists reads no file"
    with pytest.raises(
        FileOverwritten, match=f"{changed} was written to in place.*compile it again"
    ):
        exe(np.ones((3, 512), np.float32))


@pytest.mark.parametrize("is_external", [False, True])
@pytest.mark.parametrize("how", ["deleted", "replaced"])
def test_a_file_that_is_deleted_or_replaced_changes_nothing(
    how: str, is_external: bool, tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    _save_open_rows(path, is_external)
    exe = gf.compile(path)
    for file in [*tmp_path.iterdir()]:
        if how == "replaced":
            (tmp_path / "new").write_bytes(bytes(file.stat().st_size))
            (tmp_path / "new").replace(file)
        else:
            file.unlink()
    for rows in (2, 3):
        x = np.ones((rows, 512), np.float32)
        assert (exe(x) == x @ _LARGE).all()


def test_a_file_that_changes_after_its_only_compile_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    _save_open_rows(path)
    exe = gf.compile(path, input_shapes={"x": (2, 512)})
    _write_later(path, b"")
    x = np.ones((2, 512), np.float32)
    assert (exe(x) == x @ _LARGE).all()


def test_files_are_open_as_long_as_weights_may_be_read(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    _save_open_rows(path)
    opened = open_model(path)
    assert _open_files(tmp_path) == 1
    del opened
    assert not _open_files(tmp_path)
    fixed = gf.compile(path, input_shapes={"x": (2, 512)})
    assert not _open_files(tmp_path)
    exe = gf.compile(path)
    assert _open_files(tmp_path) == 1
    del exe
    gc.collect()
    assert not _open_files(tmp_path) and fixed(np.ones((2, 512), np.float32)).any()


def test_weights_that_a_program_keeps_hold_no_file_open(tmp_path: Path) -> None:
    """Those of `_model` are too small to be let go of."""
    path = tmp_path / "model.onnx"
    onnx.save(_model(*_weights()), path)
    exe = gf.compile(path)
    gc.collect()
    assert not _open_files(tmp_path)
    x = np.ones((4, 32), np.float32)
    assert (exe(x) == x @ _FLOATS).all()


def test_few_of_many_files_of_weights_stay_open(tmp_path: Path) -> None:
    """Of more files than a process may open, each with a weight, most are closed at once."""
    path, count = tmp_path / "model.onnx", 2 * MOST_OPEN
    others = [numpy_helper.from_array(_FLOATS[:16] + k, f"w{k}") for k in range(count)]
    model = _model(numpy_helper.from_array(_FLOATS, "w"), *others)
    onnx.save(model, path, save_as_external_data=True, all_tensors_to_one_file=False)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = MOST_OPEN + len(os.listdir("/proc/self/fd")) + 8
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard[1]))
    try:
        opened = open_model(path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, hard)
    assert _open_files(tmp_path) == MOST_OPEN
    assert sorted(opened.contents) == [*range(count + 1)]
    for number in range(1, count + 1):
        assert (opened.contents[number] == _FLOATS[:16] + number - 1).all()
    del opened
    assert not _open_files(tmp_path)


def _open_files(folder: Path) -> int:
    """How many files of a folder this process has open."""
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return sum(Path(os.readlink(k)).parent == folder for k in links if os.path.lexists(k))


def _write_later(path: Path, content: bytes) -> None:
    """Write into a file, whose time of modification advances in steps of milliseconds."""
    before = path.stat().st_mtime_ns
    while path.stat().st_mtime_ns == before:
        with path.open("wb") as file:
            file.write(content)


def test_external_data_lies_beside_the_proto(tmp_path: Path) -> None:
    model = _model(*_weights())
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="data", size_threshold=0)
    opened = open_model(path)
    assert sorted(opened.contents) == [1, 3]
    assert (opened.contents[1] == _FLOATS).all()
    assert [numpy_helper.to_array(t).tobytes() for t in read_model(path).graph.initializer] == [
        numpy_helper.to_array(t).tobytes() for t in _model(*_weights()).graph.initializer
    ]


def test_a_default_of_an_input_may_be_large() -> None:
    model = _model(*_weights())
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [32, 1024]))
    exe = gf.compile(model.SerializeToString(), overridable=["w"])
    x = np.ones((4, 32), np.float32)
    assert (exe.run({"x": x})["y"] == x @ _FLOATS).all()
    assert (exe.run({"x": x, "w": _FLOATS + 1})["y"] == x @ (_FLOATS + 1)).all()


@pytest.mark.parametrize("field", [b"\x5a\x00", b"\x48\x01", b"\x4a\x00"])
def test_a_tensor_with_more_than_raw_data_is_left_to_the_parser(field: bytes) -> None:
    """Data of another field, a field of another type, raw data twice."""
    large = numpy_helper.from_array(_FLOATS, "w").SerializeToString() + field
    graph = onnx.GraphProto(name="g").SerializeToString() + _field(0x2A, large)
    content = onnx.ModelProto(ir_version=8).SerializeToString() + _field(0x3A, graph)
    assert _as_parsed(content)


def test_parts_of_a_graph_are_merged_by_the_parser() -> None:
    content = _model(*_weights()).SerializeToString() + _field(0x3A, b"")
    assert not open_model(content).contents
    assert len(open_model(content).proto.graph.initializer) == len(_weights())


def test_damaged_files_are_refused_as_by_the_parser() -> None:
    content = _model(*_weights()).SerializeToString()
    for end in (1, 2, 5, 100, len(content) // 2, len(content) - 1):
        with pytest.raises(InvalidModel):
            open_model(content[:end])


def test_data_that_does_not_fit_is_refused() -> None:
    model = _model(*_weights())
    model.graph.initializer[1].dims[0] = 33
    with pytest.raises(InvalidModel, match="initializer w of type FLOAT"):
        open_model(model.SerializeToString())
    model.graph.initializer[1].dims[0] = -32
    with pytest.raises(InvalidModel, match="negative extent"):
        open_model(model.SerializeToString())


def _field(tag: int, content: bytes) -> bytes:
    size, found = len(content), bytearray((tag,))
    while size >= 0x80:
        found.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes((*found, size)) + content


def _as_parsed(content: bytes) -> bool:
    """Whether a model is read, or refused, just as its proto."""
    found: list[ReadModel | str] = []
    for model in (content, onnx.load_model_from_string(content)):
        try:
            found.append(open_model(model))
        except InvalidModel as error:
            found.append(str(error))
    first, second = found
    if isinstance(first, ReadModel) and isinstance(second, ReadModel):
        return not first.contents and first.proto == second.proto
    return first == second
