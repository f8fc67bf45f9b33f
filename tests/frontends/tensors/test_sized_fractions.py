"""Tests of sizes as floats: what a float holds exactly is a size once it is rounded."""

import pytest

from graphflow.base.errors import ExtentsLost
from graphflow.base.sizes import Size
from graphflow.frontends.importer import import_checked
from support.models.sized_runs import parsed_model


def extent(body: str, most: int = 6) -> tuple[str, int]:
    """The size that counts y, which `body` makes of the vector of x, as text, and its room."""
    model = parsed_model(f"g (float[n] x) => (float y) {{ s=Shape(x) {body} }}")
    graph = import_checked(model, {"x": (most,)}, None, (), False, {}, (Size("n", 1, most),))
    tensor = graph.counted[graph.values["y"]][0]
    return graph.producer(tensor).op if graph.producer(tensor) else "input", graph.values[
        "y"
    ].shape[0]


SCALED = "f=Cast<to=1>(s) h=Constant<value=float {BY}>() m=OP(f,h) "


@pytest.mark.parametrize(
    ("op", "by", "rounding", "room"),
    [
        ("Mul", 0.5, "d=Floor(m)", 3),
        ("Mul", 0.75, "d=Ceil(m)", 5),
        ("Mul", 2.0, "d=Identity(m)", 12),
        ("Div", 4.0, "d=Floor(m)", 1),
        ("Div", 0.5, "d=Ceil(m)", 12),
    ],
)
def test_rounded_quotients_are_sizes(op: str, by: float, rounding: str, room: int) -> None:
    scaled = SCALED.replace("OP", op).replace("BY", str(by))
    body = f"{scaled} {rounding} i=Cast<to=7>(d) y=ConstantOfShape(i)"
    assert extent(body)[1] == room


def test_a_cast_rounds_down() -> None:
    scaled = SCALED.replace("OP", "Mul").replace("BY", "0.5")
    assert extent(scaled + "i=Cast<to=7>(m) y=ConstantOfShape(i)") == ("input", 3)


@pytest.mark.parametrize(
    "body",
    [
        SCALED.replace("OP", "Mul").replace("BY", "0.1") + "d=Floor(m)",
        SCALED.replace("OP", "Div").replace("BY", "3") + "d=Floor(m)",
        SCALED.replace("OP", "Mul").replace("BY", "0.5") + "d=Add(m,h)",
        SCALED.replace("OP", "Mul").replace("BY", "-1") + "d=Floor(m)",
        SCALED.replace("OP", "Mul").replace("BY", "0.5") + "d=Round(m)",
    ],
)
def test_what_floats_may_round_is_refused(body: str) -> None:
    with pytest.raises(ExtentsLost, match="is computed from n"):
        extent(f"{body} i=Cast<to=7>(d) y=ConstantOfShape(i)")


def test_casts_that_change_numbers_are_refused() -> None:
    """2,049 is no float16, and 300 no int8."""
    body = "f=Cast<to=TO>(s) i=Cast<to=7>(f) y=ConstantOfShape(i)"
    assert extent(body.replace("TO", "10"), 2048)[1] == 2048
    for kind, most in ((10, 2049), (3, 300), (1, (1 << 24) + 1)):
        with pytest.raises(ExtentsLost, match="is computed from n"):
            extent(body.replace("TO", str(kind)), most)
