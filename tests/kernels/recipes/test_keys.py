"""The text of a tiled recipe in the key of a timing: stable, and different for each recipe."""

from __future__ import annotations

from dataclasses import replace

from graphflow.cost import NO_WORK, Panels, Tiling
from graphflow.kernels.recipes import (
    KernelVariant,
    Padding,
    Recipe,
    SharedLoops,
    Tiled,
    variant_key,
)
from graphflow.processes.digest import text_digest

ONE = Tiled(Tiling((Panels(count=1, nr_vectors=2, lanes=8, mr=6),)))
SEVERAL = Tiled(
    Tiling((Panels(3, 2, 8, 6), Panels(1, 1, 4, 7)), write_padding=True),
    finite=("w",),
    excludes_negative_zero=("b", "c"),
    group=32,
    group_rows=2,
    held_axis=1,
)


def key(recipe: Recipe) -> str:
    variant = KernelVariant("", {}, frozenset(), {}, Padding.NONE, recipe, NO_WORK, True)
    return variant_key("definition", variant, None)


def test_keys_outlive_the_names_of_fields() -> None:
    """Timing tables that users filled hold digests of exactly these texts."""
    one = (
        "Tiled(tiling=Tiling(panels=(Panel(count=1, vectors=2, lanes=8, pixels=6),), "
        "panel_outermost=False, write_padding=False), finite=(), reciprocal=(), group=0, "
        "group_rows=0, registers=None)"
    )
    several = (
        "Tiled(tiling=Tiling(panels=(Panel(count=3, vectors=2, lanes=8, pixels=6), "
        "Panel(count=1, vectors=1, lanes=4, pixels=7)), panel_outermost=False, "
        "write_padding=True), finite=('w',), reciprocal=('b', 'c'), group=32, group_rows=2, "
        "registers=1)"
    )
    for recipe, text in ((ONE, one), (SEVERAL, several)):
        assert key(recipe) == text_digest("\n".join(("kernel", "definition", text, "None")))


def test_each_field_of_a_tiled_recipe_is_in_its_key() -> None:
    """A field that is added to a recipe, and not to the text, would mix up its timings."""
    changed = {
        "tiling": replace(ONE.tiling, panel_outermost=True),
        "finite": ("x",),
        "excludes_negative_zero": ("x",),
        "group": 4,
        "group_rows": 4,
        "held_axis": 4,
        "crossed": ("x",),
        "fetched": ("w",),
    }
    assert changed.keys() == {*Tiled.__dataclass_fields__}
    recipes = [replace(ONE, **{field: value}) for field, value in changed.items()]
    panels = ONE.tiling.panels[0]
    for field in Panels.__dataclass_fields__:
        other = replace(panels, **{field: 5})
        recipes.append(replace(ONE, tiling=replace(ONE.tiling, panels=(other,))))
    recipes.append(replace(ONE, tiling=replace(ONE.tiling, write_padding=True)))
    recipes.append(replace(ONE, tiling=replace(ONE.tiling, sliding=True)))
    recipes.append(replace(ONE, tiling=replace(ONE.tiling, run=64)))
    recipes.append(replace(ONE, tiling=replace(ONE.tiling, whole_apart=True)))
    fields = {"panels", "panel_outermost", "write_padding", "sliding", "run", "whole_apart"}
    assert Tiling.__dataclass_fields__.keys() == fields
    assert len({key(recipe) for recipe in (ONE, *recipes)}) == len(recipes) + 1


def test_stages_at_shared_loops_have_a_key_of_their_own_where_they_cross_lines() -> None:
    """Without crossing it is the text of the tables that users filled."""
    plain = SharedLoops(16, 1, 0, 4)
    text = "SharedLoops(lanes=16, rows=1, across=0, vectors=4)"
    assert key(plain) == text_digest("\n".join(("kernel", "definition", text, "None")))
    assert key(replace(plain, crossed=("x",))) != key(plain)


def test_the_number_of_accumulators_is_in_the_key_where_it_is_not_the_default() -> None:
    plain = SharedLoops(16, 4)
    text = "SharedLoops(lanes=16, rows=4, across=None, vectors=1)"
    assert key(plain) == text_digest("\n".join(("kernel", "definition", text, "None")))
    others = [replace(plain, accumulators=n) for n in (1, 2, 8)]
    assert len({key(recipe) for recipe in (plain, *others)}) == 4
