"""Numbers of values: sums of integers in any order, floats as written, and which values differ."""

from random import Random

from graphflow.effects.value_numbers import ValueNumbers
from graphflow.tir import Buffer, Literal

X = Buffer("x", (4,), "int8")
F = Buffer("f", (4,), "float32")


def test_sums_of_integers_have_one_number_in_any_order() -> None:
    numbers = ValueNumbers()
    x, y = (numbers.initial(X, (n,)) for n in range(2))
    one = numbers.literal(Literal(1, "int8"))
    left = numbers.applied("add", "int8", (numbers.applied("add", "int8", (x, one)), y))
    right = numbers.applied("add", "int8", (y, numbers.applied("add", "int8", (one, x))))
    assert left == right
    assert numbers.applied("sub", "int8", (left, numbers.applied("add", "int8", (y, one)))) == x


def test_sums_wrap_around() -> None:
    numbers = ValueNumbers()
    x = numbers.initial(X, (0,))
    half = numbers.applied("mul", "int8", (x, numbers.literal(Literal(-128, "int8"))))
    assert numbers.differ("int8", half, numbers.literal(Literal(0, "int8")), free=True)
    whole = numbers.applied("add", "int8", (half, half))
    assert whole == numbers.literal(Literal(0, "int8"))


def test_products_commute_and_sums_of_floats_stay_as_written() -> None:
    numbers = ValueNumbers()
    x, y = (numbers.initial(X, (n,)) for n in range(2))
    product = numbers.applied("mul", "int8", (x, y))
    assert product == numbers.applied("mul", "int8", (y, x))
    a, b, c = (numbers.initial(F, (n,)) for n in range(3))
    left = numbers.applied("add", "float32", (numbers.applied("add", "float32", (a, b)), c))
    right = numbers.applied("add", "float32", (a, numbers.applied("add", "float32", (b, c))))
    assert left != right
    assert not numbers.differ("float32", left, right, free=True)


def test_an_element_differs_from_what_does_not_depend_on_it() -> None:
    numbers = ValueNumbers()
    x, y = (numbers.initial(X, (n,)) for n in range(2))
    larger = numbers.applied("max", "int8", (x, y))
    other = numbers.initial(X, (2,))
    assert numbers.differ("int8", larger, other, free=True)
    assert not numbers.differ("int8", larger, x, free=True)  # the maximum may be x everywhere
    assert not numbers.differ("int8", larger, other, free=False)
    assert numbers.differ(
        "float32",
        numbers.literal(Literal(0.0, "float32")),
        numbers.literal(Literal(-0.0, "float32")),
        free=False,
    )


def test_random_sums_agree_with_numbers() -> None:
    """Values with one number are equal for random contents; certain differences have some."""
    random = Random(0)
    for _ in range(200):
        numbers = ValueNumbers()
        contents = [[random.randrange(256) for _ in range(3)] for _ in range(30)]
        values = [(numbers.initial(X, (n,)), [c[n] for c in contents]) for n in range(3)]
        constant = random.randrange(-3, 4)
        values.append((numbers.literal(Literal(constant, "int8")), [constant % 256] * 30))
        for _ in range(8):
            op = random.choice(["add", "sub", "mul", "neg"])
            (a, left), (b, right) = random.choice(values), random.choice(values)
            operands = (a,) if op == "neg" else (a, b)
            sums = [
                {"add": i + j, "sub": i - j, "mul": i * j, "neg": -i}[op] % 256
                for i, j in zip(left, right, strict=True)
            ]
            values.append((numbers.applied(op, "int8", operands), sums))
        for one, left in values:
            for other, right in values:
                assert one != other or left == right
                assert not numbers.differ("int8", one, other, free=True) or one != other
