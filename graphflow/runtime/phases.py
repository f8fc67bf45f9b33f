"""The phases of a run: tables of kernels, and between them sections that onnxruntime runs.

In: the steps of a run.  Out: `NativePhase` and `ForeignPhase` phases in order.  A foreign phase
reads and writes the same memory as kernels do, through numpy arrays that are views of it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.base.errors import GraphflowError
from graphflow.foreign import RunnableSection
from graphflow.program import BufferRef, ProgramSpec, ProgramStep, SectionSpec, TensorSpec
from graphflow.runtime.step_table import Arena


class NativePhase(Struct, frozen=True):
    """Consecutive kernel steps: the number of their job in an arena."""

    job: int


class ForeignPhase(Struct, frozen=True):
    """A step that runs a section."""

    spec: SectionSpec
    session: RunnableSection
    buffers: tuple[BufferRef, ...]

    def run(self, arena: Arena, constants: int, objects: dict[str, Any]) -> None:
        """Run the section on the buffers of an arena; its outgoing objects are added to `objects`.

        `constants` is the address of the constant block.  Raises GraphflowError if the section
        fails, or if an output has another dtype or shape than the program expects.
        """
        section = self.spec.section
        places = [arena.address(ref, constants) for ref in self.buffers]
        views = {
            tensor.name: _view(place, tensor)
            for tensor, place in zip(self.spec.tensors, places, strict=True)
        }
        given = {name: objects[name] for name in section.objects_in}
        results = self.session.run({**given, **{name: views[name] for name in section.inputs}})
        for name in section.outputs:
            _put(section.title, views[name], name, results[name])
        objects.update((name, results[name]) for name in section.objects_out)


Phase: TypeAlias = NativePhase | ForeignPhase


def phases_of(spec: ProgramSpec, sessions: dict[str, RunnableSection]) -> Iterator[Phase]:
    """The phases of a run; the jobs of an arena are those of `native_steps`, in order."""
    sections = {section.name: section for section in spec.sections}
    job = 0
    for foreign, steps in groupby(spec.run, lambda step: step.symbol in sections):
        if not foreign:
            yield NativePhase(job)
            job += 1
            continue
        for step in steps:
            yield ForeignPhase(sections[step.symbol], sessions[step.symbol], step.buffers)


def native_steps(spec: ProgramSpec) -> list[tuple[ProgramStep, ...]]:
    """The kernel steps of a run, split where a section runs between them."""
    sections = {section.name for section in spec.sections}
    parts = groupby(spec.run, lambda step: step.symbol in sections)
    return [tuple(steps) for foreign, steps in parts if not foreign]


def _view(address: int, tensor: TensorSpec) -> NDArray[Any]:
    memory = (ctypes.c_uint8 * tensor.nbytes).from_address(address)
    return np.ctypeslib.as_array(memory).view(tensor.dtype).reshape(tensor.shape)


def _put(title: str, view: NDArray[Any], name: str, result: Any) -> None:
    found = np.asarray(result)
    if found.shape != view.shape or found.dtype != view.dtype:
        raise GraphflowError(
            f"onnxruntime, which runs {title}, gave {name} as {found.dtype}{list(found.shape)}, "
            f"and the model says {view.dtype}{list(view.shape)}; correct the model's shapes"
        )
    np.copyto(view, found)
