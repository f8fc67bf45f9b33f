"""A model loaded and run once by one runtime, in a process that imports nothing else.

    python benchmarks/first_run.py graphflow|onnxruntime|openvino MODEL.onnx INPUTS.npz
                                   [--threads 2] [--cache FOLDER]

Prints, as JSON, the seconds from the import of the runtime to the end of the first run, with
graphflow from that cache or an empty one, and the peak of resident memory of this process in MiB.
Processes that graphflow starts to compile in, and that have ended by then, are not counted.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

Inputs = dict[str, Any]


def graphflow(model: str, inputs: Inputs, threads: int, cache: str) -> None:
    """Compile, or find what is kept, and run."""
    import graphflow as gf

    shapes = {name: array.shape for name, array in inputs.items()}
    options = gf.Options(threads=threads, cache=cache)
    gf.compile(model, input_shapes=shapes, options=options).run(inputs)


def onnxruntime(model: str, inputs: Inputs, threads: int, _: str) -> None:
    """Load and run."""
    import onnxruntime as runtime

    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    session.run(None, inputs)


def openvino(model: str, inputs: Inputs, threads: int, _: str) -> None:
    """Load and run, in float32."""
    import openvino as runtime

    settings = {
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }
    runtime.Core().compile_model(model, "CPU", settings).create_infer_request().infer(inputs)


RUNTIMES = {run.__name__: run for run in (graphflow, onnxruntime, openvino)}


def peak_mib() -> float:
    """The peak of resident memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    (peak,) = (line for line in status if line.startswith("VmHWM:"))
    return int(peak.split()[1]) / 1024


def main() -> None:
    """Load, run once and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runtime", choices=RUNTIMES)
    parser.add_argument("model")
    parser.add_argument("inputs")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cache", help="graphflow's folder for kernels and programs")
    given = parser.parse_args()
    with np.load(given.inputs) as file:
        inputs = dict(file)
    with tempfile.TemporaryDirectory() as empty:
        start = time.perf_counter()
        RUNTIMES[given.runtime](given.model, inputs, given.threads, given.cache or empty)
    print(json.dumps({"first_s": time.perf_counter() - start, "peak_mib": peak_mib()}))


if __name__ == "__main__":
    main()
