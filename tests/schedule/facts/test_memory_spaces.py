"""Memories that a user defines: what is checked before code is generated."""

import pytest

from graphflow.base.errors import ScheduleError, VerifyError
from graphflow.schedule import require_memories, set_memory
from graphflow.tir import MemorySpace, PrimFunc, parse
from support.schedule_checks import same

KERNEL = """
spad = memory(instructions=("load",), loads=True, rank=1, capacity=64, alignment=16)


@instruction
def load(to: out[buffer(i32[4], spad)], x: i32[4]):
    for i in serial(0, 4):
        to[i] = x[i]


@primfunc
def k(x: i32[16], y: out[i32[16]]):
    for b in serial(0, 4):
        t = alloc(i32[8], spad)
        load(t[4:8], x[4*b:4*b + 4])
        for j in serial(0, 4):
            y[4*b + j] = t[4 + j]
"""


def changed(*pairs: tuple[str, str]) -> PrimFunc:
    text = KERNEL
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return parse(text)


def test_what_the_memory_allows() -> None:
    (proof,) = require_memories(changed())
    assert proof.proven
    assert require_memories(parse("@primfunc\ndef k(x: i32[4], y: out[i32[4]]):\n    pass")) == ()


@pytest.mark.parametrize(
    ("pairs", "message"),
    [
        ([("loads=True, ", "")], r"access: t\[j \+ 4\] is loaded in spad, which only load may"),
        ([("y[4*b + j] =", "t[j] =")], r"access: t\[j\] is stored in spad, which only load may"),
        ([("y[4*b + j] =", "t[j] +=")], r"access: t\[j\] is stored in spad"),
        ([('"load",', "")], r"access: t\[load\.i \+ 4\] is stored in spad, which only no instr"),
        ([("rank=1", "rank=2")], "rank: t has 1 axes, and in spad it needs 2"),
        ([("capacity=64", "capacity=31")], "capacity: spad has 31 bytes, and buffers of 32 bytes"),
        ([("load(t[4:8]", "load(t[b:b + 4]")], r"alignment: the window of t starts at byte 4\*b"),
        ([("t = alloc(i32[8], spad)", "t = alloc(i32[8])")], "caller: load takes to in spad, and "),
        (
            [("to: out[buffer(i32[4], spad)]", "to: out[i32[4]]")],
            "caller: load takes to in global memory, and gets t in spad",
        ),
    ],
)
def test_what_it_does_not_allow(pairs: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(VerifyError, match=message):
        require_memories(changed(*pairs))


def test_capacity_is_of_buffers_that_exist_at_once() -> None:
    text = "\n        u = alloc(i32[8], spad)"
    nested = changed(("t = alloc(i32[8], spad)", "t = alloc(i32[8], spad)" + text))
    require_memories(nested)
    small = ("capacity=64", "capacity=63")
    with pytest.raises(VerifyError, match="buffers of 64 bytes exist at once"):
        require_memories(changed(small, ("i32[8], spad)", "i32[8], spad)" + text)))
    apart = "\n    for c in serial(0, 4):\n        u = alloc(i32[8], spad)"
    require_memories(changed(small, ("t[4 + j]", "t[4 + j]" + apart)))


def test_set_memory_to_a_memory_of_the_user() -> None:
    func = parse("@primfunc\ndef k(x: i32[16], y: out[i32[16]]):\n    t = alloc(i32[4])\n"
                 "    t[0] = x[3]\n    y[0] = t[0]")  # fmt: skip
    spad = MemorySpace("spad", capacity=64)
    done = set_memory(func, "t", spad)
    assert "spad = memory(capacity=64)\n" in same(func, done)
    assert set_memory(done.func, "t", spad).func is done.func
    both = parse(
        "spad = memory(rank=1)\n@primfunc\ndef k(x: i32[16], y: out[i32[16]]):\n"
        "    u = alloc(i32[4], spad)\n    t = alloc(i32[4])"
    )
    with pytest.raises(ScheduleError, match="memory: k has another memory called spad"):
        set_memory(both, "t", spad)
