"""A compiled model as a file: its program, and the answers to questions about its decisions.

In: a compiled model.  Out: a file; and from a file a model that runs and answers without ONNX, flow
or LLVM's optimizer.  What always holds: a loaded model says what the saved one would have said.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, NoReturn

from numpy.typing import NDArray

from graphflow.assumed import Assumed
from graphflow.decisions import Decisions, SavedEdge, unknown_tensor
from graphflow.errors import GraphflowError, InvalidModel
from graphflow.model import Model, Shapes
from graphflow.plain import boolean, integer, listed, mapping, text, texts
from graphflow.runtime import (
    Processor,
    Program,
    SavedProgram,
    TensorSpec,
    load_program,
    prepared_spec,
    save_program,
)
from graphflow.version import VERSION


def save_model(path: str | Path, model: Model) -> None:
    """Write `model`; see `runtime.save_program` for errors and what holds when writing stops."""
    program, decisions = model.program, model.decisions()
    documents = {
        "model": {
            "threads": model.threads,
            "inputs": len(model.inputs),
            "poisoned": model.poisoned,
            "frozen": model.frozen,
            "assumed": [assumed.plain() for assumed in model.assumed],
            "check_assumes": model.check_assumes,
        },
        "decisions": [decisions.title, decisions.rows, decisions.summary],
        "explanations": model.explanations(),
        "labels": {name: edge.describe() for name, edge in model.layouts.items()},
        "report": model.report(),
    }
    saved = SavedProgram(
        spec=prepared_spec(program.spec),
        constants=program.prepared,
        processor=model.processor,
        flush_denormals=program.flush_denormals,
        arrays=model.defaults,
        documents={name: json.dumps(value).encode() for name, value in documents.items()},
    )
    save_program(path, saved, VERSION)


class SavedModel:
    """A loaded file as a `Model`, and as the only one of its `Models`."""

    symbolic: tuple[str, ...] = ()

    def __init__(
        self,
        path: str | Path,
        threads: int | None = None,
        *,
        mmap: bool = True,
        sha256: str | None = None,
    ) -> None:
        self._path = path
        self._saved = load_program(path, mmap=mmap, sha256=sha256)
        with self._forms_of("model"):
            about = mapping(self._document("model"))
            stored = about["threads"]
            stored = stored if stored is None else integer(stored, 1)
            self.threads: int | None = stored if threads is None else threads
            self.poisoned: int = integer(about["poisoned"])
            self.frozen: tuple[str, ...] = texts(about["frozen"])
            self.check_assumes: bool = boolean(about["check_assumes"])
            self.inputs: tuple[TensorSpec, ...] = _own_inputs(
                self._saved.spec.inputs, integer(about["inputs"])
            )
            self.assumed = tuple(_assumed(plain, self.inputs) for plain in listed(about["assumed"]))
        self.program: Program = self._saved.load(self.threads)

    def only(self) -> SavedModel:
        """This one."""
        return self

    def serve(self, shapes: Shapes) -> SavedModel:
        """This one; its shapes are all known."""
        return self

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
        with self._forms_of("labels"):
            return {edge.name: edge for edge in self._edges()}

    def explain(self, name: str) -> str:
        """The stored story of one tensor."""
        stories = self.explanations()
        if name not in stories:
            raise unknown_tensor(name, stories)
        return str(stories[name])

    def explanations(self) -> dict[str, str]:
        """All stored stories."""
        with self._forms_of("explanations"):
            return mapping(self._document("explanations"))

    def report(self) -> dict[str, Any]:
        """The stored report."""
        with self._forms_of("report"):
            return mapping(self._document("report"))

    def decisions(self) -> Decisions:
        """The stored table."""
        with self._forms_of("decisions"):
            title, rows, summary = listed(self._document("decisions"), 3)
            return Decisions(text(title), tuple(map(texts, listed(rows))), text(summary))

    def _document(self, name: str) -> Any:
        """Decoded anew, so that whoever asked may change it."""
        return json.loads(self._saved.documents[name])

    @contextmanager
    def _forms_of(self, name: str) -> Iterator[None]:
        """InvalidModel where the document does not have the form that is read here."""
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
                f"the saved model {self._path} is damaged: its document {name!r} has another form "
                f"({e!r:.200}); compile the ONNX model and save it again"
            ) from e

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


def _own_inputs(inputs: tuple[TensorSpec, ...], count: int) -> tuple[TensorSpec, ...]:
    """The model's own inputs, behind which stand the scalars of poison mode."""
    if count > len(inputs) or any(tensor.shape for tensor in inputs[count:]):
        raise ValueError(f"{count} of {len(inputs)} inputs are the model's own")
    return inputs[:count]


def _assumed(plain: Any, inputs: tuple[TensorSpec, ...]) -> Assumed:
    """What a file says of an input, which has to be one."""
    found = Assumed.from_plain(mapping(plain))
    tensors = {tensor.name: tensor for tensor in inputs}
    tensor = tensors[text(found.tensor)]
    if found.dtype != tensor.dtype or not all(
        isinstance(end, int | float) for end in (found.lo, found.hi)
    ):
        raise ValueError(f"{found!r:.100} is nothing to assume of {tensor}")
    if any(integer(k) >= prod(tensor.shape) for k in found.elements or ()):
        raise ValueError(f"{tensor} has fewer elements than are spoken of")
    boolean(found.exact)
    return found
