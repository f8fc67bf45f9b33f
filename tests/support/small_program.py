"""A small convolutional model, and its program for one thread; another one with padding."""

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


@functools.cache
def padded() -> tuple[gf.Executable, gf.Executable]:
    """The program of a model in which a tensor is pinned to a layout with padding, for one thread,
    and the same in poison mode."""
    build = ModelBuilder(seed=2, name="padded")
    x = build.relu(build.conv(build.input("x", (1, 3, 6, 6)), 17, 1))
    build.output(build.conv(x, 5, 1))
    model, pins = build.model(), {x: "blocked"}
    plain, poisoned = (
        gf.compile(model, layouts=pins, options=gf.Options(threads=1, poison=poison))
        for poison in (False, True)
    )
    return plain, poisoned
