"""What is timed, as a text that is the same in every process: the structure of a kernel or a copy.

In: a definition with a variant of it, or the layouts of a copy.  Out: a key, the
digest of a text of all that decides about the machine code, except for the processor and the names
of nodes.
What always holds: calls that run the same kernel have the same key.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from graphflow.kernels.recipes.variant import KernelVariant, Recipe, Scheduled, Tiled
from graphflow.kernels.recipes.views import crosses, memory_key
from graphflow.layout import Layout
from graphflow.processes.digest import text_digest
from graphflow.tir import Literal, PrimFunc, to_text


def definition_key(definition: PrimFunc) -> str:
    """The part of a kernel's key that its variants have in common."""
    return text_digest(_anonymous(definition))


def variant_key(definition: str, variant: KernelVariant, pad: float | None) -> str:
    """The kernel that a variant makes of a definition, given by its key.

    `pad` is the constant that is written to the padding of the output, None for anything.
    """
    placed = (
        f"{name}: {_layout(layout)} {variant.demands.get(name, '')}"
        for name, layout in sorted(variant.layouts.items())
    )
    return text_digest(
        "\n".join(("kernel", definition, _recipe(variant.recipe), repr(pad), *placed))
    )


def conversion_key(source: Layout, target: Layout, dtype: str, fill: Literal | None) -> str:
    """The conversion between two layouts; `fill` is written to the padding of the target.

    Layouts that are the same memory are the same, as everywhere in a plan's edges.
    """
    way = ("in blocks",) if crosses(source, target, dtype) else ()
    return text_digest(
        "\n".join(("convert", dtype, str(fill), _memory(source), _memory(target), *way))
    )


def fill_key(layout: Layout, dtype: str, value: Literal) -> str:
    """Writing a constant to the padding of a layout."""
    return text_digest("\n".join(("fill", dtype, str(value), _memory(layout))))


def _recipe(recipe: Recipe) -> str:
    match recipe:
        case Scheduled():
            return "\n".join((_anonymous(recipe.kernel), *recipe.finite))
        case Tiled():
            return _tiled(recipe)
        case _:
            return repr(recipe)


def _tiled(recipe: Tiled) -> str:
    """The text of a tiled recipe.

    It is written out, not `repr`, for its words are hashed into the keys of timing tables: a field
    that gets another name must not make a table that a user filled worthless.
    """
    panels = ", ".join(
        f"Panel(count={p.count}, vectors={p.nr_vectors}, lanes={p.lanes}, pixels={p.mr})"
        for p in recipe.tiling.panels
    )
    comma = "," if len(recipe.tiling.panels) == 1 else ""
    tiling = (
        f"Tiling(panels=({panels}{comma}), panel_outermost={recipe.tiling.panel_outermost}, "
        f"write_padding={recipe.tiling.write_padding})"
    )
    return (
        f"Tiled(tiling={tiling}, finite={recipe.finite}, "
        f"reciprocal={recipe.excludes_negative_zero}, group={recipe.group}, "
        f"group_rows={recipe.group_rows}, registers={recipe.held_axis})"
    )


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
