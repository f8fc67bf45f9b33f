"""Keys of the timing table: digests of what decides about a kernel's or a copy's machine code.

In: a definition with a variant of it, or the layouts of a copy.  Out: a key.  What always holds:
the key is the same in every process, and calls that run the same kernel have the same key; names of
nodes, and the processor, are not in it (the table tells processors apart by `host_key`).
"""

from __future__ import annotations

from functools import lru_cache

from graphflow.base.fields import replace
from graphflow.kernels.recipes.analysis.positions import memory_key, transposes
from graphflow.kernels.recipes.analysis.variant import KernelVariant, Recipe, Scheduled
from graphflow.layout import Layout
from graphflow.processes.digest import text_digest
from graphflow.tir import Literal, PrimFunc, to_text


def definition_key(definition: PrimFunc) -> str:
    """The part of a kernel's key that all its variants share."""
    return text_digest(_anonymous(definition))


def variant_key(definition: str, variant: KernelVariant, pad: float | None) -> str:
    """The key of a kernel: a variant of the definition with the key `definition`.

    `pad` is the constant that the kernel writes to the padding of its output, None for none.
    """
    placed = (
        f"{name}: {_layout(layout)} {variant.demands.get(name, '')}"
        for name, layout in sorted(variant.layouts.items())
    )
    return text_digest(
        "\n".join(("kernel", definition, _recipe(variant.recipe), repr(pad), *placed))
    )


def conversion_key(source: Layout, target: Layout, dtype: str, fill: Literal | None) -> str:
    """The key of a conversion between two layouts; `fill` is written to the target's padding.

    Layouts that put the elements at the same positions in memory give the same key.
    """
    way = ("in blocks",) if transposes(source, target, dtype) else ()
    return text_digest(
        "\n".join(("convert", dtype, str(fill), _memory(source), _memory(target), *way))
    )


def fill_key(layout: Layout, dtype: str, value: Literal) -> str:
    """The key of a fill, which writes a constant to the padding of a layout."""
    return text_digest("\n".join(("fill", dtype, str(value), _memory(layout))))


def _recipe(recipe: Recipe) -> str:
    match recipe:
        case Scheduled():
            return "\n".join((_anonymous(recipe.kernel), *recipe.finite))
        case _:
            return repr(recipe)


def _anonymous(func: PrimFunc) -> str:
    return to_text(replace(func, name="kernel"))


@lru_cache(maxsize=100_000)
def _layout(layout: Layout) -> str:
    places = ", ".join(map(str, layout.simplified))
    return f"{list(layout.logical_shape)} at [{places}] in {list(layout.physical_shape)}"


@lru_cache(maxsize=100_000)
def _memory(layout: Layout) -> str:
    place, size = memory_key(layout)
    return f"{list(layout.logical_shape)} at {place} in {size}"
