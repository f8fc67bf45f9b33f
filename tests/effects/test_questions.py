"""Questions about effects where the answer is known, with the witnesses of refusals."""

import pytest

from graphflow.arith import TRUE, Var, Verdict, at_most, less_than
from graphflow.effects import (
    is_first_to_touch,
    never_read,
    never_touched,
    overwritten_unread,
    unread_outside,
    written_before_read,
)
from graphflow.tir import Buffer, PrimFunc, buffers_of, parse, to_text

AT = 0, False


def kernel(body: str) -> PrimFunc:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return parse(f"@primfunc\ndef kernel(x: f32[16], y: out[f32[16]]):\n{lines}\n")


OVERWRITTEN = """for i in serial(0, 16):
    y[i] = f32(0.0)
for j in serial(0, {}):
    y[j] = x[j]"""


def test_a_store_that_is_overwritten_is_unread() -> None:
    assert overwritten_unread(kernel(OVERWRITTEN.format(16)), (AT,)).proven


PADDED = """for i in serial(0, 4):
    for j in serial(0, 4):
        y[4*i + j] = x[4*i + j]
for k in serial(0, 16):
    if k >= {low}:
        y[k] = {value}"""
"""The path of the store under `j` is ((0, False), (0, False), (0, False))."""


@pytest.mark.parametrize(
    ("low", "value", "method"),
    [
        ("0", "f32(0.0)", "structure"),
        ("0", "undef(f32)", "structure"),
        ("1", "f32(0.0)", "dataflow"),
    ],
)
def test_elements_that_a_later_store_writes_are_unread_without_dataflow(
    low: str, value: str, method: str
) -> None:
    func = kernel(PADDED.format(low=low, value=value))
    proof = overwritten_unread(func, (AT, AT, AT))
    assert proof.method == method
    assert proof.proven == (method == "structure")


@pytest.mark.parametrize(
    ("later", "verdict"),
    [
        ("for k in serial(0, 16):\n    y[k] = y[k] + f32(1.0)", "refuted"),
        ("for k in serial(0, 16):\n    y[-k + 15] = f32(1.0)", "proven"),
        ("\n".join(f"y[{n}] = x[{n}]" for n in range(15)), "refuted"),
        ("for k in serial(0, 16):\n    y[k] += f32(1.0)", "refuted"),
        ("for k in serial(0, 16):\n    if data(x[k] < f32(0.0)):\n        y[k] = x[k]", "unknown"),
        (
            "for k in serial(0, 4):\n    for l in serial(0, k):\n        y[4*k + l] = x[k]",
            "refuted",
        ),
    ],
)
def test_what_a_later_store_leaves_or_reads_is_seen(later: str, verdict: str) -> None:
    first = "for i in serial(0, 4):\n    for j in serial(0, 4):\n        y[4*i + j] = x[4*i + j]\n"
    proof = overwritten_unread(kernel(first + later), (AT, AT, AT))
    assert proof.verdict is Verdict(verdict)


@pytest.mark.parametrize(("first", "proven"), [(3, True), (4, False)])
def test_one_element_that_a_later_store_writes(first: int, proven: bool) -> None:
    """A constant index is that of each instance of the later store."""
    proof = overwritten_unread(kernel(f"y[{first}] = x[0]\ny[3] = x[1]"), (AT,))
    assert proof.proven == proven
    assert proof.method == ("structure" if proven else "dataflow")


def test_an_earlier_store_and_one_of_the_same_loop_overwrite_nothing() -> None:
    stores = "for k in serial(0, 16):\n    y[k] = f32(0.0)\n"
    body = f"{stores}for i in serial(0, 16):\n    y[i] = x[i]"
    assert overwritten_unread(kernel(body), ((1, False), AT)).verdict is Verdict.REFUTED
    body = "for i in serial(0, 2):\n    y[i] = x[i]\n" + "".join(
        f"    {line}\n" for line in stores.splitlines()
    )
    assert overwritten_unread(kernel(body), (AT, AT)).proven
    body = "for i in serial(0, 2):\n    for k in serial(0, i):\n        y[k] = f32(0.0)\n"
    assert overwritten_unread(kernel(f"{body}    y[i] = x[i]"), (AT, (1, False))).verdict is (
        Verdict.REFUTED
    )


def test_the_element_that_is_not_overwritten_is_the_witness() -> None:
    proof = overwritten_unread(kernel(OVERWRITTEN.format(15)), (AT,))
    assert proof.verdict is Verdict.REFUTED
    assert proof.witness == (("i", 15), ("y.0", 15))
    assert "y[i] at i=15 is left in the output" in proof.reason


@pytest.mark.parametrize(
    ("condition", "verdict"),
    [("j % 2 == 0 or j % 2 == 1", "proven"), ("data(x[j] < f32(0.0))", "unknown")],
)
def test_a_store_under_a_condition_on_data_overwrites_nothing(condition: str, verdict: str) -> None:
    body = OVERWRITTEN.format(16).replace("    y[j]", f"    if {condition}:\n        y[j]")
    assert overwritten_unread(kernel(body), (AT,)).verdict is Verdict(verdict)


def test_an_assumption_reads() -> None:
    body = OVERWRITTEN.format(16).replace(
        "for j", "for k in serial(0, 4):\n    assume(unless(False), y[k] == f32(0.0))\nfor j"
    )
    assert overwritten_unread(kernel(body), (AT,)).verdict is Verdict.REFUTED


def test_rows_that_a_modulo_leaves_out_stay_visible() -> None:
    """Here `compute_flow` of isl 0.27 finds that the store of odd elements is overwritten."""
    func = parse("""
@primfunc
def kernel(y: out[f32[4, 2]]):
    for i in serial(0, 3):
        y[(i + 3) % 4, (i + 1) % 2] = f32(2.0)
    for j in serial(1, 3):
        y[2*((-min(4, j)) % 2), 1] = f32(3.0)
""")
    assert overwritten_unread(func, (AT,)).verdict is Verdict.REFUTED


STAGED = """t = alloc(f32[16])
for i in serial(0, 8):
    t[i] = x[i]
    y[i] = t[i]
"""


def test_what_a_loop_writes_and_nothing_outside_of_it_reads() -> None:
    func = kernel(STAGED)
    loop, t, y = ((1, False),), buffer_of(func, "t"), func.param("y")
    assert unread_outside(func, loop, t).proven
    assert unread_outside(func, loop, y).verdict is Verdict.REFUTED, "an output outlives the loop"
    later = kernel(STAGED + "y[8] = t[7]")
    refuted = unread_outside(later, loop, t)
    assert refuted.verdict is Verdict.REFUTED and refuted.witness == (("i", 7),)
    assert unread_outside(kernel(STAGED + "y[8] = t[8]"), loop, t).proven
    between = kernel(STAGED + "t[7] = x[0]\ny[8] = t[7]")
    assert unread_outside(between, loop, t).proven, "its value is overwritten before it is read"
    decided = kernel(STAGED + "if data(x[0] < f32(0.0)):\n    t[7] = x[0]\ny[8] = t[7]")
    assert not unread_outside(decided, loop, t).proven


def test_a_buffer_that_nothing_reads() -> None:
    func = kernel("t = alloc(f32[16])\nfor i in serial(0, 8):\n    t[i] = x[i]\n    t[i] += x[i]")
    assert never_read(func, buffer_of(func, "t")).proven
    refuted = never_read(func, func.param("x"))
    assert refuted.verdict is Verdict.REFUTED and refuted.witness == (("i", 0),)
    dead = kernel("for i in serial(0, 0):\n    y[i] = x[i]")
    assert "never runs" in never_read(dead, dead.param("x")).reason


@pytest.mark.parametrize(
    ("store", "proven"),
    [
        ("t[i] = x[i]", True),
        ("t[(i + 1) % 8] = x[i]", False),
        ("if i >= 1:\n     t[i] = x[i]", False),
    ],
)
def test_a_buffer_of_each_iteration_is_written_before_it_is_read(store: str, proven: bool) -> None:
    func = kernel(f"for i in serial(0, 8):\n    t = alloc(f32[16])\n    {store}\n    y[i] = t[i]")
    assert written_before_read(func, buffer_of(func, "t")).proven is proven


def test_the_dataflow_decides_where_another_loop_stored() -> None:
    func = kernel(
        "t = alloc(f32[16])\nfor i in serial(0, 8):\n    if i == 0:\n        t[0] = x[0]\n"
        "    y[i] = t[0]"
    )
    assert written_before_read(func, buffer_of(func, "t")).proven


def buffer_of(func: PrimFunc, name: str) -> Buffer:
    return next(buffer for buffer in buffers_of(func) if buffer.name == name)


def test_a_region_that_nothing_touches() -> None:
    func = kernel("for i in serial(0, 7):\n    y[2*i] = x[i]")
    i = Var("i")
    x, y = func.param("x"), func.param("y")
    assert never_touched(func, x, (i,), at_most(7, i)).proven
    refuted = never_touched(func, x, (i,), at_most(6, i))
    assert refuted.verdict is Verdict.REFUTED and refuted.witness[0] == ("i", 6)
    assert never_touched(func, y, (i,), less_than(12, i)).proven
    assert never_touched(func, y, (i,), TRUE).verdict is Verdict.REFUTED


def test_too_many_accesses_are_unknown() -> None:
    stores = (f"if data(x[{n % 16}] < f32(0.0)):\n    y[{n % 16}] = x[{n % 16}]" for n in range(69))
    body = "\n".join(("y[0] = x[0]", *stores))
    proof = overwritten_unread(kernel(body), (AT,))
    assert proof.verdict is Verdict.UNKNOWN and "70 accesses" in proof.reason


def test_a_store_behind_the_load_overwrites_in_an_earlier_iteration() -> None:
    """The load at i=1 does not see the first store, because that at i=0 came in between."""
    func = parse(
        """
        @primfunc
        def k(x: i64[4], y: out[i64[4]]):
            t = alloc(i64[2])
            t[0] = i64(0)
            for i in serial(0, 3):
                y[i] = i64(1)
                t[0] = t[(i + 1) % 2]
            y[3] = x[0]
        """
    )
    assert overwritten_unread(func, ((1, False),)).proven
    again = parse(to_text(func).replace("t[(i + 1) % 2]", "t[i % 2]"))
    assert overwritten_unread(again, ((1, False),)).verdict is Verdict.REFUTED


# Reads of what only some lanes write, and stores of only some lanes ---------------------------

TAIL = """for t in serial(0, 4):
    r = alloc(f32[2, 4], register)
    for i in serial(0, 2):
        for j in serial(0, 4):
            if 4*t + j < {bound}:
                r[i, j] = x[j]
            else:
                r[i, j] = f32(0.0)
    for k in serial(0, 2):
        for l in serial(0, 4):
            y[4*t + l] = r[k, l]"""
ELSE = (AT, (1, False), AT, (0, True), AT)
"""The path of the store of zero, up to where the allocation is counted."""


def test_a_reader_of_the_last_lanes_is_found_without_dataflow() -> None:
    """The variables of the write are those of the read, which the condition leaves one value."""
    proof = overwritten_unread(kernel(TAIL.format(bound=15)), ELSE)
    assert (proof.verdict, proof.method) == (Verdict.REFUTED, "structure")
    assert dict(proof.witness)["t"] == dict(proof.witness)["j"] == dict(proof.witness)["l'"] == 3


def test_the_other_branch_stores_to_other_elements() -> None:
    func = kernel(TAIL.format(bound=15))
    assert is_first_to_touch(func, ELSE)
    again = TAIL.format(bound=15).replace("            else:\n    ", "            if j >= 2:\n    ")
    assert not is_first_to_touch(kernel(again), (AT, (1, False), AT, (1, False), AT))
