"""Models with open shapes: one program is compiled for each set of input shapes and values.

In: a request, and the inputs whose shapes or values are open.  Out: the compiled model and its
program for the inputs of a run.  What always holds: equal shapes and values give the same program
while it is kept; two threads never compile the same program twice, and no run of an existing
program waits for another compilation.

Some inputs decide shapes by their values, such as the target shape of a Reshape.  A compilation
that needs the value of such an input raises `ValuesNeeded`, which names it; from then on programs
are looked up by the value of this input too.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.api.borrowing import borrowed
from graphflow.api.model import (
    Interface,
    Model,
    Values,
    deciding_input,
    needs_only_inputs,
    only_made,
)
from graphflow.api.ranges import Ranges
from graphflow.api.releasing import LARGE, ReleasedConstant, contents_digest, parted_from_weights
from graphflow.api.rooms import Rooms
from graphflow.base.arguments import Shapes, caller_level
from graphflow.base.assumed import Stated
from graphflow.base.errors import (
    VALUES,
    GraphflowError,
    InvalidModel,
    Remedy,
    ValuesNeeded,
    shapes_remedy,
    sizes_remedy,
)
from graphflow.base.scalar_limits import ScalarLimits
from graphflow.base.sizes import Size
from graphflow.frontends import ExtentsLost, ReadModel
from graphflow.graph import Array
from graphflow.inspect import (
    TensorDecision,
    explain,
    explanations,
    page_of,
    report,
    tensor_decisions,
)
from graphflow.pipeline.clearing import clear_caches
from graphflow.pipeline.compiler import Compiled, Shared, compile_graph
from graphflow.pipeline.request import CompileRequest
from graphflow.processes.once import Counts, Once
from graphflow.program import OpenTensor, TensorSpec
from graphflow.reports import Decisions, reported_decisions
from graphflow.runtime import (
    Initial,
    Processor,
    Program,
    check_host,
    given_array,
    processor_of,
    value_key,
)

Key: TypeAlias = "tuple[tuple[str, object], ...]"


class ValueMissing(InvalidModel):
    """Nothing can be compiled without the value of an input, which a run gives."""


@dataclass(frozen=True)
class Decided:
    """A compiled model whose decisions are asked for, on whichever processor it is to run."""

    compiled: Compiled

    @property
    def layouts(self) -> Mapping[str, TensorDecision]:
        """The decision about each tensor."""
        return tensor_decisions(self.compiled)

    def explain(self, name: str, full: bool = False) -> str:
        """The explanation of one tensor; InvalidModel for an unknown name."""
        return explain(self.compiled, name, full)

    def explanations(self) -> dict[str, str]:
        """The explanations of all tensors, by name."""
        return explanations(self.compiled)

    def report(self) -> dict[str, Any]:
        """What `graphflow inspect --json` prints."""
        return report(self.compiled)

    def decisions(self) -> Decisions:
        """What `graphflow inspect` prints."""
        return reported_decisions(self.report())

    def page(self) -> str:
        """What `graphflow inspect --html` writes."""
        return page_of(self.compiled)


@dataclass(frozen=True)
class Loaded(Decided):
    """A compiled model with its program in this process, as a `Model`."""

    program: Program

    @property
    def title(self) -> str:
        """The names of the model and of its target."""
        return f"{self.compiled.name} for {self.compiled.target.name}"

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """The model's own inputs."""
        imported = self.compiled.imported
        hidden = len(imported.sizes) + len(imported.derived)
        return self.program.spec.inputs[: len(imported.inputs) - hidden]

    @property
    def values(self) -> Values:
        """The values of inputs that it was compiled for."""
        return self.compiled.values

    @property
    def defaults(self) -> Mapping[str, NDArray[Any]]:
        """The defaults of the model's inputs, and the values that it was compiled for."""
        known = {**self.compiled.imported.initializers, **self.values}
        return {tensor.name: known[tensor.name] for tensor in self.inputs if tensor.name in known}

    @property
    def frozen(self) -> tuple[str, ...]:
        """The graph inputs that are constants."""
        return self.compiled.frozen

    @property
    def assumed(self) -> tuple[Stated, ...]:
        """The assumptions that the plan uses and those that kernels state."""
        return (*self.compiled.plan.assumed, *self.compiled.stated)

    @property
    def check_assumes(self) -> bool:
        """The option of that name."""
        return self.compiled.options.check_assumes

    @property
    def scalar_limits(self) -> tuple[ScalarLimits, ...]:
        """What each run checks of the inputs that give scalars of kernels."""
        return self.compiled.imported.scalar_limits

    @property
    def threads(self) -> int | None:
        """The option of that name."""
        return self.compiled.options.threads

    @property
    def processor(self) -> Processor:
        """The processor features that the object code needs."""
        return processor_of(self.compiled.target.cpu, self.compiled.target.features)

    @property
    def poisoned(self) -> int:
        """Elements of undefined padding that a run overwrites."""
        return self.compiled.physical.poisoned


def loaded(
    compiled: Compiled,
    earlier: Sequence[Loaded] = (),
    weights: Initial | None = None,
) -> Loaded:
    """A compiled model, ready to run in this process.

    It shares the packed constants of the first of the `earlier` programs that prepares the same
    constants, or if none does, the single constants that some of them have.  If it was parted from
    its `weights`, each is let go of when the program has packed it.  CodegenError if this processor
    cannot execute the code.
    """
    options = compiled.options
    check_host(processor_of(compiled.target.cpu, compiled.target.features), "the model")
    alike = next((o.program for o in earlier if prepares_alike(compiled, o.compiled)), None)
    lenders = [] if alike is not None else [(one.compiled, one.program) for one in earlier]
    program = Program(
        compiled.spec,
        options.threads,
        options.flush_denormals,
        values=compiled.values,
        alike=alike,
        borrowed=borrowed(compiled, lenders),
        initial=weights,
    )
    return Loaded(compiled, program)


def prepares_alike(one: Compiled, other: Compiled) -> bool:
    """Whether two programs have equal constant blocks after preparation.

    That is so if the same kernels run on the same offsets of a block that begins with the same
    constants, bit by bit; the kernels may have different symbols.
    """
    a, b = one.spec, other.spec
    return (
        (a.constant_bytes, a.run_constant_bytes) == (b.constant_bytes, b.run_constant_bytes)
        and one.options.flush_denormals == other.options.flush_denormals
        and _prepare_calls(one) == _prepare_calls(other)
        and len(a.constants) == len(b.constants)
        and all(
            here == there and _same_bits(array, again)
            for (here, array), (there, again) in zip(a.constants, b.constants, strict=True)
        )
    )


def _prepare_calls(compiled: Compiled) -> list[tuple[object, ...]]:
    """The kernel and the offsets of each step that prepares constants."""
    kernels, found = compiled.lowered.kernels, list[tuple[object, ...]]()
    for step in compiled.spec.prepare:  # constants are prepared by kernels, never by sections
        task = replace(kernels[step.symbol].task, symbol="", claimed=None)
        found.append((task, step.buffers, step.extent))
    return found


def _same_bits(array: Array, other: Array) -> bool:
    if (array.dtype, array.shape) != (other.dtype, other.shape):
        return False
    if isinstance(array, ReleasedConstant) and isinstance(other, ReleasedConstant):
        return array.origin is not None and array.origin == other.origin
    if array.__array_interface__ == other.__array_interface__:
        return True  # programs of one model share what they did not compute
    bits, others = (np.ascontiguousarray(a).reshape(-1).view(np.uint8) for a in (array, other))
    return np.array_equal(bits, others)


class Specializer:
    """Compiles on demand and keeps its programs: the `Models` of an executable with open shapes.

    `request` has the shapes and values that are fixed, `symbolic` names the inputs with open
    shapes, and `needed` those that are known to decide by their values.  As many programs are kept
    as the options say; beyond that the least recently used one is dropped, with the kernels that no
    other one has and with what compilations remember.

    One program serves all extents of the sizes of the request, if that is proven.
    """

    def __init__(
        self,
        request: CompileRequest,
        interface: Interface,
        symbolic: tuple[str, ...],
        needed: tuple[str, ...] = (),
    ) -> None:
        self._lost = ""
        self.interface = interface
        self._request, self._shared = request, Shared()
        self._contents: dict[int, Array] = {}
        """The initializers by number that compilations share: those that are not large."""
        self._digests: dict[int, bytes] = {}
        """Those of the others, by number, where somebody else has the proto."""
        self._ranges = Ranges(interface.inputs, request.sizes)
        self._symbolic, self._needed = symbolic, needed
        self._programs: Once[Key, Loaded] = Once(request.options.programs)
        self._refused: set[Key] = set()
        """Keys of runs beyond the bounds of some sizes, of which no program serves the others."""
        self._compiled_in_a_row = 0
        self._warned = False
        self._last: Loaded | None = None
        """The model of the last run."""
        self._at_hand: Loaded | None = None
        """The same, if its program needs nothing but the inputs of a run."""

    @property
    def deciding(self) -> tuple[str, ...]:
        """The inputs whose shapes or values decide which program runs."""
        return tuple(dict.fromkeys((*self._symbolic, *self._needed)))

    @property
    def made(self) -> tuple[Loaded, ...]:
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
            for size in self._request.sizes
        }

    @property
    def compiles_each_shape(self) -> bool:
        """Whether no program serves all extents of the sizes of the request."""
        return bool(self._lost)

    def only(self) -> Model:
        """The only model that exists; InvalidModel if there are none or several."""
        return only_made(self, self._what_is_open, self._remedies)

    @property
    def _remedies(self) -> tuple[Remedy, ...]:
        shapes = {tensor.name: tensor.shape for tensor in self._open_inputs}
        extents = [extent for shape in shapes.values() for extent in shape or ("?",)]
        names = list(dict.fromkeys(extent for extent in extents if isinstance(extent, str)))
        can_be_sized = "?" not in names and not self._needed and not self._request.sizes
        return (
            (shapes_remedy(shapes),) * bool(shapes)
            + (sizes_remedy(names),) * (bool(shapes) and can_be_sized)
            + (VALUES,) * bool(self._needed)
        )

    @property
    def _open_inputs(self) -> tuple[OpenTensor, ...]:
        return tuple(t for t in self.interface.inputs if t.name in self._symbolic)

    @property
    def _what_is_open(self) -> str:
        open_shapes = f"these inputs have symbolic shapes: {'; '.join(map(str, self._open_inputs))}"
        open_values = f"the values of {', '.join(self._needed)} decide shapes"
        texts = [open_shapes] * bool(self._symbolic) + [open_values] * bool(self._needed)
        return " and ".join(texts)

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

    def _admits(self, model: Loaded, inputs: Mapping[str, ArrayLike]) -> bool:
        """Whether a program serves these inputs, asked without the search for one."""
        if self._needed or type(inputs) is not dict:
            return False
        shapes = {
            name: array.shape
            for name in self._symbolic
            if type(array := inputs.get(name)) is np.ndarray
        }
        return len(shapes) == len(self._symbolic) and model.program.inputs.shapes.admit(shapes)

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
        exclude them.
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

        def shape(name: str) -> tuple[int, ...]:
            if name in shapes:
                return tuple(shapes[name])
            if name in arrays:
                return arrays[name].shape
            raise InvalidModel(
                f"the shape of input {name!r} is missing, and it decides the program"
            )

        def value(name: str) -> NDArray[Any]:
            if name in arrays:
                return arrays[name]
            raise ValueMissing(
                f"the value of input {name!r} is missing, and it decides the program"
            )

        self._find(shape, value, lambda: None, is_run=is_run)

    def _find(
        self,
        shape_of: Callable[[str], tuple[int, ...]],
        value_of: Callable[[str], NDArray[Any]],
        check: Callable[[], None],
        is_exact: bool = False,
        ahead: tuple[Size, ...] | None = None,
        is_run: bool = True,
    ) -> Loaded:
        """The program for these shapes and values; with `is_exact`, one of these shapes alone, with
        `ahead` one of these sizes.  Only a run has to satisfy the relations between sizes."""
        while True:
            given = {name: shape_of(name) for name in self._symbolic}
            bounded = self._ranges.around(given) if ahead is None else ahead
            rooms = Rooms(self.interface.inputs, bounded)
            sizes = () if self._lost or is_exact else rooms.sizes_within(given)
            of_values = self._of_values()
            sizes = tuple(size for size in sizes if size.name not in of_values)
            shapes = rooms.with_room(given, sizes)
            values = {name: value_of(name) for name in self._needed}
            key = (
                *shapes.items(),
                ("sizes", sizes),
                *((name, value_key(v)) for name, v in values.items()),
            )
            if ahead is None and key in self._refused:
                is_exact = True
                continue

            def make(
                shapes: Shapes = shapes, values: Values = values, sizes: tuple[Size, ...] = sizes
            ) -> Loaded:
                check()
                if self.counts.kept == self.counts.most:  # one of them will be dropped
                    clear_caches()
                request = replace(
                    self._request,
                    input_shapes={**self._request.input_shapes, **shapes},
                    input_values={**self._request.input_values, **values},
                    sizes=sizes,
                )
                return loaded(*self._compiled(request))

            try:
                found = self._programs.get(key, make)
                if is_run and sizes and not found.program.inputs.shapes.admit(given):
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
                if len(sizes) < sum(s.name not in of_values for s in self._request.sizes):
                    self._refused.add(key)  # others are beyond their bounds
                else:
                    self._lose_sizes(error)
            except ValuesNeeded as error:
                if set(error.inputs) <= values.keys():
                    raise
                # Two threads may write at once; the next ValuesNeeded repeats a lost name.
                self._needed = tuple(dict.fromkeys((*self._needed, *error.inputs)))

    def _compiled(self, request: CompileRequest) -> tuple[Compiled, Sequence[Loaded], Initial]:
        """The compiled model without its large constants, the programs that may share theirs with
        it, and the constants of its program; InvalidModel if a proto has other weights than before.
        """
        earlier, contents = self.made, dict(self._contents)
        shared = replace(self._shared, contents=contents)
        rest, weights = parted_from_weights(
            compile_graph(request, shared, [one.compiled for one in earlier]), comparable=True
        )
        large = {number for number, array in contents.items() if array.nbytes >= LARGE}
        model = request.model
        if isinstance(model, ReadModel) and not model.is_own:
            for number in large - model.contents.keys():
                digest = contents_digest(contents[number])
                if self._digests.setdefault(number, digest) != digest:
                    name = model.proto.graph.initializer[number].name
                    raise InvalidModel(
                        f"initializer {name} of the given ModelProto has other contents than when "
                        "the first program was compiled, and a further one needs them; compile the "
                        "changed model by itself, or give graphflow.compile a copy of the proto"
                    )
        for number in contents.keys() - large:
            self._contents.setdefault(number, contents[number])
        return rest, earlier, weights

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
        sizes = self._ranges.ahead(given)
        if sizes is None:
            return

        def value(name: str) -> NDArray[Any]:
            raise ValueMissing(f"the value of input {name!r} decides the program")

        def compiled() -> None:
            with suppress(GraphflowError):  # a run that needs it raises this error too
                self._find(given.__getitem__, value, lambda: None, ahead=sizes)
                self._ranges.adopt(sizes)

        threading.Thread(target=compiled, name="compile ahead").start()

    def _lose_sizes(self, error: ExtentsLost) -> None:
        """From now on compile for each shape, for the reason of this error, and say so once."""
        self._lost = str(error)
        names = ", ".join(str(size) for size in self._request.sizes)
        warnings.warn(
            f"no program of {self.interface.title} serves all sizes ({names}): {error}; a program "
            "is compiled for each shape",
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
