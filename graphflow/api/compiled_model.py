"""Compiled models: the results of the stages, with the program in this process.

In: a `Compiled`, and earlier compilations of the same model with their programs.  Out: a `Loaded`,
which answers every question about its decisions from the results of the stages.  What always holds:
programs share packed constants only where the same kernels made them from the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from graphflow.api.borrowing import borrowed
from graphflow.api.model import Values
from graphflow.api.releasing import ReleasedConstant
from graphflow.base.assumed import Stated
from graphflow.base.fields import replace
from graphflow.base.scalar_limits import ScalarLimits
from graphflow.graph import Array
from graphflow.inspect import (
    TensorDecision,
    explain,
    explanations,
    page_of,
    report,
    tensor_decisions,
)
from graphflow.pipeline.compiler import Compiled
from graphflow.program import TensorSpec
from graphflow.reports import Decisions, reported_decisions
from graphflow.runtime import Initial, Processor, Program, check_host, processor_of


class Decided(Struct, frozen=True):
    """A compiled model whose decisions are asked for, on whichever processor it is to run."""

    compiled: Compiled

    @property
    def layouts(self) -> Mapping[str, TensorDecision]:
        """The decision about each tensor."""
        return tensor_decisions(self.compiled)

    def edge_types(self) -> dict[str, str]:
        """The texts of the layouts and facts of all tensors, by name."""
        return {name: edge.describe() for name, edge in self.layouts.items()}

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


class Loaded(Decided, frozen=True):
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
