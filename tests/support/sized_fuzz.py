"""Random models whose batch is a size: one program for all extents beside onnxruntime.

In: a seed.  Out: how each run ended: `right`, `specialized` where a program is compiled for each
shape, why it was refused, or a text that begins with `seed` where the results are wrong.  Before
each run all that is behind its elements is filled with NaN, by a run of the largest size.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime

import graphflow as gf
from graphflow.models import with_open_batch
from support.fuzzing import random_model

NAME, MOST = "n", 5
TOLERANCE = 2e-3

Arrays = dict[str, Any]


def outcomes(seed: int) -> Iterator[str]:
    """How the runs of a random model ended."""
    model = with_open_batch(random_model(seed), NAME)
    chosen = onnxruntime.SessionOptions()
    chosen.log_severity_level, chosen.intra_op_num_threads = 4, 1
    chosen.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options = gf.Options(cache="off", workers=0, threads=2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            peer = onnxruntime.InferenceSession(model.SerializeToString(), chosen)
            exe = gf.compile(model, sizes={NAME: (1, MOST)}, options=options)
        except Exception as error:  # a model that is wrong for the largest batch
            yield f"refused: {type(error).__name__}"
            return
        rng = np.random.default_rng(seed)
        tails = {tensor.name: tensor.shape[1:] for tensor in exe.inputs}
        for n in (MOST, 1, 3, 2, 4):
            feeds = {k: rng.standard_normal((n, *t)).astype(np.float32) for k, t in tails.items()}
            poison = {k: np.full((MOST, *t), np.nan, np.float32) for k, t in tails.items()}
            yield _outcome(f"seed {seed}, n={n}", exe, peer, feeds, poison)


def _outcome(title: str, exe: gf.Executable, peer: Any, feeds: Arrays, poison: Arrays) -> str:
    try:
        wanted = peer.run(None, feeds)
    except Exception:
        return "onnxruntime refuses"
    try:
        exe.run(poison)
        results = [*exe.run(feeds).values()]
    except gf.GraphflowError as error:
        return f"refused: {error}"
    for array, other in zip(results, wanted, strict=True):
        if array.shape != other.shape:
            return f"{title}: the shape is {array.shape} and not {other.shape}"
        if not np.allclose(array, other, TOLERANCE, TOLERANCE, equal_nan=True):
            return f"{title}: differs by {np.nanmax(np.abs(array - other))}"
    return "right" if exe.report()["sizes"][NAME]["one_program"] else "specialized"
