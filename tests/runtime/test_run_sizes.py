"""Tests of the sizes of a run: the extents that its inputs have, and what a program takes."""

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from graphflow.base.errors import InvalidModel, VerifyError
from graphflow.base.fields import replace
from graphflow.base.sizes import Relation, SizeFormula, SizeRelation, SizeStep
from graphflow.program import (
    BufferRef,
    ComputedSize,
    InputSize,
    Portion,
    PortionDigit,
    ProgramSpec,
    ProgramStep,
    TensorSpec,
)
from graphflow.runtime import run_sizes
from graphflow.runtime.run_sizes import (
    DecidedShapes,
    fits,
    misfit,
    open_axes,
    size_given,
    stated_integer,
    values_of_sizes,
    with_size_names,
)

N = InputSize("n", 2, 2, 8, ((0, 0), (1, 1)))
M = InputSize("m", 3, 1, 4, ((0, 1),))
INPUTS = (
    TensorSpec("x", "float32", (8, 4, 3)),
    TensorSpec("z", "float32", (5, 8)),
    TensorSpec("held", "int64", ()),
    TensorSpec("too", "int64", ()),
)


def spec_of(*sizes: InputSize, run: tuple[ProgramStep, ...] = ()) -> ProgramSpec:
    return ProgramSpec((), (), run, (), 0, 0, INPUTS, (), sizes=sizes)


SPEC = spec_of(N, M)


def test_the_axes_that_a_run_decides() -> None:
    assert open_axes(SPEC) == {0: (0, 1), 1: (1,)}
    assert open_axes(spec_of()) == {}
    assert SPEC.input_names == ["x", "z"]


def test_what_shapes_decide_is_remembered() -> None:
    shapes = DecidedShapes(SPEC)
    decided = shapes.decide(((6, 4, 3), (5, 6)))
    assert decided is not None and decided.sizes == {2: 6, 3: 4}
    assert decided.shapes == ((6, 4, 3), (5, 6))
    assert shapes.decide(((6, 4, 3), (5, 6))) is decided


def test_not_all_shapes_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_sizes, "MOST_SHAPES", 2)
    shapes = DecidedShapes(SPEC)
    first, second = (shapes.decide(((n, 4, 3), (5, n))) for n in (2, 3))
    assert shapes.decide(((2, 4, 3), (5, 2))) is first
    assert shapes.decide(((4, 4, 3), (5, 4))) is not None
    assert shapes.decide(((3, 4, 3), (5, 3))) is not second


RELATIONS = (SizeRelation("n", (("m", 1),), 2), SizeRelation("n", (("m", 2),), 0, is_exact=False),
             SizeStep("m", 2))  # fmt: skip


@drawn(st.integers(1, 9), st.integers(0, 5), st.integers(2, 3), st.integers(-1, 0), st.data())
def test_a_program_decides_the_shapes_that_no_check_refuses(
    n: int, m: int, rest: int, other: int, data: st.DataObject
) -> None:
    chosen = data.draw(st.lists(st.sampled_from(RELATIONS), max_size=1))
    spec = with_computed(HALF, replace(AREA, hi=12), relations=tuple(chosen))
    given = arrays((n, m, rest), (5, n + other))
    decided = DecidedShapes(spec).decide(tuple(array.shape for array in given.values()))
    try:
        values = None if misfit(spec, given) is not None else values_of_sizes(spec, given)
    except (InvalidModel, VerifyError):
        values = None
    assert (None if decided is None else decided.sizes) == values


def test_what_does_not_fit_is_named() -> None:
    assert misfit(SPEC, arrays((6, 4, 3), (5, 6))) is None
    assert misfit(SPEC, arrays((6, 4, 2), (5, 6))) == 0
    assert misfit(SPEC, arrays((6, 4, 3), (4, 6))) == 1


def test_an_array_fits_with_any_extents_along_open_axes() -> None:
    assert fits((8, 4, 3), (8, 4, 3), ())
    assert fits((2, 9, 3), (8, 4, 3), (0, 1))
    assert not fits((2, 4, 2), (8, 4, 3), (0, 1))
    assert not fits((2, 4), (8, 4, 3), (0, 1))
    assert not fits((2, 4, 3), (8, 4, 3), ())


def test_a_program_takes_shapes_within_the_bounds_of_all_sizes() -> None:
    assert DecidedShapes(SPEC).admit({"x": (2, 1, 3), "z": (5, 2)})
    assert DecidedShapes(SPEC).admit({"x": (8, 4, 3)})
    assert DecidedShapes(SPEC).admit({})
    assert not DecidedShapes(SPEC).admit({"x": (2, 1, 3), "z": (5, 3)})
    assert not DecidedShapes(SPEC).admit({"x": (1, 1, 3)})
    assert not DecidedShapes(SPEC).admit({"x": (9, 1, 3)})
    assert not DecidedShapes(SPEC).admit({"z": (4, 2)})


def test_users_see_the_names_of_sizes() -> None:
    assert with_size_names(SPEC, INPUTS[0]).shape == ("n", "m", 3)
    assert with_size_names(SPEC, INPUTS[1]).shape == (5, "n")
    assert with_size_names(spec_of(), INPUTS[0]).shape == (8, 4, 3)


def arrays(x: tuple[int, ...], z: tuple[int, ...]) -> dict[int, np.ndarray]:
    return {0: np.zeros(x, np.float32), 1: np.zeros(z, np.float32)}


def test_a_size_is_the_extent_of_all_its_axes() -> None:
    assert size_given(N, SPEC, arrays((3, 1, 3), (5, 3))) == 3


def test_inputs_that_differ_in_a_size_are_named() -> None:
    with pytest.raises(InvalidModel, match=r"'z' has 4 elements along axis 1, and input 'x' has 3"):
        size_given(N, SPEC, arrays((3, 1, 3), (5, 4)))


@pytest.mark.parametrize("extent", [0, 1, 9])
def test_an_extent_beyond_the_bounds_is_refused(extent: int) -> None:
    with pytest.raises(InvalidModel, match="is for a size n from 2 to 8"):
        size_given(N, SPEC, arrays((extent, 1, 3), (5, extent)))


K = InputSize("k", 2, 1, 8, (), 1)
STATING = ProgramSpec(
    (), (), (), (), 0, 0,
    (INPUTS[0], TensorSpec("k", "int32", (1,)), INPUTS[2], INPUTS[3]), (),
    sizes=(K, InputSize("n", 3, 1, 8, ((0, 0),))), relations=(SizeRelation("k", (("n", 1),), 1),),
)  # fmt: skip


def stated(n: int, *k: int) -> dict[int, np.ndarray]:
    return {0: np.zeros((n, 4, 3), np.float32), 1: np.array(k, np.int32)}


def test_an_input_of_one_integer_states_a_size() -> None:
    shapes, given = DecidedShapes(STATING), [*stated(4, 5).values()]
    elements = shapes.elements(given)
    assert elements == ((1, 5),)
    of_run = tuple(array.shape for array in given)
    decided = shapes.decide(of_run, elements)
    assert decided is not None and decided.sizes == {2: 5, 3: 4} and decided.elements == elements
    assert shapes.decide(of_run, ((1, 5),)) is decided
    assert shapes.decide(of_run, ((1, 6),)) is None  # the relation fails
    assert shapes.decide(of_run, ((1, 0),)) is None
    assert values_of_sizes(STATING, stated(4, 5)) == {2: 5, 3: 4}
    assert DecidedShapes(SPEC).elements([*arrays((6, 4, 3), (5, 6)).values()]) == ()


def test_a_program_is_asked_whether_it_takes_an_element() -> None:
    shapes = DecidedShapes(STATING)
    assert shapes.elements_in({"k": np.array([3], np.int32), "x": 1}) == {"k": 3}
    assert shapes.elements_in({}) == {}
    assert shapes.admit({"x": (4, 4, 3)}) and shapes.admit({"k": (1,)}, {"k": 3})
    assert shapes.admit({"x": (4, 4, 3)}, {"k": 5})
    assert not shapes.admit({"x": (4, 4, 3)}, {"k": 6}) and not shapes.admit({}, {"k": 9})


def test_an_element_that_no_run_takes_is_named() -> None:
    with pytest.raises(InvalidModel, match=r"input 'k' is 9; the program is for a size k from 1"):
        values_of_sizes(STATING, stated(4, 9))
    with pytest.raises(InvalidModel, match=r"input 'k' is 7, input 'x' has 4 elements along axis"):
        values_of_sizes(STATING, stated(4, 7))
    assert stated_integer(np.zeros((2,), np.int64)) == stated_integer([3]) == -1
    for other in (np.array(None), np.array(np.nan), np.array([np.inf]), np.array("3"), None):
        assert stated_integer(other) == -1
    assert misfit(STATING, stated(4, 1, 2)) == 1


WRONG = {
    "stated by several": replace(N, element=1),
    "stated by no input": replace(N, element=9),
    "stated behind it": replace(N, element=3),
    "holds no integer": replace(N, input=1),
    "holds nothing": replace(N, input=4),
    "least above the most": replace(N, lo=9),
    "least below none": replace(N, lo=-1),
    "of no axis": replace(N, axes=()),
    "axis of another extent": replace(N, axes=((0, 1),)),
    "axis that is not there": replace(N, axes=((1, 2),)),
    "input that is not there": replace(N, axes=((9, 0),)),
    "negative input": replace(N, axes=((-4, 0),)),
    "most above the room": replace(N, hi=9),
    "an axis twice": replace(N, axes=((0, 0), (0, 0))),
}


@pytest.mark.parametrize("size", WRONG.values(), ids=WRONG)
def test_a_program_with_an_impossible_size_is_refused(size: InputSize) -> None:
    with pytest.raises(VerifyError):
        spec_of(size)


def test_an_input_holds_one_size_and_an_axis_has_one() -> None:
    with pytest.raises(VerifyError, match="input of a size '2' occurs twice"):
        spec_of(N, replace(M, input=2))
    with pytest.raises(VerifyError, match=r"axis of a size '\(0, 0\)' occurs twice"):
        spec_of(N, replace(N, input=3))


def test_a_size_is_held_behind_the_inputs_that_have_it() -> None:
    """A run takes its value from inputs that it has been given before."""
    inputs = (INPUTS[2], INPUTS[0])
    size = InputSize("n", 0, 1, 8, ((1, 0),))
    with pytest.raises(VerifyError, match="axis 0 of input 1"):
        ProgramSpec((), (), (), (), 0, 0, inputs, (), sizes=(size,))


WRONG_DIGITS = {
    "an input that holds no size": PortionDigit(16, 0, 8),
    "another greatest size": PortionDigit(16, 2, 7),
    "other iterations": PortionDigit(5, 2, 8),
    "no iterations": PortionDigit(0),
    "an input and a place": PortionDigit(16, 2, 8, BufferRef("arena", 0)),
    "a constant": PortionDigit(16, None, 8, BufferRef("constant", 0)),
    "a place behind the arena": PortionDigit(16, None, 8, BufferRef("arena", 1024)),
}


@pytest.mark.parametrize("digit", WRONG_DIGITS.values(), ids=WRONG_DIGITS)
def test_a_step_depends_on_a_size_of_the_program(digit: PortionDigit) -> None:
    with pytest.raises(VerifyError, match=r"no size|are not numbered by digits|outside"):
        spec_of(N, run=(ProgramStep("k", (), 16, portion=Portion((digit,))),))


def test_no_step_of_prepare_depends_on_a_size() -> None:
    step = ProgramStep("k", (), 16, portion=Portion((PortionDigit(16, 2, 8),)))
    with pytest.raises(VerifyError, match="in prepare depends on a size"):
        replace(SPEC, prepare=(step,))


def test_a_portion_covers_what_a_run_gives() -> None:
    """Of each digit the first values, rounded up, and all of them in the largest run."""
    part = Portion(
        (PortionDigit(3), PortionDigit(10, 2, 7), PortionDigit(2), PortionDigit(4, 3, 4))
    )
    assert part.extent == part.executed({2: 7, 3: 4}) == 240
    for n in range(1, 8):
        for m in range(1, 5):
            assert part.executed({2: n, 3: m}) == 3 * -(-10 * n // 7) * 2 * m


HALF = ComputedSize("(n + 1) // 2", 4, 1, 4, SizeFormula("quotient", (1, 1, 2)), (2,))
AREA = ComputedSize("((n + 1) // 2)·m", 5, 1, 16, SizeFormula("product"), (4, 3))


def with_computed(
    *computed: ComputedSize,
    run: tuple[ProgramStep, ...] = (),
    relations: tuple[Relation, ...] = (),
) -> ProgramSpec:
    inputs = (*INPUTS, TensorSpec("half", "int64", ()), TensorSpec("area", "int64", ()))
    return ProgramSpec(
        (("k", b""),), (), run, (), 0, 0, inputs, (), sizes=(N, M), relations=relations,
        computed=computed,
    )  # fmt: skip


def test_sizes_are_computed_from_those_of_inputs() -> None:
    spec = with_computed(HALF, AREA)
    assert spec.held == {2, 3, 4, 5}
    assert spec.input_names == ["x", "z"]
    given = arrays((6, 4, 3), (5, 6))
    assert values_of_sizes(spec, given) == {2: 6, 3: 4, 4: 3, 5: 12}


def test_a_computed_size_beyond_its_bounds_ends_the_run() -> None:
    spec = with_computed(replace(HALF, hi=3))
    assert values_of_sizes(spec, arrays((6, 4, 3), (5, 6)))[4] == 3
    with pytest.raises(VerifyError, match=r"\(n \+ 1\) // 2 is 4, has to be from 1 to 3"):
        values_of_sizes(spec, arrays((7, 4, 3), (5, 7)))


def test_a_relation_is_checked_before_sizes_are_computed() -> None:
    """Bounds of computed sizes hold where the relations do."""
    relation = SizeRelation("n", (("m", 1),), 2)
    spec = with_computed(replace(HALF, hi=3), relations=(relation,))
    assert values_of_sizes(spec, arrays((6, 4, 3), (5, 6)))[4] == 3
    with pytest.raises(InvalidModel, match=r"n = m \+ 2 has to hold, and that would be 6"):
        values_of_sizes(spec, arrays((8, 4, 3), (5, 8)))


WRONG_COMPUTED = {
    "holds no integer": (replace(HALF, input=1),),
    "input that is not there": (replace(HALF, input=6),),
    "input of another size": (replace(HALF, input=2),),
    "computed from no size": (replace(HALF, operands=(0,)),),
    "computed from itself": (replace(HALF, operands=(4,)),),
    "computed from a later one": (AREA, HALF),
    "too few numbers": (replace(HALF, formula=SizeFormula("quotient", (1, 2))),),
    "divided by nothing": (replace(HALF, formula=SizeFormula("quotient", (1, 1, 0))),),
    "more than it can be": (replace(HALF, lo=5, hi=6),),
    "less than it can be": (replace(HALF, lo=-1, hi=0),),
    "least above the most": (replace(HALF, lo=3, hi=2),),
}


@pytest.mark.parametrize("computed", WRONG_COMPUTED.values(), ids=WRONG_COMPUTED)
def test_a_program_with_an_impossible_formula_is_refused(
    computed: tuple[ComputedSize, ...],
) -> None:
    with pytest.raises(VerifyError):
        with_computed(*computed)


def test_a_step_depends_on_a_computed_size_within_its_digit() -> None:
    step = ProgramStep("k", (), 16, portion=Portion((PortionDigit(16, 4, 4),)))
    assert with_computed(HALF, run=(step,)).run == (step,)
    below = replace(HALF, lo=-1, formula=SizeFormula("quotient", (1, -4, 2)))
    with pytest.raises(VerifyError, match="no size"):
        with_computed(replace(below, hi=2), run=(step,))
    wide = replace(HALF, lo=2, hi=5, formula=SizeFormula("quotient", (1, 2, 2)))
    with pytest.raises(VerifyError, match="no size"):
        with_computed(wide, run=(step,))
