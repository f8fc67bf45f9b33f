"""Random models whose batch is a size: one program for all of them beside onnxruntime.

In: a seed.  Out: what is wrong, or how the case ended.  A random model of `fuzzing` gets a symbolic
first dimension for its inputs, and its operators on constants of one batch make some models
impossible for others.  Before each run all that is behind its elements is filled with NaN, by a run
of the largest size.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
import onnx
import onnxruntime

import graphflow as gf
from support.fuzzing import random_model

NAME, MOST = "n", 5


def with_open_batch(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with one symbolic first dimension of all its inputs, and no stated inner shapes."""
    opened = onnx.ModelProto()
    opened.CopyFrom(model)
    constants = {tensor.name for tensor in opened.graph.initializer}
    for info in (*opened.graph.input, *opened.graph.output):
        if info.name not in constants and info.type.tensor_type.shape.dim:
            info.type.tensor_type.shape.dim[0].dim_param = NAME
    for info in opened.graph.output:
        info.type.tensor_type.ClearField("shape")
    del opened.graph.value_info[:]
    return opened


def outcomes(seed: int) -> Iterator[str]:
    """How each run of a random model ended: `right`, `specialized`, or what is wrong."""
    model = with_open_batch(random_model(seed))
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        peer = onnxruntime.InferenceSession(model.SerializeToString(), options)
        exe = gf.compile(model, sizes={NAME: (1, MOST)}, options=gf.Options(cache="off", threads=2))
    except Exception as error:
        yield f"refused: {type(error).__name__}"
        return
    rng = np.random.default_rng(seed)
    tails = {t.name: tuple(d for d in t.shape[1:]) for t in exe.inputs}
    for n in (MOST, 1, 3, MOST, 2, 4):
        feeds = {k: rng.standard_normal((n, *tail)).astype("f4") for k, tail in tails.items()}
        poison = {k: np.full((MOST, *tail), np.nan, "f4") for k, tail in tails.items()}
        try:
            wanted = dict(
                zip((o.name for o in peer.get_outputs()), peer.run(None, feeds), strict=True)
            )
        except Exception:
            yield "onnxruntime refuses"
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                exe.run(poison)
                found = exe.run(feeds)
            except gf.GraphflowError as error:
                yield f"refused: {error}"
                continue
        if any(found[k].shape != wanted[k].shape for k in wanted):
            yield f"seed {seed}, n={n}: shapes {[v.shape for v in found.values()]}"
        elif not all(np.allclose(found[k], wanted[k], 2e-3, 2e-3, equal_nan=True) for k in wanted):
            yield f"seed {seed}, n={n}: " + str(
                {k: float(np.nanmax(np.abs(found[k] - wanted[k]))) for k in wanted}
            )
        else:
            yield "specialized" if exe.report()["sizes"][NAME]["why_not"] else "right"
