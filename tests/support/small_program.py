"""A small convolutional model, and its program for one thread."""

import functools

import onnx

import graphflow as gf
from graphflow.models import ModelBuilder


def small_model(batch: int | str = 1) -> onnx.ModelProto:
    build = ModelBuilder(seed=1, name="small")
    x = build.input("x", (batch, 5, 6, 6))
    build.output(build.relu(build.conv(x, 7, 3, pads=[1, 1, 1, 1])))
    return build.model()


@functools.cache
def small() -> gf.Executable:
    return gf.compile(small_model(), threads=1)
