"""Models with open shapes: one program is compiled for each set of input shapes and values.

In: what compiles a model, and the inputs whose shapes or values are open.  Out: the model with its
program for the inputs of a run.  What always holds: equal shapes and values give the same program
while it is kept; two threads never compile the same program twice, and no run of an existing
program waits for another compilation; the compiler is imported where a program has to be compiled.

Some inputs decide shapes by their values, such as the target shape of a Reshape.  A compilation
that needs the value of such an input raises `ValuesNeeded`, which names it; from then on programs
are looked up by the value of this input too.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import index
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.api.model import (
    Model,
    OpenModel,
    Values,
    deciding_input,
    needs_only_inputs,
    only_made,
)
from graphflow.api.open_shapes.ranges import Ranges
from graphflow.api.open_shapes.rooms import (
    Rooms,
    largest_shapes,
    stating_sizes,
    with_element,
    with_elements,
    within_element_types,
)
from graphflow.api.program_cache import ProgramCache
from graphflow.base.arguments import Shapes, caller_level
from graphflow.base.errors import (
    VALUES,
    ExtentsLost,
    GraphflowError,
    InvalidModel,
    Remedy,
    ValuesNeeded,
    shapes_remedy,
    sizes_remedy,
)
from graphflow.base.options import is_index
from graphflow.base.sizes import Size
from graphflow.processes.once import Counts, Once
from graphflow.program import OpenTensor
from graphflow.runtime import Program, given_array, value_key

Key: TypeAlias = "tuple[tuple[str, object], ...]"


class ValueMissing(InvalidModel):
    """Nothing can be compiled without the value of an input, which a run gives."""


class Maker(Protocol):
    """What compiles programs of one model."""

    def made(
        self, shapes: Shapes, values: Values, sizes: tuple[Size, ...], earlier: Sequence[Model]
    ) -> Model:
        """The program for these shapes, values and sizes, beside `earlier` ones; errors are those
        of the compiler."""

    def forget(self) -> None:
        """Forget what compilations remember."""


class Specializer:
    """Compiles on demand and keeps its programs: the `Models` of an executable with open shapes.

    `opened` says which inputs decide, and `sizes` are those that one program serves all extents of,
    if that is proven.  `most` programs stay in memory; beyond that the least recently used one is
    dropped, with the kernels that no other one has and with what compilations remember.  Programs
    of earlier processes are taken from `cache`.
    """

    def __init__(
        self,
        maker: Maker,
        opened: OpenModel,
        sizes: tuple[Size, ...],
        most: int,
        cache: ProgramCache | None = None,
    ) -> None:
        self.interface = interface = opened.interface
        sizes = within_element_types(interface.inputs, sizes)
        self._maker, self._sizes, self._cache = maker, sizes, cache
        self._symbolic, self._needed, self._lost = opened.symbolic, opened.needed, opened.lost
        self._stating = stating_sizes(interface.inputs, sizes)
        self._described = with_elements(interface.inputs, self._stating)
        self._ranges = Ranges(self._described, sizes)
        self._programs: Once[Key, Model] = Once(most)
        self._refused: set[Key] = set()
        """Keys of runs beyond the bounds of some sizes, of which no program serves the others."""
        self._compiled_in_a_row = 0
        self._warned = False
        self._last: Model | None = None
        """The model of the last run."""
        self._at_hand: Model | None = None
        """The same, if its program needs nothing but the inputs of a run."""

    def begin(self) -> None:
        """Make the program that serves all extents of bounded sizes, if no other extent is open and
        no value decides."""
        if self._lost:
            self._warn_of_lost_sizes()
        names = (*self._symbolic, *self._stating)
        shapes = largest_shapes(self._described, names, self._sizes)
        if shapes is None:
            return
        extents = {name: shape for name, shape in shapes.items() if name not in self._stating}
        try:
            self.precompile(extents, {}, is_run=False)
        except ValueMissing:
            pass
        except InvalidModel:
            if not self._lost:  # else a run may have a shape that is valid
                raise

    @property
    def deciding(self) -> tuple[str, ...]:
        """The inputs whose shapes or values decide which program runs."""
        return tuple(dict.fromkeys((*self._symbolic, *self._needed, *self._stating)))

    @property
    def made(self) -> tuple[Model, ...]:
        """The compiled models that are kept."""
        return self._programs.kept

    @property
    def counts(self) -> Counts:
        """How many programs were compiled and are kept."""
        return self._programs.counts

    @property
    def sizes(self) -> dict[str, dict[str, Any]]:
        """The sizes of the request, and whether one program serves all of their extents."""
        return {
            size.name: {
                "least": size.lo,
                "most": size.hi if size.is_bounded else None,
                "one_program": not self._lost,
                "why_not": self._lost,
            }
            for size in self._sizes
        }

    def only(self) -> Model:
        """The only model that exists; InvalidModel if there are none or several."""
        return only_made(self, self._what_is_open, self._remedies)

    @property
    def _remedies(self) -> tuple[Remedy, ...]:
        shapes = {tensor.name: tensor.shape for tensor in self._open_inputs}
        extents = [extent for shape in shapes.values() for extent in shape or ("?",)]
        names = list(dict.fromkeys(extent for extent in extents if isinstance(extent, str)))
        can_be_sized = "?" not in names and not self._needed and not self._sizes
        return (
            (shapes_remedy(shapes),) * bool(shapes)
            + (sizes_remedy(names),) * (bool(shapes) and can_be_sized)
            + (VALUES,) * bool(self._open_values)
        )

    @property
    def _open_inputs(self) -> tuple[OpenTensor, ...]:
        return tuple(t for t in self.interface.inputs if t.name in self._symbolic)

    @property
    def _what_is_open(self) -> str:
        open_shapes = f"these inputs have symbolic shapes: {'; '.join(map(str, self._open_inputs))}"
        open_values = f"the values of {', '.join(self._open_values)} decide shapes"
        texts = [open_shapes] * bool(self._symbolic) + [open_values] * bool(self._open_values)
        return " and ".join(texts)

    @property
    def _open_values(self) -> tuple[str, ...]:
        """The inputs whose values decide programs: those that shapes follow from, and those that
        state sizes without a bound, as one program for all values has room for the most."""
        boundless = self._stating.keys() - self._most_stated().keys()
        stating = (name for name in self._stating if name in boundless)
        return tuple(dict.fromkeys((*self._needed, *stating)))

    def at_hand(self, inputs: Mapping[str, ArrayLike]) -> Program | None:
        """The program of the run before, if that takes these inputs and no value decides."""
        model = self._at_hand
        if model is None:
            return None
        if not model.program.inputs.fits(inputs):
            return None
        self._compiled_in_a_row = 0
        if self._ranges.is_open:
            self._compile_ahead(inputs)
        return model.program

    def serve(self, inputs: Mapping[str, ArrayLike]) -> Model:
        """The program for these inputs, compiled if it does not exist.

        Raises InvalidModel, before anything is compiled, if an input does not fit the model.
        Warns, once, if more runs in a row were compiled for than programs are kept.
        """
        last = self._last
        if last is not None and self._admits(last, inputs):
            self._compiled_in_a_row = 0
            if self._ranges.is_open:
                self._compile_ahead(inputs)
            return last
        compiles = False

        def check() -> None:
            nonlocal compiles
            self._check(inputs)
            compiles = True

        found = self._find(
            lambda name: deciding_input(self.interface, inputs, name).shape,
            lambda name: deciding_input(self.interface, inputs, name),
            check,
        )
        self._warn_if_every_run_compiles(compiles)
        self._last = found
        open_to_values = bool(self._needed or found.values)
        self._at_hand = None if open_to_values or not needs_only_inputs(found) else found
        return found

    def _admits(self, model: Model, inputs: Mapping[str, ArrayLike]) -> bool:
        """Whether a program serves these inputs, asked without the search for one."""
        if self._needed or type(inputs) is not dict:
            return False
        shapes = {
            name: array.shape
            for name in self._symbolic
            if type(array := inputs.get(name)) is np.ndarray
        }
        known = model.program.inputs.shapes
        elements = known.elements_in(inputs) if self._stating else None
        return len(shapes) == len(self._symbolic) and known.admit(shapes, elements)

    def _warn_if_every_run_compiles(self, compiled: bool) -> None:
        self._compiled_in_a_row = self._compiled_in_a_row + 1 if compiled else 0
        most = self.counts.most
        if self._compiled_in_a_row <= most or self._warned:
            return
        self._warned = True
        warnings.warn(
            f"each of the last {self._compiled_in_a_row} runs of {self.interface.title} compiled a "
            f"program: the shapes or values of {', '.join(self.deciding)} were others than those "
            f"of the {most} programs that are kept; pad the inputs to fewer shapes, or keep more "
            "programs with Options(programs=...)",
            stacklevel=caller_level(),
        )

    def precompile(
        self, shapes: Shapes, values: Mapping[str, ArrayLike], is_run: bool = True
    ) -> None:
        """Compile for these shapes and values of the open inputs, unless the program exists.

        Where they are not those of a run, but the most of each size, a relation between sizes may
        exclude them.  An input that states a size need not be given: the program for all its values
        is compiled, if there is one.
        Raises InvalidModel if an input that decides is missing.
        """
        declared = {tensor.name: tensor for tensor in self.interface.inputs}
        for name in (*shapes, *values):
            if name not in declared:
                raise InvalidModel(
                    f"there is no input {name!r}; the inputs are {', '.join(declared)}"
                )
        for name, extents in shapes.items():
            if name not in self._symbolic and declared[name].shape != tuple(extents):
                raise InvalidModel(f"the shape {tuple(extents)} does not fit {declared[name]}")
        arrays = {**self.interface.defaults, **{n: np.asarray(v) for n, v in values.items()}}
        most = {n: array for n, array in self._most_stated().items() if n not in arrays}

        def shape(name: str) -> tuple[int, ...]:
            if name in shapes:
                return tuple(index(n) if is_index(n) else n for n in shapes[name])
            if name in arrays:
                return arrays[name].shape
            raise InvalidModel(
                f"the shape of input {name!r} is missing, and it decides the program"
            )

        def value(name: str) -> NDArray[Any]:
            if name in arrays:
                return arrays[name]
            if name in most and name not in self._needed:
                return most[name]
            raise ValueMissing(
                f"the value of input {name!r} is missing, and it decides the program"
            )

        self._find(shape, value, lambda: None, is_run=is_run and not most)

    def _most_stated(self) -> dict[str, NDArray[Any]]:
        """The most of each size that has one, as the input of one integer that states it."""
        most = {size.name: size.hi for size in self._sizes if size.is_bounded}
        stating = (t for t in self.interface.inputs if t.name in self._stating and t.name in most)
        return {
            tensor.name: np.full((1,) * len(tensor.shape or ()), most[tensor.name], tensor.dtype)
            for tensor in stating
        }

    def _find(
        self,
        shape_of: Callable[[str], tuple[int, ...]],
        value_of: Callable[[str], NDArray[Any]],
        check: Callable[[], None],
        is_exact: bool = False,
        ahead: tuple[Size, ...] | None = None,
        is_run: bool = True,
    ) -> Model:
        """The program for these shapes and values; with `is_exact`, one of these shapes alone, with
        `ahead` one of these sizes.  Only a run has to satisfy the relations between sizes."""
        while True:
            given = {name: shape_of(name) for name in self._symbolic}
            given.update((name, with_element(value_of(name))) for name in self._stating)
            bounded = self._ranges.around(given) if ahead is None else ahead
            bounded = within_element_types(self.interface.inputs, bounded)
            rooms = Rooms(self._described, bounded)
            sizes = () if self._lost or is_exact else rooms.sizes_within(given)
            of_values = self._of_values()
            sizes = tuple(size for size in sizes if size.name not in of_values)
            open_values = self._stating.keys() & {size.name for size in sizes}
            elements = {name: given.pop(name)[-1] for name in self._stating}
            shapes = rooms.with_room(given, sizes)
            values = {name: value_of(name) for name in self._needed if name not in open_values}
            key = (
                *shapes.items(),
                ("sizes", sizes),
                *((name, value_key(v)) for name, v in values.items()),
            )
            if ahead is None and key in self._refused:
                is_exact = True
                continue

            try:
                found = self._programs.get(
                    key, partial(self._made, key, check, shapes, values, sizes)
                )
                if is_run and sizes and not found.program.inputs.shapes.admit(given, elements):
                    # A relation between sizes fails.  If the model allows that, for instance where
                    # an extent is 1, it has a program; if not, a run of this one says so.
                    with suppress(InvalidModel):
                        return self._find(shape_of, value_of, check, is_exact=True)
                return found
            except ExtentsLost as error:
                if not sizes or ahead is not None:
                    raise
                if self._ranges.tighten():
                    continue
                if len(sizes) < sum(s.name not in of_values for s in self._sizes):
                    self._refused.add(key)  # others are beyond their bounds
                else:
                    self._lose_sizes(error)
            except ValuesNeeded as error:
                if set(error.inputs) <= values.keys():
                    raise
                if not open_values.isdisjoint(error.inputs):
                    self._lose_sizes(error)
                # Two threads may write at once; the next ValuesNeeded repeats a lost name.
                self._needed = tuple(dict.fromkeys((*self._needed, *error.inputs)))

    def _made(
        self,
        key: Key,
        check: Callable[[], None],
        shapes: Shapes,
        values: Values,
        sizes: tuple[Size, ...],
    ) -> Model:
        """The program of a key: that of an earlier process, or after a check one that is compiled
        now."""
        made = partial(self._maker.made, shapes, values, sizes)
        found = None if self._cache is None else self._cache.program(key, partial(made, ()))
        if found is not None:
            return found
        check()
        if self.counts.kept == self.counts.most:  # one of them will be dropped
            self._maker.forget()
        model = made(self.made)
        if self._cache is not None:
            self._cache.keep(key, model, self._opened)
        return model

    @property
    def _opened(self) -> OpenModel:
        """What is known by now of the open shapes and values."""
        return OpenModel(self.interface, self._symbolic, self._needed, self._lost)

    def _of_values(self) -> set[int | str]:
        """The extents of the inputs whose values decide programs: their values have one shape."""
        tensors = (tensor for tensor in self.interface.inputs if tensor.name in self._needed)
        return {extent for tensor in tensors for extent in tensor.shape or ()}

    def _compile_ahead(self, inputs: Mapping[str, ArrayLike]) -> None:
        """Begin to compile the program for larger extents, if runs will need one soon."""
        if self._lost or self._needed:
            return
        given: dict[str, tuple[int, ...]] = {
            name: getattr(inputs[name], "shape", ()) for name in self._symbolic
        }
        stated = {name: np.array(inputs[name]) for name in self._stating if name in inputs}
        if len(stated) < len(self._stating):
            return
        sizes = self._ranges.ahead(given | {n: with_element(array) for n, array in stated.items()})
        if sizes is None:
            return

        def value(name: str) -> NDArray[Any]:
            if name in stated:
                return stated[name]
            raise ValueMissing(f"the value of input {name!r} decides the program")

        def compiled() -> None:
            with suppress(GraphflowError):  # a run that needs it raises this error too
                self._find(given.__getitem__, value, lambda: None, ahead=sizes)
                self._ranges.adopt(sizes)

        threading.Thread(target=compiled, name="compile ahead").start()

    def _lose_sizes(self, error: ExtentsLost | ValuesNeeded) -> None:
        """From now on compile for each shape, for the reason of this error, and say so once."""
        self._lost = str(error)
        self._warn_of_lost_sizes()

    def _warn_of_lost_sizes(self) -> None:
        names = ", ".join(str(size) for size in self._sizes)
        warnings.warn(
            f"no program of {self.interface.title} serves all sizes ({names}): {self._lost}; a "
            "program is compiled for each shape",
            stacklevel=caller_level(),
        )

    def _check(self, inputs: Mapping[str, ArrayLike]) -> None:
        """InvalidModel unless the inputs have the names and dtypes that the model declares.

        Programs check that too, but only after they are compiled.
        """
        declared = {tensor.name: tensor for tensor in self.interface.inputs}
        listed = ", ".join(map(str, self.interface.inputs))
        for name in (*inputs, *self.interface.required):
            if name not in declared:
                raise InvalidModel(f"there is no input {name!r}; the inputs are {listed}")
            if name not in inputs:
                raise InvalidModel(f"input {name!r} is missing; the inputs are {listed}")
            if not declared[name].is_number:
                continue  # foreign sections check strings and sequences themselves
            dtype = given_array(name, inputs[name]).dtype.newbyteorder("=")
            if dtype.name != declared[name].dtype:
                raise InvalidModel(
                    f"input {name!r} is {dtype.name}, the model expects {declared[name]}; a run "
                    "casts nothing, so convert the array"
                )
