"""`graphflow quantize`: a float network is quantized, and what that costs each layer is printed.

In: parsed arguments.  Out: a file with the quantized network, a table on stdout, and the same as
JSON.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from rich.markup import escape
from rich.table import Table

from graphflow.api.layer_costs import LayerCost, QuantizationCosts
from graphflow.api.progress_bar import ProgressBar
from graphflow.api.quantizing import Quantization, quantize
from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.cli.compiling import onnx_model
from graphflow.cli.drawing import stdout_console
from graphflow.cli.graph_files import require_output

NO_DATA = (
    "quantizing needs samples of the inputs: give --data with files .npy, .npz or folders of them; "
    "or --random-data N, whose ranges say nothing of real inputs; or --dynamic, with which scales "
    "are those of each run"
)
NOT_MEASURED = "nothing is measured without samples; give --data to see what each layer costs"


def run_quantize(wanted: argparse.Namespace) -> int:
    """`graphflow quantize MODEL -o OUT`."""
    if not (wanted.data or wanted.random_data or wanted.dynamic):
        raise InvalidModel(NO_DATA)
    require_output(wanted.output, wanted.model)
    model = onnx_model(wanted.model, wanted.reseed)
    name = os.path.basename(wanted.model)
    with ProgressBar(f"quantizing {name}"):
        found = quantize(
            model,
            wanted.data or None,
            random_data=wanted.random_data,
            dynamic=wanted.dynamic,
            activations=wanted.activations,
            weights=wanted.weights,
            per_channel=not wanted.per_tensor,
            symmetric=wanted.symmetric,
            method=wanted.method,
            exclude=wanted.exclude,
            exclude_operators=wanted.exclude_operator,
            limit=wanted.limit,
            seed=wanted.seed,
            input_shapes=dict(wanted.shape),
        )
        found.save(wanted.output)
    if not found.measured:
        print(NOT_MEASURED)
        return 0
    with ProgressBar(f"measuring {name}"):
        costs = found.costs(threads=wanted.threads)
    if wanted.json is not None:
        _write(wanted.json, costs)
    _show(wanted.output, found, costs)
    return 0


def _write(path: Path, costs: QuantizationCosts) -> None:
    try:
        path.write_text(json.dumps(costs.report(), indent=1), encoding="utf-8")
    except OSError as error:
        raise GraphflowError(f"cannot write {path}: {error.strerror or error}") from None


def _show(output: str, found: Quantization, costs: QuantizationCosts) -> None:
    """Print the layers and the totals."""
    console = stdout_console()
    console.print(_table(costs))
    layers = costs.layers
    console.print(
        f"{costs.integer_products} of {len(layers)} products add up integers. A run takes "
        f"{costs.float_ms:.3f} ms in floats and {costs.quantized_ms:.3f} ms quantized, "
        f"{costs.float_ms / costs.quantized_ms:.2f} times the speed, with {costs.threads} threads; "
        f"steps besides products {costs.other_float_us:.1f} and {costs.other_quantized_us:.1f} µs."
    )
    for name, error in costs.outputs.items():
        console.print(escape(f"output {name}: relative error {error:.2e}"))
    console.print(_samples(found, costs))
    for layer in layers:
        if not layer.integers:
            console.print(escape(f"floats: {layer.node} ({layer.operator}): {layer.why_not}"))
    console.print(escape(f"saved to {output}, {os.path.getsize(output)} bytes"))


def _samples(found: Quantization, costs: QuantizationCosts) -> str:
    """What the ranges and the errors rest on."""
    kind = "RANDOM samples, which say nothing of real inputs" if found.random else "samples"
    ranges = f"Ranges are of {found.calibrated} {kind}" if found.calibrated else "No calibration"
    whose = "" if not found.calibrated else ", held out" if costs.held_out else " of these"
    last = f" ({kind})" if found.random and not found.calibrated else ""
    return f"{ranges}; errors of {costs.samples} samples{whose}{last}."


def _table(costs: QuantizationCosts) -> Table:
    table = Table(header_style="bold")
    for column in ("node", "operator", "tensor", "sums"):
        table.add_column(column, overflow="fold")
    for column in ("error", "own error", "float µs", "quantized µs", "speed"):
        table.add_column(column, justify="right")
    for layer in costs.layers:
        table.add_row(*map(escape, _row(layer)))
    return table


def _row(layer: LayerCost) -> tuple[str, ...]:
    speed = layer.float_us / layer.quantized_us if layer.quantized_us else None
    return (
        layer.node,
        layer.operator,
        layer.tensor,
        "integers" if layer.integers else "floats",
        _number(layer.error),
        _number(layer.own_error),
        f"{layer.float_us:.1f}",
        f"{layer.quantized_us:.1f}",
        "" if speed is None else f"{speed:.2f}",
    )


def _number(error: float | None) -> str:
    return "" if error is None else f"{error:.1e}"


COMMANDS = {"quantize": run_quantize}
"""The commands of this module, by name."""
