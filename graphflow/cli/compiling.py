"""The models, values and options that the arguments name, and their compilation.

In: parsed arguments.  Out: an ONNX model, an `Executable` compiled from one, or the `Options` to
compile with.  Arguments that contradict each other are an `InvalidModel`.  What always holds: where
programs of the same model and arguments are kept, the compiler is not imported.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphflow.api.compilation import compile
from graphflow.api.executable import Executable
from graphflow.base.errors import InvalidModel
from graphflow.base.fields import replace
from graphflow.base.offered_names import LIGHT, ZOO_PREFIX
from graphflow.base.options import Options
from graphflow.base.processors import PROCESSORS
from graphflow.cli.executables import read_array
from graphflow.cli.on_demand import on_demand
from graphflow.runtime import is_container

if TYPE_CHECKING:
    from graphflow.api.compiled_model import Decided
    from graphflow.api.progress_bar import ProgressBar
    from graphflow.frontends import OnnxModel


@contextmanager
def compiled(
    wanted: argparse.Namespace, shapes: Sequence[tuple[str, tuple[int, ...]]]
) -> Iterator[Executable]:
    """The ONNX model, compiled with these input shapes.

    Until the context ends, a progress bar also shows compilations for the shapes that runs bring.
    """
    with LaterBar(wanted.model) as bar:
        yield compile(
            onnx_model(wanted.model, wanted.reseed),
            sizes=dict(wanted.size),
            target=wanted.target,
            **stated(wanted, shapes, bar),
        )


def stated(
    wanted: argparse.Namespace, shapes: Sequence[tuple[str, tuple[int, ...]]], bar: LaterBar
) -> dict[str, Any]:
    """What the arguments state of a compilation, which the progress bar shows, besides its model,
    sizes and target."""
    return {
        "input_shapes": {} if wanted.size else dict(shapes),  # else shapes are those of runs
        "input_values": values(wanted),
        "overridable": wanted.overridable,
        "layouts": _once("--layout", wanted.layout),
        "assume": _once("--assume", wanted.assume),
        "options": options(wanted),
        "progress": bar.stage,
        "counting": bar.count,
    }


@contextmanager
def compiled_or_decided(wanted: argparse.Namespace) -> Iterator[Executable | Decided]:
    """The ONNX model compiled; for a named processor, which this one need not be, its decisions
    alone."""
    if wanted.target not in PROCESSORS:
        with compiled(wanted, wanted.shape) as exe:
            yield exe
        return
    with LaterBar(wanted.model) as bar:
        yield on_demand("cli.deciding").decided(wanted, bar)


class LaterBar:
    """The progress bar of a compilation, which begins with the first stage, as does the import of
    what draws it."""

    def __init__(self, model: str) -> None:
        self._what = f"compiling {os.path.basename(model)}"
        self._bar: ProgressBar | None = None
        self._shown = ExitStack()

    def __enter__(self) -> LaterBar:
        return self

    def __exit__(self, *_: object) -> None:
        self._shown.close()

    def stage(self, name: str) -> None:
        """Show that the stage `name` begins."""
        if self._bar is None:
            bar = on_demand("api.progress_bar").ProgressBar(self._what)
            self._bar = self._shown.enter_context(bar)
        self._bar.stage(name)

    def count(self, done: int, total: int) -> None:
        """Show that the current stage has made `done` of `total` kernels."""
        if self._bar is not None:
            self._bar.count(done, total)


def require_one_shape(wanted: argparse.Namespace) -> None:
    """InvalidModel for bounds of sizes: times are measured with inputs of one shape."""
    if wanted.size:
        raise InvalidModel("times are of inputs of one shape; give --shape instead of --size")


def _once(option: str, pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """What an option says of each tensor; InvalidModel if it names one twice."""
    found = dict(pairs)
    for name in found:
        given = [value for tensor, value in pairs if tensor == name]
        if len(given) > 1:
            raise InvalidModel(
                f"{option} names {name!r} {len(given)} times, with "
                f"{', '.join(map(repr, given))}; give it once"
            )
    return found


def values(wanted: argparse.Namespace) -> dict[str, Any]:
    """The values of `--value`, by input; InvalidModel for a file that cannot be read."""
    return {
        name: read_array(name, value) if isinstance(value, Path) else value
        for name, value in wanted.value
    }


def onnx_model(name: str, seed: int | None) -> OnnxModel:
    """The model that a name stands for: `light:NAME` of the onnx package, `zoo:NAME` of graphflow's
    networks, or the path itself.

    InvalidModel for a seed together with a path, and for the path of a saved model.
    """
    if name.startswith((ZOO_PREFIX, LIGHT)):
        known: OnnxModel = on_demand("models").named(name, seed)
        return known
    if seed is not None:
        raise InvalidModel(
            f"--reseed is for models named {LIGHT}NAME or {ZOO_PREFIX}NAME; {name} has weights of "
            "its own"
        )
    if is_container(name):
        raise InvalidModel(
            f"{name} is a saved model, which run, inspect and explain take; this command needs the "
            "ONNX model"
        )
    return name


def options(wanted: argparse.Namespace) -> Options:
    """The options of the environment, with those that the arguments give."""
    environment = Options.from_environment()
    strict = getattr(wanted, "strict", False)
    return replace(
        environment,
        threads=wanted.threads,
        dump=getattr(wanted, "dump", None),
        timings=getattr(wanted, "timings", None),
        validate=getattr(wanted, "validate", False),
        fallback=None if strict else environment.fallback,
        winograd=not getattr(wanted, "no_winograd", False),
        integer_products=not getattr(wanted, "no_integer_products", False),
        excess_precision=getattr(wanted, "excess_precision", False),
    )
