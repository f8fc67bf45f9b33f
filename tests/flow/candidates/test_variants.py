"""Which variants of a node flow considers: views that some reader could read, joined rows."""

from graphflow.cost import CostModel
from graphflow.flow import enumerate_candidates, variants_of
from graphflow.graph import OperatorGraph
from graphflow.kernels.definitions.movements import selection
from graphflow.kernels.recipes import View
from graphflow.layout import Layout, row_major
from support.planning.nets import SHORT, Net


def _part(net: Net, name: str, source: str, channels: range) -> str:
    shape = net.shape(source)
    ranges = [range(shape[0]), channels, *map(range, shape[2:])]
    return net.add(name, selection.take_slice(shape, ranges), source)


def _padded_views(graph: OperatorGraph, pins: dict[str, Layout] | None = None) -> set[str]:
    """The padded layouts in which `p`, a part of a tensor, may be a view of the tensor."""
    found = enumerate_candidates(graph, CostModel(SHORT, 1), pins or {}).of_node["n_p"]
    layouts = [c.gives[0][1].layout for c in found if isinstance(c.variant.recipe, View)]
    return {layout.describe() for layout in layouts if layout.is_padded}


def test_a_part_of_blocks_is_a_view_where_a_reader_computes() -> None:
    net = Net(x=(1, 8, 3, 4))
    part = _part(net, "p", net.unary("a", "relu", "x"), range(2, 6))
    assert _padded_views(net.done(net.unary("y", "exp", part)))


def test_a_part_of_blocks_is_no_view_where_all_readers_move() -> None:
    net = Net(x=(1, 8, 3, 4))
    part = _part(net, "p", net.unary("a", "relu", "x"), range(2, 6))
    assert not _padded_views(net.done(net.concat("c", part, "x"), net.concat("e", "x", part)))


def test_one_reader_that_computes_is_enough() -> None:
    net = Net(x=(1, 8, 3, 4))
    part = _part(net, "p", net.unary("a", "relu", "x"), range(2, 6))
    assert _padded_views(net.done(net.concat("c", part, "x"), net.unary("y", "exp", part)))


def test_a_pinned_part_keeps_all_views() -> None:
    """The pin may be the very layout of the view."""
    net = Net(x=(1, 8, 3, 4))
    part = _part(net, "p", net.unary("a", "relu", "x"), range(2, 6))
    free = net.done(net.unary("y", "exp", part))
    candidates = enumerate_candidates(free, CostModel(SHORT, 1), {}).of_node["n_p"]
    (layout, *_) = [c.gives[0][1].layout for c in candidates if c.gives[0][1].layout.is_padded
                    and isinstance(c.variant.recipe, View)]  # fmt: skip
    other = Net(x=(1, 8, 3, 4))
    again = _part(other, "p", other.unary("a", "relu", "x"), range(2, 6))
    graph = other.done(other.concat("c", again, "x"))
    assert _padded_views(graph, {"p": layout}) == {layout.describe()}


def _views_made(graph: OperatorGraph, pins: dict[str, Layout] | None) -> int:
    """The number of padded views that are made for `p`, whether or not a reader can read them."""
    variants = variants_of(graph, SHORT, pins=pins).of_node["n_p"]
    views = [v for v in variants if isinstance(v.recipe, View)]
    return sum(v.layouts[graph.node("n_p").func.outputs[0].name].is_padded for v in views)


def test_views_that_nobody_could_read_are_not_made() -> None:
    net = Net(x=(1, 8, 3, 4))
    part = _part(net, "p", net.unary("a", "relu", "x"), range(2, 6))
    moved = net.done(net.concat("c", part, "x"))
    assert _views_made(moved, None) > 0
    assert _views_made(moved, {}) == 0
    assert _views_made(moved, {"p": row_major((1, 4, 3, 4))}) > 0


def test_views_are_made_for_a_reader_that_computes() -> None:
    net = Net(x=(1, 8, 3, 4))
    part = _part(net, "p", net.unary("a", "relu", "x"), range(2, 6))
    graph = net.done(net.concat("c", part, "x"), net.unary("y", "exp", part))
    assert _views_made(graph, {}) == _views_made(graph, None) > 0


def test_a_part_whose_box_is_that_of_a_family_stays_a_view() -> None:
    """A trap: the first channels of a single block lie there like a padded block of their own."""
    lanes = SHORT.computed_lanes("float32")
    net = Net(x=(1, lanes, 3, 4))
    part = _part(net, "p", net.unary("a", "relu", "x"), range(lanes - 1))
    graph = net.done(net.concat("c", part, "x"))
    assert _views_made(graph, {}) > 0
    assert _padded_views(graph)


def _along_rows(graph: OperatorGraph, node: str) -> bool:
    """Whether some variant of a convolution has its lanes along the rows of an image."""
    return any("along rows" in v.name for v in variants_of(graph, SHORT).of_node[node])


def test_rows_are_joined_between_what_the_caller_gives_and_gets() -> None:
    net = Net(x=(1, 3, 2, 6))  # lanes of four: a row of six ends within a vector
    assert _along_rows(net.done(net.conv("y", "x", 5)), "n_y")


def test_rows_are_not_joined_beside_another_kernel() -> None:
    net = Net(x=(1, 3, 2, 6))
    graph = net.done(net.conv("z", net.conv("y", "x", 5), 5))
    assert not _along_rows(graph, "n_y") and not _along_rows(graph, "n_z")
