"""Tests of the families of layouts that a target adds to those of every target."""

import pytest

from graphflow.base.errors import LayoutConflict
from graphflow.base.fields import replace
from graphflow.base.processors import PROCESSORS
from graphflow.base.target import Target
from graphflow.layout import Construction, Layout, blocked, families


def in_row_blocks(shape: tuple[int, ...], lanes: int) -> Layout:
    return blocked(shape, 2, lanes)


ROWS = Construction("row_blocks", in_row_blocks, ranks=(4,), by_lanes=True)


def adding(*further: object) -> Target:
    return replace(PROCESSORS["zen4"], layout_families=further)


def test_families_of_a_target_come_behind_those_of_every_target() -> None:
    usual = families(4, 8)
    assert families(4, 8, PROCESSORS["zen4"]) == usual
    *others, own = families(4, 8, adding(ROWS))
    assert tuple(others) == usual
    assert own.name == "row_blocks(8)" and own.with_lanes(16).name == "row_blocks(16)"
    assert own.instantiate((1, 3, 20, 4)) == blocked((1, 3, 20, 4), 2, 8)
    assert families(3, 8, adding(ROWS)) == families(3, 8), "it is for tensors of rank 4"


def test_each_family_has_a_name_of_its_own() -> None:
    for further in ((replace(ROWS, name="blocked"),), (ROWS, ROWS)):
        with pytest.raises(LayoutConflict, match="share a name"):
            families(4, 8, adding(*further))


def test_what_is_no_construction_is_refused() -> None:
    with pytest.raises(LayoutConflict, match=r"'NHWC'; give a graphflow\.layout\.Construction"):
        families(2, 8, adding("NHWC"))
