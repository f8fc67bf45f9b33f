"""A compiled model as a file: its program, and the answers to questions about its decisions.

In: a compiled model, of as many programs as there are.  Out: a file; and from a file a model that
runs and answers without ONNX, flow or LLVM's optimizer, for the shapes of these programs.  What
always holds: a loaded model says what the saved one would have said.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from graphflow.assumed import Assumed
from graphflow.decisions import Decisions, SavedEdge, unknown_tensor
from graphflow.errors import GraphflowError, InvalidModel
from graphflow.model import (
    Interface,
    Model,
    Models,
    Shapes,
    Single,
    Values,
    deciding_input,
    describe_made,
    only_made,
)
from graphflow.runtime import (
    OpenTensor,
    Processor,
    Program,
    SavedProgram,
    TensorSpec,
    load_programs,
    prepared_spec,
    save_programs,
    value_key,
)
from graphflow.version import VERSION

_MODELS = "models"
"""The document about all programs of a file, kept with the first one."""


def save_models(path: str | Path, models: Models) -> None:
    """Write what there is; see `runtime.save_programs` for errors and for what holds when writing
    stops.  InvalidModel where nothing has been compiled so far."""
    made = models.made or (models.only(),)
    programs = [_saved(model) for model in made]
    if models.deciding:
        about = json.dumps(_plain(models)).encode()
        programs[0] = replace(programs[0], documents={**programs[0].documents, _MODELS: about})
    save_programs(path, programs, VERSION)


def load_models(path: str | Path, threads: int | None) -> Models:
    """What `save_models` wrote.  The errors are those of `Executable.load`."""
    programs = load_programs(path)
    made = tuple(SavedModel(path, saved, threads) for saved in programs)
    about = programs[0].documents.get(_MODELS)
    return Single(made[0]) if about is None else SavedModels(path, made, json.loads(about))


def _plain(models: Models) -> dict[str, Any]:
    """What is known of all models, as plain values.

    Of the inputs that may be left out, only those that decide have to be known before one of the
    programs is taken.
    """
    face = models.interface
    return {
        "deciding": models.deciding,
        "title": face.title,
        "inputs": [[t.name, t.dtype, t.shape] for t in face.inputs],
        "outputs": [[t.name, t.dtype, t.shape] for t in face.outputs],
        "tensors": face.tensors,
        "defaults": {
            name: array.tolist() if name in models.deciding else None
            for name, array in face.defaults.items()
        },
    }


def _saved(model: Model) -> SavedProgram:
    program, decisions = model.program, model.decisions()
    documents = {
        "model": {
            "threads": model.threads,
            "inputs": len(model.inputs),
            "poisoned": model.poisoned,
            "assumed": [assumed.plain() for assumed in model.assumed],
            "check_assumes": model.check_assumes,
            "values": list(model.values),
        },
        "decisions": [decisions.title, decisions.rows, decisions.summary],
        "explanations": model.explanations(),
        "labels": {name: edge.describe() for name, edge in model.layouts.items()},
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
    """A program of a file as a `Model`."""

    def __init__(self, path: str | Path, saved: SavedProgram, threads: int | None) -> None:
        self._path = path
        self._saved = saved
        about = self._document("model")
        self.threads: int | None = about["threads"] if threads is None else threads
        self.poisoned: int = about["poisoned"]
        self.assumed = tuple(Assumed.from_plain(plain) for plain in about["assumed"])
        self.check_assumes: bool = about["check_assumes"]
        self.values: Values = {name: self._saved.arrays[name] for name in about["values"]}
        self.program: Program = self._saved.load(self.threads, self.values)
        self.inputs: tuple[TensorSpec, ...] = self._saved.spec.inputs[: about["inputs"]]

    @property
    def compiled(self) -> NoReturn:
        """Not in the file."""
        raise GraphflowError(
            f"{self._path} keeps the program, the report and the explanations, not what the stages "
            "of the compiler gave; compile the ONNX model to look at that"
        )

    @property
    def defaults(self) -> Mapping[str, NDArray[Any]]:
        """As the file has them."""
        return self._saved.arrays

    @property
    def processor(self) -> Processor:
        """What the object code needs."""
        return self._saved.processor

    @property
    def layouts(self) -> Mapping[str, SavedEdge]:
        """The decisions, with texts where a compiled model has objects."""
        return {edge.name: edge for edge in self._edges()}

    def explain(self, name: str) -> str:
        """The stored story of one tensor."""
        stories = self._document("explanations")
        if name not in stories:
            raise unknown_tensor(name, stories)
        return str(stories[name])

    def explanations(self) -> dict[str, str]:
        """All stored stories."""
        stories: dict[str, str] = self._document("explanations")
        return stories

    def report(self) -> dict[str, Any]:
        """The stored report."""
        found: dict[str, Any] = self._document("report")
        return found

    def decisions(self) -> Decisions:
        """The stored table."""
        title, rows, summary = self._document("decisions")
        return Decisions(title, tuple(map(tuple, rows)), summary)

    def _document(self, name: str) -> Any:
        """Decoded anew, so that whoever asked may change it."""
        return json.loads(self._saved.documents[name])

    def _edges(self) -> Iterator[SavedEdge]:
        labels = self._document("labels")
        for edge in self._document("report")["edges"]:
            shape = edge["physical_shape"]
            yield SavedEdge(
                name=edge["name"],
                dtype=edge["dtype"],
                logical_shape=tuple(edge["logical_shape"]),
                where=edge["where"],
                physical_shape=None if shape is None else tuple(shape),
                layout=edge["layout"],
                label=labels[edge["name"]],
                decided_by=edge["decided_by"],
                reason=edge["reason"],
                producer=edge["producer"],
                form=edge["form"],
                consumers=tuple(edge["consumers"]),
                regions=tuple(edge["regions"]),
                demands=tuple(edge["demands"]),
                conversions=tuple(edge["conversions"]),
            )


class SavedModels:
    """The programs of a file, for several shapes or values, as `Models`."""

    def __init__(
        self, path: str | Path, made: tuple[SavedModel, ...], about: Mapping[str, Any]
    ) -> None:
        self._path = path
        self.made = made
        self.deciding: tuple[str, ...] = tuple(about["deciding"])
        inputs, outputs = (_tensors(about[which]) for which in ("inputs", "outputs"))
        dtypes = {tensor.name: tensor.dtype for tensor in inputs}
        self.interface = Interface(
            title=about["title"],
            inputs=inputs,
            outputs=outputs,
            tensors=tuple(about["tensors"]),
            defaults={
                name: np.array([] if value is None else value, dtypes[name])
                for name, value in about["defaults"].items()
            },
        )

    def only(self) -> Model:
        """The one program, if the file has one."""
        return only_made(self, "no program is there", ())

    def serve(self, inputs: Mapping[str, ArrayLike]) -> SavedModel:
        """The program for these inputs; InvalidModel, with those that there are, if none is."""
        given = {name: deciding_input(self.interface, inputs, name) for name in self.deciding}
        return self._find({name: array.shape for name, array in given.items()}, given)

    def precompile(self, shapes: Shapes, values: Mapping[str, ArrayLike]) -> None:
        """InvalidModel where the file has no program for them: nothing can be compiled."""
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
            extents = {tensor.name: tensor.shape for tensor in model.inputs}
            keys = {name: value_key(value) for name, value in model.values.items()}
            if all(
                shapes.get(name, extents[name]) == extents[name]
                and (
                    name not in keys or name not in values or value_key(values[name]) == keys[name]
                )
                for name in self.deciding
            ):
                return model
        wanted = [f"{name}: {list(shape)}" for name, shape in shapes.items()]
        raise InvalidModel(
            f"the saved model {self._path} has programs for {describe_made(self)}, and none for "
            f"{', '.join(wanted)} or for these values; compile the ONNX model for them, and save "
            "it again"
        )


def _tensors(listed: Iterable[tuple[str, str, list[int | str] | None]]) -> tuple[OpenTensor, ...]:
    return tuple(
        OpenTensor(name, dtype, None if shape is None else tuple(shape))
        for name, dtype, shape in listed
    )
