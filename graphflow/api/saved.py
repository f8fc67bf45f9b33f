"""Saved models: a compiled model is written to a file, with its programs, report and explanations.

In: a compiled model with one or more programs.  Out: a file; and from the file a model that runs
and answers without ONNX, flow or LLVM's optimizer, for the shapes of these programs.  What always
holds: a loaded model gives the same answers as the saved one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.api.model import (
    Interface,
    Model,
    Models,
    Single,
    Values,
    deciding_input,
    describe_made,
    needs_only_inputs,
    only_made,
)
from graphflow.base.arguments import Shapes
from graphflow.base.assumed import Assumed, Stated
from graphflow.base.assumed_elements import AssumedElements
from graphflow.base.decisions import SavedEdge, refusal_line, unknown_tensor
from graphflow.base.declaration import Declaration
from graphflow.base.errors import GraphflowError, InvalidModel
from graphflow.base.fields import replace
from graphflow.base.plain import boolean, integer, listed, mapping, text, texts
from graphflow.base.scalar_limits import ScalarLimits
from graphflow.base.version import VERSION
from graphflow.program import OpenTensor, ProgramSpec, TensorSpec
from graphflow.reports import Decisions, reported_decisions
from graphflow.runtime import (
    Processor,
    Program,
    SavedProgram,
    load_programs,
    prepared_spec,
    save_programs,
    value_key,
)

if TYPE_CHECKING:
    from graphflow.inspect import TensorDecision
    from graphflow.pipeline.compiler import Compiled

_MODELS = "models"
"""The name of the document about all programs of a file, stored with the first program."""

_DECLARATION = "declaration"
"""The name of the document with what the ONNX file declares, stored with the first program, too."""


def save_models(path: str | Path, models: Models, declaration: Declaration | None) -> None:
    """Write the programs that exist, and what the ONNX file declares.

    The errors, and the state of the file if writing stops, are those of `runtime.save_programs`;
    InvalidModel if nothing has been compiled.
    """
    made = models.made or (models.only(),)
    programs = [saved_program(model) for model in made]
    of_all: dict[str, Any] = {}
    if models.deciding:
        of_all[_MODELS] = plain_interface(models.interface, models.deciding)
    if declaration is not None:
        of_all[_DECLARATION] = declaration.plain()
    documents = {**programs[0].documents, **{n: json.dumps(v).encode() for n, v in of_all.items()}}
    programs[0] = replace(programs[0], documents=documents)
    save_programs(path, programs, VERSION)


def load_models(
    path: str | Path, threads: int | None, *, mmap: bool = True, sha256: str | None = None
) -> tuple[Models, Declaration | None]:
    """The models that `save_models` wrote, and what their ONNX file declares, if there was one;
    the errors are those of `Executable.load`."""
    programs = load_programs(path, mmap=mmap, sha256=sha256)
    made = tuple(SavedModel(path, saved, threads) for saved in programs)
    of_all = programs[0].documents
    declared = None
    if _DECLARATION in of_all:
        with _variants_of(path, _DECLARATION):
            declared = Declaration.from_plain(json.loads(of_all[_DECLARATION]))
    if _MODELS not in of_all:
        return Single(made[0]), declared
    with _variants_of(path, _MODELS):
        return SavedModels(path, made, mapping(json.loads(of_all[_MODELS]))), declared


def plain_interface(face: Interface, deciding: Sequence[str]) -> dict[str, Any]:
    """What is known of all programs of a model, as plain values.

    Defaults are stored only for inputs that decide which program runs: they are needed before a
    program is chosen.
    """
    return {
        "deciding": deciding,
        "title": face.title,
        "inputs": [[t.name, t.dtype, t.shape] for t in face.inputs],
        "outputs": [[t.name, t.dtype, t.shape] for t in face.outputs],
        "tensors": face.tensors,
        "frozen": face.frozen,
        "defaults": {
            name: array.tolist() if name in deciding else None
            for name, array in face.defaults.items()
        },
    }


def read_interface(about: Mapping[str, Any]) -> Interface:
    """The interface of `plain_interface`'s values; KeyError, TypeError or ValueError for others."""
    inputs, outputs = (_open_tensors(about[which]) for which in ("inputs", "outputs"))
    dtypes = {tensor.name: tensor.dtype for tensor in inputs}
    if not set(texts(about["deciding"])) <= set(dtypes):
        raise ValueError(f"{about['deciding']} are not inputs")
    return Interface(
        title=text(about["title"]),
        inputs=inputs,
        outputs=outputs,
        tensors=texts(about["tensors"]),
        defaults={
            name: np.array([] if value is None else value, dtypes[name])
            for name, value in mapping(about["defaults"]).items()
        },
        frozen=texts(about["frozen"]),
    )


def saved_program(model: Model) -> SavedProgram:
    """A model as a file has it: its program, report and explanations.

    VerifyError for a program that cannot be saved.
    """
    program = model.program
    documents = {
        "model": {
            "threads": model.threads,
            "inputs": len(model.inputs),
            "outputs": _cut_axes(program.spec),
            "guards": len(program.spec.guards),
            "poisoned": model.poisoned,
            "frozen": model.frozen,
            "assumed": [assumed.plain() for assumed in model.assumed],
            "check_assumes": model.check_assumes,
            "scalar_limits": [limits.plain() for limits in model.scalar_limits],
            "values": list(model.values),
        },
        "explanations": model.explanations(),
        "edge_types": model.edge_types(),
        "report": model.report(),
    }
    return SavedProgram(
        spec=prepared_spec(program.spec),
        constants=program.prepared,
        processor=model.processor,
        flush_denormals=program.flush_denormals,
        arrays=model.defaults,
        documents={name: json.dumps(value).encode() for name, value in documents.items()},
    )


class SavedModel:
    """One program of a file, as a `Model`."""

    def __init__(self, path: str | Path, saved: SavedProgram, threads: int | None) -> None:
        self._path = path
        self._saved = saved
        with _variants_of(path, "model"):
            about = mapping(self._document("model"))
            stored = about["threads"]
            stored = stored if stored is None else integer(stored, 1)
            self.threads: int | None = stored if threads is None else threads
            self.poisoned: int = integer(about["poisoned"])
            self.frozen: tuple[str, ...] = texts(about["frozen"])
            self.check_assumes: bool = boolean(about["check_assumes"])
            # Copies: programs are chosen by values before the file is looked at.
            self.values: Values = {
                name: saved.arrays[name].copy() for name in texts(about["values"])
            }
            self.inputs: tuple[TensorSpec, ...] = _own_inputs(
                saved.spec.inputs, integer(about["inputs"])
            )
            if about["outputs"] != _cut_axes(saved.spec):
                raise ValueError(
                    f"the outputs and the axes that are trimmed do not fit: {about['outputs']!r}"
                )
            if integer(about["guards"]) != len(saved.spec.guards):
                raise ValueError(f"the program has {len(saved.spec.guards)} guards")
            self.assumed = tuple(_assumed(plain, self.inputs) for plain in listed(about["assumed"]))
            self.scalar_limits = tuple(
                _scalar_limits(plain, self.inputs) for plain in listed(about["scalar_limits"])
            )
        self.program: Program = saved.load(self.threads, self.values)

    @cached_property
    def title(self) -> str:
        """The names of the model and of its target."""
        with _variants_of(self._path, "report"):
            report = mapping(self._document("report"))
            return f"{text(report['model'])} for {text(report['target'])}"

    @property
    def compiled(self) -> Compiled:
        """GraphflowError: the file does not have the results of the stages."""
        raise GraphflowError(
            f"{self._path} has the program, the report and the explanations, but not the results "
            "of the compiler's stages; compile the ONNX model for those"
        )

    @property
    def defaults(self) -> Mapping[str, NDArray[Any]]:
        """The defaults that the file has."""
        return {**self._saved.arrays, **self.values}

    @property
    def processor(self) -> Processor:
        """What the object code needs."""
        return self._saved.processor

    @property
    def layouts(self) -> Mapping[str, TensorDecision] | Mapping[str, SavedEdge]:
        """The decision about each tensor, in texts instead of the compiler's objects."""
        with _variants_of(self._path, "edge_types"):
            return {edge.name: edge for edge in self._edges()}

    def edge_types(self) -> dict[str, str]:
        """The stored texts of the layouts and facts of all tensors, by name."""
        with _variants_of(self._path, "edge_types"):
            return mapping(self._document("edge_types"))

    def explain(self, name: str, full: bool = False) -> str:
        """The stored explanation of one tensor; `full` adds the refusals of the stored report."""
        stories = self.explanations()
        if name not in stories:
            raise unknown_tensor(name, stories)
        return "\n".join((str(stories[name]), *(self._refused(name) if full else ())))

    def _refused(self, name: str) -> Iterator[str]:
        """A line for each refused variant and each refused step of the node that produces a
        tensor."""
        with _variants_of(self._path, "report"):
            report = mapping(self._document("report"))
            edges = (mapping(edge) for edge in listed(report["edges"]))
            maker = next((edge["producer"] for edge in edges if edge["name"] == name), None)
            for refused in map(mapping, listed(report.get("refusals", []))):
                if maker in listed(refused["nodes"]):
                    variant, reason = text(refused["variant"]), text(refused["reason"])
                    yield refusal_line(variant, reason, boolean(refused["chosen"]))

    def explanations(self) -> dict[str, str]:
        """All stored explanations, by tensor."""
        with _variants_of(self._path, "explanations"):
            return mapping(self._document("explanations"))

    def report(self) -> dict[str, Any]:
        """The stored report."""
        with _variants_of(self._path, "report"):
            return mapping(self._document("report"))

    def decisions(self) -> Decisions:
        """The table of the stored report."""
        with _variants_of(self._path, "report"):
            return reported_decisions(mapping(self._document("report")))

    def page(self) -> str:
        """GraphflowError: the page shows kernels and proofs, which the file does not have."""
        raise GraphflowError(
            f"{self._path} has the report and the explanations, but not the kernels that the page "
            "shows; give the ONNX model instead"
        )

    def _document(self, name: str) -> Any:
        """The document, decoded anew at each call so that a caller may change it."""
        return json.loads(self._saved.documents[name])

    def _edges(self) -> Iterator[SavedEdge]:
        edge_types = self._document("edge_types")
        for edge in self._document("report")["edges"]:
            told = {**edge, "edge_type": edge_types[edge["name"]]}
            values: dict[str, Any] = {
                name: tuple(told[name]) if isinstance(told[name], list) else told[name]
                for name in SavedEdge.__struct_fields__
            }
            yield SavedEdge(**values)


class SavedModels:
    """The programs of a file for several shapes or values, as `Models`."""

    def __init__(
        self, path: str | Path, made: tuple[SavedModel, ...], about: Mapping[str, Any]
    ) -> None:
        self._path = path
        self.made = made
        self.counts = None
        self.sizes: Mapping[str, Mapping[str, Any]] = {}
        self._at_hand: Program | None = None
        """The program of the last run, if that needs only inputs."""
        self.deciding: tuple[str, ...] = texts(about["deciding"])
        self.interface = read_interface(about)

    def only(self) -> Model:
        """The program, if the file has exactly one."""
        return only_made(self, "no program is there", ())

    def serve(self, inputs: Mapping[str, ArrayLike]) -> SavedModel:
        """The program for these inputs; InvalidModel, with a list of those in the file, if there is
        none."""
        given = {name: deciding_input(self.interface, inputs, name) for name in self.deciding}
        found = self._find({name: array.shape for name, array in given.items()}, given)
        is_alone = not found.values and needs_only_inputs(found)
        self._at_hand = found.program if is_alone else None
        return found

    def at_hand(self, inputs: Mapping[str, ArrayLike]) -> Program | None:
        """The program of the run before, if that takes these inputs and no value decides."""
        program = self._at_hand
        return program if program is not None and program.inputs.fits(inputs) else None

    def precompile(self, shapes: Shapes, values: Mapping[str, ArrayLike]) -> None:
        """InvalidModel if the file has no program for them, as nothing can be compiled."""
        arrays = {name: np.asarray(value) for name, value in values.items()}
        known = {name: array.shape for name, array in arrays.items()}
        wanted = {**known, **{name: tuple(shape) for name, shape in shapes.items()}}
        names = [tensor.name for tensor in self.interface.inputs]
        for name in wanted:
            if name not in names:
                raise InvalidModel(f"there is no input {name!r}; the inputs are {', '.join(names)}")
        self._find(wanted, arrays)

    def _find(
        self, shapes: Mapping[str, tuple[int, ...]], values: Mapping[str, NDArray[Any]]
    ) -> SavedModel:
        for model in self.made:
            keys = {name: value_key(value) for name, value in model.values.items()}
            known = model.program.inputs.shapes
            if known.admit(shapes, known.elements_in(values)) and all(
                name not in keys or name not in values or value_key(values[name]) == keys[name]
                for name in self.deciding
            ):
                return model
        wanted = [f"{name}: {list(shape)}" for name, shape in shapes.items()]
        raise InvalidModel(
            f"the saved model {self._path} has programs for {describe_made(self)}, and none for "
            f"{', '.join(wanted)} or for these values; compile the ONNX model for them, and save "
            "it again"
        )


def _open_tensors(rows: Any) -> tuple[OpenTensor, ...]:
    found = []
    for name, dtype, shape in (listed(row, 3) for row in listed(rows)):
        extents = None if shape is None else tuple(_extent(n) for n in listed(shape))
        found.append(OpenTensor(text(name), text(dtype), extents))
    return tuple(found)


def _extent(plain: Any) -> int | str:
    return plain if isinstance(plain, str) else integer(plain)


@contextmanager
def _variants_of(path: str | Path, name: str) -> Iterator[None]:
    """InvalidModel, inside, if the document `name` does not have the structure that is read
    here."""
    try:
        yield
    except (
        AttributeError,
        IndexError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as e:
        raise InvalidModel(
            f"the saved model {path} is damaged: its document {name!r} has an unexpected structure "
            f"({e!r:.200}); compile the ONNX model and save it again"
        ) from e


def _cut_axes(spec: ProgramSpec) -> list[list[int]]:
    """For each output of the model, the axes that a run trims."""
    return [
        sorted({trim.axis for trim in spec.trimmed if trim.output == place})
        for place in range(len(spec.results))
    ]


def _own_inputs(inputs: tuple[TensorSpec, ...], count: int) -> tuple[TensorSpec, ...]:
    """The model's own inputs, which come before the scalars of poison mode."""
    if count > len(inputs) or any(tensor.shape for tensor in inputs[count:]):
        raise ValueError(f"{count} of {len(inputs)} inputs are the model's own")
    return inputs[:count]


def _assumed(plain: Any, inputs: tuple[TensorSpec, ...]) -> Stated:
    """An assumption as the file has it; KeyError or ValueError if it fits none of the inputs."""
    tensors = {tensor.name: tensor for tensor in inputs}
    tensor = tensors[text(mapping(plain)["tensor"])]
    if "copies" in plain:
        stated = AssumedElements.from_plain(plain, prod(tensor.shape))
        if stated.dtype != tensor.dtype:
            raise ValueError(f"{stated!r:.100} is not an assumption about {tensor}")
        return stated
    found = Assumed.from_plain(plain)
    if found.dtype != tensor.dtype or not all(
        isinstance(end, int | float) for end in (found.lo, found.hi)
    ):
        raise ValueError(f"{found!r:.100} is not an assumption about {tensor}")
    if any(integer(k) >= prod(tensor.shape) for k in found.elements or ()):
        raise ValueError(f"{tensor} has fewer elements than the assumption names")
    boolean(found.exact)
    return found


def _scalar_limits(plain: Any, inputs: tuple[TensorSpec, ...]) -> ScalarLimits:
    """What a run checks of scalars, as the file has it; ValueError if the inputs lack them."""
    found = ScalarLimits.from_plain(plain)
    scalars = {tensor.name for tensor in inputs if (tensor.dtype, tensor.shape) == ("int64", ())}
    if not scalars.issuperset(name for _, name in found.inputs):
        raise ValueError(f"{found!r:.100} is not about scalars among the inputs")
    return found
