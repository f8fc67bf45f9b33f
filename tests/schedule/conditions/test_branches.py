"""Row B3 of the RFC: conditions that are equal or complementary, and facts of assumptions."""

from graphflow.schedule import Rewrite, merge_conditions, replace_known_loads
from support.schedule_checks import kernel, same

TWO = "x: i32[16], y: out[i32[16]], z: out[i32[16]]"


def merged(text: str, params: str = TWO) -> str:
    func = kernel(text, params)
    return body(same(func, merge_conditions(func)))


def known(text: str, params: str = TWO) -> str:
    func = kernel(text, params)
    done: Rewrite = replace_known_loads(func)
    return body(same(func, done))


def body(text: str) -> str:
    return "\n".join(line[4:] for line in text.splitlines()[2:])


PAIR = """for i in serial(0, 16):
    if i < 8:
        y[i] = x[0]
    else:
        y[i] = x[1]
    if {second}:
        z[i] = x[2]
    else:
        z[i] = x[3]"""
MERGED = """for i in serial(0, 16):
    if i < 8:
        y[i] = x[0]
        z[i] = x[{then}]
    else:
        y[i] = x[1]
        z[i] = x[{orelse}]"""


def test_b3_equal_conditions_however_they_are_written() -> None:
    assert merged(PAIR.format(second="i // 8 == 0")) == MERGED.format(then=2, orelse=3)


def test_b3_complementary_conditions_keep_the_first_form() -> None:
    assert merged(PAIR.format(second="i // 8 == 1")) == MERGED.format(then=3, orelse=2)
    text = """for i in serial(0, 4):
    for j in serial(0, 4):
        if 4*i + j < 14:
            y[4*i + j] = x[0]
        else:
            y[4*i + j] = x[1]
        if i == 3 and j >= 2:
            z[4*i + j] = x[2]
        else:
            z[4*i + j] = x[3]"""
    got = merged(text)
    assert got.count("if ") == 1
    assert "if 4*i + j < 14:" in got
    assert got.index("x[0]") < got.index("x[3]") < got.index("x[1]") < got.index("x[2]")


def test_b3_conditions_that_differ_at_one_point_stay() -> None:
    for second in ("i < 9", "i > 8"):
        assert merged(PAIR.format(second=second)) == PAIR.format(
            second="i >= 9" if second == "i > 8" else second
        )


def test_b3_equal_branches() -> None:
    text = """for i in serial(0, 16):
    if i < 8:
        y[i] = x[i]
    else:
        y[i] = x[{other}]
    z[i] = x[0]"""
    assert merged(text.format(other="8 + i % 8")).splitlines()[1] == "    y[i] = x[i]"
    assert "if i < 8" in merged(text.format(other="i % 7"))
    data = "if data(x[0] < i32(0)):\n    y[0] = x[1]\nelse:\n    y[0] = x[1]"
    assert merged(data, "x: i32[16], y: out[i32[1]]") == "y[0] = x[1]"


DATA = """for i in serial(0, 16):
    y[i] = x[i]
    z[i] = x[i]
    if data({buffer}[i] < i32(0)):
        y[i] = {buffer}[i] + i32(1)
    if data({buffer}[i] < i32(0)):
        y[i] = i32(0)"""


def test_b3_never_across_data_written_between() -> None:
    assert merged(DATA.format(buffer="y")) == DATA.format(buffer="y")
    assert merged(DATA.format(buffer="x")).count("if ") == 1


def test_b3_a_constant_that_was_stored_until_it_is_overwritten() -> None:
    text = """t = alloc(i32[1])
t[0] = i32(0)
if data(x[0] == t[0]):
    for i in serial(0, 16):
        t[0] = t[0] + x[i]
        y[i] = t[0]
        z[i] = x[i]
else:
    for j in serial(0, 16):
        y[j] = x[j]
        z[j] = x[j]"""
    assert known(text) == text.replace("x[0] == t[0]", "x[0] == i32(0)")


def test_b3_a_constant_that_is_assumed() -> None:
    text = """assume(unless(False), x[0] == i32(-9))
for i in serial(0, 16):
    y[i] = x[0] + x[i]
    z[i] = x[i]"""
    assert known(text) == text.replace("y[i] = x[0]", "y[i] = i32(-9)")
