"""Tests of the part of a step that a run executes: which iterations are left out, and that what is
executed gives what a run gives."""

import pytest

import graphflow as gf
from graphflow.program import Portion, PortionDigit
from support.models.sized_runs import OPTIONS, beside_peer, parsed_model

MOST = 7

BATCHES = "g (float[n,3,12,12] x, float[8,3,3,3] w) => (float y) { y=Conv<pads=[1,1,1,1]>(x,w) }"
PANELS = "g (float[n,64,256] x, float[256,512] w) => (float y) { y=MatMul(x,w) }"
GROUPED = "g (float[n,16,9,9] x, float[16,4,3,3] w) => (float y) { y=Conv<group=4>(x,w) }"
INNERMOST = (
    "g (float[n,8,12,12] x) => (float y) { r=Relu(x) t=Transpose<perm=[1,2,3,0]>(r) y=Exp(t) }"
)
CHAINED = (
    "g (float[n,3,12,12] x, float[8,3,3,3] w, float[8,8,1,1] v) => (float y) "
    "{ a=Conv(x,w) b=Relu(a) c=Conv(b,v) s=Softmax<axis=1>(c) y=Concat<axis=1>(s,a) }"
)
HEAD = (
    "g (float[n,3,12,12] x, float[8,3,3,3] w) => (float y) { b=Constant<value=int64[1] {0}>() "
    "e=Constant<value=int64[1] {3}>() s=Slice(x,b,e,b) y=Conv(s,w) }"
)

COUNTED_BY_DATA = (
    "g (float[n,4] x, float[64,64] z) => (float r, float y) "
    "{ r=Relu(x) i=NonZero(z) t=Transpose(i) c=Cast<to=1>(t) y=Exp(c) }"
)


LENGTH = 24
BOTH = {"n": (1, MOST), "m": (1, LENGTH)}
ROWS = "g (float[n,m,64] x) => (float y) { y=Softmax(x) }"
HEADS = "g (float[n,2,m,64] x) => (float y) { y=Softmax(x) }"
SWAPPED = "g (float[n,m,64] x) => (float y) { t=Transpose<perm=[1,0,2]>(x) y=Softmax(t) }"
OUTER_TWICE = "g (float[n,m] x) => (float y) { t=Transpose(x) p=MatMul(x,t) y=Softmax<axis=0>(p) }"
ATTENTION = (
    "g (float[n,m,64] x) => (float y) { t=Transpose<perm=[0,2,1]>(x) s=MatMul(x,t) "
    "p=Softmax(s) y=MatMul(p,x) }"
)


def portions(text: str) -> list[Portion | None]:
    model, names = parsed_model(text), ("n", "m") if "n,m" in text or ",m," in text else ("n",)
    exe = gf.compile(model, sizes={name: BOTH[name] for name in names}, options=OPTIONS)
    return [step.portion for step in exe.program.spec.run]


def first_digits(text: str) -> list[PortionDigit]:
    return [part.digits[0] for part in portions(text) if part is not None]


def test_a_loop_over_batches_first_depends_on_the_size_by_its_first_digit() -> None:
    for text in (BATCHES, GROUPED):
        digits = first_digits(text)
        assert digits and all(digit.input is not None for digit in digits)


def test_a_loop_over_panels_of_weights_first_has_all_of_these() -> None:
    assert any(digit.input is None and digit.count > 1 for digit in first_digits(PANELS))


def test_rows_of_a_longer_tensor_are_left_out_too() -> None:
    """What is written behind a token, a part of a joined tensor, is counted by its own size."""
    text = (
        "g (float[2,64,m] x, float[2,1,64] c) => (float y) { t=Transpose<perm=[0,2,1]>(x) "
        "j=Concat<axis=1>(c,t) y=Softmax(j) }"
    )
    sizes = {"m": (1, LENGTH)}
    exe = gf.compile(parsed_model(text), sizes=sizes, options=OPTIONS)
    behind = [
        kernel
        for kernel in exe.compiled.lowered.kernels.values()
        for axis in kernel.task.sized
        for place in axis.places
        if place.box[place.axis] > axis.room == LENGTH
    ]
    digits = [d for step in exe.program.spec.run if step.portion for d in step.portion.digits]
    counted = any(digit.most == LENGTH for digit in digits)
    assert behind and (counted or all(kernel.sizes for kernel in behind))
    runs = [{"m": m} for m in (1, 2, 15, 16, 17, LENGTH)]
    assert beside_peer(parsed_model(text), sizes, runs, compiled=exe) == ([], "")


@pytest.mark.parametrize("text", [ROWS, HEADS, SWAPPED], ids=["rows", "heads", "swapped"])
def test_a_loop_over_two_sizes_depends_on_both(text: str) -> None:
    """Its iterations are in proportion to the product of the sizes."""
    part = portions(text)[-1]
    assert part is not None
    inputs = {digit.input for digit in part.digits if digit.input is not None}
    most = {digit.input: digit.most for digit in part.digits if digit.input is not None}
    assert sorted(most.values()) == [MOST, LENGTH] and len(inputs) == 2
    tile = LENGTH // max(d.count for d in part.digits if d.most == LENGTH)
    for n in (1, 3, MOST):
        for m in range(tile, LENGTH + 1, tile):
            values = {k: n if room == MOST else m for k, room in most.items()}
            share = part.executed(values) / part.extent
            assert share == pytest.approx(n * m / (MOST * LENGTH))


def test_a_loop_over_rows_that_a_computed_size_counts_depends_on_that() -> None:
    """The lesser of the size and three is an input of the program."""
    part = portions(HEAD)[-1]
    assert part is not None
    assert (part.digits[0].count, part.digits[0].most) == (3, 3)


def test_a_loop_over_rows_that_data_counts_depends_on_what_an_earlier_step_writes() -> None:
    part = portions(COUNTED_BY_DATA)[-1]
    assert part is not None and part.places
    assert (part.digits[0].input, part.digits[0].most) == (None, 64 * 64)


def test_a_step_whose_batch_is_innermost_is_executed_as_a_whole() -> None:
    assert None in portions(INNERMOST)


def test_a_model_without_sizes_has_no_portions() -> None:
    exe = gf.compile(parsed_model(BATCHES.replace("[n,", "[3,")), options=OPTIONS)
    assert all(step.portion is None for step in exe.program.spec.run)
    (one,) = exe.specializations
    kernels = one.compiled.lowered.kernels.values()
    assert not any(kernel.task.sized or kernel.sizes for kernel in kernels)


@pytest.mark.parametrize("text", [BATCHES, PANELS, GROUPED, INNERMOST, CHAINED, HEAD])
@pytest.mark.parametrize("threads", [1, 3])
def test_all_that_a_run_gives_is_computed(text: str, threads: int) -> None:
    options = gf.Options(cache="off", workers=0, threads=threads)
    runs = [{"n": extent} for extent in (1, 2, 4, MOST)]
    wrong, why_not = beside_peer(
        parsed_model(text), {"n": (1, MOST)}, runs, options, tolerance=1e-3
    )
    assert not wrong and not why_not


@pytest.mark.parametrize("text", [ROWS, HEADS, SWAPPED, OUTER_TWICE, ATTENTION])
@pytest.mark.parametrize("threads", [1, 3])
def test_all_that_a_run_of_two_sizes_gives_is_computed(text: str, threads: int) -> None:
    options = gf.Options(cache="off", workers=0, threads=threads)
    pairs = ((1, 1), (2, 5), (MOST, 3), (1, LENGTH), (4, 17), (MOST, LENGTH))
    runs = [{"n": n, "m": m} for n, m in pairs]
    wrong, why_not = beside_peer(parsed_model(text), BOTH, runs, options, tolerance=1e-3)
    assert not wrong and not why_not
