"""Variants that no recipe makes faster: stage by stage, and calls of another runtime.

In: a definition, its constants, and layouts of its parameters where these are not row-major.  Out:
the variant, with its price in work.
"""

from __future__ import annotations

from collections.abc import Mapping

from graphflow.base.target import Target
from graphflow.cost import Work, operation_cycles
from graphflow.kernels.recipes.analysis.parallel_loops import shareable_iterations
from graphflow.kernels.recipes.analysis.positions import touched
from graphflow.kernels.recipes.analysis.variant import Foreign, KernelVariant, Padding, Staged
from graphflow.kernels.recipes.variants.matched_variants import bytes_found, contiguous_loops
from graphflow.layout import Layout, row_major
from graphflow.tir import PrimFunc, matched_variables, multiply_add_count, operation_count


def plain_variant(
    definition: PrimFunc,
    constants: frozenset[str],
    target: Target,
    placed: Mapping[str, Layout] | None = None,
) -> KernelVariant:
    """The variant made stage by stage, its parameters as `placed` says, the others row-major.

    Only with matched loops are contiguous loops priced as vectors: other kernels in which there are
    some have variants of other recipes.
    """
    layouts = {p.buffer.name: row_major(p.buffer.shape) for p in definition.params}
    layouts |= placed or {}
    finds = bool(matched_variables(definition.body))
    at_once = contiguous_loops(definition, layouts, target) if finds else {}
    found = bytes_found(definition) if finds else {}
    cycles = operation_cycles(operation_count(definition, at_once))
    moved = touched(definition.params, layouts, constants, found)
    pieces = shareable_iterations(definition)
    work = Work(2.0 * multiply_add_count(definition), cycles, pieces, *moved)
    apart = [f"{n} {x.describe()}" for n, x in layouts.items() if n in (placed or {})]
    name = f"{', '.join(apart) or 'row-major'}, stage by stage"
    return KernelVariant(name, layouts, frozenset(), {}, Padding.NONE, Staged(), work, False)


def foreign_variant(definition: PrimFunc, constants: frozenset[str]) -> KernelVariant:
    """The only variant of a foreign section: row-major, priced by the memory it touches alone."""
    layouts = {p.buffer.name: row_major(p.buffer.shape) for p in definition.params}
    work = Work(0.0, 0.0, 1, *touched(definition.params, layouts, constants))
    name = f"row-major, by {definition.callee}"
    return KernelVariant(name, layouts, frozenset(), {}, Padding.NONE, Foreign(), work, False)
