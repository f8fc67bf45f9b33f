"""Tests of models whose target has a kind of tiles from outside: what is kept, and made elsewhere.

A kind is a class, of which neither the cache nor another process knows the code behind the name.
"""

import pickle
from pathlib import Path

import numpy as np
import onnx
import pytest

import graphflow as gf
from graphflow.base.fields import replace
from graphflow.base.target import Target
from graphflow.codegen import host_target
from graphflow.kernels.recipes import Tiled
from graphflow.models import ModelBuilder
from support.planning.own_tiles import OwnTile


def convolutions() -> onnx.ModelProto:
    build = ModelBuilder(seed=3, name="convolutions")
    x = build.input("x", (1, 3, 12, 12))
    for channels in (16, 24, 40):
        x = build.relu(build.conv(x, channels, 3, pads=[1, 1, 1, 1]))
    build.output(x)
    return build.model()


MODEL = convolutions()
X = {"x": np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype("float32")}

UNREACHABLE = type("Unreachable", (OwnTile,), {"__module__": "a_module_that_is_not_there"})
"""A kind that no other process can import, as those of a script or a notebook."""


def adding(kind: type) -> Target:
    return replace(host_target(), name=f"host-{kind.__name__}", tile_kinds=(kind,))


def compiled(kind: type | None = OwnTile, **options: object) -> gf.Executable:
    target = host_target() if kind is None else adding(kind)
    return gf.compile(MODEL, target=target, options=gf.Options(**options))  # type: ignore[arg-type]


def outputs(exe: gf.Executable) -> np.ndarray:
    (result,) = exe.run(X).values()
    return result


def test_the_plan_has_tiles_of_the_kind_and_the_numbers_agree() -> None:
    exe = compiled(validate=True)
    kinds = {
        type(choice.variant.recipe.kind)
        for choice in exe.compiled.plan.choices.values()
        if isinstance(choice.variant.recipe, Tiled)
    }
    assert kinds == {OwnTile} and not exe.compiled.notices
    np.testing.assert_allclose(outputs(exe), outputs(compiled(None)), rtol=1e-4, atol=1e-4)


def test_the_cache_keeps_no_kernel_of_such_a_target(tmp_path: Path) -> None:
    for kind, kept in ((OwnTile, False), (None, True)):
        compiled(kind, cache=str(tmp_path))
        assert bool(compiled(kind, cache=str(tmp_path)).compiled.cached) is kept


@pytest.mark.parametrize("kind", [OwnTile, UNREACHABLE], ids=lambda kind: kind.__name__)
def test_kernels_are_the_same_wherever_they_are_made(kind: type) -> None:
    here, there = (compiled(kind, cache="off", workers=n).compiled for n in (0, 2))
    assert here.spec.objects == there.spec.objects


def test_a_program_runs_without_the_kind_once_it_is_saved(tmp_path: Path) -> None:
    exe = compiled(UNREACHABLE)
    path = tmp_path / "model.gfx"
    exe.save(path)
    for other in (gf.load(path), pickle.loads(pickle.dumps(exe))):
        np.testing.assert_array_equal(outputs(other), outputs(exe))
    assert b"a_module_that_is_not_there" not in path.read_bytes()
