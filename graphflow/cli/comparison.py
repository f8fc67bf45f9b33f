"""One model measured beside other runtimes: the numbers that `graphflow bench` prints.

In: a model.  Out: a dict of plain values.  What always holds: all programs get the same inputs, and
are timed through their public interface, from arrays to new arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from numpy.typing import ArrayLike

from graphflow.api.compilation import compile
from graphflow.base.arguments import Shapes
from graphflow.base.options import Options
from graphflow.bench import (
    Protocol,
    Run,
    floor_seconds,
    gflop,
    hardly_varies,
    largest_error,
    load_peer,
    measure,
    measure_machine,
    random_inputs,
)
from graphflow.pipeline.compiler_stages import Model
from graphflow.runtime import default_threads

OURS = "graphflow"
REFERENCE = "onnxruntime"


def bench(
    model: Model,
    *,
    name: str | None = None,
    threads: int | None = None,
    against: Sequence[str] = (REFERENCE,),
    input_shapes: Shapes | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
    options: Options | None = None,
    protocol: Protocol | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Compile, check and time `model`; milliseconds are medians of alternating blocks.

    The error is relative to onnxruntime, which is always measured; `check_is_weak` says that the
    outputs hardly vary, so that a small error proves little.  Raises GraphflowError for a peer that
    does not exist or is not installed.
    """
    count = default_threads() if threads is None else threads
    exe = compile(
        model,
        input_shapes=input_shapes,
        input_values=input_values,
        threads=count,
        options=options,
    )
    compiled = exe.compiled
    inputs = {**random_inputs(exe.inputs, seed), **exe.values}
    peers = {peer: load_peer(peer, model, count) for peer in dict.fromkeys((REFERENCE, *against))}
    expected = peers[REFERENCE].run(inputs)
    error = largest_error(exe.run(inputs), expected)
    runs: dict[str, Run] = {OURS: partial(exe.run, inputs)}
    runs |= {peer: partial(loaded.run, inputs) for peer, loaded in peers.items()}
    timings = measure(runs, Protocol() if protocol is None else protocol)
    machine = measure_machine(compiled.target, count)
    result: dict[str, Any] = {
        "model": compiled.name if name is None else name,
        "threads": count,
    }
    for program, timing in timings.items():
        result[f"{program}_ms"] = timing.median_ms
        result[f"{program}_iqr_ms"] = timing.iqr_ms
    result |= {
        "speedup": timings[REFERENCE].median_ms / timings[OURS].median_ms,
        "max_rel_error": error,
        "check_is_weak": hardly_varies(expected),
        "compile_s": compiled.seconds,
    }
    result |= {f"{peer}_load_s": loaded.load_seconds for peer, loaded in peers.items()}
    return result | {
        "floor_ms": 1e3 * floor_seconds(compiled, machine),
        "gflop": gflop(compiled),
    }
