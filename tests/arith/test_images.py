"""Tests of images of integer sets beside each other."""

from graphflow.arith import Image, IndexExpr, Var, box, const, image_within, less_than

i, j = Var("i"), Var("j")


def row(index: IndexExpr, extent: int) -> Image:
    return Image(box((i,), (extent,)), (index,))


def test_an_image_lies_within_one_that_reaches_more() -> None:
    assert image_within(row(i + 2, 4), (row(i + 1, 6),)).proven


def test_several_images_cover_together_what_none_covers() -> None:
    assert image_within(row(i + const(0), 8), (row(i + const(0), 5), row(i + 4, 4))).proven
    assert not image_within(row(i + const(0), 8), (row(i + const(0), 3), row(i + 4, 4))).proven


def test_an_image_with_a_hole_or_a_condition_does_not_contain_a_whole_one() -> None:
    even = row(2 * i, 8)
    assert image_within(even, (row(i + const(0), 15),)).proven
    assert not image_within(row(i + const(0), 15), (even,)).proven
    part = Image(box((j,), (8,)).given(less_than(j, 7)), (j,))
    assert not image_within(row(i + const(0), 8), (part,)).proven


def test_nothing_contains_only_nothing() -> None:
    assert image_within(row(i + const(0), 0), ()).proven
    assert not image_within(row(i + const(0), 1), ()).proven
