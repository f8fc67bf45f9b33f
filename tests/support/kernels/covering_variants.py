"""Some of the variants of a kernel, which between them have every layout of every operand."""

from collections.abc import Hashable, Sequence

from graphflow.kernels.recipes import KernelVariant, Tiled


def covering(found: Sequence[KernelVariant], turn: int = 0) -> list[KernelVariant]:
    """Variants with each recipe that is `found`, and with each layout that it has for an operand.

    Most variants of one recipe are pairs of a layout that is read and one that is written.  The
    statements that read an operand depend on its layout, those that write the result on the
    result's, so each layout has to occur, and not each pair: `turn` selects among the pairs, so
    that cases of one kind take different ones.
    """
    start = turn % max(len(found), 1)
    rotated = [*range(start, len(found)), *range(start)]
    traits = [_traits(variant) for variant in found]
    taken: list[int] = []
    seen: set[Hashable] = set()
    while left := {k: len(traits[k] - seen) for k in rotated if traits[k] - seen}:
        taken.append(max(left, key=left.__getitem__))
        seen |= traits[taken[-1]]
    return [found[k] for k in sorted(taken)]


def _traits(variant: KernelVariant) -> set[Hashable]:
    """What a variant contributes: its recipe with each layout, and with what it promises."""
    recipe = variant.recipe
    made = (type(recipe), recipe.kind if isinstance(recipe, Tiled) else None, variant.vectorized)
    layouts = {(made, name, layout) for name, layout in variant.layouts.items()}
    return {*layouts, (made, variant.padding)}
