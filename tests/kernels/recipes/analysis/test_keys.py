"""The keys of recipes in a timing table: different for each recipe."""

from graphflow.base.fields import replace
from graphflow.cost import NO_WORK, Panels, Tiling
from graphflow.kernels.recipes import (
    KernelVariant,
    Padding,
    Recipe,
    SharedLoops,
    Tiled,
    variant_key,
)
from graphflow.kernels.recipes.tile_kinds.broadcast_tiles import BroadcastTile
from graphflow.kernels.recipes.tile_kinds.memory_runs import MemoryRun
from graphflow.kernels.recipes.tile_kinds.own_vector_tiles import OwnVectorTile
from graphflow.kernels.recipes.tile_kinds.row_tiles import RowTile
from graphflow.kernels.recipes.tile_kinds.sliding_tiles import SlidingTile
from graphflow.kernels.recipes.tile_kinds.window_tiles import WindowTile

ONE = Tiled(BroadcastTile(), Tiling((Panels(count=1, nr_vectors=2, lanes=8, mr=6),)))


def key(recipe: Recipe) -> str:
    variant = KernelVariant("", {}, frozenset(), {}, Padding.NONE, recipe, NO_WORK, True)
    return variant_key("definition", variant, None)


def test_each_field_of_a_tiled_recipe_is_in_its_key() -> None:
    changed = {
        "tiling": replace(ONE.tiling, panel_outermost=True),
        "finite": ("x",),
        "excludes_negative_zero": ("x",),
        "kind": BroadcastTile(group=4),
    }
    assert changed.keys() == {*Tiled.__struct_fields__}
    recipes = [replace(ONE, **{field: value}) for field, value in changed.items()]
    panels = ONE.tiling.panels[0]
    for field in Panels.__struct_fields__:
        other = replace(panels, **{field: 5})
        recipes.append(replace(ONE, tiling=replace(ONE.tiling, panels=(other,))))
    recipes.append(replace(ONE, tiling=replace(ONE.tiling, write_padding=True)))
    recipes.append(replace(ONE, tiling=replace(ONE.tiling, whole_apart=True)))
    fields = {"panels", "panel_outermost", "write_padding", "whole_apart"}
    assert {*Tiling.__struct_fields__} == fields
    for field in ("group_rows", "transposed", "fetched", "blocks", "joined"):
        recipes.append(replace(ONE, kind=replace(ONE.kind, **{field: 4})))
    others = (MemoryRun(4), MemoryRun(8), RowTile(4), SlidingTile(), OwnVectorTile(), WindowTile())
    recipes += [replace(ONE, kind=kind) for kind in others]
    assert len({key(recipe) for recipe in (ONE, *recipes)}) == len(recipes) + 1


def test_each_field_of_stages_at_shared_loops_is_in_their_key() -> None:
    plain = SharedLoops(16, 1, 0, 4)
    others = [replace(plain, accumulators=n) for n in (1, 2, 8)]
    others += [
        replace(plain, transposed=("x",)),
        replace(plain, rows=4),
        replace(plain, lane_loop=None),
    ]
    assert len({key(recipe) for recipe in (plain, *others)}) == 7
