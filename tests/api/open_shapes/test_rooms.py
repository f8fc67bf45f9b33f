"""Tests of the shapes of a run beside the sizes of a model."""

from graphflow.api.open_shapes.rooms import Rooms, largest_shapes
from graphflow.base.sizes import Size
from graphflow.program import OpenTensor

N, M = Size("n", 1, 8), Size("m", 2, 4)
INPUTS = (
    OpenTensor("x", "float32", ("n", "m", 3)),
    OpenTensor("z", "float32", ("n", "k")),
    OpenTensor("of any rank", "float32", None),
)
ROOMS = Rooms(INPUTS, (N, M))


def test_the_sizes_whose_bounds_hold_are_left_open() -> None:
    assert ROOMS.sizes_within({"x": (1, 2, 3), "z": (8, 9)}) == (N, M)
    assert ROOMS.sizes_within({"x": (1, 1, 3)}) == (N,)
    assert ROOMS.sizes_within({"x": (9, 4, 3)}) == (M,)
    assert ROOMS.sizes_within({"x": (1, 4, 3), "z": (9, 9)}) == (M,)
    assert ROOMS.sizes_within({"x": (1, 2)}) == (N, M)  # another rank: import refuses it
    assert Rooms(INPUTS, ()).sizes_within({"x": (1, 2, 3)}) == ()


def test_a_program_has_room_for_the_most_of_each_size_that_is_open() -> None:
    given = {"x": (1, 2, 3), "z": (1, 5), "of any rank": (1, 7)}
    assert ROOMS.with_room(given, (N,)) == {"x": (8, 2, 3), "z": (8, 5), "of any rank": (1, 7)}
    assert ROOMS.with_room(given, (N, M))["x"] == (8, 4, 3)
    assert ROOMS.with_room(given, ()) == given
    assert ROOMS.with_room({"x": (1, 2)}, (N,)) == {"x": (1, 2)}


def test_the_largest_shapes_are_known_where_nothing_else_is_open() -> None:
    assert largest_shapes(INPUTS, ["x"], (N, M)) == {"x": (8, 4, 3)}
    assert largest_shapes(INPUTS, ["x"], (N,)) is None
    assert largest_shapes(INPUTS, ["x", "z"], (N, M)) is None
    assert largest_shapes(INPUTS, ["of any rank"], (N, M)) is None
    assert largest_shapes(INPUTS, [], (N, M)) == {}
    assert largest_shapes(INPUTS, [], ()) is None
