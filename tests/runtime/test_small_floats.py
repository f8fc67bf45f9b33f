"""Tests of tensors of bfloat16 and float8 by DLPack."""

import gc
import weakref

import ml_dtypes
import numpy as np
import pytest

import graphflow as gf
from graphflow.models import ModelBuilder
from graphflow.runtime.aligned_memory import data_address
from graphflow.runtime.small_floats import small_floats
from support.exporters import Exporter, SmallFloats

CODES = {"bfloat16": 4, "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12,
         "float8_e5m2fnuz": 13}  # fmt: skip


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("versioned", [True, False])
def test_small_floats_are_read_where_they_are(dtype: str, versioned: bool) -> None:
    values = np.arange(24).reshape(2, 3, 4).astype(dtype)
    bits = values.view(f"u{values.dtype.itemsize}")
    for part in (bits, bits[:, ::2, 1:].transpose(2, 0, 1), bits[0, 0, 0:0], bits[1, 2, 3]):
        found = small_floats(SmallFloats(np.asarray(part), CODES[dtype], versioned))
        assert found is not None and found.dtype.name == dtype
        assert found.flags.writeable == versioned
        assert np.array_equal(found.astype("f"), np.asarray(part).view(dtype).astype("f"))
    found = small_floats(SmallFloats(bits, CODES[dtype], versioned))
    assert found is not None and data_address(found.view(bits.dtype)) == data_address(bits)


def test_memory_is_held_as_long_as_the_array() -> None:
    exporter = SmallFloats(np.ones(3, np.uint16), CODES["bfloat16"])
    memory = weakref.ref(exporter.bits)
    found = small_floats(exporter)
    del exporter
    gc.collect()
    assert memory() is not None and found is not None
    del found
    gc.collect()
    assert memory() is None


def test_other_types_and_read_only_memory() -> None:
    assert small_floats(Exporter(np.zeros(2, np.float32))) is None
    frozen = np.zeros(2, np.uint16)
    frozen.flags.writeable = False
    found = small_floats(SmallFloats(frozen, CODES["bfloat16"]))
    assert found is not None and not found.flags.writeable


def test_a_run_takes_and_fills_tensors_of_bfloat16() -> None:
    build = ModelBuilder()
    build.output(build.relu(build.input("x", (6,), "bfloat16")))
    exe = gf.compile(build.model(), threads=1)
    x = np.arange(-3, 3).astype(ml_dtypes.bfloat16)
    y = SmallFloats(np.zeros(6, np.uint16), CODES["bfloat16"])
    given = SmallFloats(x.view(np.uint16), CODES["bfloat16"])
    assert exe.run({"x": given}, out={"relu_1": y})["relu_1"] is y
    assert y.bits.view(ml_dtypes.bfloat16).tolist() == [0, 0, 0, 0, 1, 2]
