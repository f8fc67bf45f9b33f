"""Tests of prices of kernels whose output has a size: whole vectors along it are computed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphflow.base.sizes import Size
from graphflow.base.target import Target
from graphflow.codegen import avx2_target, host_target
from graphflow.flow.candidates.whole_vectors import beyond_runs, beyond_share, mean_of_vectors
from graphflow.frontends.importer import import_checked
from graphflow.layout import IndexMap, Layout, row_major
from support.models.sized_runs import parsed_model

N = Size("n", 1, 16)
SHAPE = (16, 40)
BY_CHANNELS = row_major(SHAPE)
BY_ROWS = Layout.of(IndexMap.permute((1, 0)), SHAPE)
IN_BLOCKS = Layout.of(IndexMap.split(2, 0, 8, inner_last=True), SHAPE)


@given(least=st.integers(0, 40), more=st.integers(0, 80), lanes=st.sampled_from([1, 2, 4, 8, 16]))
def test_the_mean_is_that_of_all_extents(least: int, more: int, lanes: int) -> None:
    extents = range(least, least + more + 1)
    vectors = sum(-(-n // lanes) * lanes for n in extents)
    wanted = vectors / sum(extents) if sum(extents) else 1.0
    assert mean_of_vectors(least, least + more, lanes) == pytest.approx(wanted)


@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_lanes_along_a_size_compute_more_than_runs_give(target: Target) -> None:
    model = parsed_model(
        "g (float[n,40] x, float[16,40] z) => (float y, float c) { y=Relu(x) c=Exp(z) }"
    )
    graph = import_checked(model, {"x": SHAPE}, None, (), True, {}, (N,))
    factor = {layout: beyond_runs(graph, "y", layout, target) for layout in (BY_CHANNELS, BY_ROWS)}
    lanes = target.computed_lanes("float32")
    assert factor[BY_CHANNELS] == 1
    assert factor[BY_ROWS] == mean_of_vectors(N.lo, N.hi, lanes) > 1
    assert beyond_runs(graph, "y", IN_BLOCKS, target) == mean_of_vectors(N.lo, N.hi, 8)
    for layout in (BY_CHANNELS, BY_ROWS, IN_BLOCKS):  # every run gives all of it
        assert beyond_runs(graph, "c", layout, target) == 1


def test_runs_beyond_their_share_count_where_bounds_permit_them() -> None:
    """Of a variant that takes twice its share of half the sides, and four times of a quarter."""
    model = parsed_model("g (float[1,4,h,w] x) => (float y) { y=Relu(x) }")
    for least, factor in ((1, 2.0), (4, 2.0), (8, 2.0**0.5), (9, 1.0)):
        sizes = tuple(Size(name, least, 16) for name in "hw")
        graph = import_checked(model, {"x": (1, 4, 16, 16)}, None, (), True, {}, sizes)
        assert beyond_share(graph, "y", (2.0, 4.0)) == pytest.approx(factor)
        assert beyond_share(graph, "y", ()) == 1
