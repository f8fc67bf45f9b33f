"""Tests of pads whose number a run decides: each run gets what a program for its extents gives."""

import random

import pytest

import graphflow as gf
from graphflow.base.errors import ExtentsLost
from graphflow.base.sizes import Size
from graphflow.codegen import avx2_target, host_target
from graphflow.frontends.importer import import_checked
from graphflow.graph import OperatorGraph
from support.models.sized_runs import OPTIONS, beside_peer, parsed_model
from support.seeds import seeds

NUMBERS = "z=Constant<value=int64[1] {0}>() "


def padded(rng: random.Random) -> str:
    """A model with rows of n and m elements, padded to a multiple, or up to a number."""
    nodes, numbers = NUMBERS, []
    for axis, name in enumerate("nm"):
        step, most = rng.randint(2, 6), rng.randint(9, 12)
        nodes += (
            f"s{name}=Shape<start={axis},end={axis + 1}>(x) "
            f"t{name}=Constant<value=int64[1] {{{step}}}>() u{name}=Constant<value=int64[1] "
            f"{{{most}}}>() h{name}=Constant<value=int64[1] {{{rng.randint(2, 3)}}}>() "
        )
        nodes += rng.choice(
            (
                f"r{name}=Mod(s{name},t{name}) a{name}=Sub(t{name},r{name}) "
                f"d{name}=Mod(a{name},t{name}) ",
                f"a{name}=Neg(s{name}) d{name}=Mod(a{name},t{name}) ",
                f"d{name}=Sub(u{name},s{name}) ",
            )
        )
        nodes += f"b{name}=Div(d{name},h{name}) e{name}=Sub(d{name},b{name}) "
        numbers.append(rng.choice([(f"b{name}", f"e{name}"), ("z", f"d{name}"), (f"d{name}", "z")]))
    begins, ends = zip(*numbers, strict=True)
    nodes += f"p=Concat<axis=0>({','.join((*begins, *ends))}) "
    return (
        f"g (float[n,m] x, float[4,3] w) => (float y) {{ {nodes} q=Pad(x,p) r=Relu(q) y=Exp(r) }}"
    )


@pytest.mark.parametrize("seed", seeds(3, 9))
@pytest.mark.parametrize("target", [host_target(), avx2_target()], ids=["host", "avx2"])
def test_pads_of_sizes(seed: int, target: gf.Target) -> None:
    rng = random.Random(seed)
    sizes = {name: (rng.randint(0, 2), rng.randint(5, 9)) for name in "nm"}
    runs = [{name: rng.randint(*bounds) for name, bounds in sizes.items()} for _ in range(6)]
    model = parsed_model(padded(rng))
    exe = gf.compile(model, sizes=sizes, options=OPTIONS, target=target)
    assert beside_peer(model, sizes, runs, compiled=exe, exact=2) == ([], "")


def imported(nodes: str, least: int) -> OperatorGraph:
    text = f"g (float[n,4] x, float v) => (float y) {{ {NUMBERS} s=Shape<end=1>(x) {nodes} }}"
    model = parsed_model(text)
    return import_checked(model, {"x": (6, 4)}, None, (), True, {}, (Size("n", least, 6),))


LESS = "o=Constant<value=int64[1] {2}>() d=Sub(s,o) p=Concat<axis=0>(z,z,d,z) "


def test_a_number_of_pads_is_proven_not_to_be_negative() -> None:
    assert imported(LESS + "y=Pad(x,p)", 2).counted
    with pytest.raises(ExtentsLost, match="may be negative in a run"):
        imported(LESS + "y=Pad(x,p)", 1)


def test_a_remainder_that_may_be_negative_is_no_number_of_pads() -> None:
    text = "o=Constant<value=int64[1] {4}>() a=Neg(s) d=Mod{0}(a,o) p=Concat<axis=0>(z,z,d,z) "
    assert imported(text.replace("{0}", "") + "y=Pad(x,p)", 2).counted
    with pytest.raises(ExtentsLost):
        imported(text.replace("{0}", "<fmod=1>") + "y=Pad(x,p)", 2)


def test_mirrored_pads_by_sizes_are_fewer_than_the_elements() -> None:
    """As many as are missing to a multiple of 3, which are at most 2."""
    nodes = (
        "o=Constant<value=int64[1] {3}>() r=Mod(s,o) a=Sub(o,r) d=Mod(a,o) "
        'p=Concat<axis=0>(z,z,d,z) y=Pad<mode="reflect">(x,p)'
    )
    assert imported(nodes, 3).counted
    with pytest.raises(ExtentsLost, match="fewer elements of x along axis 0 than the 2"):
        imported(nodes, 2)
