"""Saved models that tests of workers load."""

from pathlib import Path

import graphflow as gf
from graphflow.models import ModelBuilder


def saved_product(folder: Path) -> Path:
    """A saved product of rows of six numbers by a matrix, with 1 to 4 rows in a run."""
    build = ModelBuilder(seed=2)
    x = build.input("x", ("batch", 6))
    build.output(build.node("MatMul", [x, build.weight(6, 3)], ["y"]))
    path = folder / "net.gfx"
    options = gf.Options(threads=1, workers=0)
    gf.compile(build.model(), sizes={"batch": (1, 4)}, options=options).save(path)
    return path
