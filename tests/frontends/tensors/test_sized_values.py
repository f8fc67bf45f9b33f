"""Tests of integer tensors whose elements are sizes: they are moved, or computed with in a run."""

import pytest

from graphflow.base.errors import ExtentsLost
from graphflow.base.sizes import Size
from graphflow.frontends.importer import import_checked
from graphflow.graph import OperatorGraph
from support.models.sized_runs import parsed_model

N = Size("n", 1, 6)


def imported(text: str) -> OperatorGraph:
    """The graph of nodes that make y from x and z, behind an arrow the element type of y."""
    body, _, dtype = text.partition(" -> ")
    model = parsed_model(f"g (float[n,4] x, float[1,1] z) => ({dtype or 'float'} y) {{ {body} }}")
    shapes = {"x": (6, 4)}
    return import_checked(model, shapes, None, (), True, {}, (N,))


ONE = "o=Constant<value=int64[1] {1}>()"
MOVED = {
    "all of the shape": "s=Shape(x) y=Expand(z,s)",
    "a part of it": f"{ONE} a=Shape<end=1>(x) s=Concat<axis=0>(a,o) y=Expand(z,s)",
    "gathered": "i=Constant<value=int64[1] {0}>() s=Shape(x) a=Gather(s,i) y=ConstantOfShape(a)",
    "sliced": "i=Constant<value=int64[1] {0}>() j=Constant<value=int64[1] {1}>() "
    "s=Shape(x) a=Slice(s,i,j) y=ConstantOfShape(a)",
    "split": "s=Shape(x) a,b=Split<axis=0>(s) y=ConstantOfShape(a)",
    "repeats": "s=Shape(x) y=Tile(z,s)",
    "cast": "s=Shape(x) a=Cast<to=6>(s) b=Cast<to=7>(a) y=ConstantOfShape(b)",
    "the least": "k=Constant<value=int64[1] {9}>() s=Shape<end=1>(x) c=Concat<axis=0>(k,s) "
    "m=ReduceMin<keepdims=1>(c) y=ConstantOfShape(m)",
    "the greatest": f"{ONE} s=Shape<end=1>(x) c=Concat<axis=0>(o,s) m=ReduceMax(c) "
    "y=ConstantOfShape(m)",
    "without another axis": "i=Constant<value=int64 {0}>() s=Shape(x) a=Gather(s,i) "
    "k=Constant<value=int64[1] {0}>() b=Unsqueeze(a,k) y=ConstantOfShape(b)",
    "equal to no size": "k=Constant<value=int64[2] {-1,-1}>() j=Constant<value=int64[2] {1,1}>() "
    "s=Shape(x) e=Equal(s,k) w=Where(e,j,s) y=Expand(z,w)",
    "equal to more than the most": "k=Constant<value=int64[2] {7,7}>() s=Shape(x) e=Equal(s,k) "
    "j=Constant<value=int64[2] {1,1}>() w=Where(e,j,s) y=Expand(z,w)",
}


@pytest.mark.parametrize("body", MOVED.values(), ids=MOVED)
def test_what_moves_sizes_counts_what_is_made_of_them(body: str) -> None:
    graph = imported(body)
    (output,) = graph.results
    counts = graph.counted[graph.values[output]]
    assert counts == {0: graph.sizes[0].tensor}
    assert graph.values[output].shape[0] == N.hi


@pytest.mark.parametrize(
    ("body", "most", "name"),
    [
        ("p=ReduceProd(s) y=Reshape(x,p)", 24, "4·n"),
        ("p=ReduceSum(s) y=ConstantOfShape(p)", 10, "n + 4"),
        ("a=Constant<value=int64[1] {-1}>() p=ReduceSum(s,a) y=ConstantOfShape(p)", 10, "n + 4"),
        ("c=Constant<value=int64[1] {4}>() d=Concat<axis=0>(s,c) "
         "h=Constant<value=int64[2] {3,1}>() "
         "e=Reshape(d,h) p=ReduceMin<axes=[0],keepdims=0>(e) y=ConstantOfShape(p)", 4, "min(4, n)"),
        ("c=Concat<axis=0>(s,s) h=Constant<value=int64[2] {2,2}>() e=Reshape(c,h) "
         "a=Constant<value=int64[1] {0}>() p=ReduceSum<keepdims=0>(e,a) q=Slice(p,z0,z1) "
         "y=ConstantOfShape(q)", 12, "2·n"),
    ],
)  # fmt: skip
def test_sizes_combined_along_axes_are_sizes(body: str, most: int, name: str) -> None:
    ends = "z0=Constant<value=int64[1] {0}>() z1=Constant<value=int64[1] {1}>() "
    graph = imported(f"{ends}s=Shape(x) {body}")
    (output,) = graph.results
    value = graph.values[output]
    assert value.shape == (most,)
    (count,) = graph.counted[value].values()
    sizes = {one.tensor: one.size.name for one in graph.derived}
    assert sizes[count] == name


KEPT = {
    "the other extent alone": "s=Shape<start=1>(x) y=Cast<to=1>(s)",
    "of another input": "s=Shape(z) y=Cast<to=1>(s)",
}


@pytest.mark.parametrize("body", KEPT.values(), ids=KEPT)
def test_what_has_no_size_is_a_constant(body: str) -> None:
    graph = imported(body)
    assert not graph.counted.get(graph.values[graph.results[0]])


COMPUTED = {
    "added": f"{ONE} s=Shape(x) y=Add(s,o) -> int64",
    "a result": "y=Shape(x) -> int64",
    "a moved result": "s=Shape(x) y=Identity(s) -> int64",
    "equal to a size": "k=Constant<value=int64[2] {3,3}>() s=Shape(x) e=Equal(s,k) "
    "y=Where(e,k,s) -> int64",
    "equal to the least": "k=Constant<value=int64[2] {1,1}>() s=Shape(x) y=Equal(s,k) -> bool",
    "two sizes equal": "s=Shape(x) y=Equal(s,s) -> bool",
    "counted": "s=Size(x) y=Cast<to=1>(s)",
    "indices": "s=Shape<end=1>(x) y=Gather(z,s)",
    "a condition": f"{ONE} s=Shape<end=1>(x) c=Greater(s,o) y=Where(c,x,z)",
    "joined to data": "d=Cast<to=7>(z) k=Constant<value=int64[1] {-1}>() r=Reshape(d,k) "
    "s=Shape(x) y=Concat<axis=0>(s,r) -> int64",
}


@pytest.mark.parametrize(("dtype", "most"), [(3, 127), (2, 255), (10, 2048), (1, 1 << 24)])
def test_a_cast_keeps_the_sizes_that_it_can_hold(dtype: int, most: int) -> None:
    text = f"s=Shape(x) a=Cast<to={dtype}>(s) b=Cast<to=7>(a) y=ConstantOfShape(b)"
    model = parsed_model(f"g (float[n] x) => (float y) {{ {text} }}")
    for hi in (most, most + 1):
        args = model, {"x": (hi,)}, None, (), True, {}, (Size("n", 1, hi),)
        if hi == most:
            assert import_checked(*args).sizes
        else:
            with pytest.raises(ExtentsLost, match="is computed from n"):
                import_checked(*args)


@pytest.mark.parametrize("body", COMPUTED.values(), ids=COMPUTED)
def test_what_needs_the_number_of_a_size_is_computed_in_a_run(body: str) -> None:
    graph = imported(body)
    reached, pending = set[str](), list(graph.results)
    while pending:
        name = pending.pop()
        assert name not in graph.initializers or graph.values[name].size <= 2
        reached.add(name)
        node = graph.producer(name)
        pending += () if node is None else node.inputs
    tensors = {one.tensor for one in (*graph.sizes, *graph.derived)}
    assert reached & tensors


EXTENTS = {
    "cast to bool": "s=Shape(x) b=Cast<to=9>(s) a=Cast<to=7>(b) y=ConstantOfShape(a)",
    "selected by a size": "k=Constant<value=int64[2] {1,1}>() s=Shape(x) e=Equal(s,k) "
    "w=Where(e,k,s) y=Expand(z,w)",
}


@pytest.mark.parametrize("body", EXTENTS.values(), ids=EXTENTS)
def test_what_is_no_size_is_no_extent(body: str) -> None:
    with pytest.raises(ExtentsLost, match="only known at run time"):
        imported(body)


ASKED = "k=Constant<value=int64[1] {-1}>() n=Constant<value=int64 {-1}>() s=Shape(x) "


@pytest.mark.parametrize(
    "body",
    [
        "r=Reshape(s,k) h=Shape(r) o=ConstantOfShape<value=int64[1] {1}>(h) m=Mul(o,n) "
        "e=Equal(r,m) w=Where(e,o,r) y=Expand(z,w)",
        "h=Size(s) f=Sub(h,h) g=Cast<to=1>(f) p=Expand(z,s) y=Add(p,g)",
        "u=Unsqueeze(s,j) j=Constant<value=int64[1] {0}>() t=Transpose<perm=[1,0]>(u) "
        "r=Reshape(t,k) y=ConstantOfShape(r)",
    ],
    ids=["exported expand", "how many", "transposed"],
)
def test_how_many_sizes_there_are_is_known(body: str) -> None:
    graph = imported(ASKED + body)
    (output,) = graph.results
    assert graph.counted[graph.values[output]] == {0: graph.sizes[0].tensor}
