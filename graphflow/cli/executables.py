"""The executables that the arguments of `run`, `inspect` and `explain` name.

In: parsed arguments.  Out: an `Executable`, loaded from a saved file or compiled.  What always
holds: for a saved file neither the compiler nor rich is imported.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from graphflow.api.executable import Executable, load
from graphflow.base.arguments import Shapes
from graphflow.base.errors import InvalidModel
from graphflow.base.offered_names import HOST
from graphflow.cli.on_demand import on_demand
from graphflow.program import OpenTensor, random_inputs
from graphflow.runtime import is_container

MOST_DRAWN = 4096
"""As many integers are drawn for a size until one satisfies what relates it to the extents of the
other inputs; if none does, the run says what has to hold."""

MOST_FOREIGN = 3
"""How many nodes that run in onnxruntime `compile` and `run` name; `check` names all."""


@contextmanager
def executable(
    wanted: argparse.Namespace, shapes: Sequence[tuple[str, tuple[int, ...]]] = ()
) -> Iterator[Executable]:
    """The saved model loaded, or the ONNX model compiled; a progress bar shows compilations, and
    disappears when the context ends.

    `shapes` are those of the arrays that the command was given; `--shape` takes precedence over
    them, and chooses among the programs of a saved model.  InvalidModel if another option of
    compilation is given with a saved model.
    """
    if is_container(wanted.model):
        yield _loaded(wanted)
    else:
        with on_demand("cli.compiling").compiled(wanted, [*shapes, *wanted.shape]) as exe:
            yield exe


@contextmanager
def executable_or_decisions(wanted: argparse.Namespace) -> Iterator[Any]:
    """What answers questions about decisions: an executable as `executable` gives, or an ONNX model
    compiled for a named processor, without a program."""
    if is_container(wanted.model):
        yield _loaded(wanted)
    else:
        with on_demand("cli.compiling").compiled_or_decided(wanted) as exe:
            yield exe


def _loaded(wanted: argparse.Namespace) -> Executable:
    for option, value in (
        ("--target", wanted.target != HOST),
        ("--dump", wanted.dump is not None),
        ("--reseed", wanted.reseed is not None),
        ("--size", bool(wanted.size)),
        ("--value", bool(wanted.value)),
        ("--layout", bool(wanted.layout)),
        ("--assume", bool(wanted.assume)),
        ("--overridable", bool(wanted.overridable)),
        ("--timings", wanted.timings is not None),
        ("--strict", wanted.strict),
        ("--no-winograd", wanted.no_winograd),
        ("--no-integer-products", wanted.no_integer_products),
        ("--excess-precision", wanted.excess_precision),
    ):
        if value:
            raise InvalidModel(
                f"{option} decides how a model is compiled, but {wanted.model} is compiled "
                "already; give the ONNX model instead, or leave the option out"
            )
    exe = load(wanted.model, threads=wanted.threads)
    return _for_shapes(exe, dict(wanted.shape)) if wanted.shape else exe


def _for_shapes(exe: Executable, shapes: Shapes) -> Executable:
    """The program of a saved model that runs with these input shapes; InvalidModel if there is
    none."""
    exe.precompile(shapes)  # nothing is compiled: it says which programs there are
    given = {name: tuple(shape) for name, shape in shapes.items()}
    return next(one for one in exe.specializations if one.program.inputs.shapes.admit(given))


def read_array(name: str, path: str | Path) -> NDArray[Any]:
    """The array of an input, from a file that numpy.save wrote; InvalidModel for other files."""
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InvalidModel(
            f"cannot read the input '{name}={path}': {error}; give NAME=FILE.npy, as numpy.save "
            "writes it"
        ) from None
    return array


def drawn_inputs(
    exe: Executable, given: Mapping[str, NDArray[Any]], shapes: Shapes, seed: int = 0
) -> dict[str, NDArray[Any]]:
    """All inputs of a run: those given, the values for which the model was compiled, and random
    ones of these shapes; an integer that states a size is one that a program takes."""
    chosen = {name: tuple(shape) for name, shape in shapes.items()}
    missing = [
        OpenTensor(tensor.name, tensor.dtype, chosen.get(tensor.name, tensor.shape))
        for tensor in exe.inputs
        if tensor.name not in given
    ]
    arrays = {**random_inputs(missing, seed), **given}
    draw = np.random.default_rng(seed)
    for one in exe.specializations:
        known = one.program.inputs.shapes
        extents = {name: array.shape for name, array in arrays.items()}
        drawn = {name: bounds for name, bounds in known.stated.items() if name not in given}
        if not drawn or not known.admit(extents):
            continue
        elements = known.elements_in(given)
        for name, (least, most) in drawn.items():
            for number in draw.integers(least, most, MOST_DRAWN, endpoint=True).tolist():
                elements[name] = number
                if known.admit(extents, elements):
                    break
            arrays[name] = np.full_like(arrays[name], elements[name])
        break
    return {**arrays, **{name: array for name, array in exe.values.items() if name not in given}}


def tell_foreign_nodes(exe: Executable) -> None:
    """Print one line about the nodes that run in onnxruntime, if there are some."""
    nodes = exe.foreign
    if nodes:
        reasons = "; ".join(map(str, nodes[:MOST_FOREIGN]))
        more = f"; and {len(nodes) - MOST_FOREIGN} more" if len(nodes) > MOST_FOREIGN else ""
        print(f"{len(nodes)} nodes run in onnxruntime: {reasons}{more}", file=sys.stderr)
