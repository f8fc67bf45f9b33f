"""Tests of `OrtValue`: the same code runs with onnxruntime and with graphflow."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.errors import InvalidModel, UnsupportedOp
from support.exporters import Exporter
from support.models.session_models import MODULES

with_both = pytest.mark.parametrize("ort", MODULES, ids=lambda module: module.__name__)
DTYPES = ("float32", "float64", "float16", "int8", "uint8", "int16", "uint16", "int32", "uint32",
          "int64", "uint64", "bool")  # fmt: skip


def place(array: Any) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


@with_both
def test_a_value_shares_the_memory_of_its_array(ort: Any) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = ort.OrtValue.ortvalue_from_numpy(x)
    assert value.data_ptr() == place(x) == place(value.numpy()) == place(np.from_dlpack(value))
    assert value.is_tensor() and value.has_value() and not value.is_tensor_sequence()
    assert not value.is_sparse_tensor() and value.device_name() == "cpu"
    assert value.shape() == [2, 3] and value.tensor_size_in_bytes() == 24
    value.update_inplace(x + 1)
    assert x[0, 0] == 1 and np.asarray(value)[1, 2] == 6
    value.update_inplace(ort.OrtValue.ortvalue_from_numpy(x * 2))
    assert x[0, 0] == 2
    with pytest.raises(Exception, match=r"size|elements"):
        value.update_inplace(np.zeros((3, 3), np.float32))
    assert ort.OrtValue.from_dlpack(x).data_ptr() == place(x)
    assert ort.OrtValue.from_dlpack(x.__dlpack__()).data_ptr() == place(x)


@with_both
@pytest.mark.parametrize("dtype", DTYPES)
def test_types_have_the_words_and_numbers_of_onnx(ort: Any, dtype: str) -> None:
    word = {"float32": "float", "float64": "double"}.get(dtype, dtype)
    number = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    value = ort.OrtValue.ortvalue_from_shape_and_type([2], np.dtype(dtype).type)
    assert value.data_type() == f"tensor({word})" and value.element_type() == number
    value = ort.OrtValue.ortvalue_from_shape_and_type([2], number)
    assert value.element_type() == number


@with_both
def test_bits_may_be_given_for_types_that_numpy_lacks(ort: Any) -> None:
    bits = np.ones(3, ml_dtypes.bfloat16).view(np.uint16)
    number = onnx.TensorProto.BFLOAT16
    value = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, number)
    assert value.element_type() == number and value.data_type() == "tensor(bfloat16)"
    assert value.data_ptr() == place(bits) and value.shape() == [3]


class Growing:
    """An object whose array is another one at each use, as that of held state is."""

    def __init__(self) -> None:
        self.array = np.zeros(2, np.float32)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        self.array = np.append(self.array, np.float32(1))
        return self.array


def test_objects_that_export_an_array_are_asked_at_each_use() -> None:
    x = np.arange(3, dtype=np.float32)
    assert gf.OrtValue.from_dlpack(Exporter(x)).data_ptr() == place(x)
    value = gf.OrtValue.from_dlpack(Growing())
    assert [value.shape(), value.shape()] == [[3], [4]]


def test_what_is_no_tensor_of_the_processor_is_refused() -> None:
    with pytest.raises(UnsupportedOp, match="'cuda'"):
        gf.OrtValue.ortvalue_from_numpy(np.zeros(2), "cuda", 0)
    with pytest.raises(UnsupportedOp, match="sparse"):
        gf.OrtValue.ort_value_from_sparse_tensor(None)
    with pytest.raises(InvalidModel, match="99 is no element type"):
        gf.OrtValue.ortvalue_from_shape_and_type([2], 99)
    with pytest.raises(InvalidModel, match="no tensor"):
        gf.OrtValue([]).numpy()
    frozen = np.zeros(2, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(InvalidModel, match="read-only"):
        gf.OrtValue.ortvalue_from_numpy(frozen).update_inplace(np.ones(2, np.float32))
    with pytest.raises(InvalidModel, match="as many elements of that dtype"):
        gf.OrtValue.ortvalue_from_numpy(np.zeros(2)).update_inplace(np.ones(2, np.float32))
    assert repr(gf.OrtValue.ortvalue_from_numpy(np.zeros(2))) == "<OrtValue: tensor(double)[2]>"
    assert repr(gf.OrtValue([1])) == "<OrtValue: list>"
