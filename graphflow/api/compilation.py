"""`gf.compile`: an ONNX model becomes an `Executable`.

In: a model, and the arguments of `compile`.  What always holds: what was compiled before from the
same model and arguments is taken from the cache of programs, without the compiler; the compiler
is imported where something has to be compiled.  A process that only loads saved models does not
import this module.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from numpy.typing import ArrayLike

from graphflow.api.executable import Executable
from graphflow.api.model import Model, Single, Values
from graphflow.api.model_source import ModelSource
from graphflow.api.open_shapes.specialize import Maker, Specializer
from graphflow.api.program_cache import ProgramCache, cache_for
from graphflow.base.arguments import Shapes, chosen_options
from graphflow.base.assumed import Assumption
from graphflow.base.collecting import imported_module
from graphflow.base.options import Options
from graphflow.base.sizes import Size, sizes_of
from graphflow.base.target import Target

if TYPE_CHECKING:  # importing the compiler takes most of a second
    from graphflow.frontends import OnnxModel, OwnOperators, ReadModel
    from graphflow.graph import OperatorGraph
    from graphflow.layout import Layout
    from graphflow.pipeline.request import CompileRequest
    from graphflow.schedule import Sketch


def compile(
    model: OnnxModel | ReadModel,
    *,
    input_shapes: Shapes | None = None,
    input_values: Mapping[str, ArrayLike] | None = None,
    target: Target | str | None = None,
    threads: int | None = None,
    layouts: Mapping[str, Layout | str] | None = None,
    offers: Callable[[OperatorGraph], None] | None = None,
    sketches: Sequence[Sketch] = (),
    assume: Mapping[str, Assumption] | None = None,
    overridable: Collection[str] = (),
    operators: OwnOperators | None = None,
    options: Options | None = None,
    progress: Callable[[str], None] | None = None,
    counting: Callable[[int, int], None] | None = None,
    sizes: Mapping[str, tuple[int, int]] | None = None,
) -> Executable:
    """Compile an ONNX model: a path, the bytes of a file, a proto, or what was read of one.

    `input_shapes` gives the full logical shapes of inputs with symbolic dimensions, by name; shapes
    that it leaves open are taken from the inputs of each run.  `input_values` gives the values of
    inputs that decide shapes, such as the target shape of a Reshape; values that it leaves open are
    taken from the inputs of each run, too.  A run may leave out an input that `input_values` gives,
    and may not give another value for it.  `target` is the processor to compile for, or its name,
    such as `"avx2"`; CodegenError lists the names.  `layouts` pins tensors to layouts, given as
    layouts or by name; `threads` overrides the option of that name.  `offers` is called with the
    graph before fusion, where `graph.offer` adds a user's schedules to the variants of a node.
    `sketches` are those that `tune` searched: the fastest schedules of them that
    `Options(timings=...)` knows are offered.

    `assume` states by input name what holds in every run: `"finite"`, `"nonnegative"`, bounds `(lo,
    hi)` of finite numbers, or the number that each element equals.  Results are undefined in a run
    where it does not hold; Options(check_assumes=True) checks every run.

    `sizes` gives the least and the greatest extent of symbolic dimensions, by the names that the
    model has for them: `{"batch": (1, 8)}`; and the least and the greatest value of inputs of one
    integer that decide extents or places, by their names.  Where the greatest is None, programs get
    ranges that grow with the extents of runs; the next program is made in the background before a
    run needs it.  One program then serves all extents within these bounds, in proportion to those
    of a run, if it is proven that no result depends on elements that a run does not give.  Else a
    warning and the report say which tensor prevents that, and a program is compiled for each shape,
    as it is for extents beyond the bounds.

    A graph input with an initializer is a constant, and a run that gives it is refused; if
    `overridable` names it, a run may give it, and the initializer is its default.

    `operators` adds operators, by name with the domain in front: `{"com.example.Twice": emit}`.
    The function gets a `NodeCall`, reads the node's attributes and inputs, and emits kernels; it is
    asked before graphflow's own operators (docs/extending.md).

    Raises InvalidModel, UnsupportedOp and the other errors of the compiler's stages, and TypeError
    for arguments of other types.
    """
    options = chosen_options(options, threads)

    def request(source: OnnxModel | ReadModel) -> CompileRequest:
        made: CompileRequest = imported_module("graphflow.pipeline.request").CompileRequest(
            model=source,
            name=str(model) if isinstance(model, str | Path) else None,
            input_shapes={} if input_shapes is None else input_shapes,
            input_values={} if input_values is None else input_values,
            sizes=sizes_of({} if sizes is None else sizes),
            overridable=overridable,
            operators=operators,
            assume={} if assume is None else assume,
            target=imported_module("graphflow.codegen").chosen_target(target),
            layouts={} if layouts is None else layouts,
            offers=offers,
            sketches=sketches,
            options=options,
            progress=progress,
            counting=counting,
        )
        return made

    cache = None
    if offers is None and not operators and not sketches:  # no key has the code of functions
        cache = cache_for(
            model,
            options,
            target,
            input_shapes=input_shapes,
            input_values=input_values,
            sizes=sizes,
            overridable=overridable,
            assume=assume,
            layouts=layouts,
        )
    if cache is not None:
        later = LaterMaker(cache.source, request)
        found = _cached_executable(cache, later, sizes_of(sizes or {}), options.programs)
        if found is not None:
            return found
    made: Executable = imported_module(COMPILING).executable_of(request(model), cache)
    return made


COMPILING = "graphflow.api.first_compilation"
"""The module that compiles."""


class LaterMaker:
    """Compiles further programs of a model of which some are cached; the first of them imports the
    compiler."""

    def __init__(
        self, source: ModelSource, request: Callable[[OnnxModel | ReadModel], CompileRequest]
    ) -> None:
        self._source, self._request = source, request

    @cached_property
    def _maker(self) -> Maker:
        maker: Maker = imported_module(COMPILING).maker_of(self._request(self._source.again()))
        return maker

    def made(
        self, shapes: Shapes, values: Values, sizes: tuple[Size, ...], earlier: Sequence[Model]
    ) -> Model:
        """The program for these shapes, values and sizes; errors are also those of
        `ModelSource.again`."""
        return self._maker.made(shapes, values, sizes, earlier)

    def forget(self) -> None:
        """Forget what compilations remember."""
        self._maker.forget()


def _cached_executable(
    cache: ProgramCache, maker: Maker, sizes: tuple[Size, ...], most: int
) -> Executable | None:
    """The executable of cached programs; None if there are none for this model and arguments."""
    if cache.declaration is None:
        return None
    single = cache.program((), partial(maker.made, {}, {}, (), ()))
    if single is not None:
        return Executable(Single(single), cache.declaration)
    if cache.opened is None:
        return None
    specializer = Specializer(maker, cache.opened, sizes, most, cache)
    specializer.begin()
    return Executable(specializer, cache.declaration)
