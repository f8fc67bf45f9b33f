"""Random layouts with any index map, as a user may define them."""

import random

from graphflow.layout import IndexMap, Layout
from support.strategies import transformed


def random_layout(rng: random.Random, shape: tuple[int, ...]) -> Layout:
    """Axes in any order, then split, moved away from the front, or in a longer box."""
    order = rng.sample(range(len(shape)), len(shape))
    layout = Layout.of(IndexMap.permute(order), shape)
    for _ in range(rng.randint(0, 2)):
        rank = len(layout.physical_shape)
        axis = rng.randrange(rank)
        match rng.randrange(3):
            case 0:
                width, last = rng.choice([2, 3, 4, 8]), rng.random() < 0.5
                layout = transformed(layout, IndexMap.split(rank, axis, width, inner_last=last))
            case 1:
                layout = transformed(layout, IndexMap.offset(rank, axis, rng.randint(1, 3)))
            case 2:
                box = list(layout.physical_shape)
                box[axis] += rng.randint(1, 3)
                layout = layout.boxed(box)
    return layout
