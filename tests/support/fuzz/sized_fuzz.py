"""Random models whose batch is a size: one program for all of them beside onnxruntime.

In: a seed.  Out: what is wrong with the runs of a random model of `fuzzing` whose first dimension
is symbolic, and whether one program served them.  Its constants of one batch make some models
impossible for others.
"""

from __future__ import annotations

import onnx

import graphflow as gf
from graphflow.models import with_open_batch
from support.fuzz.fuzz_test import Failure, Result, result
from support.models.fuzzing import random_model
from support.models.sized_runs import beside_peer

NAME, MOST = "n", 5

RUNS = tuple({NAME: extent} for extent in (MOST, 1, 3, MOST, 2, 4))

TOLERANCE = 2e-3


def sized_model(seed: int) -> onnx.ModelProto:
    """A random model with a symbolic batch."""
    return with_open_batch(random_model(seed), NAME)


def run_sized(model: onnx.ModelProto) -> Result:
    """What is wrong with a model, counted as a case served by one program or not, or refused."""
    try:
        wrong, why_not = beside_peer(model, {NAME: (1, MOST)}, RUNS, tolerance=TOLERANCE)
    except gf.GraphflowError:
        return result("", cases=1, refused=1)  # impossible for the largest batch
    return result("; ".join(wrong), "numbers", cases=1, one_program=not why_not)


def check_sized(model: onnx.ModelProto) -> Failure | None:
    """What is wrong with a model."""
    return run_sized(model).failure
